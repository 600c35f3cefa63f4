"""A command on an SSH channel: both streams drained, bytes kept, a dead peer noticed."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Any

from k3env.errors import Dropped, Unreachable

if TYPE_CHECKING:
    import paramiko

KEEPALIVE_S = 5.0
DEAD_S = 15.0
_CHUNK = 1 << 16
_TAIL = 4096


class Peer:
    """The other end of a connection: acknowledged at once, and when it was last heard.

    paramiko sets neither TCP_NODELAY nor TCP_QUICKACK, each worth 42 ms a connection.
    """

    def __init__(self, inner: socket.socket | paramiko.Channel) -> None:
        """Take over a socket, or a channel through a jump host, which is used like one."""
        self._inner = inner
        if isinstance(inner, socket.socket):
            inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.heard = time.monotonic()
        self.left = False
        """Whether the other end has closed the connection."""

    def recv(self, size: int) -> bytes:
        """Read, and remember that something was heard."""
        try:
            data = self._inner.recv(size)
        except ConnectionError:
            self.left = True
            raise
        self.heard = time.monotonic()
        self.left = not data
        if isinstance(self._inner, socket.socket):
            # The kernel forgets this option after each use.
            with contextlib.suppress(OSError):
                self._inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data

    def send(self, data: bytes) -> int:
        """Write, and notice that nobody is there any more."""
        try:
            return self._inner.send(data)
        except ConnectionError:
            self.left = True
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class SshProcess:
    """A command on a channel: both streams drained, bytes kept, a dead peer noticed."""

    def __init__(self, channel: paramiko.Channel, peer: Peer, where: str) -> None:
        """Take over a channel on which a command was started."""
        self._channel = channel
        self._peer = peer
        self._where = where
        self._said = b""
        self._asked: threading.Thread | None = None

    def send(self, data: bytes) -> None:
        """Send bytes to its standard input."""
        try:
            self._channel.settimeout(DEAD_S)
            self._channel.sendall(data)
        except (OSError, EOFError) as error:
            raise Dropped(f"{self._where}: {error or 'the channel is closed'}") from None

    def receive(self, timeout_s: float) -> bytes | None:
        """Return bytes of its standard output; see Process."""
        self._drain()
        self._channel.settimeout(timeout_s)
        try:
            data = self._channel.recv(_CHUNK)
        except TimeoutError:
            self._watch()
            return None
        if not data and not self._channel.get_transport().is_active():
            raise Dropped(f"the connection to {self._where} was lost")
        return data

    def close_input(self) -> None:
        """End its standard input."""
        with contextlib.suppress(OSError, EOFError):
            self._channel.shutdown_write()

    def said(self) -> str:
        """Return the tail of its standard error."""
        self._drain()
        return self._said.decode("utf-8", "replace")

    def exit_code(self) -> int | None:
        """Return its exit code if the other end has told."""
        if not self._channel.status_event.wait(1.0):
            return None
        code = self._channel.recv_exit_status()
        return None if code < 0 else code

    def failure(self) -> Unreachable | None:
        """Return None: what goes wrong with the connection is raised where it happens."""
        return None

    def _drain(self) -> None:
        while self._channel.recv_stderr_ready():
            self._said = (self._said + self._channel.recv_stderr(_CHUNK))[-_TAIL:]

    def _watch(self) -> None:
        """Ask a silent peer for a sign of life; close the connection to one that gives none."""
        silent = time.monotonic() - self._peer.heard
        transport = self._channel.get_transport()
        if not transport.is_active():
            raise Dropped(f"the connection to {self._where} was lost")
        if silent > DEAD_S:
            transport.close()
            raise Dropped(f"{self._where} gave no sign of life for {DEAD_S:g} s")
        if silent > KEEPALIVE_S and (self._asked is None or not self._asked.is_alive()):
            # paramiko's own keepalive asks for no answer, so a dead peer looks alive to it.
            self._asked = threading.Thread(target=_ask, args=(transport,), daemon=True)
            self._asked.start()


def _ask(transport: paramiko.Transport) -> None:
    """Ask for a sign of life; a transport that is closed meanwhile gives none, and who waits for it sees that."""
    from paramiko import SSHException

    with contextlib.suppress(EOFError, OSError, SSHException):
        transport.global_request("keepalive@openssh.com")
