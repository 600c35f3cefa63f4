"""The road to a node: connections that start a command and carry its bytes."""
