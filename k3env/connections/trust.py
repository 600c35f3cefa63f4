"""Whose host keys are believed: those in known_hosts, and no other."""

from __future__ import annotations

import base64
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k3env.connections.host_keys import Key, fingerprint
from k3env.errors import HostKeyMismatch

if TYPE_CHECKING:
    import paramiko


Accept = Callable[["paramiko.PKey"], None]
"""Keeps the key of a host that was never seen before; only where the user asked for that."""


def believe(client: paramiko.SSHClient, keys: list[Key], name: str, where: str, accept: Accept | None = None) -> None:
    """Give a client the keys that a host may show; anything else is refused.

    `name` is the host's in paramiko's table, `where` the one that people read. With `accept`, the key of a host of
    which nothing is known is kept; one that has another key is refused all the same.
    """
    import paramiko

    table = client.get_host_keys()
    table.clear()
    revoked = {key.data for key in keys if key.marker == "@revoked"}
    believed: dict[str, list[paramiko.PKey]] = {}
    for key in keys:
        if not key.marker and key.data not in revoked:
            with contextlib.suppress(paramiko.SSHException, ValueError):
                read = paramiko.PKey.from_type_string(key.kind, base64.b64decode(key.data))
                believed.setdefault(key.kind, []).append(read)
    for kind, several in believed.items():
        table.add(name, kind, _any_of(several))
    client.set_missing_host_key_policy(_policy(keys, where, accept))


def _any_of(keys: list[paramiko.PKey]) -> paramiko.PKey:
    """Return what equals each of some keys of one kind: paramiko's table holds one, known_hosts as many as it says."""
    import paramiko

    class AnyOf(paramiko.PKey):
        """Stands for them."""

        def get_name(self) -> str:
            return keys[0].get_name()

        def asbytes(self) -> bytes:
            return keys[0].asbytes()

        def __eq__(self, other: object) -> bool:
            return any(key == other for key in keys)

        def __hash__(self) -> int:
            return hash(keys[0])

    return AnyOf() if len(keys) > 1 else keys[0]


def changed(error: paramiko.BadHostKeyException, where: str) -> HostKeyMismatch:
    """Return what to say of a host that shows another key than the known one."""
    return HostKeyMismatch(
        f"the host key of {where} has changed",
        expected=fingerprint(error.expected_key.asbytes()),
        found=fingerprint(error.key.asbytes()),
        remedy=f"if the node was reinstalled: ssh-keygen -R '{where}'; else find out who answers there",
    )


def is_new(keys: list[Key], where: str, key: paramiko.PKey) -> bool:
    """Return whether nothing is known of the host that shows a key; False: this key of it is known.

    Raises HostKeyMismatch where another one is known. That others' keys are revoked everywhere says nothing of it.
    """
    shown = key.get_base64()
    keys = [known for known in keys if known.marker != "@revoked" or known.data == shown]
    if keys and not all(known.data == shown and not known.marker for known in keys):
        raise _unknown(keys, where, key)
    return not keys


def keep(file: str, name: str, key: paramiko.PKey) -> None:
    """Write a host's key to a known_hosts file that is made if need be.

    Raises HostKeyMismatch where that can't be done: a key that is not kept is not believed.
    """
    path = Path(file).expanduser()
    line = f"{name} {key.get_name()} {key.get_base64()}\n".encode()
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with path.open("a+b") as known:
            # A last line without an end would become one with ours, and neither host would be known.
            if known.seek(0, os.SEEK_END) and (known.seek(-1, os.SEEK_END), known.read(1))[1] != b"\n":
                line = b"\n" + line
            known.write(line)
    except OSError as error:
        raise HostKeyMismatch(
            f"the host key of {name} is new, and can't be kept: {error.strerror}",
            expected=f"a {path} that can be written to",
            found=f"{key.get_name()} {fingerprint(key.asbytes())}; {error}",
            remedy="set UserKnownHostsFile in ssh_config to a file of yours",
        ) from None


def _policy(keys: list[Key], where: str, accept: Accept | None) -> Any:
    """Return paramiko's policy for a key that is not in the table: a refusal, unless new hosts are accepted."""
    import paramiko

    class Refuse(paramiko.MissingHostKeyPolicy):
        """Say why a key is not believed."""

        def missing_host_key(self, client: Any, hostname: str, key: paramiko.PKey) -> None:
            if accept is None:
                raise _unknown(keys, where, key)
            if is_new(keys, where, key):
                accept(key)

    return Refuse()


def _unknown(keys: list[Key], where: str, key: paramiko.PKey) -> HostKeyMismatch:
    shown = fingerprint(key.asbytes())
    for known in keys:
        if known.marker == "@revoked" and known.data == key.get_base64():
            return HostKeyMismatch(
                f"the host key of {where} is revoked",
                expected="a key that is not",
                found=f"{shown}, revoked at {known.source}",
                remedy="give the host a new key; nothing on it can be trusted until then",
            )
    if any(known.marker == "@cert-authority" for known in keys):
        return HostKeyMismatch(
            f"{where} is known by a certificate authority, which this connection can't check",
            expected="a host key in known_hosts",
            found=shown,
            remedy="use --connection openssh, or add the host's own key to known_hosts",
        )
    hostname, _, port = where.rpartition("]:")
    scan = f"ssh-keyscan -p {port} {hostname[1:]}" if hostname else f"ssh-keyscan {where}"
    return HostKeyMismatch(
        f"the host key of {where} is unknown",
        expected="a key in known_hosts",
        found=f"{key.get_name()} {shown}",
        remedy=f"compare the fingerprint, then: {scan} >> ~/.ssh/known_hosts (or --accept-new-host-keys)",
    )
