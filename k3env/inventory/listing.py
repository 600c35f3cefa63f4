"""Listing: the JSON that `--list` prints, groups of host names with variables and children, read into a tree."""

from __future__ import annotations

from k3env.documents.nodes import Node, Position, problem
from k3env.inventory import hostkeys
from k3env.inventory.hosts import valid_host
from k3env.inventory.tree import Tree
from k3env.inventory.yamlsource import check_group, set_variable
from k3env.protocol.finding import WARN, Finding

META = "_meta"
_SECTIONS = ("hosts", "vars", "children")


def read(root: Node, tree: Tree) -> tuple[list[str], tuple[Finding, ...]]:
    """Add a listing to a tree; return the hosts that it names, and what is odd about it.

    Raises DocumentError for a value that stands wrong.
    """
    hosts: dict[str, None] = {}
    warnings: list[Finding] = []
    for name, node in root.items("what --list prints"):
        if name != META:
            hosts.update(dict.fromkeys(_group(tree, name, node, root.keys[name], warnings)))
    meta = root.content.get(META)
    variables = meta.child("hostvars") if meta is not None else None
    if meta is not None:
        if variables is None or not isinstance(variables.content, dict):
            raise problem(variables or meta, "_meta needs hostvars", expected="a mapping of hosts to variables")
        for host in hosts:
            given = variables.content.get(host)
            if given is not None:
                tree.hosts[host].update(given.items(f"the variables of {host}"))
    return list(hosts), tuple(warnings)


def _group(tree: Tree, name: str, node: Node, position: Position, warnings: list[Finding]) -> list[str]:
    """Take a group; return its own hosts."""
    check_group(name, position)
    tree.group(name)
    sections = {"hosts": node} if isinstance(node.content, list) else dict(node.items(f"the group {name}"))
    if sections and not set(sections) & set(_SECTIONS):
        raise problem(node, f"the group {name} has none of the known keys", expected=" or ".join(_SECTIONS))
    if not sections and isinstance(node.content, dict):
        text = f"{name} is an empty group here, a host of that name to Ansible"
        warnings.append(_told(text, position, "print hosts: [] in it"))
    for key in sections:
        if key not in _SECTIONS:
            text = f"{key} of the group {name} is not read"
            warnings.append(_told(text, node.keys[key], "read are " + ", ".join(_SECTIONS)))
    if "hosts" in sections:
        names = _names(sections["hosts"], f"the hosts of {name}")
        for host, where in names.items():
            if not valid_host(host):
                raise hostkeys.bad_name(host, where)
            tree.add_host(name, host, position.source.removesuffix(" --list"))
    if "vars" in sections:
        for variable, value in sections["vars"].items(f"vars of the group {name}"):
            set_variable(tree, name, variable, value)
    if "children" in sections:
        for child, where in _names(sections["children"], f"the children of {name}").items():
            check_group(child, where)
            tree.group(child)
            tree.add_child(name, child, where)
    return list(names) if "hosts" in sections else []


def _names(node: Node, what: str) -> dict[str, Position]:
    if not isinstance(node.content, list):
        raise problem(node, f"{what} must be a list", expected="a list of names", found=node.found)
    return {item.text(f"an item of {what}"): item.position for item in node.content}


def _told(message: str, position: Position, remedy: str) -> Finding:
    return Finding(
        id="inventory.unread",
        status=WARN,
        severity="warn",
        scope="static",
        subject=str(position),
        message=message,
        remedy=remedy,
    )
