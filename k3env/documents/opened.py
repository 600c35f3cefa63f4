"""Opened: the bytes of what a path leads to: a file, or what a command writes into a pipe."""

from __future__ import annotations

import os
import select
import stat
import time
from pathlib import Path
from typing import Optional

PIPE_S = 5.0
"""For all that is written into a pipe, where nothing else is said."""

_KINDS = {
    stat.S_IFDIR: "is a directory",
    stat.S_IFCHR: "is a device",
    stat.S_IFBLK: "is a device",
    stat.S_IFSOCK: "is a socket",
}


class NoFile(Exception):
    """A path leads to something that can't be read as a file."""

    def __init__(self, what: str, remedy: Optional[str] = None) -> None:
        super().__init__(what)
        self.what = what
        """What is wrong, as it follows the path in a message."""
        self.remedy = remedy


def read(path: Path, at_most: int, pipe_s: float = PIPE_S) -> bytes:
    """Return the first bytes of a file, or of what is written into a pipe within some seconds.

    Raises NoFile, OSError, and ValueError for a path with a NUL.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)  # a pipe may have no writer
    try:
        kind = stat.S_IFMT(os.fstat(descriptor).st_mode)
        if kind == stat.S_IFIFO:
            return _from_pipe(descriptor, at_most, pipe_s)
        if kind != stat.S_IFREG:
            raise NoFile(_KINDS.get(kind, "is no file"))
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(at_most)
    finally:
        os.close(descriptor)


def _from_pipe(descriptor: int, at_most: int, pipe_s: float) -> bytes:
    data, end = bytearray(), time.monotonic() + pipe_s
    while len(data) < at_most:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, end - time.monotonic()))
        if not ready:
            raise NoFile(f"is a pipe that was not written to its end within {pipe_s:.0f} s", "write to a file first")
        chunk = os.read(descriptor, at_most - len(data))
        if not chunk:
            break
        data += chunk
    return bytes(data)
