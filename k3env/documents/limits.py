"""Limits: how much processor time and memory one value may take while it is rendered.

A template is a program: two nested loops run for days, a list of one text a million times over joins to terabytes.
"""

from __future__ import annotations

import resource
import signal
import threading
from types import FrameType
from typing import Any, Optional

SECONDS = 5.0
"""Of processor time, so that a busy machine refuses nothing that an idle one renders."""
MEMORY_BYTES = 512 << 20
"""More than there was before."""
_AGAIN_S = 1.0
_inside = threading.local()


class TooLong(Exception):
    """A template took too long."""

    def __init__(self) -> None:
        super().__init__(f"it takes more than {SECONDS:g} s of processor time")


class limited:  # noqa: N801 - reads as `with limited():`
    """Bound what happens within, unless that is bounded already.

    TooLong and MemoryError are what comes of too much. Time is bounded in the main thread alone, where plans are
    compiled: signals come nowhere else.
    """

    def __enter__(self) -> None:
        """Begin to count."""
        self._outermost = not getattr(_inside, "already", False)
        if not self._outermost:
            return
        _inside.already = True
        self._memory = resource.getrlimit(resource.RLIMIT_AS)
        most = _address_space() + MEMORY_BYTES
        if self._memory[0] == resource.RLIM_INFINITY or self._memory[0] > most:
            resource.setrlimit(resource.RLIMIT_AS, (most, self._memory[1]))
        self._timed = threading.current_thread() is threading.main_thread()
        if self._timed:
            self._handler: Any = signal.signal(signal.SIGVTALRM, _refuse)
            # Again and again: somebody may take the first one for an error of his own.
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS, _AGAIN_S)

    def __exit__(self, *error: object) -> None:
        """Take the bounds away; twice, as the time may be over just here."""
        try:
            self._end()
        finally:
            self._end()

    def _end(self) -> None:
        if not self._outermost:
            return
        if self._timed:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, self._handler)
        resource.setrlimit(resource.RLIMIT_AS, self._memory)
        _inside.already = False


def _refuse(number: int, frame: Optional[FrameType]) -> None:
    raise TooLong


def _address_space() -> int:
    """Return how many bytes this process has mapped. Source: proc_pid_statm(5), first field."""
    with open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
