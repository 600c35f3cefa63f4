"""Commands: programs of this machine that are asked who is there; bounded in time and in what they may say."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass

from k3env.protocol.finding import Evidence, excerpt

MAX_BYTES = 16 << 20
_DRAIN_S = 1.0
_POLL_S = 0.1


@dataclass(frozen=True)
class Said:
    """What a program said, and how it ended."""

    argv: tuple[str, ...]
    exit_code: int
    """Negative: ended by that signal."""
    stdout: bytes
    stderr: bytes
    timed_out: bool = False
    too_much: bool = False
    """It wrote more than 16 MiB."""

    def evidence(self) -> Evidence:
        """Return the command as a person would type it, with what it said."""
        import shlex

        said = self.stderr if self.stderr.strip() else self.stdout
        return Evidence(shlex.join(self.argv), self.exit_code, excerpt(said))


def ask(argv: Sequence[str], timeout_s: float) -> Said:
    """Run a program without input; at its deadline it is killed with all that it started.

    Raises OSError if it can't be started.
    """
    child = subprocess.Popen(
        list(argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    outputs = {"stdout": bytearray(), "stderr": bytearray()}
    timed_out = too_much = False
    try:
        deadline = time.monotonic() + timeout_s
        with selectors.DefaultSelector() as selector:
            for name, output in outputs.items():
                selector.register(getattr(child, name), selectors.EVENT_READ, output)
            while selector.get_map() and not too_much:
                if child.poll() is not None:
                    # A child of its own that holds the pipe open is not waited for.
                    deadline = min(deadline, time.monotonic() + _DRAIN_S)
                if time.monotonic() > deadline:
                    break
                for key, _ in selector.select(_POLL_S):
                    data = os.read(key.fd, 1 << 16)
                    if not data:
                        selector.unregister(key.fileobj)
                    key.data.extend(data)
                    too_much = too_much or len(key.data) > MAX_BYTES
        if not too_much:
            timed_out = not _ends(child, deadline - time.monotonic())
    finally:
        _end(child)
    code = -signal.SIGKILL if child.returncode is None else child.returncode
    return Said(tuple(argv), code, bytes(outputs["stdout"]), bytes(outputs["stderr"]), timed_out, too_much)


def _ends(child: subprocess.Popen[bytes], within_s: float) -> bool:
    try:
        child.wait(max(0.0, within_s))
    except subprocess.TimeoutExpired:
        return False
    return True


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the program's session, where any of it still runs; leave behind what doesn't end even so."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    _ends(child, _DRAIN_S)
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()
