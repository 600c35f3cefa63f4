"""Old runs and payloads go, whatever is in use stays."""

from __future__ import annotations

import os
import time
from pathlib import Path

from k3env.node.prune import PAYLOAD_DAYS, PAYLOADS, RUNS, prune
from tests.agent import Agent, task


def old(path: Path, days: float) -> Path:
    path.mkdir(parents=True)
    (path / "journal").touch()
    then = time.time() - days * 86400
    os.utime(path, (then, then))
    return path


def test_the_newest_runs_stay_and_a_worker_keeps_its_own(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    asleep = [task("command", argv=["sleep", "20"], creates=str(tmp_path / "never"))]
    heard = agent.follow(asleep, until=lambda event: event.kind == "apply")
    os.utime(agent.run_dir, (0, 0))
    runs = [old(agent.state / "runs" / f"r{number}", number) for number in range(1, RUNS + 6)]
    prune(str(agent.state), "another.1", "digest")
    assert agent.run_dir.is_dir(), "its worker lives"
    assert [path.name for path in runs if path.exists()] == [f"r{number}" for number in range(1, RUNS + 1)]
    agent.follow(after=heard.session.last, action="cancel")
    prune(str(agent.state), "another.1", "digest")
    assert not agent.run_dir.exists()


def test_old_payloads_go_but_not_the_one_in_use(tmp_path: Path) -> None:
    fresh, used, gone = (
        old(tmp_path / "payload" / name, days)
        for name, days in (("fresh", 1), ("used", PAYLOAD_DAYS + 9), ("gone", PAYLOAD_DAYS + 9))
    )
    prune(str(tmp_path), "r.1", "used")
    assert fresh.exists() and used.exists() and not gone.exists()


def test_payloads_are_bounded_by_number_and_a_use_makes_them_young(tmp_path: Path) -> None:
    names = [f"p{number:02}" for number in range(PAYLOADS + 4)]
    paths = [old(tmp_path / "payload" / name, 1 + number / 100) for number, name in enumerate(names)]
    prune(str(tmp_path), "r.1", names[-1])
    assert [path.name for path in paths if path.exists()] == [*names[:PAYLOADS], names[-1]]
    assert time.time() - paths[-1].stat().st_mtime < 60


def test_a_payload_that_a_worker_imports_from_stays(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    asleep = [task("command", argv=["sleep", "20"], creates=str(tmp_path / "never"))]
    heard = agent.follow(asleep, until=lambda event: event.kind == "apply")
    (mine,) = (agent.state / "payload").iterdir()
    os.utime(mine, (0, 0))
    prune(str(agent.state), "another.1", "another-digest")
    assert mine.is_dir()
    agent.follow(after=heard.session.last, action="cancel")


def test_each_run_prunes(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    agent.follow()
    ancient = [old(agent.state / "runs" / f"r{number}", 100 + number) for number in range(RUNS + 3)]
    Agent(tmp_path).follow([task("command", argv=["true"], read_only=True)])
    ends = time.monotonic() + 5
    while ancient[-1].exists() and time.monotonic() < ends:
        time.sleep(0.05)
    assert not ancient[-1].exists() and ancient[0].exists()
