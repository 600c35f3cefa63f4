"""Guard: a small process that ends what its starter leaves behind when somebody kills the starter."""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Optional

# Only the starter holds the other end of its input, so that ends with the starter, however that comes about.
# SIGTERM first: an engine's client passes it on into the container, and can't do so with SIGKILL.
_WATCH = 'read -r _; kill -s TERM -- "$1" && sleep "$2" && kill -s KILL -- "$1"; shift 2; [ "$#" -eq 0 ] || exec "$@"'


class Guard:
    """Guards a process, or a group of them by its negative number, from outliving this process."""

    def __init__(
        self,
        target: int,
        grace_s: float = 1.0,
        removal: Sequence[str] = (),
        environment: Optional[Mapping[str, str]] = None,
    ) -> None:
        """Between SIGTERM and SIGKILL lie `grace_s` seconds. Without a shell on this machine nothing is guarded.

        `removal` is a command that removes what the target holds elsewhere, such as a container; it gets `environment`.
        """
        reader, self._writer = os.pipe()
        self._process: Optional[subprocess.Popen[bytes]] = None
        argv = ["/bin/sh", "-c", _WATCH, "k3env-guard", str(target), f"{grace_s:g}", *removal]
        # In a session of its own: whoever ends this process's group must not end the guard with it.
        with contextlib.suppress(OSError):
            self._process = subprocess.Popen(
                argv,
                stdin=reader,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env={"PATH": os.defpath} if environment is None else dict(environment),
                start_new_session=True,
            )
        os.close(reader)

    def __enter__(self) -> Guard:
        """Guard until the block is left."""
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        os.close(self._writer)
