"""Tree: the groups of an inventory while it is read, and what follows from them.

Hosts and children keep the order in which Ansible would hold them, for that is what subscripts count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Optional

from k3env.documents.nodes import Node, Position, problem

ALL, UNGROUPED = "all", "ungrouped"


@dataclass
class Group:
    """A group: what its file says, all of its files together."""

    name: str
    hosts: dict[str, None] = field(default_factory=dict)
    """Those that stand in the group itself."""
    children: dict[str, Position] = field(default_factory=dict)
    variables: dict[str, Node] = field(default_factory=dict)
    priority: int = 1
    depth: int = 0
    """The longest way from `all`."""


class Tree:
    """Groups and hosts in the order in which they were written; a name given again adds to what is there."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {ALL: Group(ALL), UNGROUPED: Group(UNGROUPED)}
        self.groups[ALL].children[UNGROUPED] = Position(ALL)
        self.hosts: dict[str, dict[str, Node]] = {}
        """The variables of each host itself."""
        self.sources: dict[str, str] = {}
        """The file that named each host first."""
        self._parents: dict[str, list[str]] = {}
        self._direct: dict[str, list[str]] = {}
        self._chains: dict[tuple[str, ...], tuple[Group, ...]] = {}

    def group(self, name: str) -> Group:
        """Return a group, made if it is new."""
        return self.groups.setdefault(name, Group(name))

    def add_host(self, group: str, name: str, source: str) -> bool:
        """Put a host into a group; return whether it is new."""
        new = name not in self.hosts
        self.hosts.setdefault(name, {})
        self.sources.setdefault(name, source)
        self.groups[group].hosts[name] = None
        return new

    def add_child(self, parent: str, child: str, position: Position) -> None:
        """Put a group into another.

        Raises DocumentError for a circle, and for what can stand in `all` alone.
        """
        circle = self._way(child, parent)
        if circle is not None or child == ALL:
            found = " -> ".join([parent, *(circle or [child])])
            raise problem(position, f"the group {child} can't be in {parent}", expected="no circle", found=found)
        if child == UNGROUPED and parent != ALL:
            raise problem(position, f"{child} holds the hosts without a group, and can't be in {parent}")
        self.groups[parent].children.setdefault(child, position)

    def close(self) -> None:
        """Give every group a place below `all`, and every host without a group one in `ungrouped`."""
        for name, group in self.groups.items():
            for child in group.children:
                self._parents.setdefault(child, []).append(name)
        for name in self.groups:
            if name != ALL and name not in self._parents:
                self._parents[name] = [ALL]
                self.groups[ALL].children[name] = Position(ALL)
        self._deepen()
        grouped = {host for name, group in self.groups.items() if name not in (ALL, UNGROUPED) for host in group.hosts}
        # Those that were written there come first.
        ungrouped = self.groups[UNGROUPED]
        ungrouped.hosts = {host: None for host in (*ungrouped.hosts, *self.hosts) if host not in grouped}
        for name, group in self.groups.items():
            for host in group.hosts:
                self._direct.setdefault(host, []).append(name)

    def members(self, name: str) -> tuple[str, ...]:
        """Return the hosts of a group and of the groups in it: its own first, then those of its children."""
        return tuple(dict.fromkeys(self._hosts(name)))

    def groups_of(self, host: str) -> tuple[Group, ...]:
        """Return the groups of a host in Ansible's order: each one's variables win over those before it."""
        direct = tuple(self._direct.get(host, (UNGROUPED,)))
        if direct not in self._chains:
            found, todo = {ALL}, list(direct)
            while todo:
                name = todo.pop()
                if name not in found:
                    found.add(name)
                    todo += self._parents.get(name, [])
            self._chains[direct] = tuple(
                sorted(
                    (self.groups[name] for name in found), key=lambda group: (group.depth, group.priority, group.name)
                )
            )
        return self._chains[direct]

    def _way(self, start: str, end: str) -> Optional[list[str]]:
        """Return the groups on a way down from one group to another, or None."""
        came_from: dict[str, Optional[str]] = {start: None}
        todo = [start]
        while todo:
            name = todo.pop()
            if name == end:
                way: list[str] = []
                step: Optional[str] = end
                while step is not None:
                    way.append(step)
                    step = came_from[step]
                return way[::-1]
            for child in self.groups[name].children if name in self.groups else ():
                if child not in came_from:
                    came_from[child] = name
                    todo.append(child)
        return None

    def _deepen(self) -> None:
        """Compute depths, parents before children; there are no circles."""
        waiting = {name: len(parents) for name, parents in self._parents.items()}
        todo = [ALL]
        while todo:
            group = self.groups[todo.pop()]
            for child in group.children:
                self.groups[child].depth = max(self.groups[child].depth, group.depth + 1)
                waiting[child] -= 1
                if not waiting[child]:
                    todo.append(child)

    def _hosts(self, name: str) -> Iterator[str]:
        seen, todo = {name}, [name]
        for group_name in todo:
            group = self.groups[group_name]
            yield from group.hosts
            fresh = [child for child in group.children if child not in seen]
            seen.update(fresh)
            todo += fresh
