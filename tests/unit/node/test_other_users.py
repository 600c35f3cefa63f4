"""Whose hands do the work: root keeps off network filesystems, and a task's user does what is that user's."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from k3env.protocol.plan import CHECK, Task
from tests.agent import Agent, task

NOBODY = "nobody"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be refused, and become others")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A directory that everybody may write, as far as modes go."""
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="k3env-test-") as name:
        Path(name).chmod(0o777)
        yield Path(name)


def node(tmp_path: Path, shared: Path, fstype: str) -> Agent:
    """A node that has the directory from a server."""
    info = tmp_path / "overlay" / "proc" / "self" / "mountinfo"
    info.parent.mkdir(parents=True, exist_ok=True)
    info.write_text(f"21 1 0:1 / / rw - ext4 /dev/x rw\n22 21 0:2 / {shared} rw - {fstype} server:/export rw\n")
    return Agent(tmp_path, overlay=str(tmp_path / "overlay"))


def writing(shared: Path, name: str = "made") -> Task:
    checkout = str(shared / "checkout")
    argv = ["sh", "-c", f"id -un > {checkout}/{name}"]
    return task("command", argv=argv, creates=f"{checkout}/{name}", checkout=checkout)


@pytest.mark.parametrize("fstype", ["nfs4", "lustre", "fuse.juicefs"])
def test_root_writes_to_no_network_filesystem(tmp_path: Path, shared: Path, fstype: str) -> None:
    (shared / "checkout").mkdir()
    for mode in ("apply", CHECK):
        heard = node(tmp_path, shared, fstype).follow([writing(shared)], mode=mode)
        (finding,) = heard.result()["findings"]
        assert finding["id"] == "task.root_on_network" and "k3_user" in finding["remedy"]
    assert [path.name for path in shared.iterdir()] == ["checkout"], "nothing was written, no lease either"


@pytest.mark.parametrize("fstype", ["xfs", "overlay", "virtiofs"])
def test_root_writes_to_its_own_disk(tmp_path: Path, shared: Path, fstype: str) -> None:
    (shared / "checkout").mkdir()
    assert node(tmp_path, shared, fstype).follow([writing(shared)]).results() == {"1.1": "changed"}


def test_a_user_writes_there_and_what_is_done_is_no_matter_of_root(tmp_path: Path, shared: Path) -> None:
    (shared / "checkout").mkdir()
    os.chown(shared / "checkout", pwd.getpwnam(NOBODY).pw_uid, -1)
    theirs = replace(writing(shared), become_user=NOBODY)
    assert node(tmp_path, shared, "nfs4").follow([theirs]).results() == {"1.1": "changed"}
    assert (shared / "checkout" / "made").read_text().strip() == NOBODY
    agent = replace(node(tmp_path, shared, "nfs4"), run="again.1")
    assert agent.follow([writing(shared)]).results() == {"1.1": "ok"}, "root may look"


def test_access_is_proven_by_doing_before_anything_else_is_written(tmp_path: Path, shared: Path) -> None:
    (shared / "checkout").mkdir()
    shared.chmod(0o755)  # root squash: modes may promise what the server refuses; here it is a plain refusal
    theirs = replace(writing(shared), become_user=NOBODY)
    heard = node(tmp_path, shared, "nfs4").follow([theirs])
    assert heard.results() == {"1.1": "failed"} and str(shared) in str(heard.result())
    assert [path.name for path in shared.iterdir()] == ["checkout"] and not list((shared / "checkout").iterdir())
