"""What nodes know of runs: asked of them, since whoever began a run may have been another user, or elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from k3env.protocol import codec, line
from k3env.protocol.event import Event
from k3env.protocol.finding import FAIL, Finding
from k3env.protocol.kept import KeptRun
from k3env.runner.fanout import Fanout
from k3env.runner.host import Limits, Target, Wish

POLL_S = 0.2
_NAME = re.compile(r"[\w-]+\.[1-9]\d{0,3}", re.ASCII)
_MISMATCHED = Finding(
    "run.protocol", FAIL, message="the node says of a run what can't be read", remedy="use one k3env everywhere"
)
_Key = tuple[str, str, str]


@dataclass
class Answers:
    """What hosts said, and which could not be asked."""

    runs: dict[str, list[KeptRun]] = field(default_factory=dict)
    """By the host's name here; the oldest first."""
    problems: dict[str, Finding] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)

    def names(self) -> list[str]:
        """Return the names of all runs, the oldest first."""
        found = sorted((run.since, run.name) for runs in self.runs.values() for run in runs)
        return list(dict.fromkeys(name for _, name in found))

    def of(self, name: str) -> dict[int, dict[str, KeptRun]]:
        """Return what is kept of one run: play to host to what that host keeps."""
        plays: dict[int, dict[str, KeptRun]] = {}
        for host, runs in self.runs.items():
            for run in runs:
                if run.name == name:
                    plays.setdefault(run.play, {})[host] = run
        return dict(sorted(plays.items()))


def ask(targets: Sequence[Target], forks: int, limits: Limits) -> Answers:
    """Ask nodes for the runs that they keep."""
    wish, answers = Wish(), Answers()
    parts: dict[_Key, KeptRun] = {}
    fanout = Fanout(targets, forks, limits, wish)
    fanout.begin()
    try:
        while fanout.running:
            for host, event in fanout.events(POLL_S):
                _take(answers, parts, host, event)
    except KeyboardInterrupt:
        wish.leave()
        raise
    for (host, _, _), run in parts.items():
        answers.runs.setdefault(host, []).append(run)
    return answers


def _take(answers: Answers, parts: dict[_Key, KeptRun], host: str, event: Event) -> None:
    if event.kind == line.KEPT:
        run = _read(event)
        if run is None:
            answers.problems[host] = _MISMATCHED
            return
        key = (host, run.run, run.host)
        known = parts.get(key)
        parts[key] = run if known is None else replace(run, tasks=(*known.tasks, *run.tasks))
    elif event.kind == line.END:
        answers.runs.setdefault(host, [])
    elif event.kind in (line.FAILED, line.UNREACHABLE, line.NOTRUN):
        told = event.data.get("finding")
        if told is not None:
            answers.problems[host] = codec.decode(Finding, told)
        if event.kind != line.FAILED:
            answers.unreachable.add(host)


def _read(event: Event) -> KeptRun | None:
    try:
        run: KeptRun = codec.decode(KeptRun, event.data)
    except codec.DecodeError:
        return None
    return run if _NAME.fullmatch(run.run) else None


def oldest(runs: Iterable[KeptRun]) -> KeptRun:
    """Return the one that was begun first."""
    return min(runs, key=lambda run: run.since)
