"""Manifest: what was made in a checkout, written last. It is never trusted alone."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Optional

from k3env.protocol import codec

if TYPE_CHECKING:
    from k3env.node.machine import Machine

FORMAT = 1
DIRECTORY = ".k3env"


@dataclass(frozen=True)
class Manifest:
    """What a build was made from, how, and what it left."""

    commit: str
    arch: str
    """As it was asked for."""
    cmake_arch: str = ""
    """As CMakeCache.txt had it afterwards: CMake may rewrite it."""
    dirty: Optional[str] = None
    """Hash of local changes to tracked files; None: there were none."""
    submodules: dict[str, str] = field(default_factory=dict)
    flags: tuple[str, ...] = ()
    build_dir: str = ""
    """Where the objects were compiled to; "": in the checkout. On other nodes it is not there."""
    image: str = ""
    """The container's image; "": built on the node itself."""
    image_key: str = ""
    """What tells that image from others of its name; "": nothing does."""
    python: str = ""
    """Of the environment: "3.12"."""
    versions: dict[str, str] = field(default_factory=dict)
    artefacts: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Path in the checkout to size and time (bytes, ns)."""
    made: str = ""
    """RFC 3339, UTC."""
    by: str = ""
    """Run, host and task."""
    format: int = FORMAT


def path(repo: str) -> str:
    """Return where a checkout's manifest is."""
    return os.path.join(repo, DIRECTORY, "manifest.json")


def logs(root: str) -> str:
    """Return where the logs of what is done to a checkout, or to an environment of its own, are."""
    return os.path.join(root, DIRECTORY, "logs")


def read(machine: Machine, repo: str) -> Optional[Manifest]:
    """Return a checkout's manifest; None where there is none, or none of this format."""
    try:
        found = codec.loads(Manifest, machine.text(path(repo)))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, Manifest) and found.format == FORMAT else None


def write(machine: Machine, repo: str, manifest: Manifest) -> None:
    """Write a checkout's manifest, if this task still may.

    Raises Refused if its lease was lost.
    """
    stamped = replace(manifest, made=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), by=machine.name)
    machine.make(os.path.join(repo, DIRECTORY))
    machine.commit()
    machine.write(path(repo), (json.dumps(codec.encode(stamped), indent=1, sort_keys=True) + "\n").encode())
