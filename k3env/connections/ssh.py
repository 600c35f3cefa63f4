"""SSH by Fabric and paramiko, from settings that we resolved.

Fabric's runner is quadratic in output and hangs on a silent drop, so the exec loop on the channel is ours; its host key
policy adds unknown keys, so that is ours too.
"""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from k3env.connections import process as openssh
from k3env.connections import trust
from k3env.connections.channel import DEAD_S, Peer, SshProcess
from k3env.connections.connection import Process
from k3env.connections.host_keys import Key, address, fingerprint
from k3env.connections.process import ProcessConnection
from k3env.connections.road import Road
from k3env.connections.ssh_settings import Asked, Resolved, resolve
from k3env.errors import AuthFailed, ConnectTimeout, Dropped, HostKeyMismatch, NotThere, Unreachable

if TYPE_CHECKING:
    import fabric
    import paramiko

MOST_JUMPS = 8


@dataclass(frozen=True)
class Settings:
    """What is known of a host before ssh_config is asked."""

    hostname: str
    port: int | None = None
    user: str | None = None
    private_key: str | None = None
    host_key: Key | None = None
    """The key that this host has, where it was told apart from known_hosts; then ssh_config is not asked."""


class SshConnection:
    """The way to one host by SSH; by the user's own ssh where ssh_config asks for what only that can do."""

    def __init__(self, settings: Settings, road: Road, jumps: int = 0) -> None:
        """Nothing is contacted yet; `jumps` counts the hosts that were gone through for this one."""
        self.note = ""
        self._openssh: ProcessConnection | None = None
        self._settings = settings
        self._road = road
        self._jumps = jumps
        self._connection: fabric.Connection | None = None
        self._peer: Peer | None = None
        self._where = address(settings.hostname, settings.port or 22)

    def open(self, timeout_s: float) -> None:
        """Reach the host: ssh_config, jump hosts, TCP, host key, authentication.

        Raises Unreachable: AuthFailed, HostKeyMismatch, ConnectTimeout or Dropped.
        """
        ends = time.monotonic() + timeout_s
        resolved = self._resolve()
        self.note = resolved.note
        if resolved.needs_openssh:
            self._hand_over(", ".join(resolved.needs_openssh), timeout_s)
            return
        self._where = address(resolved.hostname, resolved.port)
        # The way to a jump host has gates of its own: they are passed before this one.
        try:
            gateway = self._gateway(resolved, ends) if resolved.jumps else None
        except _OpensshAlone as error:
            self._hand_over(f"{error} on the way", timeout_s)
            return
        gate = self._road.gate.at(resolved.hostname, resolved.port)
        if not gate.acquire(timeout=timeout_s):
            raise ConnectTimeout(f"no turn at {self._where} within {timeout_s:g} s")
        try:
            self._peer = Peer(self._connect(resolved, gateway, max(0.1, ends - time.monotonic())))
            self._authenticate(resolved, ends, timeout_s)
        except BaseException:
            self.close()
            raise
        finally:
            gate.release()

    def start(self, command: str) -> Process:
        """Run one command line in the user's login shell."""
        import paramiko

        if self._openssh is not None:
            return self._openssh.start(command)

        try:
            channel = self.transport.open_session(timeout=DEAD_S)
            channel.exec_command(command)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise Dropped(f"{self._where} refused a session: {error or type(error).__name__}") from None
        assert self._peer is not None  # noqa: S101 - open() came first
        return SshProcess(channel, self._peer, self._where)

    def close(self) -> None:
        """Close the connection."""
        if self._openssh is not None:
            self._openssh.close()
        if self._connection is not None:
            with contextlib.suppress(OSError, EOFError):
                self._connection.close()
        if self._peer is not None:
            self._peer.close()

    @property
    def transport(self) -> paramiko.Transport:
        """The transport of an open connection."""
        assert self._connection is not None  # noqa: S101 - open() came first
        transport: paramiko.Transport = self._connection.client.get_transport()
        return transport

    @property
    def alive(self) -> bool:
        """Whether the connection still stands."""
        return self._connection is not None and self.transport.is_active()

    def _hand_over(self, why: str, timeout_s: float) -> None:
        """Let OpenSSH itself make the connection, from here to the end."""
        asked = self._settings
        if self._jumps:
            raise _OpensshAlone(f"{why} for {asked.hostname}")
        self.note = f"by OpenSSH's own ssh, since ssh_config has {why}"
        accept_new = self._road.accept_new
        target = openssh.Target(asked.hostname, asked.port, asked.user, asked.private_key, accept_new=accept_new)
        self._openssh = ProcessConnection("openssh", target)
        self._openssh.open(timeout_s)

    def _resolve(self) -> Resolved:
        settings = self._settings
        if settings.host_key is None:
            return resolve(Asked(settings.hostname, settings.port, settings.user, settings.private_key))
        keys = (settings.private_key,) if settings.private_key else ()
        return Resolved(settings.hostname, settings.port or 22, settings.user or "root", keys, only_these_keys=True)

    def _connect(
        self, resolved: Resolved, gateway: SshConnection | None, left: float
    ) -> socket.socket | paramiko.Channel:
        if gateway is not None:
            return self._through(resolved, gateway, left)
        try:
            return socket.create_connection((resolved.hostname, resolved.port), left)
        except TimeoutError:
            raise ConnectTimeout(
                f"{self._where} did not answer in time",
                expected="a TCP connection",
                found=f"silence for {left:.3g} s",
                remedy="is the node up, and does a firewall drop us? --timeout gives it longer",
            ) from None
        except socket.gaierror as error:
            raise Unreachable(
                f"name {resolved.hostname} does not resolve: {error.strerror}",
                expected="a name or an address",
                found=resolved.hostname,
                remedy="set ansible_host, or mend the name",
            ) from None
        except OSError as error:
            raise NotThere(
                f"{self._where}: {error.strerror or error}", remedy="is the node up, and its sshd?"
            ) from None

    def _gateway(self, resolved: Resolved, ends: float) -> SshConnection:
        """Return the connection to the last jump host on the way."""
        *before, last = resolved.jumps
        if self._jumps + len(resolved.jumps) > MOST_JUMPS:
            raise Unreachable(
                f"more than {MOST_JUMPS} jump hosts on the way to {self._where}",
                expected="a chain that ends",
                found=", ".join(item.host for item in resolved.jumps),
                remedy="does a ProxyJump lead to itself? Match jump hosts with ProxyJump none",
            )

        def connect() -> SshConnection:
            settings = Settings(last.host, last.port, last.user)
            hop = _Behind(settings, self._road, self._jumps + 1, tuple(before))
            hop.open(max(0.1, ends - time.monotonic()))
            return hop

        try:
            return self._road.jump(resolved.jumps, connect)
        except Unreachable as error:
            if isinstance(error, _OpensshAlone) or "jump host" in str(error):
                raise
            raise type(error)(
                f"jump host {last.host}: {error}",
                expected=error.finding.expected,
                found=error.finding.found,
                remedy=error.finding.remedy,
            ) from None

    def _through(self, resolved: Resolved, gateway: SshConnection, left: float) -> paramiko.Channel:
        """Open a channel from the last jump host to this one."""
        import paramiko

        try:
            target = (resolved.hostname, resolved.port)
            return gateway.transport.open_channel("direct-tcpip", target, ("127.0.0.1", 0), timeout=left)
        except (paramiko.SSHException, OSError, EOFError) as error:
            raise NotThere(
                f"jump host {resolved.jumps[-1].host} can't reach {self._where}: {error or type(error).__name__}",
                remedy="is the node up, and may the jump host forward there (AllowTcpForwarding)?",
            ) from None

    def _authenticate(self, resolved: Resolved, ends: float, whole_s: float) -> None:
        import logging

        import fabric
        import paramiko

        # What goes wrong on the road is told once, as a finding.
        logging.getLogger("paramiko").setLevel(logging.CRITICAL + 1)
        left = max(0.1, ends - time.monotonic())
        strategy = _strategy(self._road, resolved, named=self._settings.private_key is not None)
        times = {"banner_timeout": left, "auth_timeout": left, "channel_timeout": left}
        connection = fabric.Connection(
            resolved.hostname,
            user=resolved.user,
            port=resolved.port,
            config=self._road.config(),
            connect_timeout=left,
            connect_kwargs={"sock": self._peer, "auth_strategy": strategy, **times},
        )
        self._believe(connection.client, resolved)
        try:
            connection.open()
        except (HostKeyMismatch, AuthFailed):
            raise
        except paramiko.BadHostKeyException as error:
            raise trust.changed(error, self._where) from None
        except paramiko.AuthenticationException:
            raise self._refused(resolved, strategy.offered) from None
        except (paramiko.SSHException, OSError, EOFError) as error:
            if "Too many authentication failures" in str(error):
                raise self._refused(resolved, strategy.offered) from None
            if not self._peer_left:
                raise ConnectTimeout(
                    f"{self._where} accepts, but sends no SSH banner within {whole_s:.3g} s",
                    expected="an SSH server that answers",
                    found="silence",
                    remedy="is the node overloaded or its sshd stopped? Look at its console; --timeout gives it longer",
                ) from None
            raise Dropped(f"{self._where} ended the handshake: {error or type(error).__name__}") from None
        self._connection = connection

    def _believe(self, client: paramiko.SSHClient, resolved: Resolved) -> None:
        shown = address(resolved.hostname, resolved.port)
        name = resolved.host_key_alias or self._where
        if self._settings.host_key is not None:
            trust.believe(client, [self._settings.host_key], shown, name)
            return
        known = self._road.known(resolved.known_hosts)

        def keys() -> list[Key]:
            alias = resolved.host_key_alias
            return known.keys(alias, 22) if alias else known.keys(resolved.hostname, resolved.port)

        def accept(key: paramiko.PKey) -> None:
            file = resolved.known_hosts[0]
            with self._road.accepting:
                # Another host's thread may have met the same host meanwhile.
                if trust.is_new(keys(), name, key):
                    trust.keep(file, name, key)
                    known.learn(name, key.get_name(), key.get_base64(), file)
                    told = f"{key.get_name()} {fingerprint(key.asbytes())}"
                    self.note = f"new host key accepted and kept in {file}: {told}"

        wanted = accept if self._road.accept_new and resolved.known_hosts else None
        trust.believe(client, keys(), shown, name, wanted)

    def _refused(self, resolved: Resolved, offered: int) -> AuthFailed:
        named = self._settings.private_key
        tried = f"{offered} key{'s' if offered != 1 else ''} offered" if offered else "there is no key to offer"
        return AuthFailed(
            f"{self._where} refused user {resolved.user}: {tried}",
            expected="a key that the host accepts",
            found=named or ", ".join(resolved.key_files[:3]) or "no key",
            remedy=f"ssh-copy-id -p {resolved.port} {resolved.user}@{resolved.hostname}, or name a key: --private-key",
        )

    @property
    def _peer_left(self) -> bool:
        assert self._peer is not None  # noqa: S101 - made by open()
        return self._peer.left


class _OpensshAlone(Unreachable):
    """A jump host needs what only OpenSSH can do, so it must go the whole way."""


class _Behind(SshConnection):
    """A jump host that lies behind others; where none are named, its own ssh_config says so."""

    def __init__(self, settings: Settings, road: Road, jumps: int, before: tuple[Asked, ...]) -> None:
        super().__init__(settings, road, jumps)
        self._before = before

    def _resolve(self) -> Resolved:
        from dataclasses import replace

        resolved = super()._resolve()
        return replace(resolved, jumps=self._before) if self._before else resolved


def _strategy(road: Road, resolved: Resolved, named: bool) -> Any:
    """Return paramiko's strategy: the keys of our keyring, one after another."""
    import paramiko
    from paramiko.auth_strategy import AuthStrategy, InMemoryPrivateKey

    class Keys(AuthStrategy):
        """Offer keys in OpenSSH's order."""

        offered = 0

        def get_sources(self) -> Any:
            for key in road.keyring.candidates(resolved, named):
                self.offered += 1
                yield InMemoryPrivateKey(resolved.user, key)

    return Keys(paramiko.SSHConfig())
