"""Tries: how often a task may still be begun again."""

from __future__ import annotations

import time
from typing import Callable

from k3env.node.cancel import Cancel


class Tries:
    """Counts the tries of one task, and pauses between them."""

    def __init__(self, retries: int, delay_s: float, cancel: Cancel, tell: Callable[[str], object]) -> None:
        """`tell` gets a line for people at the beginning of each pause of `delay_s` seconds."""
        self._left = self._all = max(0, retries)
        self._delay_s = delay_s
        self._cancel = cancel
        self._tell = tell

    def again(self, failure: str) -> bool:
        """Return, after the pause, whether there is one more try after this failure."""
        if not self._left:
            return False
        self._left -= 1
        number = self._all - self._left
        self._tell(f"retry {number} of {self._all} in {self._delay_s:g} s: {failure}")
        with self._cancel:
            time.sleep(self._delay_s)
        return True

    def spend(self) -> None:
        """Leave no try."""
        self._left = 0
