"""enroot's directories: where they are by its configuration, and what these places are good for."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Union

from k3env.node.facts import deadline
from k3env.node.facts.mounts import locality
from k3env.node.facts.slurm import pyxis_in_stack
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt

CONFIG = "/etc/enroot/enroot.conf"
NAMES = ("ENROOT_RUNTIME_PATH", "ENROOT_CACHE_PATH", "ENROOT_DATA_PATH", "ENROOT_TEMP_PATH")
_DEFAULTS = {
    "XDG_DATA_HOME": "${HOME}/.local/share",
    "XDG_CACHE_HOME": "${HOME}/.cache",
    "XDG_RUNTIME_DIR": "/run",
    "ENROOT_RUNTIME_PATH": "${XDG_RUNTIME_DIR}/enroot",
    "ENROOT_CACHE_PATH": "${XDG_CACHE_HOME}/enroot",
    "ENROOT_DATA_PATH": "${XDG_DATA_HOME}/enroot",
    "ENROOT_TEMP_PATH": "${TMPDIR:-/tmp}",
}
"""Source: enroot's own start script and conf/enroot.conf."""
_WORD = re.compile(r"\$\{(\w+)(?::?-([^{}$]*))?\}|\$(\w+)|\$\(id -(u|g|un)\)")


@dataclass(frozen=True)
class Place:
    """One directory of enroot's."""

    name: str
    """"ENROOT_DATA_PATH"."""
    path: str
    existing: str = ""
    """The deepest part of it that exists; enroot makes the rest."""
    writable: bool = False
    """For the user who reads this."""
    filesystem: str = ""
    """"nfs4 at /home"."""
    kind: str = ""
    """local, network, ambiguous or unlisted, by the filesystem's type."""
    free_bytes: int = 0


@dataclass(frozen=True)
class Enroot:
    """The directories that enroot would use here."""

    installed: bool
    by_pyxis: bool = False
    """Whether jobs go through pyxis, which passes none of the user's ENROOT_* settings on."""
    places: tuple[Union[Place, Unreadable], ...] = ()
    source: tuple[Evidence, ...] = ()


@deadline(5.0)
def enroot(machine: Machine) -> Enroot:
    """Work out enroot's directories as its start script does, and look at each.

    The environment wins over enroot.conf, except through pyxis. Source: enroot's start script; NVIDIA/pyxis issue 43.
    """
    if machine.which("enroot") is None:
        return Enroot(False)
    by_pyxis = pyxis_in_stack(machine)
    configured, source = _configured(machine)
    environment = {
        key: value for key, value in machine.environment.items() if not (by_pyxis and key.startswith("ENROOT_"))
    }
    places = tuple(_place(machine, name, {**_DEFAULTS, **configured, **environment}) for name in NAMES)
    told = "\n".join(item.reason if isinstance(item, Unreadable) else f"{item.name} {item.path}" for item in places)
    return Enroot(True, by_pyxis, places, (source, Evidence("enroot's directories", excerpt=excerpt(told.encode()))))


def setting(machine: Machine, name: str) -> str:
    """Return one of enroot's directories as enroot itself takes it, started by this user.

    Raises ValueError for a configuration that can only be told by running it.
    """
    values = {**_DEFAULTS, **_configured(machine)[0], **machine.environment}
    path = os.path.normpath(expanded(values[name], values))
    if not os.path.isabs(path):
        raise ValueError(f"{path} is no absolute path")
    return path


def expanded(text: str, values: dict[str, str], depth: int = 0) -> str:
    """Return a setting as the shell would: variables, their defaults, and the user's number.

    Raises ValueError for anything else that a shell would run: reading a configuration runs nothing.
    """

    def value(match: re.Match[str]) -> str:
        name, default, bare, who = match.groups()
        if who is not None:
            return _identity(who)
        found = values.get(name or bare) or default
        if found is None:
            if (name or bare) in ("UID", "EUID"):
                return str(os.geteuid())
            raise ValueError(f"{name or bare} is not set, for {text}")
        return found

    if depth > 8:
        raise ValueError(f"{text} refers to itself")
    done = _WORD.sub(value, text)
    if "$" in done and done != text:
        return expanded(done, values, depth + 1)
    if re.search(r"[$`]", done):
        raise ValueError(f"{text} can only be told by running it")
    return done.strip("\"'")


def _configured(machine: Machine) -> tuple[dict[str, str], Evidence]:
    """Return what enroot.conf sets: "KEY value" or "KEY=value"."""
    try:
        text = machine.text(CONFIG)
    except (FileNotFoundError, NotADirectoryError):
        return {}, Evidence(CONFIG, excerpt="no such file")
    rows = [re.match(r"(ENROOT_[A-Z_]+)[ \t=]+(.*\S)", line) for line in text.splitlines()]
    found = {row.group(1): row.group(2) for row in rows if row}
    return found, Evidence(CONFIG, excerpt=excerpt("\n".join(f"{key} {found[key]}" for key in found).encode()))


def _place(machine: Machine, name: str, values: dict[str, str]) -> Union[Place, Unreadable]:
    try:
        path = os.path.normpath(expanded(values[name], values))
        if not os.path.isabs(path):
            raise ValueError(f"{path} is no absolute path")
        where = locality(machine, path)
        writable = machine.run(("test", "-w", where.path), timeout_s=2.0)
        if writable.timed_out:
            return Unreadable(f"{name}: {where.path} does not answer", writable.evidence())
        space = machine.space(where.path)
    except (OSError, ValueError) as error:
        return Unreadable(f"{name}: {error}")
    mount = where.data
    return Place(name, path, where.path, writable.ok, f"{mount.fstype} at {mount.point}", mount.kind, space.free_bytes)


def _identity(what: str) -> str:
    if what != "un":
        return str(os.geteuid() if what == "u" else os.getegid())
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        raise ValueError(f"uid {os.geteuid()} has no name on this node") from None
