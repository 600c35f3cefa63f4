"""What runs on a node: facts read, checks judge, modules change."""
