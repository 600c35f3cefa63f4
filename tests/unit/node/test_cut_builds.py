"""A build in a real container that is cut off: whatever ends it, no container stays, and the next run builds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from k3env.node import manifest
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.plan import Task
from tests import engine
from tests.agent import Agent, Heard, task
from tests.engine import Podman
from tests.unit.node import ground
from tests.unit.node.test_trtllm_build import checkout

pytestmark = pytest.mark.skipif(bool(engine.missing()), reason=engine.missing() or "an engine is here")
WAIT_S = 60.0


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with engine.place() as place, engine.podman(place / "e") as found:
        yield found


@dataclass
class Site:
    """A checkout, and a task that builds it in an image."""

    agent: Agent
    repo: Path
    building: Task
    wait: Path
    podman: Podman

    def begin(self) -> Heard:
        """Begin a build, and leave it in its midst."""
        self.wait.touch()
        return self.agent.follow([self.building], until=compiles)

    def built(self) -> bool:
        found = manifest.read(Machine(), str(self.repo))
        return found is not None and bool(list((self.repo / "tensorrt_llm").glob("bindings.*.so")))

    def again(self) -> None:
        """Run it once more, undisturbed."""
        self.wait.unlink(missing_ok=True)
        heard = Agent(self.agent.root).follow([self.building])
        assert heard.results() == {"1.1": "changed"}, heard.result()["message"]
        assert self.built() and self.podman.names() == []
        assert Agent(self.agent.root).follow([self.building]).results() == {"1.1": "ok"}


def compiles(event: Event) -> bool:
    return (event.kind == "progress" and "5%" in str(event.data["text"])) or bool(event.data.get("fraction"))


def until(done: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < ends, what
        time.sleep(0.05)


@pytest.fixture
def site(podman: Podman, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Site:
    template = ground.environment(tmp_path_factory.getbasetemp(), tmp_path / "environment")
    files = checkout()
    files["scripts/build_wheel.py"] = files["scripts/build_wheel.py"].replace("os.link", "shutil.copy2")
    repo = tmp_path / "TensorRT-LLM"
    head = ground.commit(repo, "first", **files)
    here = {
        "PIP_NO_BUILD_ISOLATION": "0",
        "FAKE_VENV": str(template),
        "FAKE_CALLS": str(tmp_path / "calls"),
        "FAKE_WAIT": str(tmp_path / "wait"),
    }
    container = codec.encode(podman.container(tmp_path))
    building = task("trtllm_build", repo=str(repo), commit=head, jobs=3, environment=here, container=container)
    around = {"PATH": f"{os.environ['PATH']}:/usr/sbin", **ground.BY, **podman.environment}
    return Site(Agent(tmp_path), repo, replace(building, environment=around), tmp_path / "wait", podman)


def test_a_build_that_is_cancelled(site: Site) -> None:
    first = site.begin()
    (name,) = site.podman.names()
    assert name.startswith("k3env-")
    heard = site.agent.follow(after=first.session.last, action="cancel")
    assert heard.results() == {"1.1": "cancelled"}
    assert site.podman.names() == [] and not site.built()
    site.again()


def test_a_build_whose_connection_is_cut_goes_on(site: Site) -> None:
    first = site.begin()
    assert len(site.podman.names()) == 1
    site.wait.unlink()
    heard = site.agent.follow(after=first.session.last)
    assert heard.results() == {"1.1": "changed"}, heard.events
    assert site.built() and site.podman.names() == []
    assert Agent(site.agent.root).follow([site.building]).results() == {"1.1": "ok"}


@pytest.mark.parametrize("whom", ["the worker", "all of its processes"])
def test_a_build_whose_worker_is_killed(site: Site, whom: str) -> None:
    site.begin()
    (name,) = site.podman.names()
    pid = int((site.agent.run_dir / "pid").read_text())
    group = [pid] if whom == "the worker" else [*descendants(pid), pid]
    for one in group:
        os.kill(one, signal.SIGKILL)
    if whom == "the worker":
        until(lambda: site.podman.names() == [], "the guard left it")
    elif site.podman.names():
        # Nobody is left to remove it: the next run does, before it begins.
        assert site.podman.names() == [name]
    site.again()


def descendants(pid: int) -> list[int]:
    """Return the processes that a worker has begun, and that its engine has begun for it not."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            found += [*descendants(int(child)), int(child)]
    return found
