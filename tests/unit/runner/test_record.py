"""The controller's records: what is kept, and for how long."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from k3env.errors import UsageError
from k3env.protocol.event import Event
from k3env.protocol.line import END, PROGRESS
from k3env.runner import record as records
from k3env.runner.record import ENDED, KEEP_DAYS, Header, Record, pick


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(records, "KEEP", 3)
    return tmp_path / "k3env" / "runs"


def header(run: str) -> Header:
    return Header(run, "2026-11-30T08:15:00Z", ("invoke",), {}, False, ())


def begun(run: str, *, ended_days_ago: float | None = None) -> Record:
    """A record whose command is gone."""
    made = Record.begin(header(run))
    assert made._held is not None
    os.close(made._held)
    if ended_days_ago is not None:
        made.end()
        then = time.time() - ended_days_ago * 86400
        os.utime(made.directory / ENDED, (then, then))
    return made


def kept(home: Path) -> list[str]:
    return sorted(path.name for path in home.iterdir())


def test_only_the_newest_stay(home: Path) -> None:
    for number in range(1, 6):
        begun(f"r{number}", ended_days_ago=0)
    begun("r6")
    assert kept(home) == ["r4", "r5", "r6"]


def test_none_stays_long_after_its_end(home: Path) -> None:
    begun("r1", ended_days_ago=KEEP_DAYS + 1)
    begun("r2", ended_days_ago=KEEP_DAYS - 1)
    begun("r3")
    assert kept(home) == ["r2", "r3"]


def test_a_run_that_may_be_at_work_or_is_followed_stays(home: Path) -> None:
    begun("r1")
    followed = begun("r2", ended_days_ago=KEEP_DAYS + 1)
    followed.hold()
    for number in range(3, 8):
        begun(f"r{number}", ended_days_ago=0)
    assert kept(home) == ["r1", "r2", "r5", "r6", "r7"]


def test_how_far_a_task_is_does_not_fill_the_record(home: Path) -> None:
    record = Record.begin(header("r1"))
    for second in range(100):
        record.append("a", 1, Event(PROGRESS, second, 1000.0 + second, "1.1", {"text": "x"}))
    record.append("a", 1, Event(END, 101, 1100.0, None, {"status": "ok"}))
    assert [event.seq for _, _, event in record.events()] == [0, 10, 20, 30, 40, 50, 60, 70, 80, 90, 101]


@pytest.mark.parametrize(
    ("typed", "found"),
    [("r-1", "r-1"), ("r-10", "r-10"), ("x", "x-2"), ("r", None), ("", None), ("q", None)],
)
def test_a_run_is_named_whole_or_by_its_beginning(typed: str, found: str | None) -> None:
    names = ["r-1", "r-10", "x-2"]
    if found is not None:
        assert pick(typed, names, "look") == found
        return
    with pytest.raises(UsageError):
        pick(typed, names, "look")
