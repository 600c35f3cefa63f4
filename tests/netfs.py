"""Clients of a network filesystem, as processes: each knows names by heart, and waits while the server is silent."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent


def preloaded(source: Path, directory: Path, *flags: str) -> Path:
    """Compile a library that is preloaded into a process; return its path."""
    library = directory / f"{source.stem}{'-'.join(flags)}.so"
    if not library.exists():
        argv = ["gcc", "-O1", "-shared", "-fPIC", *flags, "-o", str(library), str(source), "-ldl", "-lpthread"]
        subprocess.run(argv, check=True)
    return library


@dataclass(frozen=True)
class Netfs:
    """A directory that other processes see as a network filesystem."""

    root: Path
    libraries: Path
    """Where libraries are compiled to, outside of the root."""

    @property
    def _silence(self) -> Path:
        return self.libraries / "the server is silent"

    def client(self, lag_s: float = 0.0, clock_s: int = 0) -> dict[str, str]:
        """Return the environment of a client that knows names for `lag_s`, and whose wall clock is off by `clock_s`."""
        libraries = [preloaded(HERE / "netfs.c", self.libraries)]
        if clock_s:
            libraries.append(preloaded(HERE / "rack/clock.c", self.libraries, f"-DOFFSET={clock_s}"))
        return {
            **os.environ,
            "LD_PRELOAD": ":".join(map(str, libraries)),
            "NETFS_ROOT": str(self.root),
            "NETFS_LAG": str(lag_s),
            "NETFS_STALL": str(self._silence),
        }

    def stall(self) -> None:
        """Let every call of every client wait."""
        self._silence.touch()

    def answer(self) -> None:
        """Let them go on."""
        self._silence.unlink()
