"""Sources: inventory files in Ansible's YAML shape, read into a tree of groups."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from k3env.documents import yaml
from k3env.documents.complaints import unknown_key
from k3env.documents.nodes import Node, Position, problem
from k3env.errors import DocumentError
from k3env.inventory.hosts import is_ipv6, valid_name
from k3env.inventory.nodesets import BadNodeSet, expand, is_nodeset
from k3env.inventory.ranges import expand_range, is_range
from k3env.inventory.tree import ALL, Tree
from k3env.protocol.finding import Finding

_SECTIONS = ("vars", "children", "hosts")
_PORT = re.compile(r"(?P<name>(?:[^:\[\]]|\[[^\[\]]*\])*):(?P<port>[0-9]{1,5})")
_INI = re.compile(r"\s*\[[^\[\]]+\]\s*([#;].*)?$|[^\s:]+\s+\w+=")


def read(path: Path, tree: Tree) -> tuple[Finding, ...]:
    """Add what an inventory file says to a tree; return the warnings about it.

    Raises DocumentError for a file that is no inventory, at the place that shows it.
    """
    source = str(path)
    if path.is_dir():
        raise problem(
            Position(source),
            f"{source} is a directory",
            expected="a YAML inventory file",
            remedy="name each file in it: --inventory FILE --inventory FILE",
        )
    data = yaml.read(path, source)
    _refuse_others(path, data)
    document = yaml.loads(data, source, yaml.ANSIBLE)
    root = document.root
    if not isinstance(root.content, dict):
        raise _no_inventory(root, source)
    for key, remedy in (("plugin", _convert(source)), ("_meta", _convert(source))):
        if key in root.content:
            raise problem(root.keys[key], f"{key} is the mark of another kind of inventory", remedy=remedy)
    for name, node in root.content.items():
        _group(tree, name, node, root.keys[name])
    return document.warnings


def _convert(source: str) -> str:
    file = shlex.quote(source)
    return f"convert it with Ansible: ansible-inventory -i {file} --list --yaml > hosts.yml"


def _refuse_others(path: Path, data: bytes) -> None:
    """Refuse what is no YAML inventory before YAML's errors would confuse."""
    position = Position(str(path), 1, 1)
    expected = "a YAML inventory"
    if data.startswith(b"#!"):
        raise problem(position, "inventory programs are not run", expected=expected, remedy=_convert(str(path)))
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    first = next((line for line in lines if not line.lstrip().startswith(("#", ";"))), "")
    if path.suffix in (".ini", ".cfg", ".toml") or _INI.match(first):
        found = first.strip()[:60] or path.suffix
        raise problem(
            position,
            "this looks like an INI inventory",
            expected=expected,
            found=found,
            remedy=_convert(str(path)),
        )


def _no_inventory(root: Node, source: str) -> DocumentError:
    remedy = "write the hosts under all: and hosts:"
    if isinstance(root.content, str):
        remedy = f"{_convert(source)}; a plain list of hosts goes to --hosts @{source}"
    return problem(root, "an inventory is a mapping of groups", expected="a mapping", found=root.found, remedy=remedy)


def _group(tree: Tree, name: str, node: Node, position: Position) -> None:
    if not valid_name(name):
        raise problem(position, f"{name} can't name a group", expected="letters, digits, dot, dash and underscore")
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


def _variable(tree: Tree, group: str, name: str, value: Node, position: Position) -> None:
    if name == "ansible_group_priority":
        if isinstance(value.content, bool) or not isinstance(value.content, int):
            raise problem(value, f"{name} must be a whole number", expected="a whole number", found=value.found)
        tree.groups[group].priority = value.content
        return
    tree.groups[group].variables[name] = value


def _child(tree: Tree, group: str, name: str, value: Node, position: Position) -> None:
    _group(tree, name, value, position)
    tree.add_child(group, name, position)


def _host(tree: Tree, group: str, key: str, value: Node, position: Position) -> None:
    names, port = _names(key, position)
    for name in names:
        variables = tree.hosts.setdefault(name, {})
        if group != ALL:
            tree.groups[group].hosts[name] = None
        if port is not None:
            variables["ansible_port"] = Node(port, position)
        for variable, item in value.items(f"the variables of {key}"):
            variables[variable] = item


def _names(key: str, position: Position) -> tuple[list[str], int | None]:
    """Return the host names that a key means, in Ansible's or in Slurm's notation, and the port behind them."""
    if is_ipv6(key.partition("]")[0].strip("[")):
        raise _bad_name(key, position)
    found = _PORT.fullmatch(key)
    text, port = (found["name"], int(found["port"])) if found else (key, None)
    try:
        names = list(_expanded(text))
    except BadNodeSet as bad:
        at = Position(position.source, position.line, position.column + bad.at)
        raise problem(at, f"the host {key}: {bad.message}", found=key, remedy=bad.remedy) from None
    for name in names:
        if not valid_name(name):
            raise _bad_name(name, position)
    return names, port


def _bad_name(name: str, position: Position) -> DocumentError:
    return problem(
        position,
        f"{name} can't name a host",
        expected="letters, digits, dot, dash and underscore, no dash in front",
        found=name,
        remedy="give it another name, and its address as ansible_host",
    )


def _expanded(text: str) -> Iterator[str]:
    if is_range(text):
        return iter(expand_range(text))
    return iter(expand(text) if is_nodeset(text) else [text])


_ENTRIES = {"vars": _variable, "children": _child, "hosts": _host}
