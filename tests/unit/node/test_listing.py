"""What a node says of the runs that it keeps."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from k3env.node import about
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.kept import ENDED, LOST, RUNNING, KeptRun
from k3env.protocol.line import LINE_BYTES
from k3env.protocol.plan import Task
from tests.agent import Agent, task


def asked(root: Path, wanted: str = "") -> list[Event]:
    events = Agent(root, run="list-1.0").follow(action="list", what=wanted).events
    assert events[-1].kind == "end" and not (root / "state" / "runs" / "list-1.0.node").exists()
    return events[:-1]


def runs(root: Path, wanted: str = "") -> list[KeptRun]:
    return [codec.decode(KeptRun, event.data) for event in asked(root, wanted)]


def asleep() -> Task:
    return task("command", "1.2", argv=["sleep", "60"], creates="/nonexistent/never")


def test_running_ended_and_lost_runs_are_told_apart(tmp_path: Path) -> None:
    first, second, third = (Agent(tmp_path, run=f"r{number}.1") for number in range(3))
    quick = task("command", argv=["true"], read_only=True)
    first.follow([quick])
    second.follow([quick, asleep()], until=lambda event: event.kind == "apply")
    os.kill(int((second.run_dir / "pid").read_text()), 9)
    heard = third.follow([quick, asleep()], until=lambda event: event.kind == "apply")
    seen = runs(tmp_path)
    assert [(run.name, run.state, run.status, run.done, run.count) for run in seen] == [
        ("r0", ENDED, "ok", 1, 1),
        ("r1", LOST, "", 1, 2),
        ("r2", RUNNING, "", 1, 2),
    ]
    assert {run.owner for run in seen} == {"me@here"} and not any(run.tasks for run in seen)
    (found,) = runs(tmp_path, "r2")
    assert [item.id for item in found.tasks] == ["1.1", "1.2"] and found.play == 1
    third.follow(after=heard.session.last, action="cancel")
    assert runs(tmp_path, "r2")[0].status == "cancelled"


def test_a_plan_of_many_tasks_fits_into_lines(tmp_path: Path) -> None:
    agent = Agent(tmp_path, run="big.1")
    agent.follow([Task(f"1.{number}", "näme " * 200, "verify", skip="left out") for number in range(1, 300)])
    events = asked(tmp_path, "big")
    assert max(len(json.dumps(event.data)) for event in events) < LINE_BYTES - 1000
    assert sum(len(codec.decode(KeptRun, event.data).tasks) for event in events) == 299


@pytest.mark.parametrize("text", ["", "[]", "{", '{"version": 99}'])
def test_what_is_no_run_of_ours_is_left_out(tmp_path: Path, text: str) -> None:
    Agent(tmp_path, run="r1.1").follow()
    (tmp_path / "state" / "runs" / "other").mkdir()
    (tmp_path / "state" / "runs" / "other" / about.NAME).write_text(text)
    assert [run.name for run in runs(tmp_path)] == ["r1"]


def test_another_nodes_run_in_a_shared_state_directory_is_that_nodes_to_tell(tmp_path: Path) -> None:
    agent = Agent(tmp_path, run="r1.1")
    agent.follow()
    path = agent.run_dir / about.NAME
    path.write_text(path.read_text().replace(os.uname().nodename, "another-node"))
    assert runs(tmp_path) == []


def test_a_run_says_nothing_of_its_parameters(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    agent.follow([task("command", argv=["echo", "s3cret-word"], read_only=True)])
    assert "s3cret-word" not in (agent.run_dir / about.NAME).read_text()
