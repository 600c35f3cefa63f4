"""What every connection offers: reach a host, start a command there, carry bytes."""

from __future__ import annotations

from typing import Protocol

from k3env.errors import Unreachable


class Process(Protocol):
    """A command that runs at the other end."""

    def send(self, data: bytes) -> None:
        """Send bytes to its standard input.

        Raises Dropped when the connection is gone.
        """

    def receive(self, timeout_s: float) -> bytes | None:
        """Return bytes of its standard output, b"" at its end, None when there were none for `timeout_s` seconds.

        Raises Dropped when the connection is gone.
        """

    def close_input(self) -> None:
        """End its standard input."""

    def said(self) -> str:
        """Return the tail of what it wrote to standard error."""

    def exit_code(self) -> int | None:
        """Return its exit code if it has ended and the other end has told."""

    def failure(self) -> Unreachable | None:
        """Return what the road itself says of its end, or None where the command ended by itself."""


class Connection(Protocol):
    """The way to one host."""

    note: str
    """What the user should know of it, once it is open; may be empty."""

    def open(self, timeout_s: float) -> None:
        """Reach the host within some seconds.

        Raises Unreachable: AuthFailed, HostKeyMismatch, ConnectTimeout or Dropped.
        """

    def start(self, command: str) -> Process:
        """Run one command line in the user's login shell."""

    def close(self) -> None:
        """Let go of the host; what runs there in its own session lives on."""
