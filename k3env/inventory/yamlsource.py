"""YAML sources: Ansible's shape, groups with `hosts`, `children` and `vars`, read into a tree."""

from __future__ import annotations

import re

from k3env.documents import yaml
from k3env.documents.complaints import unknown_key
from k3env.documents.nodes import Node, Position, problem
from k3env.errors import DocumentError
from k3env.inventory import foreign, hostkeys
from k3env.inventory.hosts import valid_group
from k3env.inventory.tree import Tree
from k3env.protocol.finding import Finding

_SECTIONS = ("vars", "children", "hosts")
_PRIORITY = "ansible_group_priority"
_WHOLE = re.compile(r"[-+]?[0-9]{1,9}")


def read(data: bytes, source: str, tree: Tree) -> tuple[Finding, ...]:
    """Add what the bytes of an inventory say to a tree; return the warnings about them.

    Raises DocumentError for what is no inventory, at the place that shows it.
    """
    foreign.refuse_text(source, data)
    document = yaml.loads(data, source, yaml.ANSIBLE)
    root = document.root
    if not isinstance(root.content, dict):
        raise foreign.no_inventory(root, source)
    foreign.refuse_marks(root, source)
    for name, node in root.content.items():
        _group(tree, name, node, root.keys[name])
    return document.warnings


def check_group(name: str, position: Position) -> None:
    """Refuse what can't name a group."""
    if not valid_group(name):
        raise problem(position, f"{name!r} can't name a group", expected="at most 255 printable characters")


def set_variable(tree: Tree, group: str, name: str, value: Node) -> None:
    """Set a variable of a group; its priority is one of them."""
    if name != _PRIORITY:
        tree.groups[group].variables[name] = value
        return
    whole = value.content if not isinstance(value.content, bool) else None
    if isinstance(whole, str) and _WHOLE.fullmatch(whole):
        whole = int(whole)
    if not isinstance(whole, int):
        raise problem(value, f"{name} must be a whole number", expected="a whole number", found=value.found)
    tree.groups[group].priority = whole


def _group(tree: Tree, name: str, node: Node, position: Position) -> None:
    check_group(name, position)
    tree.group(name)
    for key, section in node.items(f"the group {name}"):
        if key not in _SECTIONS:
            raise _unknown_section(name, key, node)
        if isinstance(section.content, str) and section.content:
            # Ansible takes `hosts: gb01` for a mapping with one key.
            only = Node(None, section.position)
            section = Node({section.content: only}, section.position, {section.content: section.position})
        if isinstance(section.content, list):
            raise _listed(name, key, section)
        for item, value in section.items(f"{key} of the group {name}"):
            _ENTRIES[key](tree, name, item, value, section.keys[item])


def _variable(tree: Tree, group: str, name: str, value: Node, position: Position) -> None:
    set_variable(tree, group, name, value)


def _child(tree: Tree, group: str, name: str, value: Node, position: Position) -> None:
    _group(tree, name, value, position)
    tree.add_child(group, name, position)


def _host(tree: Tree, group: str, key: str, value: Node, position: Position) -> None:
    meant = hostkeys.read(key, position)
    for name in meant.names:
        new = tree.add_host(group, name, position.source)
        if meant.port is not None:
            _set_port(tree.hosts[name], name, Node(meant.port, position), new)
        for variable, item in value.items(f"the variables of {key}"):
            tree.hosts[name][variable] = item


def _set_port(variables: dict[str, Node], name: str, port: Node, new: bool) -> None:
    """Take the port of a new host; a host that is there already is one host, whatever port stands behind its name."""
    before = variables.get("ansible_port")
    if new:
        variables["ansible_port"] = port
    elif before is None or before.plain != port.content:
        raise problem(
            port,
            f"the host {name} is here already, with another port",
            expected="one port for each host",
            found=f"it has {'no port' if before is None else before.found} at "
            f"{'its first place' if before is None else before.position}",
            remedy="give two hosts two names, each with ansible_host and ansible_port",
        )


def _unknown_section(group: str, key: str, node: Node) -> DocumentError:
    error = unknown_key(key, _SECTIONS, node, f"the group {group} has no section {key}")
    finding = error.finding
    remedy = finding.remedy or f"hosts stand under hosts:, groups under children:, variables under vars: of {group}"
    return problem(node.keys[key], finding.message, expected=finding.expected, found=key, remedy=remedy)


def _listed(group: str, key: str, section: Node) -> DocumentError:
    first = section.content[0] if section.content else section
    shown = first.content if isinstance(first.content, str) else "NAME"
    return problem(
        first,
        f"{key} of the group {group} is a list",
        expected="a mapping",
        found="a list",
        remedy=f"write each item as a key: {shown}:",
    )


_ENTRIES = {"vars": _variable, "children": _child, "hosts": _host}
