"""Asking a peer for a sign of life."""

from __future__ import annotations

import socket

import paramiko
import pytest

from k3env.connections.channel import _ask


@pytest.mark.parametrize("error", [EOFError(), OSError("gone"), paramiko.SSHException("closed")])
def test_a_transport_that_is_closed_while_it_is_asked_is_no_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one who waits for the sign of life notices; the thread that asks has nobody to tell."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        transport = paramiko.Transport(ours)

        def fails(*arguments: object) -> None:
            raise error

        monkeypatch.setattr(transport, "global_request", fails)
        _ask(transport)
        transport.close()
