"""Identity: what a path that all nodes use leads to on this one, as far as a few stats and small files show it."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from typing import Optional

from k3env.node import git, manifest
from k3env.node.facts import deadline
from k3env.node.facts import packages as installed
from k3env.node.facts import venv as venvs
from k3env.node.facts.mounts import locality
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence
from k3env.protocol.profile import Profile

CHECKPOINT_FILES = ("config.json", "generation_config.json", "tokenizer_config.json", "model.safetensors.index.json")
"""What tells one checkpoint from another without reading weights. All nodes read them, so they are few."""
HASHED_BYTES = 8 << 20


@dataclass(frozen=True)
class Place:
    """What one path leads to."""

    path: str
    real: Optional[str] = None
    """Its links resolved; None: nothing is there."""
    filesystem: str = ""
    """Such as "nfs4 server:/export"."""
    kind: str = ""
    """local, network, ambiguous or unlisted, by the filesystem's type."""
    inode: Optional[int] = None
    size: Optional[int] = None
    """Bytes, of a file."""
    mtime_ns: Optional[int] = None
    """Nanoseconds since 1970, of a file: a directory's changes with each of its names."""
    content: dict[str, str] = field(default_factory=dict)
    """What it holds, by name: a commit, or the SHA-256 of a small file."""
    stamp: Optional[str] = None
    """What can only be the same where nodes see one and the same file: the hash of what was written there last."""
    source: Evidence = Evidence("")


@deadline(10.0)
def repo(machine: Machine, profile: Profile) -> Optional[Place]:
    """Read what the checkout is: its commit, and what the last build there left."""
    path = profile.paths.repo
    if path is None:
        return None
    if not machine.is_dir(path):
        return _place(machine, path, {})
    content = {"commit": git.head(machine, path) or "no git checkout", **_built(manifest.read(machine, path))}
    return replace(_place(machine, path, content), stamp=_digest(machine, manifest.path(path)))


def _built(made: Optional[manifest.Manifest]) -> dict[str, str]:
    """Return what a build was made of: not when and by whom, nor what differs from one compilation to the next."""
    if made is None:
        return {"build": "none"}
    recorded = (made.submodules, made.versions, sorted(made.artefacts))
    content = {
        "build": hashlib.sha256(json.dumps(recorded, sort_keys=True).encode()).hexdigest()[:12],
        "built from": made.commit,
        "for": made.arch,
        "in": made.image or f"Python {made.python}",
    }
    return {**content, "local changes": made.dirty[:12]} if made.dirty else content


@deadline(10.0)
def environment(machine: Machine, profile: Profile) -> Optional[Place]:
    """Read what the virtual environment holds: the name, version and commit of all its distributions, as one hash."""
    found = venvs.venv(machine, profile)
    if found is None:
        return None
    listed = installed.listed(machine, found.site) if found.version and machine.is_dir(found.site) else {}
    names = sorted(info for infos in listed.values() for info in infos)
    commits = installed.Sites(machine, found, with_base=False).versions(installed.WATCHED) if listed else {}
    packages = hashlib.sha256("\n".join((*names, *map(str, sorted(commits.items())))).encode()).hexdigest()
    content = {"packages": f"{len(names)} with hash {packages[:12]}", "python": found.full_version or "unknown"}
    return _place(machine, found.path, content)


@deadline(10.0)
def checkpoint(machine: Machine, profile: Profile) -> Optional[Place]:
    """Read what the checkpoint is: its configuration, tokenizer and index, not its weights."""
    path = profile.paths.checkpoint
    if path is None:
        return None
    return _place(machine, path, {name: _digest(machine, os.path.join(path, name)) for name in CHECKPOINT_FILES})


@deadline(10.0)
def serve_config(machine: Machine, profile: Profile) -> Optional[Place]:
    """Read what the server's configuration says."""
    path = profile.paths.serve_config
    return None if path is None else _place(machine, path, {"content": _digest(machine, path)})


@deadline(10.0)
def image(machine: Machine, profile: Profile) -> Optional[Place]:
    """Read which image file containers are started from; None for the name of one in a registry."""
    path = profile.container.image
    if profile.container.engine == "none" or not path.startswith("/"):
        return None
    return _place(machine, path, {})


def _place(machine: Machine, path: str, content: dict[str, str]) -> Place:
    found = machine.stat(path)
    where = locality(machine, path)
    filesystem = f"{where.data.fstype} {where.data.source}"
    source = Evidence(path, excerpt=f"{where.path} on {where.mount.point}, {filesystem}")
    if found is None:
        return Place(path, None, filesystem, where.data.kind, source=source)
    is_file = machine.is_file(path)
    return Place(
        path,
        machine.realpath(path),
        filesystem,
        where.data.kind,
        found.st_ino,
        found.st_size if is_file else None,
        found.st_mtime_ns if is_file else None,
        content,
        source=source,
    )


def _digest(machine: Machine, path: str) -> str:
    """Return the hash of a small file; of a large one, of its beginning and its size."""
    found = machine.stat(path)
    if found is None:
        return "not there"
    data = machine.read(path, HASHED_BYTES)
    more = f" of {found.st_size} bytes" if found.st_size > len(data) else ""
    return hashlib.sha256(data).hexdigest()[:16] + more
