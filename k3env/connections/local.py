"""This machine itself, reached by starting the command as a child."""

from __future__ import annotations

import os
import select
import subprocess
import tempfile

from k3env.errors import Dropped

_CHUNK = 1 << 16
_TAIL = 4096


class LocalProcess:
    """A child process with pipes."""

    def __init__(self, command: str) -> None:
        """Start the command in a shell, as sshd does: the command line is a constant of ours."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        self._child = subprocess.Popen(
            ["/bin/sh", "-c", command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )

    def send(self, data: bytes) -> None:
        """Send bytes to its standard input."""
        assert self._child.stdin is not None  # noqa: S101 - PIPE was asked for
        try:
            self._child.stdin.write(data)
            self._child.stdin.flush()
        except OSError as error:
            raise Dropped(f"the agent is gone: {error.strerror}") from None

    def receive(self, timeout_s: float) -> bytes | None:
        """Return bytes of its standard output; see Process."""
        assert self._child.stdout is not None  # noqa: S101 - PIPE was asked for
        if not select.select([self._child.stdout], [], [], timeout_s)[0]:
            return None
        return os.read(self._child.stdout.fileno(), _CHUNK)

    def close_input(self) -> None:
        """End its standard input."""
        if self._child.stdin is not None and not self._child.stdin.closed:
            self._child.stdin.close()

    def said(self) -> str:
        """Return the tail of its standard error."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(0, size - _TAIL))
        return self._errors.read().decode("utf-8", "replace")

    def exit_code(self) -> int | None:
        """Return its exit code once it has ended."""
        try:
            return self._child.wait(1.0)
        except subprocess.TimeoutExpired:
            return None

    def close(self) -> None:
        """Let go of it: it ends when its input does."""
        self.close_input()
        if self._child.stdout is not None:
            self._child.stdout.close()
        self._errors.close()
        try:
            self._child.wait(2.0)
        except subprocess.TimeoutExpired:
            self._child.terminate()
            self._child.wait()


class LocalConnection:
    """The controller as its own target."""

    def __init__(self) -> None:
        """Nothing is started yet."""
        self._process: LocalProcess | None = None

    def open(self, timeout_s: float) -> None:
        """Do nothing: we are there."""

    def start(self, command: str) -> LocalProcess:
        """Run one command line."""
        self._process = LocalProcess(command)
        return self._process

    def close(self) -> None:
        """End the command's input and wait for it."""
        if self._process is not None:
            self._process.close()
