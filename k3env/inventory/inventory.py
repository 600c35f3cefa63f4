"""Inventory: the hosts and groups that exist for a command, as a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from k3env.documents.nodes import Node
from k3env.errors import InventoryError
from k3env.inventory import sources, variables
from k3env.inventory.hosts import Address, Host, address
from k3env.inventory.patterns import Chosen, choose
from k3env.inventory.terms import Names
from k3env.inventory.tree import ALL, UNGROUPED, Tree
from k3env.protocol.finding import WARN, Finding


@dataclass(frozen=True)
class Inventory:
    """Hosts by name, and the hosts of each group with those of the groups in it."""

    hosts: Mapping[str, Host]
    groups: Mapping[str, tuple[str, ...]]
    adhoc_allowed: bool = False
    """Whether a pattern may name hosts that are not here."""
    warnings: tuple[Finding, ...] = ()
    extra: Mapping[str, Node] = field(default_factory=dict)
    """The values of --extra-vars, which win over all others."""

    @classmethod
    def load(
        cls, paths: Sequence[Path], adhoc_allowed: bool = False, extra: Optional[Mapping[str, Node]] = None
    ) -> Inventory:
        """Read inventory files, one after the other; what a later one says wins.

        Raises DocumentError for a file that is wrong, InventoryError for files that name no host.
        """
        tree = Tree()
        warnings: list[Finding] = []
        for path in paths:
            warnings += sources.read(path, tree)
        tree.close()
        if not tree.hosts and not adhoc_allowed:
            raise InventoryError(
                "the inventory names no host",
                expected="at least one host",
                found=", ".join(map(str, paths)) or "no inventory",
                remedy="write hosts under all: and hosts:",
            )
        layers = [*(group.variables for group in tree.groups.values()), *tree.hosts.values()]
        warnings += [*variables.unread(layers), *_same_names(tree)]
        hosts = {name: _host(tree, name, extra or {}) for name in tree.hosts}
        groups = {name: tree.members(name) for name in tree.groups}
        return cls(hosts, groups, adhoc_allowed, tuple(warnings), extra or {})

    def select(self, pattern: str, limit: Optional[str] = None) -> list[Host]:
        """Return the hosts that a pattern means and a limit leaves, in the pattern's order.

        Raises InventoryError for an unknown name, and when no host is left.
        """
        names = Names(self.hosts, self.groups, self.adhoc_allowed)
        hosts = [self._chosen(chosen) for chosen in choose(pattern, names).values()]
        if limit is None:
            return hosts
        left = self.narrow(hosts, limit, "--limit")
        if not left:
            raise InventoryError(
                f"--limit {limit} leaves none of the hosts that were asked for",
                subject="--limit",
                expected="at least one of " + _some(hosts),
                found=limit,
                remedy="look at --hosts and --limit together",
            )
        return left

    def narrow(self, hosts: Sequence[Host], pattern: str, source: str) -> list[Host]:
        """Return those of some hosts that a pattern means, perhaps none; `source` is its name in messages.

        Raises InventoryError for an unknown name, and for a pattern that means no host at all.
        """
        known = {**self.hosts, **{host.name: host for host in hosts}}
        adhoc = tuple(host.name for host in hosts if host.name not in self.hosts)
        groups = {**self.groups, **{name: (*self.groups.get(name, ()), *adhoc) for name in (ALL, UNGROUPED)}}
        wanted = choose(pattern, Names(known, groups), source)
        return [host for host in hosts if host.name in wanted]

    def with_defaults(self, name: str, defaults: Mapping[str, Node], address: Optional[Address] = None) -> Inventory:
        """Return an inventory in which a host has more variables, below every other source, and another address.

        Raises KeyError for a host that is not here.
        """
        host = self.hosts[name]
        changed = dataclasses.replace(host, variables={**defaults, **host.variables}, address=address or host.address)
        return dataclasses.replace(self, hosts={**self.hosts, name: changed})

    def _chosen(self, chosen: Chosen) -> Host:
        host = self.hosts.get(chosen.name)
        if host is None:
            groups, given = (ALL, UNGROUPED), dict(self.extra)
            host = Host(chosen.name, groups, {}, address(chosen.hostname or chosen.name, given))
        way = {key: value for key, value in (("user", chosen.user), ("port", chosen.port)) if value is not None}
        if not way:
            return host
        return dataclasses.replace(host, address=dataclasses.replace(host.address, **way))  # type: ignore[arg-type]


def _host(tree: Tree, name: str, extra: Mapping[str, Node]) -> Host:
    groups = tuple(group.name for group in tree.groups_of(name))
    own = variables.inherited(tree, name)
    host = Host(name, groups, own, Address(name))
    reached = address(name, {**own, **extra, **variables.special(host)})
    return dataclasses.replace(host, address=reached)


def _some(hosts: Sequence[Host]) -> str:
    return ", ".join(host.name for host in hosts[:5]) + (", …" if len(hosts) > 5 else "")


def _same_names(tree: Tree) -> list[Finding]:
    return [
        Finding(
            id="inventory.ambiguous",
            status=WARN,
            severity="warn",
            scope="static",
            subject=name,
            message=f"{name} is the name of a host and of a group; patterns mean the group",
            remedy="rename one of them",
        )
        for name in tree.groups
        if name in tree.hosts
    ]
