"""The server's end of a connection: counts what it sends, and can be cut off hard."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing_extensions import Buffer

_NO_LINGER = struct.pack("ii", 1, 0)


class Cut:
    """Cuts one connection, the first that has been sent so many bytes; later ones go on."""

    def __init__(self, after: int) -> None:
        self.after = after
        self._lock = threading.Lock()
        self._is_done = False

    def is_due(self, sent: int) -> bool:
        """Return whether a connection that was sent so many bytes is the one, once."""
        with self._lock:
            if self._is_done or sent < self.after:
                return False
            self._is_done = True
            return True

    def room(self, sent: int) -> int | None:
        """Return how many bytes may still be sent before the cut; None where no cut is to come."""
        with self._lock:
            return None if self._is_done else max(self.after - sent, 0)


class Wire(socket.socket):
    """An accepted socket, taken over."""

    def __init__(self, accepted: socket.socket, cut: Cut | None = None) -> None:
        super().__init__(accepted.family, accepted.type, accepted.proto, fileno=accepted.detach())
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._cut = cut
        self._sent = 0

    def send(self, data: Buffer, flags: int = 0) -> int:
        """Send what the cut leaves of the data; an OSError follows once the connection is cut."""
        room = self._cut.room(self._sent) if self._cut else None
        count = super().send(data if room is None else memoryview(data)[:room], flags)
        self._sent += count
        if self._cut and self._cut.is_due(self._sent):
            self.break_off()
        return count

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive, and acknowledge at once: a client that waits for that would wait 40 ms. The kernel forgets it."""
        self.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return super().recv(size, flags)

    def break_off(self) -> None:
        """End the connection as a lost machine or a firewall does: without a word of SSH."""
        with contextlib.suppress(OSError):
            self.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            # A reader in another thread holds the socket open for the kernel; this reaches the peer all the same.
            self.shutdown(socket.SHUT_RDWR)
        self.close()
