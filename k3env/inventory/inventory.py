"""Inventory: the hosts and groups that exist for a command, as a value."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Optional

from k3env.documents.nodes import Node
from k3env.errors import InventoryError
from k3env.inventory import slurm, sources, variables
from k3env.inventory.hosts import Address, Host, address
from k3env.inventory.layers import Layers
from k3env.inventory.patterns import Chosen, choose
from k3env.inventory.terms import Names, is_nameable, no_runs
from k3env.inventory.tree import ALL, UNGROUPED, Tree
from k3env.protocol.finding import WARN, Finding
from k3env.protocol.folding import fold


@dataclass(frozen=True)
class Branch:
    """What stands in a group itself."""

    hosts: tuple[str, ...]
    children: tuple[str, ...]
    variables: Mapping[str, Node]
    priority: int = 1


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
    common: Mapping[str, Node] = field(default_factory=dict)
    """The variables of a host that is not here: those of `all` and `ungrouped`."""
    branches: Mapping[str, Branch] = field(default_factory=dict)
    earlier: Callable[[str], Sequence[str]] = no_runs
    """The hosts that `run:RUN` means in a pattern; whoever has records of runs says."""

    @classmethod
    def load(
        cls,
        paths: Sequence[Path],
        adhoc_allowed: bool = False,
        extra: Optional[Mapping[str, Node]] = None,
        playbook_dir: Optional[Path] = None,
    ) -> Inventory:
        """Read inventories, one after the other; what a later one says wins.

        `playbook_dir` is where a playbook's group_vars and host_vars lie.

        Raises DocumentError for a file that is wrong, InventoryError for a program that is, and for files that name
        no host.
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
        layers = Layers(tree, paths, playbook_dir)
        hosts = {name: _host(tree, name, layers.of_host(name), extra or {}) for name in tree.hosts}
        branches = {
            name: Branch(tuple(group.hosts), tuple(group.children), layers.of_group(name), group.priority)
            for name, group in tree.groups.items()
        }
        common = layers.common()
        warnings += [*layers.warnings, *variables.unread(layers.all()), *_odd_names(tree)]
        groups = {name: tree.members(name) for name in tree.groups}
        told = tuple(dict.fromkeys(warnings))
        return cls(hosts, groups, adhoc_allowed, told, extra or {}, common, branches)

    def select(self, pattern: str, limit: Optional[str] = None) -> list[Host]:
        """Return the hosts that a pattern means and a limit leaves, in the pattern's order.

        Raises InventoryError for an unknown name, and when no host is left.
        """
        names = Names(self.hosts, self.groups, self.adhoc_allowed, self.earlier)
        return self._limited([self._chosen(chosen) for chosen in choose(pattern, names).values()], limit)

    def select_allocated(self, nodelist: str, limit: Optional[str] = None) -> list[Host]:
        """Return the hosts of a Slurm job's node list that a limit leaves.

        Raises InventoryError as select does, and for hosts that the inventory does not know.
        """
        allocated = slurm.expanded(nodelist, slurm.NODELIST)
        unknown = [name for name in allocated if name not in self.hosts]
        if unknown and not self.adhoc_allowed:
            raise InventoryError(
                f"the inventory does not know {len(unknown)} of the {len(allocated)} hosts of this job",
                subject=slurm.NODELIST,
                expected="all hosts of the job in the inventory",
                found=fold(unknown)[:200],
                remedy="add them to the inventory, or name the hosts: --hosts",
            )
        return self._limited([self._chosen(Chosen(name)) for name in allocated], limit)

    def _limited(self, hosts: list[Host], limit: Optional[str]) -> list[Host]:
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
        wanted = choose(pattern, Names(known, groups, earlier=self.earlier), source)
        return [host for host in hosts if host.name in wanted]

    def _chosen(self, chosen: Chosen) -> Host:
        host = self.hosts.get(chosen.name)
        if host is None:
            host = Host(chosen.name, (ALL, UNGROUPED), self.common, Address(chosen.name))
            given = {**self.common, **self.extra, **variables.special(host)}
            host = dataclasses.replace(host, address=address(chosen.hostname or chosen.name, given))
        user, port = chosen.user or host.address.user, chosen.port or host.address.port
        return dataclasses.replace(host, address=dataclasses.replace(host.address, user=user, port=port))


def _host(tree: Tree, name: str, own: Mapping[str, Node], extra: Mapping[str, Node]) -> Host:
    groups = tuple(group.name for group in tree.groups_of(name))
    host = Host(name, groups, own, Address(name), tree.sources[name])
    reached = address(name, {**own, **extra, **variables.special(host)})
    return dataclasses.replace(host, address=reached)


def _some(hosts: Sequence[Host]) -> str:
    return ", ".join(host.name for host in hosts[:5]) + (", …" if len(hosts) > 5 else "")


def _odd_names(tree: Tree) -> list[Finding]:
    both = "is the name of a host and of a group; patterns mean the group, and Ansible gives it the host's variables"
    found = [_odd(name, both) for name in tree.groups if name in tree.hosts]
    unnameable = "is a group that no pattern can name; a glob or ~REGEX can"
    return found + [_odd(name, unnameable) for name in tree.groups if not is_nameable(name)]


def _odd(name: str, message: str) -> Finding:
    return Finding(
        id="inventory.ambiguous",
        status=WARN,
        severity="warn",
        scope="static",
        subject=name,
        message=f"{name} {message}",
        remedy="rename it",
    )
