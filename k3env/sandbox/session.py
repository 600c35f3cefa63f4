"""What a client may do on a tray: log in with the run's key, and run commands. No shell, no terminal, no sftp."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import paramiko
from paramiko.common import (
    AUTH_FAILED,
    AUTH_SUCCESSFUL,
    OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED,
    OPEN_SUCCEEDED,
)

_CHUNK = 65536
_CLOSED_CHECK_MS = 1000
_NOT_STARTED = 127


@dataclass(frozen=True)
class Shell:
    """How a tray runs a command."""

    environment: dict[str, str]
    home: Path

    def start(self, command: bytes) -> subprocess.Popen[bytes]:
        """Start a command, with pipes as sshd gives it without a terminal."""
        # A shell, because that is what sshd does: it hands the client's one string to the user's login shell.
        return subprocess.Popen(
            ["/bin/sh", "-c", os.fsdecode(command)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            cwd=self.home if self.home.is_dir() else "/",
            env=self.environment,
            start_new_session=True,
        )


class Session(paramiko.ServerInterface):
    """One connection's rights."""

    def __init__(self, user: str, key: paramiko.PKey, shell: Shell, sent: Callable[[bytes], None]) -> None:
        self._user = user
        self._key = key.asbytes()
        self._shell = shell
        self._sent = sent

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return AUTH_SUCCESSFUL if (username, key.asbytes()) == (self._user, self._key) else AUTH_FAILED

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return OPEN_SUCCEEDED if kind == "session" else OPEN_FAILED_ADMINISTRATIVELY_PROHIBITED

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        Execution(channel, self._shell, command, self._sent).start()
        return True


class Execution:
    """A command on a channel: bytes both ways, then its exit status."""

    def __init__(self, channel: paramiko.Channel, shell: Shell, command: bytes, sent: Callable[[bytes], None]) -> None:
        self._channel = channel
        self._shell = shell
        self._command = command
        self._sent = sent

    def start(self) -> None:
        """Run the command in a thread of its own."""
        threading.Thread(target=self._run, name="sandbox-exec", daemon=True).start()

    def _run(self) -> None:
        try:
            process = self._shell.start(self._command)
        except OSError as error:
            self._end(f"the tray can't start a command: {error}\n".encode(), _NOT_STARTED)
            return
        threading.Thread(target=self._feed, args=(process,), name="sandbox-stdin", daemon=True).start()
        self._drain(process)
        code = process.wait()
        # sshd tells a signal's death by exit-signal, which leaves a client without a status; so does silence.
        self._end(b"", code if code >= 0 else None)

    def _feed(self, process: subprocess.Popen[bytes]) -> None:
        """Write what the client sends to the command until it sends no more, or is gone."""
        assert process.stdin is not None  # noqa: S101  # given as a pipe
        with process.stdin as pipe:
            takes = True
            while data := self._channel.recv(_CHUNK):
                # A command that reads no more must not stop a client that still writes: the rest is dropped.
                takes = takes and _write(pipe.fileno(), data)

    def _drain(self, process: subprocess.Popen[bytes]) -> None:
        """Send what the command prints until both streams end, as sshd does, or the client is gone."""
        assert process.stdout is not None and process.stderr is not None  # noqa: S101  # given as pipes
        with process.stdout as out, process.stderr as err:
            senders = {out.fileno(): self._send_out, err.fileno(): self._channel.sendall_stderr}
            poll = select.poll()
            for descriptor in senders:
                poll.register(descriptor, select.POLLIN | select.POLLHUP)
            # Sending waits for the client's window, and so the command waits for the client.
            with contextlib.suppress(OSError, EOFError):
                while senders and not self._channel.closed:
                    for descriptor, _ in poll.poll(_CLOSED_CHECK_MS):
                        data = os.read(descriptor, _CHUNK)
                        if data:
                            senders[descriptor](data)
                        else:
                            poll.unregister(descriptor)
                            del senders[descriptor]

    def _send_out(self, data: bytes) -> None:
        self._channel.sendall(data)
        self._sent(data)

    def _end(self, message: bytes, code: int | None) -> None:
        with contextlib.suppress(OSError, EOFError):
            if message:
                self._channel.sendall_stderr(message)
            if code is not None:
                self._channel.send_exit_status(code)
            self._channel.close()


def _write(descriptor: int, data: bytes) -> bool:
    """Write all of the data; return False where nobody reads it."""
    view = memoryview(data)
    try:
        while view:
            view = view[os.write(descriptor, view) :]
    except OSError:
        return False
    return True
