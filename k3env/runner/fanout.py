"""Many hosts at once: a few threads, each following one host at a time, and one stream of events."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Iterable, Iterator

from k3env.protocol.event import Event
from k3env.runner.host import Follower, Limits, Target, Wish
from k3env.runner.turns import Turn, Turns

FILES_EACH, FILES_OURS = 8, 40
"""Files that a host needs while it is reached (its socket, the pipes of `ssh -G`), and those that we need ourselves."""

AHEAD = 1000
"""Events that may wait to be read."""


def bounded(forks: int) -> int:
    """Return how many hosts can be followed at a time with the files that this process may open."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (ValueError, OSError):
        pass  # then with those that there are
    if soft == resource.RLIM_INFINITY:
        return forks
    return max(1, min(forks, (soft - FILES_OURS) // FILES_EACH))


class Fanout:
    """Follow targets with at most `forks` threads; iterate to get their events as they come."""

    def __init__(self, targets: Iterable[Target], forks: int, limits: Limits, wish: Wish) -> None:
        """Nothing is contacted before the first event is asked for."""
        # Bounded: nodes that talk faster than is read wait, instead of filling our memory.
        self._events: queue.Queue[tuple[str, Event] | None] = queue.Queue(AHEAD)
        targets = list(targets)
        self._turns = Turns(targets, limits, wish)
        self._wish = wish
        self._threads = [
            threading.Thread(target=self._work, daemon=True) for _ in range(min(bounded(forks), len(targets)))
        ]
        self._running = 0

    def begin(self) -> None:
        """Start the threads."""
        for thread in self._threads:
            self._running += 1
            thread.start()

    def events(self, timeout_s: float) -> Iterator[tuple[str, Event]]:
        """Yield events that have come, waiting at most some seconds for the first."""
        wait = True
        while self._running:
            try:
                item = self._events.get(timeout=timeout_s) if wait else self._events.get_nowait()
            except queue.Empty:
                return
            wait = False
            if item is None:
                self._running -= 1
            else:
                yield item

    @property
    def running(self) -> bool:
        """Whether a thread still follows a host."""
        return self._running > 0

    def _work(self) -> None:
        try:
            while (turn := self._turns.take()) is not None:
                try:
                    self._follow(turn)
                finally:
                    self._turns.ended(turn)
        finally:
            self._events.put(None)

    def _follow(self, turn: Turn) -> None:
        def tell(host: str, event: Event) -> None:
            self._events.put((host, event))

        follower = Follower(turn.target, self._turns.limits(turn), tell, self._wish)
        if turn.error is not None and self._wish.held:
            follower.give_up(turn.error)
            return
        begun = time.monotonic()
        error = follower.attempt()
        if error is None:
            return
        if not self._turns.again(turn, error, time.monotonic() - begun):
            follower.give_up(error)
        elif turn.number == 1:
            follower.postpone(error)
