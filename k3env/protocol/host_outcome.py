"""What became of one host: its tasks, its counts, and what it does right now."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Optional

from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.finding import FAIL, Change, Finding, Result
from k3env.protocol.line import (
    APPLY,
    BEGIN,
    END,
    FACTS,
    FAILED,
    HELLO,
    LOST,
    NOTRUN,
    PROGRESS,
    RESULT,
    ROAD,
    TASK,
    UNREACHABLE,
    WAITING,
)
from k3env.protocol.plan import Task

OK, CHANGED, SKIPPED, CANCELLED = "ok", "changed", "skipped", "cancelled"
TASK_STATUSES = (OK, CHANGED, FAILED, SKIPPED, CANCELLED, NOTRUN)
HOST_STATUSES = (OK, CHANGED, FAILED, UNREACHABLE, NOTRUN)

LOST_ID = "run.worker_lost"


@dataclass(frozen=True)
class TaskOutcome:
    """What became of a task on a host."""

    id: str
    name: str
    module: str
    status: str = NOTRUN
    ignored: bool = False
    """It failed, and `ignore_errors` says to go on."""
    message: str = ""
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    duration_s: float = 0.0


@dataclass(frozen=True)
class HostOutcome:
    """What became of a host. Counted as Ansible does: `ok` includes changed tasks and failures that are ignored."""

    name: str
    status: str = NOTRUN
    ok: int = 0
    changed: int = 0
    unreachable: int = 0
    failed: int = 0
    skipped: int = 0
    rescued: int = 0
    ignored: int = 0
    notrun: int = 0
    simulated: bool = False
    message: str = ""
    tasks: tuple[TaskOutcome, ...] = ()


@dataclass
class Live:
    """What a host does right now, for who watches."""

    phase: str = "connecting"
    """connecting, running, waiting (for a lease), changing, or done."""
    task: Optional[str] = None
    text: str = ""
    fraction: Optional[float] = None


@dataclass(frozen=True)
class _Happened:
    """What ended a host from outside: it was unreachable, it failed as a whole, or it was left out."""

    kind: str
    message: str
    finding: Optional[Finding]


class HostFold:
    """One host's outcome in the making."""

    def __init__(self, name: str, tasks: Iterable[Task]) -> None:
        plans = tuple(tasks)
        self.live = Live()
        self.facts: dict[str, dict[str, Any]] = {}
        """By task, what checks across nodes compare."""
        self.lag_s: Optional[float] = None
        """The least time from the node's clock at sending to ours at arrival, seconds: skew, and the road's delay."""
        self._name = name
        self._tasks = {task.id: TaskOutcome(task.id, task.name, task.module) for task in plans}
        self._ignoring = {task.id for task in plans if task.ignore_errors}
        self._running: Optional[str] = None
        self._ended: Optional[str] = None
        self._cancelled = self._simulated = False
        self._happened: Optional[_Happened] = None
        self._hit: Optional[str] = None
        self._notes: dict[str, tuple[Optional[str], Finding]] = {}
        """By its id, a finding about a run as a whole, with the task that it is told with: the first one after it."""

    def add(self, event: Event, arrived: Optional[float] = None) -> None:
        """Take in an event; `arrived`, seconds since 1970, where it comes straight from the node."""
        if arrived is not None and event.seq and event.time:
            lag = arrived - event.time
            self.lag_s = lag if self.lag_s is None else min(lag, self.lag_s)
        self._simulated = self._simulated or event.data.get("simulated") is True
        gone = self._happened is not None and self._happened.kind == UNREACHABLE
        if gone and event.kind not in (ROAD, UNREACHABLE, FAILED, NOTRUN):
            self._happened = self._hit = None  # there it is again: a run that was attached to later
        _READERS[event.kind](self, event)

    # One reader for each kind of event.

    def road(self, event: Event) -> None:
        self.live = replace(self.live, text=str(event.data.get("message", "")), fraction=None)

    def gone(self, event: Event) -> None:
        told = event.data.get("finding")
        finding = None if told is None else codec.decode(Finding, told)
        self._happen(_Happened(event.kind, str(event.data.get("message", "")), finding))

    def begin(self, event: Event) -> None:
        self._ended = None
        self.live = Live("running")
        for finding in codec.decode(tuple[Finding, ...], event.data.get("findings", [])):
            left = (id for id, task in self._tasks.items() if task.status == NOTRUN)
            self._notes.setdefault(finding.id, (next(left, None), finding))

    def task(self, event: Event) -> None:
        self._running = self._known(event).id
        self.live = Live("running", self._running)

    def progress(self, event: Event) -> None:
        text, fraction = str(event.data.get("text", "")), event.data.get("fraction")
        known = float(fraction) if isinstance(fraction, (int, float)) else None
        self.live = replace(self.live, task=event.task, text=text, fraction=known)

    def waiting(self, event: Event) -> None:
        told = ": ".join(str(event.data[key]) for key in ("host", "progress") if event.data.get(key))
        self.live = Live("waiting", event.task, told)

    def apply(self, event: Event) -> None:
        self.live = Live("changing", event.task)

    def told(self, event: Event) -> None:
        facts = event.data.get("facts")
        if isinstance(facts, dict):
            self.facts.setdefault(str(event.task), {}).update(facts)

    def result(self, event: Event) -> None:
        known, result = self._known(event), codec.decode(Result, event.data)
        self._tasks[known.id] = replace(
            known,
            status=result.status,
            ignored=result.status == FAILED and known.id in self._ignoring,
            message=result.message,
            changes=result.changes,
            findings=result.findings,
            duration_s=result.duration_s,
        )
        self._running = None
        self.live = Live("running")

    def end(self, event: Event) -> None:
        self._ended = str(event.data.get("status", OK))
        self._cancelled = self._cancelled or self._ended == CANCELLED
        self._running = None
        self.live = Live("done")
        if self._happened is not None and self._happened.kind == NOTRUN and self._ended != CANCELLED:
            self._happened = self._hit = None  # it was to be stopped, and had come to its end
        for finding in codec.decode(tuple[Finding, ...], event.data.get("findings", [])):
            self._happen(_Happened(FAILED, finding.message, finding))

    def lost(self, event: Event) -> None:
        message = "the worker ended without saying so"
        remedy = "see worker.log in its run directory, or the kernel's log for the out-of-memory killer"
        self._happen(_Happened(FAILED, message, Finding(LOST_ID, FAIL, message=message, remedy=remedy)))

    def _known(self, event: Event) -> TaskOutcome:
        """Return a task, also one that no plan told of."""
        id, data = str(event.task), event.data
        return self._tasks.setdefault(id, TaskOutcome(id, str(data.get("name", id)), str(data.get("module", ""))))

    def _happen(self, item: _Happened) -> None:
        """Take in the end of a host; the last word counts, about the task that the first one hit."""
        if self._happened is None:
            left = (id for id, task in self._tasks.items() if task.status == NOTRUN)
            self._hit = self._running or next(left, next(reversed(self._tasks), None))
        self._happened = item
        self.live = Live("done")

    def seen(self, id: str) -> TaskOutcome:
        """Return a task, which tells of what happened to its host if it was the one that was hit."""
        task, item = self._tasks[id], self._happened
        notes = tuple(finding for at, finding in self._notes.values() if at == id)
        if notes:
            task = replace(task, findings=(*notes, *task.findings))
        if item is None or id != self._hit or item.finding is None:
            return task
        finding = replace(item.finding, subject=item.finding.subject or self._name)
        told = replace(task, findings=(*task.findings, finding))
        if task.status != NOTRUN:
            return told
        status = FAILED if item.kind == FAILED else NOTRUN
        return replace(told, status=status, message=item.message or finding.message)

    def outcome(self) -> HostOutcome:
        tasks = tuple(self.seen(id) for id in self._tasks)
        count = {status: sum(task.status == status for task in tasks) for status in TASK_STATUSES}
        ignored = sum(task.ignored for task in tasks)
        happened = self._happened.kind if self._happened else None
        failed = count[FAILED] - ignored
        if not failed and FAILED in (happened, self._ended):
            failed = 1
        left = count[NOTRUN] + count[CANCELLED]
        return HostOutcome(
            self._name,
            self._status(happened, bool(failed), bool(left), bool(count[CHANGED])),
            ok=count[OK] + count[CHANGED] + ignored,
            changed=count[CHANGED],
            unreachable=int(happened == UNREACHABLE),
            failed=failed,
            skipped=count[SKIPPED],
            ignored=ignored,
            notrun=left,
            simulated=self._simulated,
            message=self._message(tasks),
            tasks=tasks,
        )

    def _status(self, happened: Optional[str], failed: bool, left: bool, changed: bool) -> str:
        if failed:
            return FAILED
        if happened is not None:
            return happened
        if self._ended is None or self._cancelled or left:
            return NOTRUN
        return CHANGED if changed else OK

    def _message(self, tasks: tuple[TaskOutcome, ...]) -> str:
        """Return what ended the host before its time."""
        if self._happened is not None:
            finding = self._happened.finding
            return self._happened.message or (finding.message if finding else "")
        ended = (task for task in tasks if task.status in (FAILED, CANCELLED) and not task.ignored)
        return next((task.message for task in ended), "")


_READERS = {
    HELLO: HostFold.begin,
    ROAD: HostFold.road,
    BEGIN: HostFold.begin,
    TASK: HostFold.task,
    WAITING: HostFold.waiting,
    APPLY: HostFold.apply,
    PROGRESS: HostFold.progress,
    FACTS: HostFold.told,
    RESULT: HostFold.result,
    END: HostFold.end,
    LOST: HostFold.lost,
    UNREACHABLE: HostFold.gone,
    FAILED: HostFold.gone,
    NOTRUN: HostFold.gone,
}
