"""A run: stages of hosts one after another, the user's Ctrl-C, and the record of it all."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from k3env.errors import K3Error
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.line import END, FAILED, HELLO, NOTRUN, RESULT, UNREACHABLE
from k3env.protocol.outcome import Fold
from k3env.runner.fanout import Fanout
from k3env.runner.host import Limits, Target, Wish
from k3env.runner.policy import Policy
from k3env.runner.record import Record

AGAIN_S = 5.0
"""A second Ctrl-C within these seconds cancels the work on every node."""
CONFIRM_S = 15.0
"""How long nodes have to confirm that they stopped."""
NONE_S = 2.0
"""The same, where none has said that it began: one that is just about to."""
POLL_S = 0.2
_ENDS = (RESULT, END, FAILED, UNREACHABLE)


@dataclass(frozen=True)
class Watcher:
    """Who is told what happens."""

    event: Callable[[str, Event], None]
    """Host and event, after the fold has taken it in."""
    tick: Callable[[], None]
    """Several times a second."""
    notice: Callable[[str], None]
    """Something that the user should read now."""
    gone: Callable[[], bool] = lambda: False
    """Whether nobody reads any more."""


class Run:
    """Follows stages of targets and folds what they say."""

    def __init__(
        self, record: Record, fold: Fold, limits: Limits, forks: int, watcher: Watcher, *, live: bool = True
    ) -> None:
        """Nothing is contacted yet. `live`: what comes was sent just now, and shows how a node's clock goes."""
        self._live = live
        self._record, self._fold, self._limits, self._forks, self._watcher = record, fold, limits, forks, watcher
        self._wish = Wish()
        self._leave_at: float | None = None
        self.over = False
        """Whether no further stage may begin: the user or a policy ended the run."""
        self.at_work: set[tuple[int, str]] = set()
        """Play and host whose worker may be at work."""
        self._why = ""
        self._play = 1

    def stage(self, targets: Sequence[Target], policy: Policy, may_stop: bool, play: int = 1) -> None:
        """Follow these hosts until all have ended; `may_stop`: their workers stop when nobody follows them."""
        if self.over or not targets:
            return
        self._play = play
        self._wish = Wish()
        fanout = Fanout(targets, self._forks, replace(self._limits, tries=policy.tries), self._wish)
        fanout.begin()
        failed: set[str] = set()
        while fanout.running:
            try:
                for host, event in fanout.events(POLL_S):
                    self._take(host, event)
                    if event.kind in _ENDS and self._fold.host(host).status in ("failed", "unreachable"):
                        failed.add(host)
                self._judge(policy, failed, len(targets))
                self._watcher.tick()
                if self._watcher.gone():
                    self._unread()
                    break
                if self._leave_at is not None and time.monotonic() > self._leave_at:
                    self._wish.leave()
                    break
            except KeyboardInterrupt:
                self._interrupted(may_stop)
        self._end(policy.end(failed, len(targets)))

    def stop(self, reason: str) -> None:
        """Begin no further stage."""
        self._end(reason)

    def close(self) -> None:
        """Note in the record if no host can be at work any more."""
        if not self.at_work:
            self._record.end()

    def leave_out(self, hosts: Iterable[str], why: str = "") -> None:
        """Note that these hosts' next stage does not begin, since the run is over, or for a reason of their own."""
        for host in hosts:
            self._take(host, Event(NOTRUN, time=time.time(), data={"message": why or self._why}))

    def fail(self, host: str, error: K3Error) -> None:
        """Note what went wrong with a host beside its plan."""
        finding = replace(error.finding, subject=host, scope="node")
        data = {"message": str(error), "finding": codec.encode(finding)}
        self._take(host, Event(FAILED, time=time.time(), data=data))

    def _take(self, host: str, event: Event) -> None:
        lost = self._record.lost
        self._record.append(host, self._play, event)
        if self._record.lost != lost:
            self._watcher.notice(f"the record of this run can't be written any more: {self._record.lost}; it goes on")
        self._fold.add(host, event, time.time() if self._live else None)
        if event.kind == HELLO:
            self.at_work.add((self._play, host))
        elif event.kind in (END, FAILED):
            self.at_work.discard((self._play, host))
        self._watcher.event(host, event)

    def _judge(self, policy: Policy, failed: set[str], hosts: int) -> None:
        reason = policy.verdict(failed, hosts)
        if reason is not None and not self._wish.cancelled:
            self._watcher.notice(f"{reason}; the other hosts stop before their next task")
            self._wish.cancel(reason, now=False)
            self._end(reason)

    def _end(self, reason: str | None) -> None:
        if reason is not None:
            self.over = True
            self._why = self._why or reason

    def _interrupted(self, may_stop: bool) -> None:
        again = self._fold.interrupted
        self._fold.interrupted = True
        self._end("interrupted")
        self._wish.hold()
        if self._wish.now:
            # Who asks once more doesn't want to wait for confirmations either.
            self._leave_at = time.monotonic()
        elif again or may_stop:
            self._leave_at = time.monotonic() + CONFIRM_S
            self._wish.cancel("interrupted")
            self._watcher.notice("stopping the work on every node")
        elif not any(play == self._play for play, _ in self.at_work):
            self._leave_at = time.monotonic() + NONE_S
            self._wish.cancel("interrupted")
            self._watcher.notice("no host has begun, and none will")
        else:
            self._leave_at = time.monotonic() + AGAIN_S
            self._watcher.notice(f"{self._goes_on()}; Ctrl-C again within {AGAIN_S:g} s ends it now")

    def _unread(self) -> None:
        """Leave the work to itself, as after one Ctrl-C: whoever read our output has left."""
        self._fold.interrupted = True
        self._end("interrupted")
        self._wish.leave()
        self._watcher.notice(self._goes_on())

    def _goes_on(self) -> str:
        run = self._record.directory.name
        return f"the work goes on: invoke attach {run} follows it, invoke cancel {run} ends it"
