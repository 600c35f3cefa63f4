"""What all connections of a run share: the gate, known hosts, keys, jump hosts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from k3env.connections.host_keys import DEFAULT_FILES, KnownHosts
from k3env.connections.keys import Ask, Keyring

if TYPE_CHECKING:
    from k3env.connections.ssh import SshConnection
    from k3env.connections.ssh_settings import Asked

HALF_OPEN = 8
"""Handshakes at once at one address: sshd drops more by default (MaxStartups 10:30:100)."""


class Gate:
    """At most some half-open handshakes at one address."""

    def __init__(self, width: int = HALF_OPEN) -> None:
        """`width` handshakes at once."""
        self._width = width
        self._lock = threading.Lock()
        self._gates: dict[tuple[str, int], threading.BoundedSemaphore] = {}

    def at(self, hostname: str, port: int) -> threading.BoundedSemaphore:
        """Return the gate of one address."""
        with self._lock:
            return self._gates.setdefault((hostname, port), threading.BoundedSemaphore(self._width))


class Road:
    """Made once a run, used by every connection of it."""

    def __init__(self, known: KnownHosts | None = None, ask: Ask = lambda path: None, accept_new: bool = False) -> None:
        """Read known_hosts when the first host needs it, unless it is given; `ask` is for passphrases.

        `accept_new`: the user wants the keys of hosts that were never seen before to be kept.
        """
        self.accept_new = accept_new
        self.gate = Gate()
        self.keyring = Keyring(ask)
        self._given = known
        self._known: dict[tuple[str, ...], KnownHosts] = {}
        self._jumps: dict[tuple[Asked, ...], SshConnection] = {}
        self._config: Any = None
        self._lock = threading.Lock()
        self.accepting = threading.Lock()
        """Held while a new host's key is kept."""
        self._jumping: dict[tuple[Asked, ...], threading.RLock] = {}

    def known(self, files: tuple[str, ...] = DEFAULT_FILES) -> KnownHosts:
        """Return the hosts that some files know, read once."""
        if self._given is not None:
            return self._given
        with self._lock:
            if files not in self._known:
                self._known[files] = KnownHosts.load(files)
            return self._known[files]

    def config(self) -> Any:
        """Return Fabric's configuration: none of its files, no ssh_config."""
        import fabric

        with self._lock:
            if self._config is None:
                self._config = fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
            return self._config

    def jump(self, chain: tuple[Asked, ...], connect: Callable[[], SshConnection]) -> SshConnection:
        """Return the connection to the last of some jump hosts; all hosts behind them share it."""
        with self._lock:
            turn = self._jumping.setdefault(chain, threading.RLock())
        # A jump host may lead to itself: then the same thread comes here again, until the chain is too long.
        with turn:
            known = self._jumps.get(chain)
            if known is None or not known.alive:
                known = self._jumps[chain] = connect()
            return known

    def close(self) -> None:
        """Close the connections to jump hosts, the farthest first, and to agents."""
        for chain in sorted(self._jumps, key=len, reverse=True):
            with suppress(OSError, EOFError):
                self._jumps[chain].close()
        self._jumps.clear()
        self.keyring.close()
