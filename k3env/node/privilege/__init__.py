"""Other users than the one who connected: becoming one, sending to one, and looking as root while being one."""
