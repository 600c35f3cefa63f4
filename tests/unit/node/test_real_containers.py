"""Containers of a real engine: what runs in them, and that none outlives its command, however that ends."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from k3env.errors import TaskFailed
from k3env.node import checks, manifest
from k3env.node.cancel import Cancel, Cancelled
from k3env.node.container import own_name, removal, sweep, wrap
from k3env.node.facts import image_packages
from k3env.node.modules import _ahead, _own_disk
from k3env.node.modules.command import Command
from k3env.node.modules.pip_packages import PipPackages
from k3env.node.modules.trtllm_build import TrtllmBuild
from k3env.node.requirements import parse
from k3env.protocol.profile import Paths, Profile
from tests import engine
from tests.engine import Podman
from tests.unit.node import ground
from tests.unit.node.ground import Watched, wheel
from tests.unit.node.test_trtllm_build import checkout

pytestmark = pytest.mark.skipif(bool(engine.missing()), reason=engine.missing() or "an engine is here")
# It does not end by SIGTERM, as a build whose shell waits for it doesn't.
STUBBORN = ("sh", "-c", "trap '' TERM; echo begun; while :; do sleep 1; done")
WAIT_S = 60.0


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    with engine.place() as place, engine.podman(place / "e") as found:
        yield found


@pytest.fixture
def machine(podman: Podman, tmp_path: Path) -> Watched:
    return ground.machine(tmp_path / "home", Path("/usr/sbin"), **podman.environment)


def until(done: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + WAIT_S
    while not done():
        assert time.monotonic() < ends, what
        time.sleep(0.05)


def test_a_command_runs_in_the_image_and_leaves_no_container(podman: Podman, machine: Watched, tmp_path: Path) -> None:
    repo = tmp_path / "a checkout"
    repo.mkdir()
    script = 'test ! -e "$1" && pwd > seen && echo "$TOKEN" >> seen'
    module = Command(
        ("sh", "-c", script, "sh", str(Path(__file__).resolve())),
        creates="seen",
        chdir=str(repo),
        environment={"TOKEN": "secret"},
        container=podman.container(),
    )
    ground.perform(module, machine)
    assert (repo / "seen").read_text() == f"{repo}\nsecret\n", "it saw this machine's files, or another directory"
    assert podman.names() == []
    read = Command(("sh", "-c", "exit 3"), read_only=True, container=podman.container())
    with pytest.raises(Exception, match="exit code 3"):
        read.judge(machine, Profile())
    assert podman.names() == []


def test_a_command_that_is_cancelled_takes_its_container_along(podman: Podman, machine: Watched) -> None:
    words = wrap(podman.container(), STUBBORN, name=machine.name)
    machine.cancel = Cancel()
    told: list[str] = []
    timer = threading.Timer(0.0, lambda: (until(lambda: told, "nothing began"), os.kill(os.getpid(), signal.SIGTERM)))
    before = signal.signal(signal.SIGTERM, lambda number, frame: machine.cancel._handle(number, frame))
    try:
        timer.start()
        with open(os.devnull, "wb") as log, pytest.raises(Cancelled):
            machine.stream(words, log=log, on_line=told.append)
    finally:
        timer.join()
        signal.signal(signal.SIGTERM, before)
    assert podman.names() == []


def test_a_command_that_takes_too_long_takes_its_container_along(podman: Podman, machine: Watched) -> None:
    assert machine.run(wrap(podman.container(), STUBBORN), timeout_s=3.0).timed_out
    assert podman.names() == []


def test_a_worker_that_is_killed_leaves_no_container(podman: Podman, machine: Watched) -> None:
    worker = begun(podman, machine)
    (name,) = podman.names()
    assert name.startswith("k3env-run-host-task.")
    worker.kill()
    worker.wait()
    until(lambda: podman.names() == [], "the guard left it")


def test_a_container_that_nobody_looks_after_is_swept_away_and_no_other(podman: Podman, machine: Watched) -> None:
    alive = begun(podman, machine)
    (kept,) = podman.names()
    gone = subprocess.Popen(["true"])
    gone.wait()
    words = wrap(podman.container(), ("sh", "-c", "while :; do sleep 1; done"))
    name = words.mark.partition("=")[2]
    lost = name.replace(f".{os.getpid()}.", f".{gone.pid}.")
    stranger = "k3env-of-a-person"
    for title in (lost, stranger):
        podman.said("run", "--detach", *(title if word == name else word for word in words[2:]))
    assert set(podman.names()) == {kept, lost, stranger}
    assert sweep(machine, "podman") == (lost,)
    assert set(podman.names()) == {kept, stranger}
    # What is started next sweeps by itself, once.
    podman.said("run", "--detach", *(lost if word == name else word for word in words[2:]))
    assert machine.run(wrap(podman.container(), ("true",))).ok
    assert set(podman.names()) == {kept, stranger}
    assert machine.run(wrap(podman.container(), ("true",))).ok
    assert sum(argv[:2] == ("podman", "ps") for argv in machine.started) == 2, "sweeping costs time, and is done once"
    alive.kill()
    alive.wait()
    podman.said("rm", "--force", stranger)
    until(lambda: podman.names() == [], "the guard left it")


def test_work_in_a_container_counts_as_work(podman: Podman, machine: Watched) -> None:
    words = wrap(
        podman.container(), ("python3", "-c", "import time\nwhile time.process_time() < 4: pass\nprint('done')")
    )
    told: list[str] = []
    with open(os.devnull, "wb") as log:
        done = machine.stream(words, log=log, on_line=told.append, inactivity_s=2.0)
    assert done.ok and told == ["done"], done


def test_caches_on_the_nodes_own_disk_are_seen_in_the_image(
    podman: Podman, machine: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_own_disk, "BASE", str(tmp_path / "var"))
    repo, table = tmp_path / "shared", tmp_path / "overlay/proc/self/mountinfo"
    for path in (repo, tmp_path / "var", table.parent):
        path.mkdir(parents=True)
    machine.overlay = str(tmp_path / "overlay")
    table.write_text(f"20 1 0:20 / / rw - ext4 /dev/sda rw\n21 20 0:21 / {repo} rw - nfs4 server:/ rw\n")
    disk = _own_disk.of(machine, str(repo), podman.container(), {})
    disk.make(machine)
    words = ("sh", "-c", 'for d in "$PIP_CACHE_DIR" "$CCACHE_DIR" "$CONAN_HOME"; do touch "$d/seen"; done')
    done = machine.run(wrap(disk.container, words, repo=str(repo), environment=disk.caches), environment=disk.caches)
    assert done.ok, done
    assert sorted(path.parent.name for path in (tmp_path / "var").rglob("seen")) == ["ccache", "conan", "pip"]


def test_wheels_come_beforehand_by_the_images_python(
    podman: Podman,
    machine: Watched,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = tmp_path_factory.mktemp("own")
    monkeypatch.setattr(_own_disk, "BASE", str(own))
    repo, pages = tmp_path / "TensorRT-LLM", tmp_path / "simple"
    repo.mkdir()
    made = wheel(pages / "wheels-only", "wheels-only", "2.0")
    (made.parent / "index.html").write_text(f'<a href="{made.name}">{made.name}</a>')
    module = PipPackages(
        ("wheels-only",), checkout=str(repo), index_url=pages.as_uri(), container=podman.container(tmp_path)
    )
    (download,) = module.ahead(machine)
    with pytest.raises(TaskFailed, match="no pip"):
        download.bring(machine)
    shutil.copytree(engine.SITE / "pip", podman.packages / "pip")
    machine.started.clear()
    try:
        download.bring(machine)
    finally:
        shutil.rmtree(podman.packages / "pip")
    assert [path.name for path in own.rglob("*.whl")] == [made.name]
    assert [argv[:2] for argv in machine.started if "pip" in argv] == [("podman", "run")] and podman.names() == []
    (place,) = _ahead.ready(machine, [parse("wheels-only")], str(repo)).places
    assert str(own) in place


def test_removing_what_is_not_there_is_no_error(podman: Podman, machine: Watched) -> None:
    assert machine.run(removal("podman", own_name("run-host-task"))).ok


def test_a_build_and_its_packages_in_the_image_and_then_nothing(
    podman: Podman, machine: Watched, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    podman.brings("torch", "3.0")
    podman.brings("einops", "0.8.1")
    base = tmp_path_factory.getbasetemp()

    def again() -> Watched:
        """The machine in another run."""
        return ground.machine(tmp_path / "home", Path("/usr/sbin"), **podman.environment)

    template = ground.environment(base, tmp_path / "environment")
    config = template / "pyvenv.cfg"
    seeing = config.read_text().replace("packages = false", "packages = true")
    config.unlink()
    config.write_text(seeing)
    repo = tmp_path / "TensorRT-LLM"
    files = checkout()
    # Two mounts can't be linked to each other.
    files["scripts/build_wheel.py"] = files["scripts/build_wheel.py"].replace("os.link", "shutil.copy2")
    head = ground.commit(repo, "first", **files)
    wheel(tmp_path / "wheels", "fla-core", "0.5.2", "einops", "torch>=3")
    container = podman.container(tmp_path)
    here = {"PIP_NO_BUILD_ISOLATION": "0", "FAKE_VENV": str(template), "FAKE_CALLS": str(tmp_path / "calls")}
    build = TrtllmBuild(str(repo), head, jobs=3, environment=here, container=container)
    extras = PipPackages(
        ("fla-core", "einops"),
        checkout=str(repo),
        no_index=True,
        find_links=(str(tmp_path / "wheels"),),
        container=container,
    )
    ground.perform(build, machine)
    runs = [argv for argv in machine.started if argv[:2] == ("podman", "run")]
    assert len(runs) == 3, "one asks for all, one builds, one installs"
    ground.perform(extras, machine)
    assert podman.names() == []
    made = manifest.read(machine, str(repo))
    assert made is not None and made.image == engine.IMAGE
    assert made.versions == {"torch": "3.0", "einops": "0.8.1", "fla-core": "0.5.2"}
    machine.started.clear()
    assert build.changes(machine) == () and extras.changes(machine) == ()
    assert build.judge(machine, Profile()) == () and extras.judge(machine, Profile()) == ()
    assert machine.started == [], "the digest was asked for before, in this run"
    machine = again()
    assert build.changes(machine) == () and extras.changes(machine) == ()
    assert build.judge(machine, Profile()) == () and extras.judge(machine, Profile()) == ()
    assert [argv[:3] for argv in machine.started] == [("podman", "image", "inspect")], "a container was started"
    profile = Profile(paths=Paths(repo=str(repo)), container=container)
    for id in ("venv.shadowed", "venv.pins", "venv.pip_check", "venv.present"):
        (rule,) = checks.select((id,))
        judged = checks.judge(rule, {fact: fact(machine, profile) for fact in rule.facts}, profile)
        assert judged.status == "pass", judged
    # Another image of that name: what it has is asked anew, and nothing is built.
    podman.said("import", "--quiet", "--change", f"ENV PATH={engine.PREFIX}/bin:/usr/bin:/bin", "--change",
                "LABEL other=1", str(podman.home / "image.tar"), engine.IMAGE)  # fmt: skip
    podman.brings("triton", "3.6.0")
    machine = again()
    (change,) = ground.perform(build, machine)
    assert change.what == f"packages of {engine.IMAGE}"
    assert (tmp_path / "calls").read_text().count("103-real") == 1
    known = image_packages.recorded(machine, str(repo), container)
    assert known is not None and known.versions["triton"] == "3.6.0"
    assert [finding.id for finding in build.judge(machine, Profile())] == ["trtllm.image"]


def begun(podman: Podman, machine: Watched) -> subprocess.Popen[bytes]:
    """Start a worker in a process of its own, whose command has begun in a container."""
    source = textwrap.dedent(
        f"""
        import os, sys
        sys.path.insert(0, {str(Path(__file__).parents[3])!r})
        from k3env.node.container import wrap
        from k3env.node.machine import Machine
        from k3env.protocol.container import Container
        container = Container("podman", {engine.IMAGE!r}, {podman.container().mounts!r})
        machine = Machine(name="run-host-task")
        words = wrap(container, {STUBBORN!r}, name=machine.name)
        def tell(line): os.write(1, b"begun")
        machine.stream(words, log=open(os.devnull, "wb"), on_line=tell)
        """
    )
    worker = subprocess.Popen([sys.executable, "-c", source], stdout=subprocess.PIPE, env=machine.environment)
    assert worker.stdout is not None
    assert os.read(worker.stdout.fileno(), 5) == b"begun"
    worker.stdout.close()
    return worker
