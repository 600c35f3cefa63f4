"""Shown: an inventory in the shape that ansible-inventory prints, so that either can stand for the other."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from k3env.documents.nodes import Literal, Node, Vaulted
from k3env.errors import InventoryError, nearest
from k3env.inventory.inventory import Inventory
from k3env.inventory.tree import ALL

PROFILE = "inventory_legacy"
"""How the values are written, in the words of ansible-core 2.19 and later, which reads it."""
MAX_BYTES = 64 << 20
"""Of a graph, in which a group with two parents stands twice, and one in it four times."""

# What Ansible sets itself and doesn't show; a value of these names in a file is not shown either.
_INTERNAL = frozenset(
    [
        *("groups", "group_names", "hostvars", "playbook_dir", "play_hosts"),
        *("inventory_dir", "inventory_file", "inventory_hostname", "inventory_hostname_short"),
        *("role_name", "role_names", "role_path", "role_uuid"),
        *(
            f"ansible_{name}"
            for name in (
                *("async_path", "collection_name", "config_file", "dependent_role_names", "diff_mode", "facts"),
                *("forks", "inventory_sources", "limit", "play_batch", "play_hosts", "play_hosts_all"),
                *("play_role_names", "playbook_python", "role_name", "role_names", "run_tags", "skip_tags"),
                *("verbosity", "version"),
            )
        ),
    ]
)


def listing(inventory: Inventory, hosts: Collection[str]) -> dict[str, Any]:
    """Return what `--list` prints, with those hosts alone; groups without anything are left out."""
    shown: dict[str, Any] = {}
    wanted = set(hosts)
    for name, branch in inventory.branches.items():
        own = [host for host in branch.hosts if host in wanted] if name != ALL else []
        parts = {"hosts": own, "children": list(branch.children)}
        if any(parts.values()):
            shown[name] = {key: value for key, value in parts.items() if value}
    variables = {host: of_host(inventory, host) for host in hosts}
    shown["_meta"] = {"hostvars": {host: given for host, given in variables.items() if given}, "profile": PROFILE}
    return shown


def of_host(inventory: Inventory, host: str) -> dict[str, Any]:
    """Return a host's variables as `--host` prints them, their templates as they were written.

    Raises InventoryError for an unknown host.
    """
    if host not in inventory.hosts:
        meant = nearest(host, list(inventory.hosts))
        raise InventoryError(
            f"there is no host {host}",
            subject="--host",
            expected="the name of one host",
            found=host,
            remedy=f"did you mean {meant}?" if meant else "see: invoke inventory --list",
        )
    return _plain({**inventory.hosts[host].variables, **inventory.extra})


def graph(inventory: Inventory, start: str = ALL, with_variables: bool = False) -> str:
    """Return what `--graph` prints: groups with the groups and hosts in them.

    Raises InventoryError for an unknown group, and for more lines than anyone reads.
    """
    if start not in inventory.branches:
        meant = nearest(start, list(inventory.branches))
        remedy = f"did you mean {meant}?" if meant else None
        raise InventoryError(
            f"there is no group {start}", subject="--group", expected="a group", found=start, remedy=remedy
        )
    lines, size = [], 0
    for line in _lines(inventory, start, with_variables):
        lines.append(line)
        size += len(line)
        if size > MAX_BYTES:
            raise InventoryError("the graph is too large", expected=f"at most {MAX_BYTES >> 20} MiB", found="more")
    return "\n".join(lines)


def dumps(value: Any) -> str:
    """Return JSON as ansible-inventory writes it."""
    return json.dumps(value, sort_keys=True, indent=4)


def _plain(variables: Mapping[str, Node]) -> dict[str, Any]:
    return {name: _printed(node) for name, node in variables.items() if name not in _INTERNAL}


def _printed(node: Node) -> Any:
    """Return a plain value; what Ansible tags is printed as its JSON encoder does."""
    content = node.content
    if isinstance(content, dict):
        return {key: _printed(item) for key, item in content.items()}
    if isinstance(content, list):
        return [_printed(item) for item in content]
    if isinstance(content, Vaulted):
        return {"__ansible_vault": str(content)}
    return {"__ansible_unsafe": str(content)} if isinstance(content, Literal) else content


def _lines(inventory: Inventory, start: str, with_variables: bool) -> Iterator[str]:
    """Go through the groups with a stack of our own: a chain of them may be longer than Python's."""
    todo: list[tuple[str, int, bool]] = [(start, 0, True)]
    while todo:
        name, depth, begins = todo.pop()
        branch = inventory.branches[name]
        if begins:
            yield _line(f"@{name}:", depth)
            todo.append((name, depth, False))
            todo += [(child, depth + 1, True) for child in reversed(branch.children)]
            continue
        for host in branch.hosts if name != ALL else ():
            yield _line(host, depth + 1)
            if with_variables:
                yield from _shown(of_host(inventory, host), depth + 2)
        if with_variables:
            priority = {"ansible_group_priority": branch.priority} if branch.priority != 1 else {}
            yield from _shown({**_plain(branch.variables), **priority}, depth + 1)


def _shown(variables: Mapping[str, Any], depth: int) -> Iterator[str]:
    return (_line(f"{{{name} = {value}}}", depth) for name, value in sorted(variables.items()))


def _line(text: str, depth: int) -> str:
    return f"{'  |' * depth}--{text}" if depth else text
