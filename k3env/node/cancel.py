"""The wish to stop: SIGTERM as an exception, raised only where waiting is safe to leave."""

from __future__ import annotations

import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType, TracebackType
    from typing import Optional


class Cancelled(BaseException):
    """Somebody asked the worker to stop. No module catches it."""


class Cancel:
    """Remembers that a stop was asked for: at once, which leaves a wait, or before the next task."""

    def __init__(self) -> None:
        self.requested = False
        self.stopping = False
        """Whether no further task may begin."""
        self.expired = False
        """Whether a task's own deadline has passed; its worker clears it."""
        self.reason = "cancelled"
        self._depth = 0

    def install(self) -> None:
        """Turn signals into wishes.

        SIGTERM: stop. SIGUSR1: stop before the next task. SIGUSR2: stop, nobody follows. SIGALRM: a task's deadline.
        """
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGALRM, self._handle)
        signal.signal(signal.SIGUSR1, self._stop)
        signal.signal(signal.SIGUSR2, self._handle)
        # The boot code has held back what came before somebody could listen.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGTERM, signal.SIGUSR1))

    def request(self, reason: str) -> None:
        """Ask for a stop; from the main thread, inside a wait, it raises at once."""
        self.requested = True
        self.reason = reason

    def check(self) -> None:
        """Raise Cancelled if a stop was asked for or the deadline has passed."""
        if self.requested or self.expired:
            raise Cancelled(self.reason)

    def boundary(self) -> None:
        """Raise Cancelled if no further task may begin."""
        self.check()
        if self.stopping:
            raise Cancelled(self.reason)

    def __enter__(self) -> Cancel:
        """Begin a wait that a stop may leave by Cancelled."""
        self.check()
        self._depth += 1
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._depth -= 1

    def _stop(self, number: int, frame: Optional[FrameType]) -> None:
        self.stopping = True

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        if number == signal.SIGALRM:
            self.expired = True
        else:
            self.requested = True
            self.reason = "nobody follows this run any more" if number == signal.SIGUSR2 else self.reason
        if self._depth > 0:
            raise Cancelled(self.reason)
