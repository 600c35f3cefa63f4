"""Hosts: who is meant, and how each is reached."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from typing import Any, Optional

from k3env.documents.nodes import Node, described, problem
from k3env.documents.templates import Scope, is_template
from k3env.errors import nearest

CONNECTIONS = {
    "ssh": "ssh",
    "smart": "ssh",
    "paramiko": "ssh",
    "paramiko_ssh": "ssh",
    "local": "local",
    "openssh": "openssh",
    "chroot": "chroot",
    "community.general.chroot": "chroot",
    "docker": "docker",
    "community.docker.docker": "docker",
    "podman": "podman",
    "containers.podman.podman": "podman",
    "enroot": "enroot",
    "slurm": "slurm",
}
"""`ansible_connection` as Ansible names it, and as k3env does."""

READ = (
    "ansible_connection",
    "ansible_host",
    "ansible_ssh_host",
    "ansible_port",
    "ansible_ssh_port",
    "ansible_user",
    "ansible_ssh_user",
    "ansible_private_key_file",
    "ansible_ssh_private_key_file",
    "ansible_python_interpreter",
)
"""The variables that an address is made of. Of two names for one thing the later wins, as in Ansible."""

# Names become file names and arguments of ssh: none may begin with a dash, hold a slash or a space.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HOSTNAME = re.compile(r"[A-Za-z0-9_:][A-Za-z0-9_.:%-]*")
# No shell may read them: ssh_config has commands in which %r stands. OpenSSH itself refuses these since 9.6.
_SHELLS = r"\s:/'`\"$;&<>|(){}*?\[\]!#~^\x00-\x1f\x7f-\x9f"
_USER = re.compile(rf"(?![-@])[^{_SHELLS}]*[^{_SHELLS}\\]")
_PROGRAM = re.compile(r"[A-Za-z0-9_./~][A-Za-z0-9_./+-]*")


@dataclass(frozen=True)
class Address:
    """How a host is reached."""

    hostname: str
    connection: str = "ssh"
    port: Optional[int] = None
    """None: what ssh would take."""
    user: Optional[str] = None
    """None: what ssh would take."""
    python: str = "python3"
    become: Optional[str] = None
    """The user to become before anything else; None: stay who one is."""
    options: Mapping[str, str] = field(default_factory=dict)
    """`private_key`: the path of a key; what else a connection knows."""


@dataclass(frozen=True)
class Host:
    """A target, under the controller's name for it."""

    name: str
    groups: tuple[str, ...]
    variables: Mapping[str, Node]
    """From the inventory, merged in Ansible's order; each with the position where it was set."""
    address: Address
    source: Optional[str] = None
    """The inventory file that named it first, as it was given; None: no file did."""


def valid_name(name: str) -> bool:
    """Return whether a name can be that of a host that is no IPv6 address."""
    return len(name) <= 255 and _NAME.fullmatch(name) is not None


def valid_host(name: str) -> bool:
    """Return whether a name can be that of a host."""
    return valid_name(name) or (is_ipv6(name) and _HOSTNAME.fullmatch(name) is not None)


def valid_group(name: str) -> bool:
    """Return whether a name can be that of a group: Ansible takes what people write, so nearly all can."""
    return 0 < len(name) <= 255 and name.isprintable()


def is_ipv6(text: str) -> bool:
    """Return whether a text is an IPv6 address, with or without a zone."""
    try:
        return IPv6Address(text).version == 6
    except ValueError:
        return False


def is_address(text: str) -> bool:
    """Return whether a text is an IP address."""
    try:
        return bool(ip_address(text))
    except ValueError:
        return False


def expanded(path: str) -> Path:
    """Return a path with `~` replaced; as it is, where no home is known."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def valid_user(user: str) -> bool:
    """Return whether a user name can be passed to ssh."""
    return len(user) <= 255 and user.isprintable() and _USER.fullmatch(user) is not None


def address(name: str, variables: Mapping[str, Node]) -> Address:
    """Return how a host is reached, from its connection variables.

    Raises DocumentError where a value stands that can't be used.
    """
    given = {key: variables[key] for key in READ if key in variables}
    if not given:
        return Address(name)
    scope = Scope(variables) if any(is_template(node) for node in given.values()) else None
    made: dict[str, Any] = {"hostname": name, "options": {}}
    for key, node in given.items():
        value = scope.get(key) if scope else node.plain
        if value is not None:
            _FIELDS[key](made, key, value, node)
    return Address(**made)


def _connection(made: dict[str, Any], key: str, value: Any, node: Node) -> None:
    if value not in CONNECTIONS:
        meant = nearest(str(value), list(CONNECTIONS))
        raise problem(
            node,
            f"there is no connection {value}",
            expected="one of " + ", ".join(sorted(set(CONNECTIONS.values()))),
            found=str(value),
            remedy=f"did you mean {meant}?" if meant else None,
        )
    made["connection"] = CONNECTIONS[value]


def _port(made: dict[str, Any], key: str, value: Any, node: Node) -> None:
    number = int(value) if isinstance(value, str) and value.isdecimal() and len(value) < 6 else value
    if isinstance(number, bool) or not isinstance(number, int) or not 0 < number < 65536:
        raise problem(node, f"{key} must be a port", expected="a number from 1 to 65535", found=described(value))
    made["port"] = number


def _text(field_name: str, pattern: re.Pattern[str], expected: str) -> Any:
    def take(made: dict[str, Any], key: str, value: Any, node: Node) -> None:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise problem(node, f"{key} must be {expected}", expected=expected, found=described(value))
        made[field_name] = value

    return take


def _user(made: dict[str, Any], key: str, value: Any, node: Node) -> None:
    if not isinstance(value, str) or not valid_user(value):
        expected = "a user name, without what a shell reads"
        raise problem(node, f"{key} must be a user name", expected=expected, found=described(value))
    made["user"] = value


def _python(made: dict[str, Any], key: str, value: Any, node: Node) -> None:
    # Ansible's words for "find one".
    if value not in ("auto", "auto_silent", "auto_legacy", "auto_legacy_silent"):
        _text("python", _PROGRAM, "the path of a Python")(made, key, value, node)


def _private_key(made: dict[str, Any], key: str, value: Any, node: Node) -> None:
    if not isinstance(value, str) or not value:
        raise problem(node, f"{key} must be a path", expected="the path of a private key", found=described(value))
    made["options"]["private_key"] = str(expanded(value))


_FIELDS = {
    "ansible_connection": _connection,
    "ansible_host": _text("hostname", _HOSTNAME, "a host name or an address"),
    "ansible_ssh_host": _text("hostname", _HOSTNAME, "a host name or an address"),
    "ansible_port": _port,
    "ansible_ssh_port": _port,
    "ansible_user": _user,
    "ansible_ssh_user": _user,
    "ansible_private_key_file": _private_key,
    "ansible_ssh_private_key_file": _private_key,
    "ansible_python_interpreter": _python,
}
