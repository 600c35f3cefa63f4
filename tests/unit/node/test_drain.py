"""Draining this node: whose reason stands there, and what is said of it. Real Slurm is in tests/slurm."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from k3env.node.machine import Machine
from k3env.node.preflight import drain
from k3env.protocol.finding import Finding

# As scontrol 22.05 prints it, on one line; shortened in the middle.
SHOWN = "NodeName=a Arch=x86_64 State={state} ThreadsPerCore=1 Partitions=main LastBusyTime=2026-11-30T11:00:00{more}"


@pytest.mark.parametrize(
    ("state", "more", "held"),
    [
        ("IDLE", "", None),
        ("MIXED+CLOUD", "", None),
        ("IDLE*", "", None),
        ("IDLE+DRAIN", " Reason=k3env: gpu.count: expected 4 GPUs, found 3 [root@2026-11-30T11:00:00]", None),
        ("IDLE+DRAIN", " Reason=bad fan, ask Eve [eve@2026-11-30T11:00:00]", "bad fan, ask Eve"),
        ("IDLE+DRAIN", " Reason=NHC: k3env: no [root@2026-11-30T11:00:00]", "NHC: k3env: no"),
        ("DOWN*+DRAIN", " Reason=Not responding [slurm@2026-11-30T11:00:00]", "Not responding"),
        ("IDLE", " Reason=watch this one [eve@2026-11-30T11:00:00] Comment=x", "watch this one"),
        ("IDLE", " Reason=none", None),
        ("IDLE+DRAIN", " Extra=Reason=k3env: x Reason=bad fan [eve@2026-11-30T11:00:00]", "bad fan"),
        ("IDLE+DRAIN", " Comment=Reason=k3env: Reason=bad fan [eve@2026-11-30T11:00:00]", "bad fan"),
        ("IDLE+DRAIN", " Reason=k3env: x [root@2026-11-30T11:00:00] Comment=y Extra=z", None),
        ("IDLE+DRAIN", "", "none given, but its state is IDLE+DRAIN"),
        ("DOWN", "", "none given, but its state is DOWN"),
    ],
)
def test_whose_reason_it_is(state: str, more: str, held: str | None) -> None:
    assert drain.held_by(SHOWN.format(state=state, more=more)) == held


def test_a_reason_is_ours_short_and_one_line() -> None:
    found = [Finding("gpu.count", "fail", expected="4 GPUs", found="3\n\x1b[31m" + "x" * 300)] * 3
    reason = drain.reason(tuple(found))
    assert reason.startswith("k3env: gpu.count: expected 4 GPUs, found 3 \\x1b[31mxxx") and reason.endswith(
        " (+2 more)"
    )
    assert len(reason) == drain.REASON and reason.isprintable()


def scontrol(directory: Path, show: str, update: str = "exit 0") -> Machine:
    """Return a machine whose scontrol is a stand-in that keeps what it was asked."""
    path = directory / "scontrol"
    path.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$*" >> {directory}/asked\nif [ "$1" = show ]; then {show}\nelse {update}; fi\n'
    )
    path.chmod(0o755)
    return Machine(environment={"PATH": f"{directory}:{os.defpath}"})


@pytest.mark.parametrize(
    ("show", "update", "told", "asked"),
    [
        ("echo NodeName=a State=IDLE", "exit 0", "drained: k3env: x", 2),
        (
            "echo Unable to contact slurm controller",
            "exit 0",
            "not drained: scontrol show node a tells no state: Un",
            1,
        ),
        ("echo 'State=IDLE+DRAIN Reason=mine [eve@now]'", "exit 0", "not drained: the node has a reason", 1),
        (
            "echo Node a not found; exit 1",
            "exit 0",
            "not drained: scontrol show node a: exit code 1 Node a not found",
            1,
        ),
        (
            "echo State=IDLE",
            "echo Invalid user id; exit 1",
            "not drained: scontrol update: exit code 1 Invalid user",
            2,
        ),
        ("kill -9 $$", "exit 0", "not drained: scontrol show node a: exit code -9", 1),
    ],
)
def test_what_is_done(tmp_path: Path, show: str, update: str, told: str, asked: int) -> None:
    assert drain.drain(scontrol(tmp_path, show, update), "a", "k3env: x").startswith(told)
    lines = (tmp_path / "asked").read_text().splitlines()
    assert lines[0] == "show node --oneliner a" and len(lines) == asked
    if asked == 2:
        assert lines[1] == "update NodeName=a State=DRAIN Reason=k3env: x"


def test_without_slurm(tmp_path: Path) -> None:
    assert drain.drain(Machine(environment={"PATH": str(tmp_path)}), "a", "k3env: x").startswith("not drained")


def test_nobody_waits_for_it(tmp_path: Path) -> None:
    machine = scontrol(tmp_path, f"touch {tmp_path}/begun; sleep 2; touch {tmp_path}/ended; echo State=IDLE")
    drain.detach(machine, "a", "k3env: x")
    assert not (tmp_path / "ended").exists()
    ends = time.monotonic() + 60
    while not (tmp_path / "asked").exists() or len((tmp_path / "asked").read_text().splitlines()) < 2:
        assert time.monotonic() < ends
        time.sleep(0.05)
