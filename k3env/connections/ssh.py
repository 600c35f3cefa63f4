"""SSH by Fabric and paramiko, from settings that we resolved; the exec loop on the channel is ours.

Fabric's runner is quadratic in output and hangs on a silent drop. paramiko sets neither TCP_NODELAY nor
TCP_QUICKACK, each worth 42 ms a connection, and has a keepalive without an answer: both are done here.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from k3env.connections.host_keys import Key, KnownHosts, address, fingerprint
from k3env.errors import AuthFailed, ConnectTimeout, Dropped, HostKeyMismatch, Unreachable

if TYPE_CHECKING:
    import fabric
    import paramiko

HALF_OPEN = 8
"""Handshakes at once at one address: sshd drops more by default (MaxStartups 10:30:100)."""
KEEPALIVE_S = 5.0
DEAD_S = 15.0
_CHUNK = 1 << 16
_TAIL = 4096


@dataclass(frozen=True)
class Settings:
    """All that decides how a host is reached."""

    hostname: str
    port: int = 22
    user: str | None = None
    private_key: str | None = None
    host_key: Key | None = None
    """The key that this host has, where it was told apart from known_hosts."""


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
    """What all connections of a run share: known hosts, keys, the gate."""

    def __init__(self, known: KnownHosts | None = None) -> None:
        """Read known_hosts when the first host needs it, unless it is given."""
        self.gate = Gate()
        self._known = known
        self._keys: dict[str, paramiko.PKey] = {}
        self._config: Any = None
        self._lock = threading.Lock()

    def known(self) -> KnownHosts:
        """Return the known hosts, read once."""
        with self._lock:
            if self._known is None:
                self._known = KnownHosts.load()
            return self._known

    def key(self, path: str) -> paramiko.PKey:
        """Return a private key, loaded once a run: an RSA key costs 83 ms.

        Raises AuthFailed if it can't be read.
        """
        from pathlib import Path

        import paramiko

        with self._lock:
            if path not in self._keys:
                try:
                    self._keys[path] = paramiko.PKey.from_path(Path(path).expanduser())
                except TypeError:
                    raise AuthFailed(
                        f"private key {path} has a passphrase",
                        expected="a key without one, or one in the agent",
                        found="an encrypted key",
                        remedy=f"ssh-add {path}, and leave --private-key out",
                    ) from None
                except (OSError, paramiko.SSHException, ValueError) as error:
                    raise AuthFailed(
                        f"private key {path} can't be read: {error}", remedy="give the path of a private key"
                    ) from None
            return self._keys[path]

    def config(self) -> Any:
        """Return Fabric's configuration: none of its files, no ssh_config."""
        import fabric

        with self._lock:
            if self._config is None:
                self._config = fabric.Config(lazy=True, overrides={"load_ssh_configs": False})
            return self._config


class _Socket:
    """A socket that acknowledges at once, and remembers when it last heard something."""

    def __init__(self, inner: socket.socket) -> None:
        inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._inner = inner
        self.heard = time.monotonic()
        self.left = False
        """Whether the other end has closed the connection."""

    def recv(self, size: int) -> bytes:
        try:
            data = self._inner.recv(size)
        except ConnectionError:
            self.left = True
            raise
        self.heard = time.monotonic()
        self.left = not data
        # The kernel forgets this option after each use.
        with contextlib.suppress(OSError):
            self._inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return data

    def send(self, data: bytes) -> int:
        try:
            return self._inner.send(data)
        except ConnectionError:
            self.left = True
            raise

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class SshConnection:
    """The way to one host by SSH."""

    def __init__(self, settings: Settings, road: Road) -> None:
        """Nothing is contacted yet."""
        self._settings = settings
        self._road = road
        self._connection: fabric.Connection | None = None
        self._socket: _Socket | None = None

    def open(self, timeout_s: float) -> None:
        """Reach the host: TCP, host key, authentication.

        Raises Unreachable: AuthFailed, HostKeyMismatch, ConnectTimeout or Dropped.
        """
        ends = time.monotonic() + timeout_s
        settings = self._settings
        gate = self._road.gate.at(settings.hostname, settings.port)
        if not gate.acquire(timeout=timeout_s):
            raise ConnectTimeout(f"no turn at {self._where} within {timeout_s:g} s")
        try:
            self._socket = self._connect(max(0.1, ends - time.monotonic()))
            self._authenticate(max(0.1, ends - time.monotonic()), timeout_s)
        except BaseException:
            self.close()
            raise
        finally:
            gate.release()

    def start(self, command: str) -> SshProcess:
        """Run one command line in the user's login shell."""
        assert self._connection is not None and self._socket is not None  # noqa: S101 - open() came first
        import paramiko

        transport = self._connection.client.get_transport()
        try:
            channel = transport.open_session(timeout=DEAD_S)
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise Dropped(f"{self._where} refused a session: {error or type(error).__name__}") from None
        return SshProcess(channel, self._socket, self._where)

    def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            with contextlib.suppress(OSError, EOFError):
                self._connection.close()
        if self._socket is not None:
            self._socket.close()

    @property
    def _where(self) -> str:
        return address(self._settings.hostname, self._settings.port)

    def _connect(self, timeout_s: float) -> _Socket:
        try:
            return _Socket(socket.create_connection((self._settings.hostname, self._settings.port), timeout_s))
        except TimeoutError:
            raise ConnectTimeout(f"{self._where} did not answer within {timeout_s:.3g} s") from None
        except socket.gaierror as error:
            raise Unreachable(
                f"name {self._settings.hostname} does not resolve: {error.strerror}",
                remedy="set ansible_host, or mend the name",
            ) from None
        except OSError as error:
            raise Unreachable(
                f"{self._where}: {error.strerror or error}", remedy="is the node up, and its sshd?"
            ) from None

    def _authenticate(self, timeout_s: float, whole_s: float) -> None:
        import logging

        import fabric
        import paramiko

        # What goes wrong on the road is told once, as a finding.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
        settings = self._settings
        arguments: dict[str, Any] = {
            "sock": self._socket,
            "banner_timeout": timeout_s,
            "auth_timeout": timeout_s,
            "channel_timeout": timeout_s,
        }
        if settings.private_key:
            # A key that was named is the only one that is offered: a full agent would use up the server's tries.
            arguments |= {"pkey": self._road.key(settings.private_key), "allow_agent": False, "look_for_keys": False}
        connection = fabric.Connection(
            settings.hostname,
            user=settings.user,
            port=settings.port,
            config=self._road.config(),
            connect_timeout=timeout_s,
            connect_kwargs=arguments,
        )
        self._trust(connection.client)
        try:
            connection.open()
        except HostKeyMismatch:
            raise
        except paramiko.BadHostKeyException as error:
            raise self._changed(error) from None
        except paramiko.AuthenticationException as error:
            raise self._refused(connection.user, str(error)) from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            if "No authentication methods" in str(error):
                raise self._refused(connection.user, "there is no key to offer") from None
            if not self._peer_left:
                raise ConnectTimeout(f"{self._where} accepts, but sends no SSH banner within {whole_s:.3g} s") from None
            raise Dropped(f"{self._where} ended the handshake: {error or type(error).__name__}") from None
        self._connection = connection

    @property
    def _peer_left(self) -> bool:
        assert self._socket is not None  # noqa: S101 - made by _connect
        return self._socket.left

    def _trust(self, client: paramiko.SSHClient) -> None:
        """Give the client the keys that this host may show; anything else is refused, never added."""
        import paramiko

        settings = self._settings
        keys = [settings.host_key] if settings.host_key else self._road.known().keys(settings.hostname, settings.port)
        table = client.get_host_keys()
        table.clear()
        revoked = {key.data for key in keys if key.marker == "@revoked"}
        for key in keys:
            if not key.marker and key.data not in revoked:
                with contextlib.suppress(paramiko.SSHException, ValueError):
                    table.add(self._where, key.kind, paramiko.PKey.from_type_string(key.kind, _decoded(key)))
        client.set_missing_host_key_policy(_policy(keys, self._where))

    def _refused(self, user: str, why: str) -> AuthFailed:
        settings = self._settings
        return AuthFailed(
            f"{self._where} refused user {user}: {why}",
            expected="a key that the host accepts",
            found=settings.private_key or "no accepted key in the agent or ~/.ssh",
            remedy=f"ssh-copy-id -p {settings.port} {user}@{settings.hostname}, or --private-key",
        )

    def _changed(self, error: paramiko.BadHostKeyException) -> HostKeyMismatch:
        return HostKeyMismatch(
            f"the host key of {self._where} has changed",
            expected=fingerprint(error.expected_key.asbytes()),
            found=fingerprint(error.key.asbytes()),
            remedy=f"if the node was reinstalled: ssh-keygen -R '{self._where}'; else find out who answers there",
        )


def _decoded(key: Key) -> bytes:
    import base64

    return base64.b64decode(key.data)


def _policy(keys: list[Key], where: str) -> Any:
    """Return paramiko's policy for a key that is not in the table: always a refusal."""
    import paramiko

    class Refuse(paramiko.MissingHostKeyPolicy):
        def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:
            shown = fingerprint(key.asbytes())
            for known in keys:
                if known.marker == "@revoked" and known.data == key.get_base64():
                    raise HostKeyMismatch(
                        f"the host key of {where} is revoked",
                        found=f"{shown}, revoked at {known.source}",
                        remedy="give the host a new key; nothing on it can be trusted until then",
                    )
            if any(known.marker == "@cert-authority" for known in keys):
                raise HostKeyMismatch(
                    f"{where} is known by a certificate authority, which this connection can't check",
                    found=shown,
                    remedy="add the host's own key to known_hosts",
                )
            hostname, _, port = where.rpartition("]:")
            scan = f"ssh-keyscan -p {port} {hostname[1:]}" if hostname else f"ssh-keyscan {where}"
            raise HostKeyMismatch(
                f"the host key of {where} is unknown",
                expected="a key in known_hosts",
                found=f"{key.get_name()} {shown}",
                remedy=f"compare the fingerprint, then: {scan} >> ~/.ssh/known_hosts",
            )

    return Refuse()


class SshProcess:
    """A command on a channel: both streams drained, bytes kept, a dead peer noticed."""

    def __init__(self, channel: paramiko.Channel, peer: _Socket, where: str) -> None:
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
            self._asked = threading.Thread(
                target=transport.global_request, args=("keepalive@openssh.com",), daemon=True
            )
            self._asked.start()
