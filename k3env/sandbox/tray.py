"""One tray: an SSH server on loopback, in threads of this process, with the fault its inventory gave it."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import paramiko

from k3env.sandbox import environment, overlay, processes
from k3env.sandbox.session import Session, Shell
from k3env.sandbox.spec import DIED, Fault
from k3env.sandbox.watch import TaskWatch
from k3env.sandbox.wire import Cut, Wire

DEATH_DELAY_S = 1.5
"""From the begin of the task to the death of the tray."""
DOWN_S = 2.0
"""How long a dead tray is away."""

_LOOPBACK = "127.0.0.1"
_BACKLOG = 128
_PAUSE_S = 0.05
_LOG = "k3env.sandbox.ssh"
logging.getLogger(_LOG).addHandler(logging.NullHandler())  # a connection that breaks is no news of this process


class Connection(NamedTuple):
    """A client's connection."""

    transport: paramiko.Transport
    wire: Wire


class Tray:
    """A tray's SSH server. It takes one key, and runs commands in the tray's environment, as the current user."""

    def __init__(self, directory: Path, fault: Fault | None, host_key: paramiko.PKey, user: str, key: paramiko.PKey):
        self.port = 0
        self._directory = directory
        self._fault = fault or Fault("")
        self._host_key = host_key
        self._user = user
        self._key = key
        self._shell = Shell(environment.of_tray(directory, user), directory / "home")
        self._cut = Cut(self._fault.after) if self._fault.kind == "drop_after_bytes" else None
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self._connections: list[Connection] = []
        self._is_stopped = threading.Event()
        self._is_dying = (directory / DIED).exists()

    def start(self) -> None:
        """Take a port and serve it, until `stop` or the end of this process."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((_LOOPBACK, self.port))
        self.port = listener.getsockname()[1]
        with self._lock:
            self._listener = listener
        if self._fault.kind == "refuse":
            return  # bound, so that no one else takes the port, but nobody listens
        listener.listen(_BACKLOG)
        if self._fault.kind == "silent":
            return  # the kernel accepts, nobody answers
        threading.Thread(target=self._accept, args=(listener,), name="sandbox-accept", daemon=True).start()

    def stop(self) -> None:
        """Close the server and its connections. What runs on the tray runs on, as on a real node."""
        self._is_stopped.set()
        for connection in self._close():
            connection.transport.close()

    def _accept(self, listener: socket.socket) -> None:
        while self._listener is listener:
            try:
                sock, _ = listener.accept()
            except OSError:  # closed, or out of descriptors for now
                time.sleep(_PAUSE_S)
                continue
            with contextlib.suppress(OSError):  # the client is gone again
                self._serve(sock)

    def _serve(self, sock: socket.socket) -> None:
        wire = Wire(sock, self._cut)
        transport = paramiko.Transport(wire)
        transport.set_log_channel(_LOG)
        transport.add_server_key(self._host_key)
        with self._lock:
            if self._listener is None:
                wire.break_off()
                return
            self._connections = [known for known in self._connections if known.transport.is_alive()]
            self._connections.append(Connection(transport, wire))
        # An event in place of a wait: the handshake is the transport's thread's.
        transport.start_server(
            event=threading.Event(), server=Session(self._user, self._key, self._shell, self._watcher())
        )

    def _watcher(self) -> Callable[[bytes], None]:
        """Return what looks at all that is sent on one connection."""
        if self._fault.kind != "die_at_task":
            return lambda data: None
        watch = TaskWatch(self._fault.module)

        def sent(data: bytes) -> None:
            if watch.sees(data):
                self._doom()

        return sent

    def _doom(self) -> None:
        """Let the tray die soon, once."""
        with self._lock:
            if self._is_dying:
                return
            self._is_dying = True
        timer = threading.Timer(DEATH_DELAY_S, self._die)
        timer.daemon = True
        timer.start()

    def _die(self) -> None:
        """Lose power, stay away, come back on the same port with another boot id."""
        (self._directory / DIED).touch()
        gone = self._close()
        processes.kill(self._directory)
        overlay.reboot(self._directory / "overlay")
        back = time.monotonic() + DOWN_S
        for connection in gone:
            connection.transport.close()
        while not self._is_stopped.wait(max(back - time.monotonic(), _PAUSE_S)):
            with contextlib.suppress(OSError):  # the port is taken for the moment
                self.start()
                break

    def _close(self) -> list[Connection]:
        """Close the server and break its connections off. Returns them: their threads still have to end."""
        with self._lock:
            listener, self._listener = self._listener, None
            gone, self._connections = self._connections, []
        if listener is not None:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
            listener.close()
        for connection in gone:
            connection.wire.break_off()
        return gone
