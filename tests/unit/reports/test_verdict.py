"""The verdict: what it says, what it never says, and how hosts that say the same are told once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from k3env.protocol import codec
from k3env.protocol.context import NEEDS_STEP
from k3env.protocol.event import Event
from k3env.protocol.finding import Evidence, Finding, Result
from k3env.protocol.line import BEGIN, END, RESULT, UNREACHABLE
from k3env.protocol.outcome import Outcome, fold
from k3env.protocol.plan import Task
from k3env.reports import verdict
from tests.unit.reports.runs import GONE

TASK = Task("1.1", "The node", "verify")
NODE = Finding("gpu.count", "pass", found="4 GPUs")
RANK = Finding("system.limits", "pass", scope="rank")
LEFT = Finding("system.limits", "skip", scope="rank", message=NEEDS_STEP)
BAD = Finding("gpu.count", "fail", expected="4 GPUs", found="3", evidence=(Evidence("nvidia-smi", 0, "x"),))
WARN = Finding("gpu.ecc", "warn", severity="warn", expected="none", found="2")
DARK = Finding("gpu.xid", "unknown", message="not allowed to read the kernel log")
DIM = replace(DARK, severity="warn")


def outcome(**hosts: tuple[Finding, ...]) -> Outcome:
    """Return the outcome of hosts with these findings; one without any was not reached."""
    events: list[tuple[str, Event]] = []
    for name, found in hosts.items():
        if not found:
            events.append((name, Event(UNREACHABLE, data={"finding": codec.encode(replace(GONE, subject=name))})))
            continue
        status = "failed" if any(item.status == "fail" for item in found) else "ok"
        events += [
            (name, Event(BEGIN)),
            (name, Event(RESULT, task="1.1", data=codec.encode(Result(status, findings=found)))),
            (name, Event(END, data={"status": status})),
        ]
    return fold("r", "2026-11-30T08:00:00Z", dict.fromkeys(hosts, (TASK,)), events)


@pytest.mark.parametrize(
    ("context", "found", "told"),
    [
        ("job", (NODE, RANK), "fit for Kimi K3: 2 passed"),
        ("job", (NODE, RANK, WARN), "fit for Kimi K3: 1 warned, 2 passed"),
        ("job", (NODE, RANK, DIM), "fit for Kimi K3: 1 unknown, 2 passed"),
        ("job", (NODE, RANK, DARK), "not known to be fit for Kimi K3: 1 unknown, 2 passed"),
        ("job", (BAD, RANK, DARK), "not fit for Kimi K3: 1 failed, 1 unknown, 1 passed"),
        (
            "job",
            (NODE, LEFT),
            "nothing found against it: 1 skipped, 1 passed\nnot checked: 1 check of a rank; in the job: ",
        ),
        ("job", (NODE, RANK, LEFT), "nothing found against it: "),
        ("job", (NODE,), "nothing found against it: 1 passed\nnot checked: what belongs to a rank; in the job: srun "),
        ("hc", (NODE, RANK), "nothing found against it: 2 passed\nchecked was what belongs to the context hc; "),
        ("login", (NODE, RANK), "nothing found against it: "),
    ],
)
def test_one_sentence(context: str, found: tuple[Finding, ...], told: str) -> None:
    assert str(verdict.sentence(outcome(a=found), context)).startswith(told)


def test_hosts_that_say_the_same_are_told_once() -> None:
    seen = replace(BAD, evidence=(Evidence("nvidia-smi", 0, "y"),), subject="gb300-02", duration_ms=3.0)
    hosts = {"gb300-01": (BAD, LEFT), "gb300-02": (seen, LEFT), "gb300-03": (NODE, LEFT), "gb300-04": ()}
    shown = str(verdict.report(outcome(**hosts), "job"))
    assert (
        shown
        == """\
gb300-[01-02]:
  FAIL gpu.count
    expected: 4 GPUs
    found:    3
    seen:     nvidia-smi (exit code 0): x

gb300-04:
  FAIL run.timeout
    the host did not answer in time
    expected: an answer within 30 s
    found:    silence
    remedy:   is it up? see: ssh tray-04 true

gb300-[01-02]  not fit      1 failed, 1 skipped
gb300-03       no fault     1 skipped, 1 passed
gb300-04       not reached  the host did not answer in time

not fit for Kimi K3: 3 failed, 3 skipped, 1 passed
not checked: gb300-04
not checked: 1 check of a rank; in the job: srun --ntasks-per-node=1 /opt/k3env/k3env-preflight.pyz"""
    )


def test_a_host_that_names_itself_says_the_same() -> None:
    hosts = {f"a-{number}": (replace(BAD, found=f"/local/a-{number}/x, not b-a-{number}"),) for number in (1, 2, 12)}
    shown = str(verdict.report(outcome(**hosts), "job"))
    assert "found:    /local/a-1/x, not b-a-1\n" in shown and shown.count("FAIL") == 3
    hosts = {name: (replace(BAD, found=f"/local/{name}/x"),) for name in hosts}
    shown = str(verdict.report(outcome(**hosts), "job"))
    assert shown.startswith("a-[1-2,12]:\n  FAIL gpu.count\n    expected: 4 GPUs\n    found:    /local/<host>/x\n")


def test_simulated_nodes_are_said_to_be() -> None:
    one = outcome(a=(NODE, RANK))
    host = replace(one.hosts["a"], simulated=True)
    assert str(verdict.report(replace(one, hosts={"a": host}), "job", width=100)).endswith("are made up")


def test_a_host_that_was_not_reached_is_never_fit() -> None:
    told = str(verdict.sentence(outcome(a=(NODE, RANK), b=()), "job"))
    assert not told.startswith("fit") and "not checked: b" in told


def test_passed_and_skipped_are_told_if_asked_for() -> None:
    assert "PASS gpu.count" in str(verdict.report(outcome(a=(NODE, LEFT)), "job", verbose=True))


@pytest.mark.parametrize("status", ["fail", "warn", "unknown", "skip", "pass"])
@pytest.mark.parametrize("hosts", [1, 3])
def test_a_check_of_files_has_its_name(status: str, hosts: int) -> None:
    item = Finding("model.complete", status, scope="static", subject="/m", message="x", duration_ms=1.0)
    told = str(verdict.report(outcome(**{f"n{at}": (item,) for at in range(hosts)}), "job", verbose=True))
    assert f"{status.upper()} model.complete [/m]\n" in told and "ERROR" not in told


def test_a_name_cannot_leave_its_line() -> None:
    told = str(verdict.report(outcome(**{"a\x1b[31m\nfit for Kimi K3": (BAD,), "b": (), "c": (NODE,)}), "job"))
    assert "\x1b" not in told and "fit for Kimi K3" not in told.split("\n")
