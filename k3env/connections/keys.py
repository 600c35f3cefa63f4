"""Private keys and the agent: loaded once a run, offered in OpenSSH's order.

First the agent's keys that ssh_config names, then its others unless IdentitiesOnly, then the files. A server takes
few tries (MaxAuthTries 6), so a key that was named must not stand behind a full agent. Each key goes after the
certificates that are for it.
"""

from __future__ import annotations

import base64
import contextlib
import copy
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k3env.errors import AuthFailed

if TYPE_CHECKING:
    import paramiko

    from k3env.connections.ssh_settings import Resolved

Ask = Callable[[str], "str | None"]
"""Asks for the passphrase of a key file; None: there is nobody to ask."""
AGENT_S = 10.0


class Keyring:
    """The keys of one run; each file is read once, each passphrase asked for once."""

    def __init__(self, ask: Ask = lambda path: None) -> None:
        """Nothing is read yet."""
        self._ask = ask
        self._lock = threading.Lock()
        self._files: dict[str, paramiko.PKey | AuthFailed] = {}
        self._agents: dict[str, list[paramiko.PKey]] = {}
        self._links: list[socket.socket] = []

    def candidates(self, resolved: Resolved, named: bool) -> Iterator[paramiko.PKey]:
        """Yield the keys to offer; `named`: the user named the one key file, which must be usable.

        Raises AuthFailed for a named key that can't be read.
        """
        for key in self._plain(resolved, named):
            yield from _certified(key, resolved)
            yield key

    def _plain(self, resolved: Resolved, named: bool) -> Iterator[paramiko.PKey]:
        agent = {key.blob: key for key in self._agent(resolved.agent)}  # type: ignore[attr-defined] # an agent's
        rest: list[paramiko.PKey] = []
        for path in resolved.key_files:
            public = _public(path)
            if public is not None and public in agent:
                yield agent.pop(public)
                continue
            try:
                key = self._file(path)
            except AuthFailed:
                if named:
                    raise
                continue
            found = agent.pop(key.asbytes(), None)
            if found is not None:
                yield found
            else:
                rest.append(key)
        if not resolved.only_these_keys:
            yield from agent.values()
        yield from rest

    def close(self) -> None:
        """Let go of the agents."""
        for link in self._links:
            link.close()

    def _file(self, path: str) -> paramiko.PKey:
        """Return the key in a file: an RSA key costs 83 ms to load, an encrypted one 100."""
        with self._lock:
            if path not in self._files:
                try:
                    self._files[path] = _load(path, self._ask)
                except AuthFailed as error:
                    self._files[path] = error
            found = self._files[path]
        if isinstance(found, AuthFailed):
            raise found
        return found

    def _agent(self, path: str | None) -> list[paramiko.PKey]:
        if path is None:
            return []
        with self._lock:
            if path not in self._agents:
                link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                self._links.append(link)
                self._agents[path] = _agent_keys(path, link)
            return self._agents[path]


def _load(path: str, ask: Ask) -> paramiko.PKey:
    import paramiko

    try:
        return paramiko.PKey.from_path(Path(path))
    except TypeError:
        passphrase = ask(path)
        if passphrase is None:
            raise AuthFailed(
                f"private key {path} has a passphrase",
                expected="a key without one, or one in the agent",
                found="an encrypted key, and nobody to ask",
                remedy=f"ssh-add {path}",
            ) from None
        return _decrypt(path, passphrase)
    except (OSError, paramiko.SSHException, ValueError) as error:
        raise AuthFailed(
            f"private key {path} can't be read: {error}",
            expected="a private key",
            found=str(error) or type(error).__name__,
            remedy="give the path of a private key",
        ) from None


def _decrypt(path: str, passphrase: str) -> paramiko.PKey:
    import paramiko

    try:
        return paramiko.PKey.from_path(Path(path), passphrase.encode())  # type: ignore[arg-type] # stub says str
    except (paramiko.SSHException, ValueError, TypeError):
        raise AuthFailed(f"the passphrase of {path} is wrong", remedy="try again, or ssh-add it to the agent") from None


def _certified(key: paramiko.PKey, resolved: Resolved) -> Iterator[paramiko.PKey]:
    """Yield copies of a key with each certificate that is for it; ssh_config names them, or they lie beside the key."""
    from paramiko.agent import AgentKey

    for path in (*resolved.certificates, *(f"{name}-cert.pub" for name in resolved.key_files)):
        certificate = _blob(path)
        if certificate is None or not _is_for(certificate, key.asbytes()):
            continue
        # paramiko's agent keys can't be copied by copy().
        made = AgentKey(key.agent, key.blob, key.comment) if isinstance(key, AgentKey) else copy.copy(key)
        with contextlib.suppress(OSError, ValueError):
            made.load_certificate(path)
            yield made


def _is_for(certificate: bytes, key: bytes) -> bool:
    """Return whether a certificate is for a key, both in wire form: its type and nonce precede the key's own fields.

    Source: PROTOCOL.certkeys of OpenSSH.
    """

    def after_string(data: bytes) -> bytes:
        return data[4 + int.from_bytes(data[:4], "big") :]

    fields = after_string(key)
    return bool(fields) and after_string(after_string(certificate)).startswith(fields)


def _public(path: str) -> bytes | None:
    """Return the wire form of a key's public half, from the file beside it."""
    return _blob(f"{path}.pub")


def _blob(path: str) -> bytes | None:
    """Return the wire form that a .pub file holds, or None."""
    try:
        words = Path(path).read_text("utf-8", "replace").split()
        return base64.b64decode(words[1], validate=True)
    except (OSError, ValueError, IndexError):
        return None


def _agent_keys(path: str, link: socket.socket) -> list[paramiko.PKey]:
    """Return an agent's keys; an agent that is gone or says nonsense has none."""
    import paramiko
    from paramiko import agent as paramikos

    class Agent(paramikos.AgentSSH):
        """One connection to the agent for all threads: signatures are asked for one after another."""

        def __init__(self) -> None:
            super().__init__()
            self.asking = threading.Lock()

        def _send_message(self, message: Any) -> Any:
            with self.asking:
                return super()._send_message(message)  # type: ignore[misc]

    link.settimeout(AGENT_S)
    agent = Agent()
    with contextlib.suppress(OSError, paramiko.SSHException):
        link.connect(path)
        agent._connect(link)  # type: ignore[attr-defined]
        keys: list[paramiko.PKey] = []
        for key in agent.get_keys():
            if "-cert-" in key.get_name():
                # Else paramiko offers an RSA key's certificate as the key alone.
                key.public_blob = paramiko.pkey.PublicBlob(key.get_name(), key.blob)  # type: ignore[assignment] # stub: None
            keys.append(key)
        return keys
    return []
