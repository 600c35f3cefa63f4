"""Progress from output: make, ninja, git, pip; a fraction only where a total is known."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.node import progress
from k3env.node.progress import Meter, Progress, parse
from tests.unit.node import ground

LINES = [
    ("[ 12%] Building CUDA object tensorrt_llm/kernels/mla.cu.o", 0.12, "Building CUDA object"),
    ("[100%] Built target build_wheel_targets", 1.0, "Built target"),
    ("[  0%]", 0.0, "[  0%]"),
    ("\x1b[32m[ 45%] Linking\x1b[0m", 0.45, "Linking"),
    ("[123/4567] Building CXX object x.o", 123 / 4567, "123/4567 Building"),
    ("Receiving objects:  45% (450/1000), 3.1 MiB | 2 MiB/s", 0.45, "Receiving objects 450/1000"),
    ("remote: Compressing objects: 100% (12/12), done.", 1.0, "Compressing objects 12/12"),
    ("Downloading LFS objects:  50% (1/2), 2.1 MB | 1.0 MB/s", 0.5, "Downloading LFS objects 1/2"),
    ("remote: Enumerating objects: 123", None, "Enumerating"),
    ("Collecting einops==0.8.1", None, "Collecting einops==0.8.1"),
    ("  Downloading einops-0.8.1-py3-none-any.whl (64 kB)", None, "Downloading einops"),
    ("Installing collected packages: einops", None, "Installing collected"),
    ("  Preparing metadata (pyproject.toml): started", None, "Preparing metadata"),
    ("-- Configuring done (3.2s)", None, "-- Configuring"),
    (f"Collecting {'x' * 300}", None, "…"),
]


@pytest.mark.parametrize(("line", "fraction", "text"), LINES, ids=[line[:30] for line, _, _ in LINES])
def test_a_line(line: str, fraction: float | None, text: str) -> None:
    found = parse(line)
    assert found is not None
    assert found.fraction == fraction
    assert text in found.text
    assert len(found.text) <= progress.TEXT_CHARS


@pytest.mark.parametrize(
    "line",
    ["", "warning: unused variable", "[120%] beyond", "[5/0] nothing", "[6/5] too many", "array[12%] = 1", "[1/x]"],
)
def test_a_line_that_says_nothing(line: str) -> None:
    assert parse(line) is None


def test_the_meter_is_quiet_between_seconds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ground.machine(tmp_path)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    meter = Meter(machine, "build")
    for number in range(1, 100):
        now[0] += 0.1
        meter.line(f"[{number:3}%] Building x.o")
        meter.line("warning: between")
    assert 9 <= len(machine.told) <= 11
    assert machine.told[:2] == [("build", None), ("build: Building x.o", 0.01)]
    parts = [part for _, part in machine.told[1:]]
    assert parts == sorted(part for part in parts if part is not None)


def test_the_last_step_is_told_though_nothing_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ground.machine(tmp_path)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    meter = Meter(machine, "build")
    meter.line("[  1%] Building a.o")
    meter.line("[  2%] Building the one that takes an hour")
    first = [("build", None), ("build: Building a.o", 0.01)]
    assert machine.told == first
    for _ in range(3):
        now[0] += 1.0
        meter.pause()
        meter.line("warning: unused")
    assert machine.told == [*first, ("build: Building the one that takes an hour", 0.02)]


def test_what_may_have_been_thinned_out_is_told_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = ground.machine(tmp_path)
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    meter = Meter(machine, "build")
    meter.line("[  1%] Building a.o")
    for _ in range(3):
        now[0] += 1.0
        meter.pause()
    assert machine.told == [("build", None), *[("build: Building a.o", 0.01)] * 2]


def test_progress_is_a_value() -> None:
    assert parse("[1/2] x") == Progress("1/2 x", 0.5)
