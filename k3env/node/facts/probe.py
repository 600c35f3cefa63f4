"""Probe: whether a directory that all nodes should share is one: each leaves a file there, and looks for others."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import time
from dataclasses import dataclass
from typing import Union

from k3env.node.facts import deadline
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable
from k3env.protocol.profile import Profile

PATIENCE_S = 20.0
"""How long the others have to come: srun starts them within seconds, and a client's cache of names may be as old."""
LINGER_S = 2.0
"""How long a node's own file stays after it has seen all others, for those that look later."""
_PAUSE_S = 0.2
_WORD = re.compile(r"[^A-Za-z0-9._-]")


@dataclass(frozen=True)
class Probe:
    """What one node left in the directory, and what it saw there."""

    directory: str
    own: str
    """The word in its own file."""
    seen: tuple[str, ...] = ()
    """The words in all files of this run, its own among them."""
    peers: int = 0
    """How many nodes there should be; 0: unknown."""
    source: Evidence = Evidence("")


@deadline(PATIENCE_S + LINGER_S + 5.0)
def probe(machine: Machine, profile: Profile) -> Union[Probe, Unreadable, None]:
    """Leave a file, wait for those of the other nodes, and remove it; None where no directory is named.

    A directory's listing may be old on a network filesystem: what is written there before makes the client ask again.
    """
    directory = profile.paths.probe_dir
    if directory is None:
        return None
    if machine.recorded:
        return Unreadable(f"{directory} can't be tried in a recording")
    if not machine.common:
        return Unreadable("neither a run nor a job names the nodes that look together")
    prefix = f".k3env-probe-{_WORD.sub('_', machine.common)}-"
    own = secrets.token_hex(8)
    path = os.path.join(directory, f"{prefix}{own}")
    seen: tuple[str, ...] = ()
    try:
        _write(path)
        ends = time.monotonic() + PATIENCE_S
        while True:
            _touch(path)
            seen = tuple(sorted(word for name in os.listdir(directory) if (word := _word(name, prefix))))
            if (machine.peers and len(seen) >= machine.peers) or time.monotonic() > ends:
                break
            time.sleep(_PAUSE_S)
        time.sleep(LINGER_S)
    except OSError as error:
        return Unreadable(f"{directory}: {error.strerror}")
    finally:
        with contextlib.suppress(OSError):
            os.unlink(path)
    return Probe(directory, own, seen, machine.peers, Evidence(directory, excerpt=f"{len(seen)} files of this run"))


def _word(name: str, prefix: str) -> str:
    word = name[len(prefix) :] if name.startswith(prefix) else ""
    return word if word.isalnum() else ""


def _write(path: str) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
    os.close(descriptor)


def _touch(path: str) -> None:
    """Change the directory, so that its listing is asked for anew: a name comes, and goes."""
    extra = f"{path}.look"
    with contextlib.suppress(OSError):
        _write(extra)
        os.unlink(extra)
