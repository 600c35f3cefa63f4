"""Foreign: inventories of other kinds, refused with what serves instead."""

from __future__ import annotations

import re
import shlex
from pathlib import PurePath

from k3env.documents.nodes import Node, Position, problem
from k3env.errors import DocumentError
from k3env.protocol.masking import bare

_INI = re.compile(r"\s*\[[^\[\]]+\]\s*([#;].*)?$|[^\s:]+\s+\w+=")
_INI_SUFFIXES = (".ini", ".cfg", ".toml")
_EXPECTED = "a YAML inventory, or a program that prints one"


def convert(source: str) -> str:
    """Return the command that makes a YAML inventory of one that Ansible reads."""
    file = shlex.quote(source)
    return f"convert it with Ansible: ansible-inventory -i {file} --list --yaml --export > hosts.yml"


def refuse_text(source: str, data: bytes) -> None:
    """Refuse what is no YAML before YAML's errors would confuse."""
    position = Position(source, 1, 1)
    if data.startswith(b"$ANSIBLE_VAULT"):
        raise encrypted(position)
    lines = [line for line in data.decode("utf-8", "replace").splitlines() if line.strip()]
    first = next((line for line in lines if not line.lstrip().startswith(("#", ";"))), "")
    suffix = PurePath(source).suffix
    if suffix in _INI_SUFFIXES or _INI.match(first):
        found = bare(first.strip())[:60] or suffix
        raise problem(
            position, "this looks like an INI inventory", expected=_EXPECTED, found=found, remedy=convert(source)
        )


def refuse_marks(root: Node, source: str) -> None:
    """Refuse a mapping that says of itself that it is another kind of inventory."""
    remedies = {
        "plugin": convert(source),
        "_meta": f"let a program print it, with a run bit: #!/bin/sh and cat {shlex.quote(source)}",
    }
    for key, remedy in remedies.items():
        if key in root.content:
            message = f"{key} is the mark of another kind of inventory"
            raise problem(root.keys[key], message, expected=_EXPECTED, remedy=remedy)


def no_inventory(root: Node, source: str) -> DocumentError:
    """Return the error for a document that is no mapping of groups."""
    remedy = "write the hosts under all: and hosts:"
    if isinstance(root.content, str):
        remedy = f"{convert(source)}; a plain list of hosts goes to --hosts @{source}"
    return problem(root, "an inventory is a mapping of groups", expected="a mapping", found=root.found, remedy=remedy)


def encrypted(position: Position) -> DocumentError:
    """Return the error for a file that Ansible's vault has encrypted."""
    return problem(
        position,
        "the file is encrypted by Ansible's vault",
        expected="text",
        remedy="refer to secrets where they are kept: {secret: file:PATH} or {secret: env:NAME}",
    )
