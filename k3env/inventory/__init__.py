"""Inventory: who is meant by a pattern, how each host is reached, and with which variables."""

from k3env.inventory.hosts import Address, Host
from k3env.inventory.inventory import Inventory

__all__ = ["Address", "Host", "Inventory"]
