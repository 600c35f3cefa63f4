"""Kimi K3 as data: tables, with the source beside each value."""
