"""The runs that this node keeps, told to whoever may ask: the same user, from whichever controller."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import Any, Callable, Optional

from k3env.node import about
from k3env.node.journal import works
from k3env.protocol import codec
from k3env.protocol.kept import ENDED, LOST, RUNNING, KeptRun, KeptTask
from k3env.protocol.line import END, KEPT, PROGRESS, TASK, WAITING

TAIL_BYTES = 256 << 10
"""How much of a journal is read: its end, and at least one event of each task that takes long."""
TASKS_A_LINE = 40
TEXT_CHARS = 200


def tell(state: str, wanted: str, say: Callable[[str], None]) -> None:
    """Say each run, the oldest first, and an end; `wanted` is the beginning of a run's name, or empty for all."""
    told = [run for run in _runs(os.path.join(state, "runs")) if run.run.startswith(wanted)]
    seq = 0
    for run in sorted(told, key=lambda run: (run.since, run.run)):
        for part in _parts(run if wanted else replace(run, tasks=(), profile={})):
            seq += 1
            say(_line(seq, KEPT, codec.encode(part)))
    say(_line(seq + 1, END, {"status": "ok"}))


def _line(seq: int, kind: str, data: dict[str, Any]) -> str:
    return json.dumps({"seq": seq, "kind": kind, "data": data}, separators=(",", ":"))


def _parts(run: KeptRun) -> list[KeptRun]:
    """Split a run of many tasks: a line has a length that it must not exceed."""
    _, *more = range(0, max(len(run.tasks), 1), TASKS_A_LINE)
    parts = [replace(run, tasks=run.tasks[:TASKS_A_LINE])]
    return parts + [replace(run, tasks=run.tasks[at : at + TASKS_A_LINE], profile={}) for at in more]


def _runs(directory: str) -> list[KeptRun]:
    try:
        names = os.listdir(directory)
    except OSError:
        return []
    found = (_run(os.path.join(directory, name)) for name in names)
    return [run for run in found if run is not None]


def _run(path: str) -> Optional[KeptRun]:
    """Return a run, or None for what is no run, or is another node's that shares this directory."""
    told = about.read(path)
    if not told or told.get("nodename") != os.uname().nodename:
        return None
    tasks = tuple(
        KeptTask(
            str(task["id"]),
            _short(task["name"]),
            str(task["module"]),
            bool(task.get("ignore_errors")),
            task.get("skip"),
            task.get("parameters") or {},
        )
        for task in told["tasks"]
    )
    run = KeptRun(
        str(told["run"]),
        str(told["host"]),
        RUNNING if works(path) else LOST,
        owner=_short(told.get("owner")),
        what=_short(told.get("what")),
        since=float(told["since"]),
        mode=str(told["mode"]),
        count=len(tasks),
        profile=told["profile"],
        tasks=tasks,
    )
    return _as_far(run, _events(path))


def _as_far(run: KeptRun, events: list[dict[str, Any]]) -> KeptRun:
    """Return a run with what the end of its journal says."""
    at = {task.id: number for number, task in enumerate(run.tasks)}
    for event in events:
        kind, data = event.get("kind"), event.get("data") or {}
        if kind == TASK and event.get("task") in at:
            number = at[event["task"]]
            run = replace(run, done=number, task=run.tasks[number].name, text="", fraction=None)
        elif kind == PROGRESS:
            run = replace(run, text=_short(data.get("text")), fraction=data.get("fraction"))
        elif kind == WAITING:
            run = replace(run, text=_short(f"waiting for {data.get('host', '')}"), fraction=None)
        elif kind == END:
            status = str(data.get("status", "ok"))
            done = run.count if status == "ok" else run.done
            run = replace(run, state=ENDED, status=status, done=done, text="", fraction=None)
    return run


def _events(path: str) -> list[dict[str, Any]]:
    events = []
    try:
        with open(os.path.join(path, "journal"), "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - TAIL_BYTES))
            lines = file.read().split(b"\n")
    except OSError:
        return []
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # cut off, where we began to read or where a disk was full
        if isinstance(event, dict):
            events.append(event)
    return events


def _short(text: Any) -> str:
    return str(text or "")[:TEXT_CHARS]
