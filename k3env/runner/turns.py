"""Turns: whose turn it is to be reached. A host that is not there is tried again after the others.

The second try comes when all others have had theirs, the third when they have ended: by then a node that booted or an
sshd that was restarted is back, and nobody has waited for it. Pauses have jitter. All tries and pauses of a host
together take no longer than --timeout. Only a refused connection and a missing road are worth it: a silent host has
used up its time, and keys and host keys do not mend themselves.
"""

from __future__ import annotations

import random
import threading
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace

from k3env.errors import NotThere
from k3env.runner.host import Limits, Target, Wish

PAUSE_S = (0.5, 1.5)
LOOK_S = 0.2
"""How often a thread without work looks whether it is somebody's turn, seconds."""


@dataclass(frozen=True)
class Turn:
    """One try to reach a host."""

    target: Target
    number: int = 1
    spent_s: float = 0.0
    """What earlier tries and pauses took of the host's time."""
    not_before: float = 0.0
    """On time.monotonic()."""
    late: bool = False
    """Whether it comes when all others have ended."""
    error: NotThere | None = None
    """What the try before this one met."""


class Turns:
    """Targets in their order; threads take turns."""

    def __init__(self, targets: Iterable[Target], limits: Limits, wish: Wish) -> None:
        """Each host has one turn at first, `limits.tries` at most."""
        self._waiting = deque(Turn(target) for target in targets)
        self._limits, self._wish = limits, wish
        self._early = len(self._waiting)
        """Hosts that wait or are followed, those for whose end late turns wait."""
        self._lock = threading.Lock()

    def take(self) -> Turn | None:
        """Return the next turn once it is due; None when there is no more work."""
        while not self._wish.left.is_set():
            with self._lock:
                if not self._waiting:
                    return None
                turn = next((turn for turn in self._waiting if self._is_due(turn)), None)
                if turn is not None:
                    self._waiting.remove(turn)
                    return turn
            self._wish.left.wait(LOOK_S)
        return None

    def limits(self, turn: Turn) -> Limits:
        """Return what a turn may still take."""
        return replace(self._limits, timeout_s=self._limits.timeout_s - turn.spent_s)

    def again(self, turn: Turn, error: NotThere, took_s: float) -> bool:
        """Note that a host was not there; return whether it has another turn."""
        pause = random.uniform(*PAUSE_S)  # noqa: S311 - jitter
        spent = turn.spent_s + took_s + pause
        if turn.number >= self._limits.tries or spent >= self._limits.timeout_s or self._wish.held:
            return False
        number = turn.number + 1
        due = time.monotonic() + pause
        following = Turn(turn.target, number, spent, due, late=number > 2, error=error)
        with self._lock:
            self._waiting.append(following)
            self._early += not following.late
        return True

    def ended(self, turn: Turn) -> None:
        """Note that a turn is over."""
        with self._lock:
            self._early -= not turn.late

    def _is_due(self, turn: Turn) -> bool:
        if self._wish.held:
            return True
        if turn.late and self._early:
            return False
        return turn.not_before <= time.monotonic() and turn.target.ready()
