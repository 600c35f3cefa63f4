"""The fold: every kind of event, Ansible's counting, and the exit code."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from k3env import errors
from k3env.protocol import codec
from k3env.protocol import outcome as outcomes
from k3env.protocol.event import Event
from k3env.protocol.finding import Change, Finding, Result
from k3env.protocol.line import (
    APPLY,
    BEGIN,
    END,
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
from k3env.protocol.outcome import Fold, HostOutcome, Outcome, TaskOutcome, fold
from k3env.protocol.plan import Task

A, B = "tray-01", "tray-02"
TASKS = (Task("1.1", "Verify", "verify"), Task("1.2", "Build", "trtllm_build"), Task("1.3", "Caches", "cache_dirs"))
GONE = Finding("run.timeout", "fail", scope="node", subject=A, message="did not answer in time", remedy="look at it")
REBOOTED = Finding("run.rebooted", "fail", message="the node was rebooted during the run")


def event(kind: str, task: str | None = None, **data: Any) -> Event:
    return Event(kind, task=task, data=json.loads(json.dumps(data)))


def task(id: str) -> Event:
    return event(TASK, id, module="m", name="n")


def result(id: str, status: str, **rest: Any) -> Event:
    return Event(RESULT, task=id, data=json.loads(codec.dumps(Result(status, **rest))))


def happened(kind: str, finding: Finding | None = None, **data: Any) -> Event:
    return event(kind, **({"finding": codec.encode(finding)} if finding else {}), **data)


def run(*events: Event, tasks: tuple[Task, ...] = TASKS, **rest: Any) -> Outcome:
    """Fold the events of one host."""
    return fold("r", "2026-11-30T08:00:00Z", {A: tasks}, ((A, item) for item in events), **rest)


def host(*events: Event, **rest: Any) -> HostOutcome:
    return run(*events, **rest).hosts[A]


def finished(*statuses: str) -> list[Event]:
    """Return the events of a host whose tasks ended so."""
    pairs = [(f"1.{number}", status) for number, status in enumerate(statuses, 1)]
    events = [part for id, status in pairs for part in (task(id), result(id, status, message=f"{id} {status}"))]
    last = statuses[-1] if statuses and statuses[-1] in ("failed", "cancelled") else "ok"
    return [event(BEGIN, tasks=len(TASKS)), *events, event(END, status=last)]


def counts(found: HostOutcome) -> dict[str, int]:
    names = ("ok", "changed", "unreachable", "failed", "skipped", "rescued", "ignored", "notrun")
    return {name: getattr(found, name) for name in names if getattr(found, name)}


@pytest.mark.parametrize(
    ("statuses", "status", "counted", "code"),
    [
        (("ok", "ok", "ok"), "ok", {"ok": 3}, 0),
        (("ok", "changed", "ok"), "changed", {"ok": 3, "changed": 1}, 0),
        (("ok", "skipped", "skipped"), "ok", {"ok": 1, "skipped": 2}, 0),
        (("changed", "failed"), "failed", {"ok": 1, "changed": 1, "failed": 1, "notrun": 1}, 2),
        (("ok", "cancelled"), "notrun", {"ok": 1, "notrun": 2}, 130),
    ],
)
def test_counting(statuses: tuple[str, ...], status: str, counted: dict[str, int], code: int) -> None:
    outcome = run(*finished(*statuses))
    found = outcome.hosts[A]
    assert (found.status, counts(found), outcome.exit_code()) == (status, counted, code)


def test_a_task_keeps_all_of_its_result() -> None:
    change, finding = Change("base mode", "0755", "0700"), Finding("gpu.count", "pass", found="4 GPUs")
    found = host(result("1.2", "changed", message="m", changes=(change,), findings=(finding,), duration_s=1.5))
    assert found.tasks[1] == TaskOutcome(
        "1.2", "Build", "trtllm_build", "changed", False, "m", (change,), (finding,), 1.5
    )


def test_the_message_is_that_of_what_ended_the_host() -> None:
    assert host(*finished("ok", "failed")).message == "1.2 failed"
    assert host(*finished("ok", "cancelled")).message == "1.2 cancelled"
    assert host(*finished("ok", "ok", "ok")).message == ""


def test_an_ignored_failure_counts_as_ok_and_ignored() -> None:
    tasks = (TASKS[0], Task("1.2", "Build", "trtllm_build", ignore_errors=True), TASKS[2])
    events = [*finished("ok", "failed")[:-1], result("1.3", "ok"), event(END, status="ok")]
    found = host(*events, tasks=tasks)
    assert (found.status, counts(found)) == ("ok", {"ok": 3, "ignored": 1})
    assert (found.tasks[1].status, found.tasks[1].ignored) == ("failed", True)
    assert found.message == ""


def test_a_host_that_was_never_heard_of_is_there_all_the_same() -> None:
    found = host()
    assert (found.status, counts(found)) == ("notrun", {"notrun": 3})
    assert [item.status for item in found.tasks] == ["notrun"] * 3


def test_an_empty_plan_that_ran_is_ok() -> None:
    assert host(event(BEGIN), event(END, status="ok"), tasks=()).status == "ok"
    assert host(tasks=()).status == "notrun"


def test_a_task_that_no_plan_told_of_is_taken_in() -> None:
    found = host(event(TASK, "1.9", module="m", name="new"), result("1.9", "ok"), tasks=())
    assert (found.tasks[0].id, found.tasks[0].name, found.tasks[0].status) == ("1.9", "new", "ok")


def test_simulated_is_said_by_the_agent() -> None:
    assert host(event(HELLO, simulated=True)).simulated
    assert host(event(ROAD, message="connected", simulated=True)).simulated
    assert not host(event(HELLO, simulated=False)).simulated
    assert run(event(HELLO, simulated=True)).simulated


# What the controller saw


def test_a_host_that_was_never_reached() -> None:
    outcome = run(happened(UNREACHABLE, GONE))
    found = outcome.hosts[A]
    assert (found.status, counts(found), outcome.exit_code()) == ("unreachable", {"unreachable": 1, "notrun": 3}, 4)
    assert found.message == "did not answer in time"
    assert found.tasks[0].findings == (GONE,)


def test_a_host_that_was_lost_tells_at_the_task_that_was_running() -> None:
    found = host(*finished("ok")[:-1], task("1.2"), happened(UNREACHABLE, GONE))
    assert (found.status, counts(found)) == ("unreachable", {"ok": 1, "unreachable": 1, "notrun": 2})
    assert [bool(item.findings) for item in found.tasks] == [False, True, False]
    assert (found.tasks[1].status, found.tasks[1].message) == ("notrun", "did not answer in time")


def test_a_host_that_failed_and_was_then_lost_is_failed() -> None:
    found = host(*finished("failed"), happened(UNREACHABLE, GONE))
    assert (found.status, found.failed, found.unreachable) == ("failed", 1, 1)


def test_a_rebooted_host_failed_at_the_task_that_was_running() -> None:
    outcome = run(*finished("ok")[:-1], task("1.2"), happened(FAILED, REBOOTED))
    found = outcome.hosts[A]
    assert (found.status, counts(found), outcome.exit_code()) == ("failed", {"ok": 1, "failed": 1, "notrun": 1}, 2)
    assert found.tasks[1].status == "failed"
    assert [item.id for item in found.tasks[1].findings] == ["run.rebooted"]
    assert found.tasks[1].findings[0].subject == A


def test_a_reboot_after_the_last_task_does_not_undo_it() -> None:
    found = host(*finished("ok", "ok", "ok")[:-1], happened(FAILED, REBOOTED))
    assert (found.status, found.failed, found.ok) == ("failed", 1, 3)
    assert found.tasks[2].status == "ok"
    assert found.tasks[2].findings[-1].id == "run.rebooted"


def test_a_worker_that_is_gone_failed() -> None:
    found = host(task("1.1"), event(LOST))
    assert (found.status, found.tasks[0].findings[0].id) == ("failed", "run.worker_lost")


def test_the_last_word_counts() -> None:
    found = host(task("1.2"), event(LOST), happened(FAILED, REBOOTED))
    assert [item.id for item in found.tasks[1].findings] == ["run.rebooted"]
    assert found.message == REBOOTED.message
    found = host(task("1.2"), event(LOST), happened(UNREACHABLE, GONE))
    assert (found.status, found.tasks[1].status) == ("unreachable", "notrun")


def test_a_plan_that_the_node_refuses() -> None:
    busy = Finding("run.busy", "fail", message="somebody else is changing this node")
    found = host(event(END, status="failed", findings=[codec.encode(busy)]))
    assert (found.status, found.message) == ("failed", busy.message)
    assert found.tasks[0].findings[0].id == "run.busy"


def test_an_end_that_failed_without_a_word() -> None:
    assert host(event(END, status="failed")).status == "failed"


def test_a_host_that_a_policy_left_out() -> None:
    outcome = run(happened(NOTRUN, message="max_fail_percentage 25: 2 of 4 hosts failed"))
    found = outcome.hosts[A]
    assert (found.status, counts(found)) == ("notrun", {"notrun": 3})
    assert found.message.startswith("max_fail_percentage")
    assert outcome.exit_code() == 130, "nothing failed here, but it was not done either"


def test_a_host_that_had_ended_before_it_could_be_stopped() -> None:
    found = host(happened(NOTRUN, message="stopped"), *finished("ok", "ok", "ok"))
    assert (found.status, found.message) == ("ok", "")


def test_attaching_to_a_host_that_was_given_up() -> None:
    found = host(
        task("1.1"), happened(UNREACHABLE, GONE), event(ROAD, message="connected"), *finished("ok", "ok", "ok")
    )
    assert (found.status, counts(found), found.message) == ("ok", {"ok": 3}, "")


def test_given_up_again() -> None:
    found = host(happened(UNREACHABLE, GONE), event(ROAD, message="reconnecting"), happened(UNREACHABLE, GONE))
    assert (found.status, found.unreachable) == ("unreachable", 1)


def test_an_event_twice_is_an_event_once() -> None:
    events = finished("ok", "changed", "failed")
    assert host(*events) == host(*(item for item in events for _ in range(2)))


# Several plays


TWO = (*TASKS, Task("2.1", "Smoke", "command"))


def test_a_host_that_failed_in_the_first_play_is_not_in_the_second() -> None:
    found = host(*finished("ok", "failed"), tasks=TWO)
    assert (found.status, [item.status for item in found.tasks]) == ("failed", ["ok", "failed", "notrun", "notrun"])


def test_a_host_is_done_when_its_last_play_is() -> None:
    first = finished("ok", "ok", "ok")
    assert host(*first, tasks=TWO).status == "notrun"
    second = [event(BEGIN, tasks=1), task("2.1"), result("2.1", "changed")]
    assert host(*first, *second, tasks=TWO).status == "notrun"
    assert host(*first, *second, event(END, status="ok"), tasks=TWO).status == "changed"


# Exit codes


def verdict(status: str, severity: str = "fail") -> Event:
    return result("1.1", "ok", findings=(Finding("x", status, severity=severity),))


def ended(first: Event) -> list[Event]:
    return [first, result("1.2", "ok"), result("1.3", "ok"), event(END, status="ok")]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        (run(*ended(verdict("pass"))), 0),
        (run(*ended(verdict("warn"))), 0),
        (run(*ended(verdict("unknown"))), 3),
        (run(*ended(verdict("unknown", "warn"))), 0),
        (run(*ended(verdict("pass")), across=(Finding("x", "unknown"),)), 3),
        (run(*ended(verdict("pass")), across=(Finding("x", "fail"),)), 2),
        (run(*ended(verdict("unknown")), interrupted=True), 130),
        (run(*finished("failed"), interrupted=True), 130),
        (run(verdict("unknown"), result("1.2", "failed"), event(END, status="failed")), 2),
    ],
)
def test_exit_codes(outcome: Outcome, code: int) -> None:
    assert outcome.exit_code() == code


def test_the_codes_are_those_of_errors() -> None:
    mine = (outcomes._FAILED, outcomes._UNKNOWN, outcomes._UNREACHABLE, outcomes._CHANGES, outcomes._INTERRUPTED)
    assert mine == (
        errors.EXIT_FAILED,
        errors.EXIT_UNKNOWN,
        errors.EXIT_UNREACHABLE,
        errors.EXIT_CHANGES,
        errors.EXIT_INTERRUPTED,
    )


def test_failed_comes_before_unreachable_before_unknown() -> None:
    started, tasks = "2026-11-30T08:00:00Z", {A: TASKS, B: TASKS}
    unknown = [(B, item) for item in ended(verdict("unknown"))]
    failed = [(B, item) for item in finished("failed")]
    gone = [(A, happened(UNREACHABLE, GONE))]
    assert fold("r", started, tasks, [*gone, *failed]).exit_code() == 2
    assert fold("r", started, tasks, [*gone, *unknown]).exit_code() == 4


def test_changes_are_an_exit_code_only_where_asked_for() -> None:
    outcome = run(*finished("ok", "changed", "ok"))
    assert (outcome.exit_code(), outcome.exit_code(detailed=True)) == (0, 5)
    assert run(*finished("ok", "ok", "ok")).exit_code(detailed=True) == 0
    assert run(*finished("changed", "failed")).exit_code(detailed=True) == 2


# The live view is the same fold


def test_what_a_host_does_now() -> None:
    folding = Fold("r", "2026-11-30T08:00:00Z", {A: TASKS})
    seen = []
    for item in (
        None,
        event(ROAD, message="connected"),
        event(BEGIN, tasks=3),
        task("1.2"),
        event(WAITING, "1.2", owner="u@tray-02", host="tray-02", progress="[12/900]"),
        event(APPLY, "1.2", changes=[]),
        event(PROGRESS, "1.2", text="[1/9] x.cu", fraction=0.11),
        event(PROGRESS, "1.2", text="linking", fraction=None),
        result("1.2", "changed"),
        event(END, status="ok"),
    ):
        if item is not None:
            folding.add(A, item)
        live = folding.live[A]
        seen.append((live.phase, live.task, live.text, live.fraction))
    assert seen == [
        ("connecting", None, "", None),
        ("connecting", None, "connected", None),
        ("running", None, "", None),
        ("running", "1.2", "", None),
        ("waiting", "1.2", "tray-02: [12/900]", None),
        ("changing", "1.2", "", None),
        ("changing", "1.2", "[1/9] x.cu", 0.11),
        ("changing", "1.2", "linking", None),
        ("running", None, "", None),
        ("done", None, "", None),
    ]
    assert folding.task(A, "1.2").status == "changed"
    assert folding.host(A) == folding.outcome().hosts[A]


def test_an_event_costs_the_same_however_many_there_were() -> None:
    folding = Fold("r", "2026-11-30T08:00:00Z", {f"n{number}": TASKS for number in range(64)})
    ticks = [event(PROGRESS, "1.2", text=f"[{number}/9000]", fraction=None) for number in range(200)]
    begun = time.perf_counter()
    for tick in ticks:
        for number in range(64):
            folding.add(f"n{number}", tick)
    assert time.perf_counter() - begun < 2.0, "12,800 events take a fraction of this"
    assert folding.live["n63"].text == "[199/9000]"


def test_an_outcome_travels_as_json() -> None:
    outcome = run(*finished("ok", "changed", "failed"), across=(GONE,))
    assert codec.loads(Outcome, codec.dumps(outcome)) == outcome
