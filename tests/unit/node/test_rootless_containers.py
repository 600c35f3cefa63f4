"""Containers of an ordinary user, by a real engine: whose files come out of them, and what is left of one cut off."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.plan import Task
from tests import engine
from tests.agent import Agent, task
from tests.engine import Podman

WHY = engine.missing_without_root()
pytestmark = pytest.mark.skipif(bool(WHY), reason=WHY or "a user can")
STUBBORN = ["sh", "-c", "trap '' TERM; echo begun; touch begun; while :; do sleep 0.2; done"]


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with engine.place() as place, engine.ordinary_user() as user, engine.podman(place / "e", user) as found:
        yield found


@pytest.fixture
def agent(podman: Podman) -> Agent:
    return Agent(podman.home.parent, python="/usr/bin/python3")


@pytest.fixture
def repo(podman: Podman, request: pytest.FixtureRequest) -> Path:
    assert podman.user is not None
    made = podman.home.parent / f"a checkout {request.node.name}"
    made.mkdir()
    os.chown(made, podman.user.pw_uid, podman.user.pw_gid)
    return made


def running(podman: Podman, repo: Path, argv: list[str], **more: object) -> Task:
    assert podman.user is not None
    words = {"argv": argv, "chdir": str(repo), "container": codec.encode(podman.container(repo)), **more}
    around = {"PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin", **podman.environment}
    return replace(task("command", **words), become_user=podman.user.pw_name, environment=around)


def until(done: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + 60
    while not done():
        assert time.monotonic() < ends, what
        time.sleep(0.05)


def test_what_a_container_writes_belongs_to_its_user(podman: Podman, agent: Agent, repo: Path) -> None:
    assert podman.user is not None
    script = "id -u > seen; cat /proc/self/uid_map >> seen; test ! -e /root/.bashrc"
    heard = agent.follow([running(podman, repo, ["sh", "-c", script], creates=f"{repo}/seen")])
    assert heard.results() == {"1.1": "changed"}, heard.result()["message"]
    seen = (repo / "seen").read_text()
    assert seen.splitlines()[0] == str(podman.user.pw_uid) and (repo / "seen").stat().st_uid == podman.user.pw_uid
    assert len(seen.splitlines()) > 2, "it was no user namespace with subordinate numbers"
    assert podman.names() == []


def test_what_leads_to_roots_own_directories_leads_nobody_else_there(
    podman: Podman, agent: Agent, repo: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As a login of root's with pam_systemd sets it: podman would want to write there."""
    (tmp_path / "roots").mkdir(mode=0o700)
    for name in ("XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "roots"))
    job = running(podman, repo, ["sh", "-c", "touch made"], creates=f"{repo}/made")
    job = replace(job, environment={key: job.environment[key] for key in job.environment if key != "XDG_RUNTIME_DIR"})
    heard = agent.follow([job])
    assert heard.results() == {"1.1": "changed"}, heard.result()["message"]


def begun(event: Event) -> bool:
    return event.kind == "apply"


@pytest.mark.parametrize("end", ["cancelled", "killed"])
def test_a_command_that_is_cut_leaves_no_container_and_the_next_runs(
    podman: Podman, agent: Agent, repo: Path, end: str
) -> None:
    first = agent.follow([running(podman, repo, STUBBORN, creates=f"{repo}/made")], until=begun)
    until((repo / "begun").exists, "nothing began")
    assert len(podman.names()) == 1
    if end == "cancelled":
        heard = agent.follow(after=first.session.last, action="cancel")
        assert heard.results() == {"1.1": "cancelled"}
    else:
        os.kill(int((agent.run_dir / "pid").read_text()), signal.SIGKILL)
        until(lambda: podman.names() == [], "the guard left it")
    assert podman.names() == []
    again = Agent(agent.root, python="/usr/bin/python3")
    job = running(podman, repo, ["sh", "-c", "touch made"], creates=f"{repo}/made")
    assert again.follow([job]).results() == {"1.1": "changed"}
