"""Variables: those that every host has, those of the command line, and those that nobody reads.

Ansible's order for what exists: defaults, the inventory and the files beside it (see layers), the play, the task,
--extra-vars. Each value is a node, and its position is its origin.
"""

from __future__ import annotations

import functools
import getpass
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from k3env.documents import yaml
from k3env.documents.nodes import Node, Position, Text, problem
from k3env.errors import UsageError
from k3env.inventory.hosts import READ, Host, is_address
from k3env.inventory.tree import ALL
from k3env.protocol.finding import WARN, Finding

EXTRA = "--extra-vars"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SECOND = re.compile(r"\s([A-Za-z_][A-Za-z0-9_]*)=")


def special(host: Host) -> dict[str, Node]:
    """Return the variables that every host has, and no source can set."""
    values = {
        "inventory_hostname": host.name,
        "inventory_hostname_short": host.name if is_address(host.name) else host.name.split(".")[0],
        "group_names": sorted(name for name in host.groups if name != ALL),
        "connecting_user": host.address.user or _login_name(),
    }
    if host.source is not None:
        file = os.path.abspath(host.source)
        values |= {"inventory_file": file, "inventory_dir": os.path.dirname(file)}
    return {name: Node.of(value, Position("the inventory's names")) for name, value in values.items()}


@functools.cache
def _login_name() -> str:
    """Return the name that ssh connects as where nothing else is said."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a uid without an entry in passwd, as in containers
        return str(os.getuid())


def valid_name(name: str) -> bool:
    """Return whether templates can name a variable so."""
    return _NAME.fullmatch(name) is not None


def extra(options: Sequence[str]) -> dict[str, Node]:
    """Read the values of --extra-vars, later ones winning: `NAME=TEXT`, or `@FILE` with YAML's types.

    Raises UsageError, and DocumentError for a file.
    """
    merged: dict[str, Node] = {}
    for option in options:
        if option.startswith("@"):
            merged.update(_from_file(option[1:]))
        else:
            merged.update(_from_text(option))
    return merged


def unread(layers: Iterable[Mapping[str, Node]]) -> list[Finding]:
    """Return a warning for each connection variable of Ansible's that is not read here."""
    found: dict[str, Finding] = {}
    for layer in layers:
        for name, node in layer.items():
            if name.startswith("ansible_") and name not in READ:
                found[str(node.position)] = Finding(
                    id="inventory.unread",
                    status=WARN,
                    severity="warn",
                    scope="static",
                    subject=str(node.position),
                    message=f"{name} is not read",
                    remedy="read are " + ", ".join(READ),
                )
    return list(found.values())


def _from_text(option: str) -> dict[str, Node]:
    name, equals, value = option.partition("=")
    if not equals or not valid_name(name):
        raise UsageError(
            f"{EXTRA} can't be read",
            expected="NAME=VALUE or @FILE",
            found=_unread(option),
            remedy="put values that are no text into a YAML file: --extra-vars @FILE",
        )
    second = _SECOND.search(value)
    if second:
        raise UsageError(
            f"{EXTRA} {name} looks like several variables",
            expected="one variable for each --extra-vars",
            found=f"{name}=… {second.group(1)}=…",
            remedy=f"give {EXTRA} again for {second.group(1)}, or put the text into a YAML file: {EXTRA} @FILE",
        )
    return {name: Node(Text(value), Position(EXTRA))}


def _unread(option: str) -> str:
    """Say what was written, without values: any of them may be a password."""
    if option.lstrip()[:1] in ("{", "["):
        return f"a text that begins with {option.lstrip()[0]}"
    name, equals, _ = option.partition("=")
    return f"{name}=…" if equals else option


def _from_file(path: str) -> dict[str, Node]:
    root = yaml.load(Path(path)).root
    variables = dict(root.items("a file of variables"))
    for name in variables:
        if not valid_name(name):
            raise problem(root.keys[name], f"{name} can't name a variable", expected="letters, digits and underscore")
    return variables
