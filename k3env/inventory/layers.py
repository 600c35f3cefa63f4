"""Layers: the variables of a host from all groups and files, in Ansible's order.

From the weakest: `all` and the other groups as the inventory's files have them; group_vars/all beside the inventories,
then beside the playbook; the other groups' group_vars beside the inventories, then beside the playbook; the host as the
inventory has it; host_vars beside the inventories, then beside the playbook. Groups go by depth, priority and name. Of
several inventories the later is stronger, before any group's depth is asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Optional

from k3env.documents.nodes import Node
from k3env.inventory.tree import ALL, Tree
from k3env.inventory.varsfiles import GROUPS, HOSTS, VarsDirectory
from k3env.protocol.finding import Finding


class Layers:
    """All sources of variables below those of a play."""

    def __init__(self, tree: Tree, paths: Sequence[Path], playbook_dir: Optional[Path]) -> None:
        self._tree = tree
        bases = [path if path.is_dir() else path.parent for path in paths]
        made = {base: VarsDirectory(base) for base in bases}
        self._directories = list(made.values())
        # A base can stand here twice: then its second turn is the one that counts.
        self._beside = [made[base] for base in bases]
        self._beside_play: list[VarsDirectory] = []
        if playbook_dir is not None:
            self._beside_play.append(VarsDirectory(playbook_dir))
            self._directories += self._beside_play
        self._merged: dict[tuple[str, ...], Mapping[str, Node]] = {}

    @property
    def warnings(self) -> Iterator[Finding]:
        """What is odd about the files that were read."""
        return (warning for directory in self._directories for warning in directory.warnings)

    def all(self) -> Iterator[Mapping[str, Node]]:
        """Return each source's variables by themselves, as far as they were asked for."""
        yield from (group.variables for group in self._tree.groups.values())
        yield from self._tree.hosts.values()
        yield from (found for directory in self._directories for found in directory.read.values())

    def of_host(self, host: str) -> dict[str, Node]:
        """Return a host's variables.

        Raises DocumentError for a vars file that is wrong.
        """
        return {
            **self._of_groups(host),
            **self._tree.hosts[host],
            **_files(self._beside, HOSTS, [host]),
            **_files(self._beside_play, HOSTS, [host]),
        }

    def of_group(self, group: str) -> dict[str, Node]:
        """Return the variables of a group itself, without those of the groups around it."""
        return {
            **self._tree.groups[group].variables,
            **_files(self._beside, GROUPS, [group]),
            **_files(self._beside_play, GROUPS, [group]),
        }

    def common(self) -> Mapping[str, Node]:
        """Return the variables of a host that is in no group."""
        return self._of_groups("")

    def _of_groups(self, host: str) -> Mapping[str, Node]:
        """Return what hosts of the same groups have in common."""
        names = tuple(group.name for group in self._tree.groups_of(host) if group.name != ALL)
        if names not in self._merged:
            merged = dict(self._tree.groups[ALL].variables)
            for name in names:
                merged.update(self._tree.groups[name].variables)
            for chosen in ([ALL], names):
                merged.update(_files(self._beside, GROUPS, chosen))
                merged.update(_files(self._beside_play, GROUPS, chosen))
            self._merged[names] = merged
        return self._merged[names]


def _files(directories: Sequence[VarsDirectory], kind: str, names: Sequence[str]) -> dict[str, Node]:
    """Merge directory by directory, in each of them name by name."""
    merged: dict[str, Node] = {}
    for directory in directories:
        for name in names:
            merged.update(directory.variables(kind, name))
    return merged
