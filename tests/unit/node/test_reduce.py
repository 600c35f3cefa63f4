"""reduce: lines of many nodes in, one report out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from k3env.errors import UsageError
from k3env.node import reduce
from k3env.node.reduce import Heard
from k3env.protocol import codec
from k3env.protocol.outcome import Outcome
from k3env.protocol.plan import Plan, Task
from k3env.protocol.profile import Profile
from k3env.reports import verdict

PLAN = Plan(
    (Task("1.1", "The node", "verify", {"checks": ["across.driver", "across.kernel"]}),), codec.encode(Profile())
)
STARTED = "2026-11-30T00:00:00Z"


def lines(host: str, version: str = "580.105.08", end: bool = True) -> list[bytes]:
    """Return what one node prints."""
    driver = {"version": version, "open_module": True, "source": {"source": "/proc/driver/nvidia/version"}}
    kernel = {"release": "6.8.0", "architecture": "aarch64", "page_size": 65536, "source": {"source": "/proc"}}
    happened: list[tuple[str, str | None, dict[str, Any]]] = [
        ("begin", None, {"tasks": 1}),
        ("task", "1.1", {"module": "verify", "name": "The node"}),
        ("facts", "1.1", {"facts": {"gpu.driver": {"value": driver}}}),
        ("facts", "1.1", {"facts": {"kernel.kernel": {"value": kernel}}}),
        ("result", "1.1", {"status": "ok"}),
    ]
    happened += [("end", None, {"status": "ok"})] if end else []
    return [
        json.dumps(
            {
                "schema": "k3env.event/1",
                "run": "r",
                "host": host,
                "seq": seq,
                "time": 1.0,
                "kind": kind,
                "task": task,
                "data": data,
            }
        ).encode()
        for seq, (kind, task, data) in enumerate(happened, 1)
    ]


def heard(tmp_path: Path, text: list[bytes]) -> Heard:
    path = tmp_path / "lines"
    path.write_bytes(b"\n".join(text) + b"\n")
    with path.open("rb") as stream:
        return reduce.hear(stream)


def reduced(tmp_path: Path, text: list[bytes], hosts: tuple[str, ...] = ()) -> Outcome:
    return reduce.reduce(PLAN, heard(tmp_path, text), hosts, STARTED)


def across(outcome: Outcome) -> dict[str, tuple[str, str | None]]:
    return {item.id: (item.status, item.found) for item in outcome.across}


def test_nodes_that_agree(tmp_path: Path) -> None:
    outcome = reduced(tmp_path, lines("a") + lines("b"))
    assert across(outcome) == {
        "across.nodes": ("pass", "all 2 nodes"),
        "across.driver": ("pass", "580.105.08"),
        "across.kernel": ("pass", "6.8.0 (64k pages)"),
    }
    assert outcome.exit_code() == 0 and {host.status for host in outcome.hosts.values()} == {"ok"}


def test_a_node_that_is_silent_and_one_that_is_cut_off_are_named(tmp_path: Path) -> None:
    outcome = reduced(tmp_path, lines("n1") + lines("n2", end=False), ("n1", "n2", "n3", "n4"))
    assert across(outcome)["across.nodes"] == ("fail", "nothing from n[3-4]; no end from n2")
    assert outcome.exit_code() == 2 and list(outcome.hosts) == ["n1", "n2", "n3", "n4"]


def test_nothing_at_all_is_a_failure(tmp_path: Path) -> None:
    outcome = reduced(tmp_path, [])
    assert across(outcome)["across.nodes"] == ("fail", "nothing from any node") and outcome.exit_code() == 2


def test_what_srun_puts_around_the_lines_does_no_harm(tmp_path: Path) -> None:
    labelled = [b"%d: " % number + line for number, host in enumerate("ab") for line in lines(host)]
    noise = [
        b"srun: job 7 queued",
        b"\xff\xfe{",
        b"{",
        b'{"schema":"k3env.event/1"}',
        b"0: [1]",
        b'1: {"kind":"end"}',
        b"[" * 99_999,
    ]
    got = heard(tmp_path, noise[:3] + labelled + noise[3:] + [b'0: {"schema":"k3env.run/1","hosts":{}}'])
    assert got.other == len(noise) and len(got.events) == 12
    assert across(reduce.reduce(PLAN, got, (), STARTED))["across.driver"][0] == "pass"


def failing(host: str, time: float = 2.0) -> list[bytes]:
    """Return what a node prints on which a check failed."""
    finding = {"id": "gpu.count", "status": "fail", "severity": "fail", "scope": "node", "found": "3"}
    text = [json.loads(line) | {"time": time} for line in lines(host)]
    text[4]["data"] = {"status": "failed", "findings": [finding]}
    return [json.dumps(line).encode() for line in text]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_no_node_hides_another_one_of_its_name(tmp_path: Path, order: tuple[int, int]) -> None:
    told = (lines("n1"), failing("n1"))
    outcome = reduced(tmp_path, [line for number in order for line in told[number]])
    assert across(outcome)["across.nodes"] == ("fail", "several nodes, or tasks, that call themselves n1")
    assert outcome.exit_code() == 2
    assert [item.id for task in outcome.hosts["n1"].tasks for item in task.findings] == ["gpu.count"]


def test_a_line_that_came_twice_is_no_other_node(tmp_path: Path) -> None:
    outcome = reduced(tmp_path, [line for line in lines("a") + lines("b") for _ in range(2)])
    assert across(outcome)["across.nodes"] == ("pass", "all 2 nodes") and outcome.exit_code() == 0


@pytest.mark.parametrize(
    "changed",
    [{"schema": "k3env.event/2"}, {"version": 99}, {"kind": "of tomorrow"}, {"data": {"status": "of tomorrow"}}],
    ids=lambda value: next(iter(value)),
)
def test_a_node_of_another_version_is_named(tmp_path: Path, changed: dict[str, Any]) -> None:
    text = [json.dumps(json.loads(line) | changed).encode() for line in lines("n2")]
    outcome = reduced(tmp_path, lines("n1") + (text[-2:] if "data" in changed else text))
    status, found = across(outcome)["across.nodes"]
    assert (status, outcome.exit_code()) == ("fail", 2)
    assert found is not None and "lines of another version of k3env from n2" in found


@pytest.mark.parametrize(
    "name", ["\x1b[31mevil", "a\nfit for Kimi K3", "", "a b", "x" * 300, "n[1-3]", "a,b", "\u202e"]
)
def test_what_is_no_name_of_a_node_is_not_shown(tmp_path: Path, name: str) -> None:
    outcome = reduced(tmp_path, lines("n1") + lines(name))
    assert list(outcome.hosts) == ["n1"] and outcome.exit_code() == 2
    assert across(outcome)["across.nodes"] == ("fail", "6 lines of what has no name that a node can have")
    told = str(verdict.report(outcome, "job", verbose=True))
    assert told.isprintable() or all(row.isprintable() and row != "fit for Kimi K3" for row in told.split("\n"))


@pytest.mark.parametrize("value", ["n[1-", "n[1-99999999]", "]", "n[a-b]"])
def test_nodes_that_slurm_would_not_write(value: str) -> None:
    with pytest.raises(UsageError, match="SLURM_JOB_NODELIST"):
        reduce.expected({"SLURM_JOB_NODELIST": value})


def test_a_line_that_never_ends_is_bounded(tmp_path: Path) -> None:
    got = heard(tmp_path, [b"x" * (4 << 20), *lines("a")])
    assert [host for host, _, _ in got.events] == ["a"] * 6


def test_a_thousand_nodes_and_one_outlier(tmp_path: Path) -> None:
    names = [f"gb300-{number:04d}" for number in range(1000)]
    text = [line for name in names for line in lines(name, "580.82.07" if name == "gb300-0777" else "580.105.08")]
    outcome = reduced(tmp_path, text, tuple(names))
    assert across(outcome)["across.driver"] == ("fail", "gb300-0777 has 580.82.07, the other 999 have 580.105.08")


def test_lines_that_are_waited_for_show_the_clocks(tmp_path: Path) -> None:
    """A child prints with a pause between its lines, as srun passes them on."""
    program = (
        "import json,sys,time\n"
        "for off, host in ((0, 'a'), (-90, 'b')):\n"
        "    for seq in (1, 2, 3):\n"
        "        event = dict(schema='k3env.event/1', host=host, kind='begin', seq=seq)\n"
        "        event.update(time=time.time() + off, data={})\n"
        "        print(json.dumps(event), flush=True); time.sleep(0.2)\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        got = reduce.hear(child.stdout)
    lags = {host: arrived - event.time for host, event, arrived in got.events if arrived is not None}
    assert set(lags) == {"a", "b"} and 80 < lags["b"] - lags["a"] < 100


def test_what_lay_in_the_pipe_has_no_time_of_arrival() -> None:
    reader, writer = os.pipe()
    writing = threading.Thread(target=lambda: (os.write(writer, b"\n".join(lines("a"))), os.close(writer)))
    writing.start()
    writing.join()
    with os.fdopen(reader, "rb") as stream:
        assert {arrived for _, _, arrived in reduce.hear(stream).events} == {None}


@pytest.mark.parametrize(("value", "names"), [("gb300-[01-03]", 3), ("", 0), (None, 0)])
def test_the_nodes_of_the_job(value: str | None, names: int) -> None:
    environment = {} if value is None else {"SLURM_JOB_NODELIST": value}
    assert len(reduce.expected(environment)) == names
