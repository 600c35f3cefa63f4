"""Memory: what a run has read of its node while nothing there changed; whoever changes something has it forgotten."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any, Callable, TypeVar

T = TypeVar("T")
LASTS_S = 5.0
"""How long a reading is taken for what is there now, seconds: other nodes change what lies on a shared filesystem."""


class Memory:
    """Readings by name, those of one user: what another one may read is another matter."""

    def __init__(self) -> None:
        self._known: dict[Hashable, tuple[float, Any]] = {}

    def recall(self, what: Hashable, read: Callable[[], T]) -> T:
        """Return what `read` has returned of this a moment ago, else what it returns now; an error is not kept."""
        now = time.monotonic()
        since, value = self._known.get(what, (now - LASTS_S, None))
        if now - since >= LASTS_S:
            value = read()
            self._known[what] = (now, value)
        found: T = value
        return found

    def forget(self) -> None:
        """Forget all: something was changed, or is to be looked at anew."""
        self._known.clear()
