"""A TCP proxy that counts: connections, bytes up, and turns of the conversation."""

from __future__ import annotations

import selectors
import socket
import threading
from dataclasses import dataclass


@dataclass
class Count:
    """What went through."""

    connections: int = 0
    bytes_up: int = 0
    turns: int = 0
    """How often the controller spoke after the node had: round trips, as the controller sees them."""


class Proxy:
    """Forward connections to a port of this machine; use as a context manager."""

    def __init__(self, port: int) -> None:
        """Listen on a port of its own."""
        self.count = Count()
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.count.connections += 1
            far = socket.create_connection(("127.0.0.1", self._target))
            for side in (near, far):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self._forward, args=(near, far), daemon=True).start()

    def _forward(self, near: socket.socket, far: socket.socket) -> None:
        speaker = far
        with near, far, selectors.DefaultSelector() as selector:
            selector.register(near, selectors.EVENT_READ, far)
            selector.register(far, selectors.EVENT_READ, near)
            while True:
                for key, _ in selector.select():
                    source, target = key.fileobj, key.data
                    assert isinstance(source, socket.socket)
                    try:
                        data = source.recv(65536)
                        target.sendall(data)
                    except OSError:
                        return
                    if not data:
                        return
                    if source is near:
                        self.count.bytes_up += len(data)
                        self.count.turns += speaker is far
                    speaker = source
