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
    """Remembers that a stop was asked for, and leaves a wait when it comes."""

    def __init__(self) -> None:
        self.requested = False
        self.expired = False
        """Whether a task's own deadline has passed; its worker clears it."""
        self.reason = "cancelled"
        self._depth = 0

    def install(self) -> None:
        """Turn SIGTERM into this wish, and SIGALRM into a deadline."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGALRM, self._handle)

    def request(self, reason: str) -> None:
        """Ask for a stop; from the main thread, inside a wait, it raises at once."""
        self.requested = True
        self.reason = reason

    def check(self) -> None:
        """Raise Cancelled if a stop was asked for or the deadline has passed."""
        if self.requested or self.expired:
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

    def _handle(self, number: int, frame: Optional[FrameType]) -> None:
        if number == signal.SIGALRM:
            self.expired = True
        else:
            self.requested = True
        if self._depth > 0:
            raise Cancelled(self.reason)
