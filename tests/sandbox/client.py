"""A plain SSH client for the tests: what any client sees, without k3env's own road."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import paramiko

from k3env.sandbox import Endpoint

DEADLINE_S = 20.0


class Done(NamedTuple):
    """What a command left. A status of -1 means that none came."""

    status: int
    out: bytes
    err: bytes


@contextlib.contextmanager
def connect(endpoint: Endpoint, timeout_s: float = 5.0) -> Iterator[paramiko.Transport]:
    """Connect, check the host key and log in with the run's key."""
    transport = paramiko.Transport((endpoint.hostname, endpoint.port))
    try:
        transport.banner_timeout = timeout_s
        transport.start_client(timeout=timeout_s)
        key = transport.get_remote_server_key()
        assert f"{key.get_name()} {key.get_base64()}" == endpoint.host_key
        transport.auth_publickey(endpoint.user, paramiko.Ed25519Key.from_private_key_file(endpoint.private_key))
        yield transport
    finally:
        transport.close()


def execute(transport: paramiko.Transport, command: str, stdin: bytes = b"") -> Done:
    """Run a command with some input, and read all it says, side by side."""
    channel = transport.open_session()
    channel.settimeout(DEADLINE_S)
    channel.exec_command(command)
    with ThreadPoolExecutor(2) as threads:
        threads.submit(_feed, channel, stdin)
        err = threads.submit(channel.makefile_stderr("rb").read)
        out = channel.makefile("rb").read()
    return Done(channel.recv_exit_status(), out, err.result())


def _feed(channel: paramiko.Channel, data: bytes) -> None:
    channel.sendall(data)
    channel.shutdown_write()


def run(endpoint: Endpoint, command: str, stdin: bytes = b"") -> Done:
    """Run one command on a connection of its own."""
    with connect(endpoint) as transport:
        return execute(transport, command, stdin)


def wait_for(condition: Callable[[], bool], seconds: float = 5.0) -> bool:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return condition()
