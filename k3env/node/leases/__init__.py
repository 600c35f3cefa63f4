"""Who may change a path, and who is using it: leases, markers of servers, jobs on the node."""
