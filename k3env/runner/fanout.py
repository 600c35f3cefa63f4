"""Many hosts at once: a few threads, each following one host at a time, and one stream of events."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterable, Iterator

from k3env.protocol.event import Event
from k3env.runner.host import Follower, Limits, Target, Wish

FILES_EACH, FILES_OURS = 8, 40
"""Files that a host needs while it is reached (its socket, the pipes of `ssh -G`), and those that we need ourselves."""

AHEAD = 1000
"""Events that may wait to be read."""

NOT_YET_S = 0.2
"""Until a host that was not ready is asked for again, seconds."""


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
        self._waiting: queue.SimpleQueue[Target] = queue.SimpleQueue()
        # Bounded: nodes that talk faster than is read wait, instead of filling our memory.
        self._events: queue.Queue[tuple[str, Event] | None] = queue.Queue(AHEAD)
        targets = list(targets)
        for target in targets:
            self._waiting.put(target)
        self._limits = limits
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
            while not self._wish.left.is_set():
                try:
                    target = self._waiting.get_nowait()
                except queue.Empty:
                    return
                if not (self._wish.held or target.ready()):
                    self._waiting.put(target)
                    self._wish.left.wait(NOT_YET_S)
                    continue
                Follower(target, self._limits, lambda host, event: self._events.put((host, event)), self._wish).follow()
        finally:
            self._events.put(None)
