"""Snapshot: what of a repository is in a directory, by a record beside it. The record is never trusted alone."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from k3env.node.web.hub import HubFile, Repository
from k3env.protocol import codec

if TYPE_CHECKING:
    from k3env.node.machine import Machine

FORMAT = 1
DIRECTORY = ".k3env"
RECORD_BYTES = 256 << 20


@dataclass(frozen=True)
class Snapshot:
    """A repository's files, and which of them are there and were compared with their digests."""

    kind: str
    id: str
    revision: str
    files: tuple[HubFile, ...] = ()
    """All of the repository."""
    proven: dict[str, int] = field(default_factory=dict)
    """Path to the file's time (ns) when its content was right."""
    format: int = FORMAT

    def is_of(self, repository: Repository) -> bool:
        """Return whether it is this repository at this commit."""
        return (self.kind, self.id, self.revision) == (repository.kind, repository.id, repository.revision)


def path(target: str) -> str:
    """Return where the record of a directory is."""
    return os.path.join(target, DIRECTORY, "snapshot.json")


def parts(target: str) -> str:
    """Return where files are while they are fetched."""
    return os.path.join(target, DIRECTORY, "parts")


def part_name(file: HubFile) -> str:
    """Return what a file is called while it is fetched: by its content, and by its path, for two may be equal."""
    return f"{file.digest}.{hashlib.sha256(file.path.encode()).hexdigest()[:12]}.part"


def read(machine: Machine, target: str) -> Optional[Snapshot]:
    """Return a directory's record; None where there is none, or none of this format."""
    try:
        found = codec.loads(Snapshot, machine.text(path(target), RECORD_BYTES))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if found.format == FORMAT else None


def write(machine: Machine, target: str, made: Snapshot) -> None:
    """Write a directory's record, if this task may still say what is there.

    Raises OSError, Refused if its lease was lost.
    """
    machine.commit()
    machine.make(os.path.dirname(path(target)))
    machine.write(path(target), codec.dumps(made).encode())


def is_intact(machine: Machine, target: str, file: HubFile, proven: dict[str, int]) -> bool:
    """Return whether a file is there as it was when its content was right, by size and time."""
    if file.path not in proven:
        return False
    found = machine.stat(os.path.join(target, file.path))
    return found is not None and (found.st_size, found.st_mtime_ns) == (file.size, proven[file.path])
