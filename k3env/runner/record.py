"""The controller's record of a run: who was asked to do what, and every event that came back."""

from __future__ import annotations

import fcntl
import json
import os
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3env.errors import UsageError, nearest
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.line import END, FAILED, HELLO, PROGRESS
from k3env.protocol.outcome import Outcome, fold
from k3env.protocol.plan import Plan, Task

KEEP, KEEP_DAYS = 200, 90
"""Records of runs that have ended: the newest, and none that ended longer ago."""
PROGRESS_EVERY_S = 10.0
HEADER, ENDED = "run.json", "ended"
ELSEWHERE = "see: invoke runs; for a run that was begun elsewhere, add --hosts, and its nodes are asked"


def state_home() -> Path:
    """Return where this user's k3env keeps its records: $XDG_STATE_HOME/k3env."""
    given = os.environ.get("XDG_STATE_HOME", "")
    # A relative path is to be ignored, says the XDG base directory specification.
    return (Path(given) if given.startswith("/") else Path.home() / ".local" / "state") / "k3env"


def new_run() -> str:
    """Return a name for a run: when it began, and chance."""
    return f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(3)}"


@dataclass(frozen=True)
class Stage:
    """The hosts that are started together: a play, or one serial batch of it."""

    play: str
    plans: dict[str, Plan]


@dataclass(frozen=True)
class Header:
    """What a run was asked for."""

    run: str
    started: str
    """RFC 3339, UTC."""
    command: tuple[str, ...]
    options: dict[str, Any]
    """The command's options, by which `attach` finds the same hosts again."""
    check: bool
    stages: tuple[Stage, ...]

    def tasks(self) -> dict[str, list[Task]]:
        """Return the tasks of all plays by host, for the hosts that a play is for."""
        tasks: dict[str, list[Task]] = {}
        for stage in self.stages:
            for name, plan in stage.plans.items():
                tasks.setdefault(name, []).extend(plan.tasks)
        return tasks


class Record:
    """One run's directory."""

    def __init__(self, directory: Path) -> None:
        """Open the record of an existing directory."""
        self.directory = directory
        self._held: int | None = None
        self._progress: dict[str, float] = {}
        self.lost = ""
        """Why nothing is written any more, or ""."""

    @property
    def name(self) -> str:
        """The run's name."""
        return self.directory.name

    @property
    def ended(self) -> bool:
        """Whether no host can be at work for it any more."""
        return (self.directory / ENDED).exists()

    @classmethod
    def begin(cls, header: Header) -> Record:
        """Make the record of a new run."""
        directory = state_home() / "runs" / header.run
        try:
            directory.mkdir(mode=0o700, parents=True)
            (directory / HEADER).write_text(codec.dumps(header), encoding="utf-8")
        except OSError as error:
            raise UsageError(
                f"the record of the run can't be written: {error.strerror}",
                expected=f"a directory that can be written to: {state_home()}",
                found=str(error),
                remedy="make room there, or set XDG_STATE_HOME to another place",
            ) from None
        record = cls(directory)
        record.hold()
        prune(directory)
        return record

    @classmethod
    def find(cls, run: str, otherwise: str = ELSEWHERE) -> Record:
        """Return the record of a run, named whole or by its beginning.

        Raises UsageError with the nearest name, or what to do `otherwise`.
        """
        names = [record.name for record in records()]
        return cls(state_home() / "runs" / pick(run, names, otherwise))

    def header(self) -> Header:
        """Return what the run was asked for.

        Raises UsageError for a record that is damaged, or of another version of k3env.
        """
        path = self.directory / HEADER
        try:
            header: Header = codec.loads(Header, path.read_bytes())
        except (OSError, ValueError) as error:
            raise UsageError(
                f"the record of run {self.directory.name} can't be read: {error}",
                expected="a record of this k3env",
                found=str(path),
                remedy=f"remove it: rm -r {self.directory}",
            ) from None
        return header

    def append(self, host: str, play: int, event: Event) -> None:
        """Keep what a host sent, or what the controller saw of it, in a play.

        A record that can't be written any more must not end the run. It then ends where that began, without a gap, so
        that who follows the run on gets the rest from the nodes. How far a task is stands there every few seconds: the
        node's journal has it all.
        """
        if self.lost:
            return
        if event.kind == PROGRESS:
            if event.time - self._progress.get(host, 0.0) < PROGRESS_EVERY_S:
                return
            self._progress[host] = event.time
        line = json.dumps({"host": host, "play": play, "event": codec.encode(event)}, separators=(",", ":"))
        try:
            with (self.directory / "events.jsonl").open("a", encoding="utf-8") as file:
                file.write(line + "\n")
        except OSError as error:
            self.lost = error.strerror or str(error)

    def hold(self) -> None:
        """Keep the record from being pruned until this process ends."""
        with suppress(OSError):
            self._held = os.open(self.directory / HEADER, os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(self._held, fcntl.LOCK_SH)

    def end(self) -> None:
        """Note that no host can be at work for this run any more, and that all they said is here."""
        if self.lost:
            return
        with suppress(OSError):
            (self.directory / ENDED).touch()

    def events(self) -> Iterator[tuple[str, int, Event]]:
        """Yield host, play and event as far as they are known; a line that is damaged is left out."""
        try:
            lines = (self.directory / "events.jsonl").read_bytes().splitlines()
        except OSError:
            return
        for line in lines:
            try:
                kept = json.loads(line)
                yield str(kept["host"]), int(kept["play"]), codec.decode(Event, kept["event"])
            except (ValueError, KeyError, TypeError):
                continue

    def unfinished(self) -> set[str]:
        """Return the hosts whose work began, and whose end is not known here."""
        begun: set[tuple[str, int]] = set()
        for host, play, event in self.events():
            if event.kind == HELLO:
                begun.add((host, play))
            elif event.kind in (END, FAILED):
                begun.discard((host, play))
        return {host for host, _ in begun}

    def outcome(self) -> Outcome:
        """Return what is known of the run.

        Raises UsageError as header does.
        """
        header = self.header()
        tasks = header.tasks()
        events = ((host, event) for host, _, event in self.events() if host in tasks)
        return fold(header.run, header.started, tasks, events, check=header.check)


class Remembered(Record):
    """A run that was begun elsewhere: what its nodes say of it, kept for as long as this command lasts."""

    def __init__(self, header: Header) -> None:
        """Nothing is written."""
        super().__init__(state_home() / "runs" / header.run)
        self._header = header
        self._events: list[tuple[str, int, Event]] = []

    def header(self) -> Header:
        """Return what the nodes know of what was asked for."""
        return self._header

    def append(self, host: str, play: int, event: Event) -> None:
        """Keep an event."""
        self._events.append((host, play, event))

    def end(self) -> None:
        """Leave it to whoever began it."""

    def events(self) -> Iterator[tuple[str, int, Event]]:
        """Yield what was kept."""
        return iter(self._events)


def pick(run: str, names: Sequence[str], otherwise: str) -> str:
    """Return the one name that is, or begins with, what was typed.

    Raises UsageError with the nearest name.
    """
    matching = [run] if run in names else [name for name in names if run and name.startswith(run)]
    if len(matching) == 1:
        return matching[0]
    close = nearest(run, list(names))
    raise UsageError(
        f"no run {run}" if not matching else f"{run} can be {', '.join(matching)}",
        expected="the name of one run",
        found=run or "none",
        remedy=f"did you mean {close}?" if close and not matching else otherwise,
    )


def prune(newest: Path) -> None:
    """Remove the records of old runs; never one that may have a host at work, or that somebody follows."""
    before = time.time() - KEEP_DAYS * 86400
    others = [record for record in reversed(records()) if record.directory != newest]
    for number, record in enumerate(others, 1):
        if (number >= KEEP or _age(record) < before) and record.ended and not _followed(record):
            shutil.rmtree(record.directory, ignore_errors=True)


def _age(record: Record) -> float:
    try:
        return (record.directory / ENDED).stat().st_mtime
    except OSError:
        return time.time()


def _followed(record: Record) -> bool:
    """Return whether a process holds a record; also where that can't be found out."""
    try:
        descriptor = os.open(record.directory / HEADER, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def records() -> list[Record]:
    """Return the records of all runs, the oldest first."""
    base = state_home() / "runs"
    if not base.is_dir():
        return []
    return [Record(path) for path in sorted(base.iterdir()) if (path / HEADER).is_file()]
