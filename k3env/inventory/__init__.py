"""Inventory: who is meant by a pattern, how each host is reached, and with which variables.

Inventories mean what they mean to Ansible; the tests hold each other's output side by side. Where they could not, this
refuses or warns, and never differs in silence: keys given twice, unknown keys, ranges without hosts, a host with two
ports, vault, INI and plugins are refused; an empty mapping in a program's JSON, a host named like a group, files and
variables that are not read are warned about. Beyond Ansible: node sets in Slurm's notation (`gb[01-04]`) and numbers as
host names; dates stay text; keys are text as they are written.
"""

from k3env.inventory.hosts import Address, Host
from k3env.inventory.inventory import Inventory

__all__ = ["Address", "Host", "Inventory"]
