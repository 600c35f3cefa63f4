"""Bring GPU nodes into a verified state for serving Kimi K3, and say whether a node still is in it."""

__version__ = "0.1.0"
