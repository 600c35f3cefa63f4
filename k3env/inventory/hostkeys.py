"""Host keys: what stands before the colon under `hosts:`, which may mean many hosts and a port."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from k3env.documents.nodes import Position, problem
from k3env.errors import DocumentError
from k3env.inventory.hosts import is_ipv6, valid_host
from k3env.inventory.nodesets import BadNodeSet, expand, is_nodeset
from k3env.inventory.ranges import expand_range, is_range

_PORT = re.compile(r"(?P<name>(?:[^:\[\]]|\[[^\[\]]*\])*):(?P<port>[0-9]{1,5})")
_V6_PORT = re.compile(r"\[(?P<name>[^\[\]]+)\]:(?P<port>[0-9]{1,5})")


@dataclass(frozen=True)
class Meant:
    """The hosts that a key means."""

    names: list[str]
    port: Optional[int] = None


def read(key: str, position: Position) -> Meant:
    """Return what a key means: ranges in Ansible's notation or in Slurm's, a port, `[IPV6]:PORT`.

    Raises DocumentError at the character that is wrong.
    """
    if is_ipv6(key):
        return Meant([key])
    v6 = _V6_PORT.fullmatch(key)
    found = v6 if v6 and is_ipv6(v6["name"]) else _PORT.fullmatch(key)
    text, port = (found["name"], int(found["port"])) if found else (key, None)
    try:
        names = _expanded(text)
    except BadNodeSet as bad:
        at = Position(position.source, position.line, position.column + bad.at)
        raise problem(at, f"the host {key}: {bad.message}", found=key, remedy=bad.remedy) from None
    for name in names:
        if not valid_host(name):
            raise bad_name(name, position)
    return Meant(names, port)


def bad_name(name: str, position: Position) -> DocumentError:
    """Return the error for a name that no host can have here."""
    return problem(
        position,
        f"{name} can't name a host",
        expected="letters, digits, dot, dash and underscore, no dash in front; or an IPv6 address",
        found=name,
        remedy="give it another name, and its address as ansible_host",
    )


def _expanded(text: str) -> list[str]:
    if is_ipv6(text):
        return [text]
    if is_range(text):
        return expand_range(text)
    return expand(text) if is_nodeset(text) else [text]
