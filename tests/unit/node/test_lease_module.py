"""lease: what is told of leases, and which of them are removed; with real owners, in a real worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from k3env.errors import Refused
from k3env.node.cancel import Cancel
from k3env.node.leases import lease_look
from k3env.node.leases.lease_files import Beside, Owner, nonce
from k3env.node.machine import Machine
from k3env.node.modules.lease import Lease
from k3env.protocol.plan import APPLY, CHECK
from tests.agent import Agent, task

RUN = "20261130-081500-1f2e3d"
HOLD = """
import json, sys, time
from k3env.node.cancel import Cancel
from k3env.node.leases.lease import Lease, Owner
lease = Lease(sys.argv[1], Owner(**json.loads(sys.argv[2])), Cancel(), 1.5)
lease.acquire(lambda *_: None)
lease.progress("[ 42%] compiling")
print("in", flush=True)
time.sleep(60)
"""


def owner(host: str = "gb300-07", boot_id: str = "another", pid: int = 1) -> Owner:
    return Owner(host, os.uname().nodename, boot_id, pid, os.readlink("/proc/self/ns/pid"), f"{RUN}.1", "1.2",
                 "ann@login1", nonce(), 1764490500.0)  # fmt: skip


@contextmanager
def living(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    argv = [sys.executable, "-c", HOLD, str(path), json.dumps(vars(owner()))]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3]) as child:
        assert child.stdout is not None and child.stdout.readline() == b"in\n"
        time.sleep(0.5)
        try:
            yield child
        finally:
            child.kill()


def dead(path: Path, whose: Owner | None = None) -> Path:
    directory = path.parent / f".{path.name}.k3env-lease"
    directory.mkdir()
    (directory / "owner.json").write_text(json.dumps(vars(whose or owner())))
    (directory / "beat").write_text('{"count": 7, "progress": "installing einops"}')
    return directory


def result(tmp_path: Path, *paths: Path, remove_dead: bool = False, mode: str = APPLY) -> dict[str, object]:
    asked = task("lease", paths=list(map(str, paths)), remove_dead=remove_dead, timeout_s=1.5)
    return Agent(tmp_path / "node").follow([asked], mode=mode).result()


def test_a_living_owner_is_told_with_the_commands_that_follow_and_end_it(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    with living(repo):
        said = result(tmp_path, repo, tmp_path / "base", mode=CHECK)
    (found,) = said["findings"]  # type: ignore[misc]
    assert (said["status"], found["status"], found["subject"]) == ("ok", "pass", str(repo))
    whose = f"{repo} is held by gb300-07 (pid 1, run {RUN}.1, ann@login1)"
    assert found["message"] == f"{whose}, alive: its counter moves"
    assert found["found"] == "since 2025-11-30T08:15:00Z by its clock; at: [ 42%] compiling"
    assert found["remedy"] == f"invoke attach {RUN} follows it, invoke cancel {RUN} ends it"


def test_a_living_owner_is_refused_and_works_on(tmp_path: Path) -> None:
    repo, other = tmp_path / "repo", tmp_path / "other"
    gone = dead(other)
    with living(repo) as child:
        said = result(tmp_path, repo, other, remove_dead=True)
        assert child.poll() is None and Beside(str(repo)).standing() is not None
    (found,) = said["findings"]  # type: ignore[misc]
    assert said["status"] == "failed" and "who is alive" in str(said["message"])
    assert f"invoke cancel {RUN}" in found["remedy"]
    assert not gone.exists(), "and the other one, which was dead, is gone"


def test_a_dead_one_is_told_removed_and_then_nobody_holds_it(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    directory = dead(repo)
    (found,) = result(tmp_path, repo)["findings"]  # type: ignore[misc]
    assert found["status"] == "warn" and found["remedy"] == "if nobody is at work there: invoke leases --break"
    assert found["message"].endswith(("dead", "stood still for 1 s")) and found["found"].endswith(
        "at: installing einops"
    )
    asked = result(tmp_path, repo, remove_dead=True, mode=CHECK)
    assert asked["status"] == "changed" and directory.exists(), "check mode removes nothing"
    begun = time.monotonic()
    assert result(tmp_path, repo, remove_dead=True)["status"] == "changed"
    assert not directory.exists() and time.monotonic() - begun > 1.5, "only after a whole takeover's time"
    assert result(tmp_path, repo, remove_dead=True)["status"] == "ok"
    (found,) = result(tmp_path, repo)["findings"]  # type: ignore[misc]
    assert found["message"] == f"nobody holds a lease beside {repo}"


def test_the_failure_that_was_left_is_told(tmp_path: Path) -> None:
    record = {"run": f"{RUN}.1", "task": "1.2", "host": "gb300-07", "result": {"message": "the build failed"}}
    Beside(str(tmp_path / "repo")).fail(record)
    (found,) = result(tmp_path, tmp_path / "repo")["findings"]  # type: ignore[misc]
    assert found["message"].endswith("failed: the build failed") and f"run {RUN} on gb300-07" in found["found"]


@pytest.mark.parametrize(
    ("whose", "state"),
    [
        (lambda boot: owner(boot_id=boot, pid=2**22 - 3), lease_look.DEAD),
        (lambda boot: owner(boot_id=boot, pid=os.getpid()), lease_look.STILL),
        (lambda boot: owner(boot_id="before", pid=2**22 - 3), lease_look.STILL),
    ],
    ids=["process gone", "process alive", "another boot, or another node of that name"],
)
def test_a_process_of_this_very_node_needs_no_watching(
    tmp_path: Path, whose: Callable[[str], Owner], state: str
) -> None:
    boot_id = Machine().text("/proc/sys/kernel/random/boot_id").strip()
    dead(tmp_path / "repo", whose(boot_id))
    (seen,) = lease_look.watched([str(tmp_path / "repo")], boot_id, 0.0, 60.0, Cancel())
    assert seen.state == state


def test_what_is_no_lease_is_not_broken(tmp_path: Path) -> None:
    (tmp_path / ".repo.k3env-lease").symlink_to("/etc")
    with pytest.raises(Refused, match="a link of uid"):
        Lease((str(tmp_path / "repo"),), remove_dead=True).changes(Machine())


@pytest.mark.parametrize("paths", [(), ("repo",), ("/a", "b")])
def test_paths_that_mean_something_else_in_each_directory(paths: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="paths"):
        Lease(paths)
