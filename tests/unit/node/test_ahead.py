"""What later tasks download comes while a build is at work: real git from a daemon, real pip from an index.

The build is a stand-in that waits for what it is told to wait for, so that no test depends on how long something takes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from k3env.node import ahead
from k3env.node.cancel import Cancel
from k3env.node.machine import Machine, Space
from k3env.node.modules import _ahead, _own_disk
from k3env.node.modules.pip_packages import PipPackages
from k3env.node.offline import Fetched, Wheelhouse
from k3env.node.performer import Performer
from k3env.node.privilege import users
from k3env.node.requirements import parse
from k3env.protocol import codec
from k3env.protocol.finding import Result
from k3env.protocol.plan import APPLY, CHECK, Plan, Start, Task
from tests.agent import task
from tests.unit.fetching import served
from tests.unit.node import ground
from tests.unit.node.ground import commit
from tests.unit.node.test_trtllm_build import checkout

BESIDE = """import os, subprocess, sys
if os.environ.get("FAKE_BESIDE") and "--help" not in sys.argv:
    subprocess.run(["sh", "-c", os.environ["FAKE_BESIDE"]], check=True)
"""
SETUP = 'from setuptools import setup\nsetup(name="kernels", version="1.0", packages=["kernels"])\n'
AWAIT = (
    'i=0; until [ "$(ls {base}/*/done.json 2>/dev/null | wc -l)" = {count} ]; do '
    "sleep 0.05; i=$((i+1)); [ $i -lt 1200 ] || exit 1; done"
)
GIT = """#!/bin/sh
case "$*" in *--mirror*) {mirroring};; esac
exec {git} "$@"
"""
HANGS = "echo $$ > {begun}.new; mv {begun}.new {begun}; exec sleep 1000"
WAIT_S = 60.0


def until(is_so: Callable[[], object], what: str) -> None:
    ends = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < ends, what
        time.sleep(0.02)


@dataclass
class Node:
    """A node whose build is a stand-in, and what it said."""

    root: Path
    repo: Path
    head: str
    environment: dict[str, str]
    events: list[tuple[str, str | None, dict[str, Any]]] = field(default_factory=list)
    cancel: Cancel = field(default_factory=Cancel)

    @property
    def ahead(self) -> Path:
        """Where downloads lie."""
        return self.root / f"var/k3env-build-{os.geteuid()}/ahead"

    def build(self, beside: str = "", **more: Any) -> Task:
        environment = {"PIP_NO_BUILD_ISOLATION": "0", "FAKE_BESIDE": beside}
        words = {"repo": str(self.repo), "commit": self.head, "jobs": 3, "environment": environment, **more}
        return replace(task("trtllm_build", "1.1", **words), environment=self.environment)

    def packages(self, id: str, *packages: str, **more: Any) -> Task:
        words = {"checkout": str(self.repo), "packages": list(packages), "no_deps": True, "no_build_isolation": True}
        words["environment"] = {"PIP_RETRIES": "0"}
        return replace(task("pip_packages", id, **{**words, **more}), environment=self.environment)

    def run(self, *tasks: Task, mode: str = APPLY) -> list[dict[str, Any]]:
        """Perform tasks as a worker does; return their results."""
        plan: dict[str, Any] = codec.encode(Plan(tuple(tasks), {}, mode))
        start = asdict(Start("run", "node", "me@here", state_dir=str(self.root / "state"), jobs="*"))
        performer = Performer.begin(
            start, plan, {}, str(self.root), lambda kind, of, data: self.events.append((kind, of, data)), self.cancel
        )
        return [performer.perform(item) for item in plan["tasks"]]

    def beside(self, count: int, then: str = "") -> str:
        """Return what a build does that goes on until so many downloads have come."""
        return f"{AWAIT.format(base=self.ahead, count=count)}; {then}"

    def mirroring(self, script: str) -> None:
        """Let git do something else before it clones a mirror."""
        real = Machine(environment=self.environment).which("git")
        program = self.root / "programs/git"
        program.parent.mkdir()
        program.write_text(GIT.format(mirroring=script, git=real))
        program.chmod(0o755)
        self.environment["PATH"] = f"{program.parent}:{self.environment['PATH']}"

    def site(self, name: str) -> Path:
        (found,) = self.repo.glob(f".venv-*/lib/*/site-packages/{name}-*.dist-info")
        return found


@pytest.fixture
def node(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Node:
    monkeypatch.setattr(_own_disk, "BASE", str(tmp_path / "var"))
    (tmp_path / "var").mkdir()
    base = tmp_path_factory.getbasetemp()
    ground.environment(base, tmp_path / "unused")
    files = checkout()
    files["scripts/build_wheel.py"] = BESIDE + files["scripts/build_wheel.py"]
    head = commit(tmp_path / "TensorRT-LLM", "first", **files)
    around = ground.machine(tmp_path / "home").environment
    kept = {name: around[name] for name in ("PATH", "HOME", "GIT_CONFIG_NOSYSTEM")}
    kept |= {"FAKE_VENV": str(base / "environment-template"), "FAKE_CALLS": str(tmp_path / "calls")}
    return Node(tmp_path, tmp_path / "TensorRT-LLM", head, kept)


@dataclass(frozen=True)
class Upstream:
    """A server of repositories, and an index of packages; each a process."""

    url: str
    pinned: str
    index: str

    @property
    def kernels(self) -> str:
        return f"kernels @ git+{self.url}/kernels@{self.pinned}"


@pytest.fixture
def upstream(tmp_path: Path) -> Iterator[Upstream]:
    root, pages = tmp_path / "served", tmp_path / "pages/simple/wheels-only"
    inner = commit(root / "deep", "inner", **{"header.h": "1"})
    commit(root / "kernels", "first", **{"setup.py": SETUP, "kernels/__init__.py": "raise SystemExit"})
    served._submodule(root / "kernels", "../deep", "kernels/deep", inner)
    module = "import pathlib\nDEEP = (pathlib.Path(__file__).parent / 'deep/header.h').exists()\n"
    pinned = commit(root / "kernels", "pinned", **{"kernels/__init__.py": module})
    commit(root / "kernels", "later", **{"kernels/__init__.py": "raise SystemExit"})
    ground.wheel(pages, "wheels-only", "2.0")
    words = [sys.executable, "-m", "http.server", "--bind", "127.0.0.1", "--directory", str(tmp_path / "pages"), "0"]
    with (
        served.daemon(root) as url,
        subprocess.Popen(
            [*words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONUNBUFFERED": "1"}
        ) as index,
    ):
        assert index.stdout is not None
        port = index.stdout.readline().split()[5].decode()
        yield Upstream(url, pinned, f"http://127.0.0.1:{port}/simple")
        index.terminate()


@pytest.mark.parametrize("road", ["git", "ssh"])
def test_repositories_and_wheels_come_while_the_build_is_at_work(node: Node, upstream: Upstream, road: str) -> None:
    """Both servers have nothing any more when the build ends: what is installed then came before."""
    then = f"cd {node.root}; mv served gone; mv pages gone"
    if road == "ssh":
        upstream = replace(upstream, url=f"ssh://git@localhost{node.root}/served")
        ssh = node.root / "ssh"
        ssh.write_text('#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n')  # no server is needed for its user name
        ssh.chmod(0o755)
        node.environment["GIT_SSH"] = str(ssh)
    done = node.run(
        node.build(node.beside(2, then)),
        node.packages("1.2", "wheels-only", index_url=upstream.index),
        node.packages("1.3", upstream.kernels, no_cache=True, force_reinstall=True),
    )
    assert [item["status"] for item in done] == ["changed"] * 3, done
    assert "findings" not in done[0]
    direct = json.loads((node.site("kernels") / "direct_url.json").read_text())
    assert direct["url"] == f"{upstream.url}/kernels" and direct["vcs_info"]["commit_id"] == upstream.pinned
    assert not (node.site("wheels_only") / "direct_url.json").exists(), "it is an index's package"
    python = next(node.repo.glob(".venv-*/bin/python"))
    ground.run(python, "-c", "import kernels")
    assert list(node.ahead.iterdir()) == [], "what was used is gone"
    # What is as wanted is not downloaded for another build.
    for package in ("wheels-only", upstream.kernels):
        module: PipPackages = codec.decode(PipPackages, node.packages("1.2", package).parameters)
        assert module.ahead(Machine(environment=node.environment)) == ()


def test_what_can_not_be_had_fails_no_build_and_is_told(node: Node, upstream: Upstream) -> None:
    absent = upstream.kernels.replace("/kernels@", "/absent@")
    build, wheel, kernels = node.run(
        node.build(node.beside(0)),
        node.packages("1.2", "not-there-at-all", index_url=upstream.index),
        replace(node.packages("1.3", absent), ignore_errors=True),
    )
    assert build["status"] == "changed"
    told = {item["subject"]: item for item in build["findings"]}
    assert set(told) == {"not-there-at-all", f"kernels at {upstream.pinned[:12]}"}
    assert {(item["status"], item["severity"]) for item in told.values()} == {("warn", "warn")}
    assert "could not be downloaded while the build ran: the task that needs it tries again" in str(build["findings"])
    assert wheel["status"] == kernels["status"] == "failed", "each says itself what is wrong"
    assert kernels["findings"][0]["id"].startswith("git.") or "pip" in kernels["findings"][0]["id"]


def test_the_build_waits_for_what_is_under_way_and_says_so(node: Node, upstream: Upstream) -> None:
    gate = node.root / "gate"
    node.mirroring(f"until [ -e {gate} ]; do sleep 0.05; done")
    waiting = f"wait for kernels at {upstream.pinned[:12]}, which is being downloaded"

    def open_gate() -> None:
        until(lambda: waiting in str(node.events), "it did not wait")
        gate.touch()

    waited = threading.Thread(target=open_gate)
    waited.start()
    done = node.run(node.build(), node.packages("1.2", upstream.kernels))
    waited.join()
    assert [item["status"] for item in done] == ["changed"] * 2 and "findings" not in done[0]


def test_a_build_that_fails_or_is_cancelled_ends_its_downloads(node: Node, upstream: Upstream) -> None:
    begun = node.root / "begun"
    node.mirroring(HANGS.format(begun=begun))
    wait = f"until [ -s {begun} ]; do sleep 0.05; done"

    def ask() -> None:
        until(begun.exists, "nothing began")
        node.cancel.request("asked")

    for name, beside in {"fails": f"{wait}; exit 1", "is cancelled": f"{wait}; sleep 1000"}.items():
        begun.unlink(missing_ok=True)
        if name == "is cancelled":
            threading.Thread(target=ask).start()
        (build,) = node.run(node.build(beside), node.packages("1.2", upstream.kernels))[:1]
        assert build["status"] == {"fails": "failed", "is cancelled": "cancelled"}[name], build
        pid = int(begun.read_text())
        until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), f"the download of a build that {name} goes on")


def test_a_worker_that_is_killed_takes_its_downloads_along(node: Node, upstream: Upstream) -> None:
    begun = node.root / "begun"
    node.mirroring(HANGS.format(begun=begun))
    worker = os.fork()
    if not worker:
        os.setsid()
        node.run(node.build("sleep 1000"), node.packages("1.2", upstream.kernels))
        os._exit(0)
    until(begun.exists, "nothing began")
    pid = int(begun.read_text())
    until(lambda: guards(pid), "nobody guards it")
    os.kill(worker, signal.SIGKILL)
    os.waitpid(worker, 0)
    until(lambda: not Path(f"/proc/{pid}").exists(), "the download outlives its worker")


def test_what_a_killed_worker_left_of_a_download_goes_with_the_next_install(node: Node, upstream: Upstream) -> None:
    """The build has ended by then, so that nothing comes beforehand any more."""
    assert node.run(node.build())[0]["status"] == "changed"
    packages = node.packages("1.2", upstream.kernels)
    place = node.ahead / Path(_ahead._place("", parse(upstream.kernels), str(node.repo))).name
    (place / "git").mkdir(parents=True)
    (place / "git" / "tmp_pack").write_text("half")
    assert node.run(packages)[0]["status"] == "changed"
    assert list(node.ahead.iterdir()) == []


@pytest.mark.parametrize("may_fail", [False, True])
@pytest.mark.parametrize("package", ["fla-core", f"kernels @ git+https://x.invalid/kernels@{'1' * 40}"])
def test_what_no_directory_holds_for_a_later_task_is_told_before_the_build(
    node: Node, package: str, may_fail: bool
) -> None:
    off = node.root / "off"
    off.mkdir()
    house = Wheelhouse("", ())
    (off / "manifest.json").write_text(codec.dumps(Fetched({f"{Machine().architecture()}-{ground.VERSION}": house})))
    packages = replace(node.packages("1.2", package, offline=str(off)), ignore_errors=may_fail)
    done = node.run(node.build(f"touch {node.root}/built", offline=str(off)), packages)[0]
    assert (node.root / "built").exists() is may_fail, done
    if not may_fail:
        (finding,) = done["findings"]
        assert finding["id"].startswith("offline.") and package[:7] in finding["message"]
        assert f"invoke fetch --directory {off}" in finding["remedy"]


def guards(pid: int) -> bool:
    """Return whether a guard of a command is there: it is started a moment after that."""
    lines = (entry.joinpath("cmdline") for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return any(f"k3env-guard\0-{pid}\0" in _text(line) for line in lines)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def test_nothing_comes_beforehand_in_check_mode(node: Node, upstream: Upstream) -> None:
    done = node.run(node.build(), node.packages("1.2", upstream.kernels), mode=CHECK)
    assert [item["status"] for item in done] == ["changed"] * 2
    assert not node.ahead.parent.exists()


@pytest.mark.parametrize(
    ("what", "wanted"),
    [
        ({}, ["wheels-only", "kernels at"]),
        ({"offline": "/off"}, []),
        ({"no_index": True, "find_links": ["/w"]}, ["kernels at"]),
        ({"packages": ["kernels @ git+file:///srv/kernels@" + "1" * 40]}, []),
        ({"packages": ["wheels-only==2.0 ; python_version < '3'"]}, []),
        ({"if_asked_by": "{repo}"}, []),
    ],
)
def test_what_is_worth_it(node: Node, what: dict[str, Any], wanted: list[str]) -> None:
    given = {"packages": ["wheels-only", f"kernels @ git+https://h/kernels@{'1' * 40}"], **what}
    given = {name: str(node.repo) if value == "{repo}" else value for name, value in given.items()}
    module: PipPackages = codec.decode(PipPackages, {"checkout": str(node.repo), **given})
    found = [item.what for item in module.ahead(Machine(environment=node.environment))]
    assert len(found) == len(wanted) and all(text.startswith(word) for text, word in zip(found, wanted)), found


def test_no_room_is_taken_from_the_build(node: Node, upstream: Upstream, monkeypatch: pytest.MonkeyPatch) -> None:
    free = [_ahead.BYTES - 1]
    monkeypatch.setattr(Machine, "space", lambda machine, path: Space(free[0], 1 << 30))
    (build,) = node.run(node.build(), node.packages("1.2", upstream.kernels))[:1]
    (finding,) = build["findings"]
    assert build["status"] == "changed" and "room is left to the build" in finding["found"]
    assert list(node.ahead.iterdir()) == []


def test_a_build_that_compiles_has_its_room_left_to_it(node: Node) -> None:
    machine, base = Machine(environment=node.environment), str(node.ahead)
    assert [need.what for need in _ahead._needs(machine, str(node.repo), base)] == ["downloads"]
    (node.repo / "cpp/CMakeLists.txt").write_text("")
    own, *first = _ahead._needs(machine, str(node.repo), base)
    (node.repo / "cpp/build").mkdir()
    (node.repo / "cpp/build/CMakeCache.txt").write_text("")
    again = _ahead._needs(machine, str(node.repo), base)[1:]
    assert (own.path, own.size) == (base, _ahead.BYTES)
    assert sum(need.size for need in first) > sum(need.size for need in again) > 0


def test_what_was_cut_off_or_is_not_ours_is_not_used(node: Node, upstream: Upstream) -> None:
    from k3env.node.requirements import parse

    machine, needed = Machine(environment=node.environment), parse(upstream.kernels)
    place = Path(_ahead._place(str(node.ahead), needed, str(node.repo)))
    place.mkdir(parents=True)
    assert _ahead.ready(machine, [needed], str(node.repo)).places == ()
    for text in ("", "[]", "{"):
        (place / "done.json").write_text(text)
        assert _ahead.ready(machine, [needed], str(node.repo)).places == ()
    (place / "done.json").write_text("{}")
    assert _ahead.ready(machine, [needed], str(node.repo)).places == (str(place),)
    if os.geteuid() == 0:
        (node.root / "var").chmod(0o1777)
        os.chown(node.ahead.parent, 12345, 12345)
        assert _ahead.ready(machine, [needed], str(node.repo)).places == ()


def test_a_download_is_no_more_than_a_favour() -> None:
    """One that fails ends no other."""
    came: list[str] = []

    def bring(machine: Machine) -> None:
        if not came and not failed:
            failed.append("x")
            raise OSError(28, "No space left on device")
        came.append("second")

    failed: list[str] = []
    machine = Machine()
    downloads = [ahead.Download(name, machine, bring) for name in ("first", "second")]
    with ahead.Ahead(downloads, Cancel(), lambda text: None) as begun:
        pass
    assert came == ["second"] and [item.subject for item in begun.failures] == ["first"]
    assert "No space left" in str(begun.failures[0].found)
    with ahead.Ahead((), Cancel(), lambda text: None) as begun:
        assert begun.failures == []


def test_later_tasks_come_along_to_another_user_who_is_theirs_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is ordered of a process behind sudo names what that user's later tasks are, and no others."""
    orders: list[dict[str, Any]] = []

    def perform(name: str, work: users.Work, emit: object, cancel: Cancel) -> Result:
        orders.append(json.loads(json.dumps(work.order())))
        return Result("ok")

    monkeypatch.setattr(users, "perform", perform)
    monkeypatch.setattr(users, "prove", lambda *rest: None)
    owners = (None, None, "other", "k3")
    tasks = [replace(task("command", f"1.{at}", argv=["true"]), become_user=of) for at, of in enumerate(owners, 1)]
    plan: dict[str, Any] = codec.encode(replace(Plan(tuple(tasks)), user="k3"))
    start = asdict(Start("run", "node"))
    performer = Performer.begin(start, plan, {}, "", lambda kind, of, data: None, Cancel())
    for item in plan["tasks"]:
        performer.perform(item)
    assert [[item["id"] for item in order["later"]] for order in orders] == [["1.2", "1.4"], ["1.4"], [], []]
    # There, as in errand.py, each is the user's own.
    for user in (None, "k3"):
        order = {**orders[0]["plan"], "user": user}
        there = Performer.begin(start, order, {}, "", lambda kind, of, data: None, Cancel())
        there.later = tuple(orders[0]["later"])
        assert [item["id"] for item in there._of_same_user(tasks[0])] == ["1.2", "1.4"]
