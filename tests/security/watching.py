"""Everybody's view of the processes of a machine, while something runs: their words, and their environment as root."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Seen:
    """What stood in /proc: command lines, each with the environments that it had."""

    environ: dict[bytes, set[bytes]] = field(default_factory=dict)
    looks: int = 0

    def in_argv(self, part: bytes) -> list[bytes]:
        """Return the command lines that held something."""
        return [words for words in self.environ if part in words]

    def in_environ(self, part: bytes) -> list[bytes]:
        """Return the command lines of processes whose environment held something."""
        return [words for words, found in self.environ.items() if any(part in one for one in found)]


@contextmanager
def processes() -> Iterator[Seen]:
    """Look at all processes, as often as may be, until the block is left."""
    seen, over = Seen(), threading.Event()

    def look() -> None:
        while not over.wait(0.01):
            for name in os.listdir("/proc"):
                if name.isdigit() and int(name) != os.getpid():
                    # It may become another program between two looks: then the next round has it.
                    words, environ = _read(name, "cmdline"), _read(name, "environ")
                    if words is not None and words == _read(name, "cmdline"):
                        seen.environ.setdefault(words, set()).add(environ or b"")
            seen.looks += 1

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def _read(pid: str, kind: str) -> bytes | None:
    try:
        with open(f"/proc/{pid}/{kind}", "rb") as file:
            return file.read()
    except OSError:
        return None
