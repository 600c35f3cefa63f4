"""Runs to report on."""

from __future__ import annotations

from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.finding import Change, Evidence, Finding, Result
from k3env.protocol.line import BEGIN, END, FAILED, ROAD, TASK, UNREACHABLE
from k3env.protocol.line import RESULT as RESULTED
from k3env.protocol.outcome import Outcome, fold
from k3env.protocol.plan import Task

TASKS = (
    Task("1.1", "Verify the driver", "verify"),
    Task("1.2", "Make the node-local caches", "cache_dirs"),
    Task("1.3", "Write the ranks' environment", "rank_env"),
)
DRIVER = Finding(
    "gpu.driver.version",
    "fail",
    expected=">= 580",
    found="570.86.15",
    remedy="upgrade the driver to 580 or later",
    evidence=(
        Evidence("/proc/driver/nvidia/version", None, "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15"),
    ),
    duration_ms=0.5,
)
PASSED = Finding("gpu.driver.version", "pass", found="580.105.08", duration_ms=0.4)
GONE = Finding(
    "run.timeout",
    "fail",
    subject="tray-04",
    message="the host did not answer in time",
    expected="an answer within 30 s",
    found="silence",
    remedy="is it up? see: ssh tray-04 true",
)
BASE = Change("base /local/k3", "absent", "directory 0700")


def result(id: str, status: str, **rest: object) -> Event:
    return Event(RESULTED, task=id, data=codec.encode(Result(status, **rest)))  # type: ignore[arg-type]


def healthy(duration_s: float, status: str = "changed") -> list[Event]:
    changes = (BASE,) if status == "changed" else ()
    return [
        Event(ROAD, data={"message": "connected", "simulated": True}),
        Event(BEGIN),
        Event(TASK, task="1.1"),
        result("1.1", "ok", findings=(PASSED,), duration_s=duration_s),
        Event(TASK, task="1.2"),
        result("1.2", status, changes=changes, duration_s=duration_s),
        Event(TASK, task="1.3"),
        result("1.3", "skipped", message="tag caches is left out"),
        Event(END, data={"status": "ok"}),
    ]


def rack() -> Outcome:
    """Return four trays: two fine, one with an old driver, one that does not answer."""
    events = [("tray-01", item) for item in healthy(0.1)] + [("tray-02", item) for item in healthy(0.2)]
    events += [
        ("tray-03", Event(ROAD, data={"simulated": True})),
        ("tray-03", Event(TASK, task="1.1")),
        ("tray-03", result("1.1", "failed", message="gpu.driver.version failed", findings=(DRIVER,))),
        ("tray-03", Event(END, data={"status": "failed"})),
        ("tray-04", Event(UNREACHABLE, data={"finding": codec.encode(GONE)})),
    ]
    tasks = {f"tray-0{number}": TASKS for number in range(1, 5)}
    return fold("20261130-080000-1f2e3d", "2026-11-30T08:00:00Z", tasks, events, duration_s=12.3456)


def quiet() -> Outcome:
    """Return two trays on which nothing had to be changed."""
    events = [(name, item) for name in ("tray-01", "tray-02") for item in healthy(0.1, "ok")]
    return fold("r", "2026-11-30T08:00:00Z", {"tray-01": TASKS, "tray-02": TASKS}, events)


def rebooted(message: str) -> Outcome:
    """Return a tray that was rebooted while it verified."""
    finding = Finding("run.rebooted", "fail", message=message)
    events = [("a", Event(TASK, task="1.1")), ("a", Event(FAILED, data={"finding": codec.encode(finding)}))]
    return fold("r", "2026-11-30T08:00:00Z", {"a": TASKS}, events)
