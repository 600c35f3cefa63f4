"""Connections that are a program: this machine's shell, the user's own ssh, a container, a Slurm step.

Each is a prefix of arguments before the one command line; bytes go through pipes.
"""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from k3env.errors import AuthFailed, ConnectTimeout, Dropped, HostKeyMismatch, NotThere, Unreachable

_CHUNK = 1 << 16
_TAIL = 4096
# Ctrl-C is for us alone: what it means for the work is said through the connection, which must not end by it.
_APART: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}


@dataclass(frozen=True)
class Target:
    """What a prefix is made of."""

    hostname: str
    port: int | None = None
    user: str | None = None
    private_key: str | None = None
    timeout_s: float = 30.0
    accept_new: bool = False
    """Whether ssh is to keep the key of a host that was never seen before."""


def _openssh(target: Target) -> list[str]:
    """The user's own ssh, with all that it can do: ControlMaster, GSSAPI, host-based, hardware keys."""
    argv = ["ssh", "-T", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]
    argv += ["-o", f"ConnectTimeout={max(1, int(target.timeout_s))}"]
    argv += ["-o", "StrictHostKeyChecking=accept-new"] if target.accept_new else []
    argv += ["-p", str(target.port)] if target.port is not None else []
    argv += ["-l", target.user] if target.user is not None else []
    argv += ["-i", target.private_key, "-o", "IdentitiesOnly=yes"] if target.private_key is not None else []
    return [*argv, "--", target.hostname]


_SHELL = ["/bin/sh", "-c"]
PREFIXES: dict[str, Callable[[Target], list[str]]] = {
    "local": lambda target: _SHELL,
    "openssh": _openssh,
    "chroot": lambda target: ["chroot", target.hostname, *_SHELL],
    "podman": lambda target: ["podman", "exec", "-i", target.hostname, *_SHELL],
    "docker": lambda target: ["docker", "exec", "-i", target.hostname, *_SHELL],
    "enroot": lambda target: ["enroot", "exec", target.hostname, *_SHELL],
    "slurm": lambda target: ["srun", "--overlap", "-N1", "-n1", f"--nodelist={target.hostname}", *_SHELL],
}
"""The arguments before a command line, by connection; `hostname` may be a container's name or PID."""

# What OpenSSH says at its end, and what that means. Source: messages of OpenSSH 9.2.
_SAID: tuple[tuple[str, type[Unreachable], str], ...] = (
    (r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED", HostKeyMismatch, "see: ssh {host}"),
    (r"Permission denied|Too many authentication failures", AuthFailed, "make this work first: ssh {host} true"),
    (r"timed out", ConnectTimeout, "is the node up, and its sshd?"),
    (r"Could not resolve hostname", Unreachable, "set ansible_host, or mend the name"),
    (r"Connection refused|No route to host|Network is unreachable", NotThere, "is the node up, and its sshd?"),
    (r"Connection reset|Connection closed|kex_exchange_identification|Broken pipe", Dropped, "see: ssh {host}"),
)


class ChildProcess:
    """A child with pipes, whose standard error goes to a file so that it never blocks."""

    def __init__(self, argv: list[str], host: str) -> None:
        """Start it.

        Raises Unreachable if the program is not there.
        """
        self._host = host
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        try:
            self._child = subprocess.Popen(
                argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, **_APART
            )
        except OSError as error:
            self._errors.close()
            raise Unreachable(
                f"{argv[0]} can't be started: {error.strerror}",
                expected=f"{argv[0]} in PATH",
                found=error.strerror or "",
                remedy="install it, or choose another --connection",
            ) from None

        assert self._child.stdout is not None  # noqa: S101 - PIPE was asked for
        self._ready = select.poll()  # select(2) ends at descriptor 1023, which some hundred hosts reach
        self._ready.register(self._child.stdout, select.POLLIN)

    def send(self, data: bytes) -> None:
        """Send bytes to its standard input."""
        assert self._child.stdin is not None  # noqa: S101 - PIPE was asked for
        try:
            self._child.stdin.write(data)
            self._child.stdin.flush()
        except OSError as error:
            raise self.failure() or Dropped(f"{self._host}: the agent is gone: {error.strerror}") from None

    def receive(self, timeout_s: float) -> bytes | None:
        """Return bytes of its standard output; see Process."""
        assert self._child.stdout is not None  # noqa: S101 - PIPE was asked for
        if not self._ready.poll(1000 * timeout_s):
            return None
        return os.read(self._child.stdout.fileno(), _CHUNK)

    def close_input(self) -> None:
        """End its standard input."""
        if self._child.stdin is not None and not self._child.stdin.closed:
            try:
                self._child.stdin.close()
            except OSError:  # what was still to be sent has no reader any more
                return

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

    def failure(self) -> Unreachable | None:
        """Return what the road itself says of its end: ssh's 255 with its last words."""
        if self.exit_code() != 255:
            return None
        said = self.said().strip()
        for pattern, kind, remedy in _SAID:
            if re.search(pattern, said):
                return kind(
                    f"ssh {self._host}: {_last(said)}", found=said[-500:], remedy=remedy.format(host=self._host)
                )
        return Dropped(f"ssh {self._host}: {_last(said) or 'exit code 255'}")

    def close(self) -> None:
        """Let go of it: it ends when its input does."""
        self.close_input()
        if self._child.stdout is not None:
            self._child.stdout.close()
        try:
            self._child.wait(2.0)
        except subprocess.TimeoutExpired:
            self._child.terminate()
            self._child.wait()
        self._errors.close()


class ProcessConnection:
    """A way to a host that a program goes."""

    note = ""

    def __init__(self, kind: str, target: Target) -> None:
        """Nothing is started yet."""
        self._kind, self._target = kind, target
        self._process: ChildProcess | None = None

    def open(self, timeout_s: float) -> None:
        """Do nothing: the program connects when it starts the command."""
        from dataclasses import replace

        self._target = replace(self._target, timeout_s=timeout_s)

    def start(self, command: str) -> ChildProcess:
        """Run one command line."""
        argv = [*PREFIXES[self._kind](self._target), command]
        self._process = ChildProcess(argv, self._target.hostname)
        return self._process

    def close(self) -> None:
        """End the command's input and wait for it."""
        if self._process is not None:
            self._process.close()


def _last(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else ""
