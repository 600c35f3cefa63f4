"""What strangers put in our place: links, files and directories of theirs in /tmp, state, lease, logs, checkout."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from k3env.errors import K3Error, Refused
from k3env.node import git_content, manifest
from k3env.node.cancel import Cancel
from k3env.node.leases.lease import Lease
from k3env.node.machine import Machine
from k3env.node.manifest import Manifest
from tests.agent import Agent, task
from tests.security import other
from tests.security.other import needs_root
from tests.unit.node.test_lease import owner, quiet

CANARY = "untouched"


@pytest.fixture
def victim(ground: Path) -> Path:
    """A file of root's that no link may lead us to."""
    path = ground / "victim"
    path.write_text(CANARY)
    return path


def intact(victim: Path) -> bool:
    return victim.read_text() == CANARY and sorted(path.name for path in victim.parent.iterdir()) == ["tmp", "victim"]


def greeted(state: Path) -> str:
    """Return what an agent holds against a state directory."""
    agent = Agent(state.parent)
    object.__setattr__(agent, "root", state.parent)
    try:
        heard = type("At", (Agent,), {"state": property(lambda self: state)})(state.parent).follow([])
    except Refused as error:
        return str(error)
    return heard.status or "nothing"


@needs_root
@pytest.mark.parametrize(
    "make",
    [
        lambda at: other.run("mkdir", at),
        lambda at: other.run("mkdir", "-m", "700", at),
        lambda at: other.run("ln", "-s", "/root", at),
        lambda at: other.run("ln", "-s", at.parent / "nothing", at),
        lambda at: other.run("touch", at),
        lambda at: other.run("mkfifo", at),
    ],
    ids=["directory", "private directory", "link to root's", "dangling link", "file", "pipe"],
)
@pytest.mark.parametrize("below", ["", "state", "deep/er/state"], ids=["itself", "above it", "far above it"])
def test_a_state_directory_that_a_stranger_was_first_to_make(
    make: Callable[[Path], object], below: str, commons: Path, victim: Path
) -> None:
    make(commons / "k3env")
    said = greeted(commons / "k3env" / below if below else commons / "k3env")
    assert "can't be used" in said, said
    assert intact(victim) and not (commons / "nothing").exists()


@needs_root
def test_a_state_directory_where_anybody_may_replace_it(commons: Path) -> None:
    commons.chmod(0o777)
    assert "another user may replace" in greeted(commons / "k3env")
    commons.chmod(0o1777)
    assert greeted(commons / "k3env") == "ok"


@needs_root
@pytest.mark.parametrize("below", ["k3env", "new/k3env", "old/k3env"])
@pytest.mark.parametrize(
    ("mode", "gid", "refused"),
    [
        (0o777, 0, True),
        (0o1777, 0, False),
        (0o775, 0, False),
        (0o775, 1000, True),
        (0o2775, 200_000, True),
        (0o3775, 200_000, False),
        (0o755, 1000, False),
    ],
)
def test_root_s_state_directory_where_others_may_exchange_it(
    ground: Path, below: str, mode: int, gid: int, refused: bool
) -> None:
    """Modules are imported for as long as a run lasts, from wherever that path leads by then."""
    project = ground / "project"
    (project / "old").mkdir(parents=True)
    os.chown(project, 0, gid)
    project.chmod(mode)
    said = greeted(project / below)
    assert ("another user may replace" in said) is refused, said
    assert refused or said == "ok"


@needs_root
def test_root_s_state_directory_in_a_user_s_own(ground: Path) -> None:
    home = ground / "home"
    home.mkdir()
    other.give(home)
    assert f"another user may replace {home}" in greeted(home / "k3env")
    (ground / "link").symlink_to(home)
    assert f"another user may replace {home}" in greeted(ground / "link" / "k3env")
    assert not any(home.iterdir())


@needs_root
def test_a_payload_can_neither_be_read_nor_planted_by_another(commons: Path) -> None:
    agent = Agent(commons)
    assert agent.follow([task("command", argv=["true"], read_only=True)]).status == "ok"
    (payload,) = (agent.state / "payload").iterdir()
    planted = payload / "k3env" / "node" / "modules" / "command.py"
    for script in (f"cat {planted}", f"echo >> {planted}", f"touch {payload}/json.py", f"mv {agent.state} {commons}/x"):
        assert other.run("sh", "-c", script).returncode != 0, script
    assert not (payload / "json.py").exists() and agent.state.exists()


def test_what_lies_beside_a_payload_is_not_imported(tmp_path: Path) -> None:
    """Python looks for no sitecustomize, no usercustomize, and in no directory that happens to be around."""
    canary = tmp_path / "canary"
    agent = Agent(tmp_path)
    assert agent.follow([]).status == "ok"
    code = f"open({str(canary)!r}, 'w').close()\n"
    for place in (tmp_path, agent.state, agent.state / "payload", agent.run_dir):
        for name in ("sitecustomize", "usercustomize", "json", "shutil", "packaging"):
            (place / f"{name}.py").write_text(code)
    again = Agent(tmp_path, run="again.1")
    assert again.follow([task("command", argv=["true"], read_only=True)]).status == "ok"
    assert not canary.exists()


class Swapper(threading.Thread):
    """The other user, putting a link in a place again and again as fast as may be."""

    def __init__(self, pattern: str, victim: Path, commons: Path) -> None:
        super().__init__(daemon=True)
        self._script = (
            "import glob, os, sys, time\n"
            "pattern, victim, end = sys.argv[1], sys.argv[2], time.monotonic() + float(sys.argv[3])\n"
            "while time.monotonic() < end:\n"
            "    for path in glob.glob(pattern):\n"
            "        for name in (path, path + '.0', path + '.k3env-1'):\n"
            "            try:\n"
            "                os.symlink(victim, name)\n"
            "            except OSError:\n"
            "                pass\n"
        )
        self._argv = (str(commons / pattern), str(victim))

    def run(self) -> None:
        other.run("python3", "-c", self._script, *self._argv, "1.5")


@needs_root
@pytest.mark.parametrize("kind", ["link", "directory", "file"])
def test_a_lease_that_is_a_stranger_s(kind: str, commons: Path, victim: Path) -> None:
    place = commons / ".repo.k3env-lease"
    make = {"link": ("ln", "-s", str(victim.parent)), "directory": ("mkdir",), "file": ("touch",)}[kind]
    assert other.run(*make, place).returncode == 0
    if kind == "directory":
        other.run("mkfifo", place / "owner.json")
        other.run("ln", "-s", "/dev/zero", place / "beat")
    with pytest.raises(Refused, match="can't be leased"):
        Lease(str(commons / "repo"), owner(), Cancel(), timeout_s=1.0).acquire(quiet)
    assert intact(victim)


@needs_root
def test_a_stranger_s_word_of_a_failure_is_not_taken(commons: Path) -> None:
    me = owner()
    record = f'{{"run": "{me.run}", "task": "{me.task}", "host": "h", "result": {{"status": "failed"}}}}'
    other.run("sh", "-c", f"echo '{record}' > {commons}/.repo.k3env-failed.json")
    lease = Lease(str(commons / "repo"), me, Cancel())
    assert lease.failed() is None
    assert lease.acquire(quiet) == "held"
    lease.release()


@needs_root
def test_waiting_for_a_lease_writes_through_no_link(commons: Path, victim: Path) -> None:
    """The name of a waiter's probe is never one that was seen before."""
    first = Lease(str(commons / "repo"), owner(), Cancel(), timeout_s=6.0)
    assert first.acquire(quiet) == "held"
    swapper = Swapper(".repo.k3env-*", victim, commons)
    swapper.start()
    waiter = Lease(str(commons / "repo"), replace(owner(), nonce="f" * 12, host="another"), Cancel(), timeout_s=6.0)
    threading.Timer(2.0, first.release).start()
    # A link that comes in the lease's own place is refused; what it leads to is left alone either way.
    with contextlib.suppress(Refused):
        assert waiter.acquire(quiet) == "held"
        waiter.release({"status": "failed"})
    swapper.join()
    assert victim.read_text() == CANARY


@pytest.mark.parametrize("content", ["pipe", "endless", "deep", "binary", "a list", "foreign fields"])
def test_what_stands_in_a_lease_is_read_with_care(content: str, tmp_path: Path) -> None:
    directory = tmp_path / ".repo.k3env-lease"
    directory.mkdir()
    path = directory / "owner.json"
    if content == "pipe":
        os.mkfifo(path)
    elif content == "endless":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(
            {"deep": b"[" * 100000, "binary": b"\xff\0", "a list": b"[1]", "foreign fields": b'{"pid": "x"}'}[content]
        )
    begun = time.monotonic()
    holder = Lease(str(tmp_path / "repo"), owner(), Cancel()).holder()
    assert holder is not None and holder.host == "unknown" and time.monotonic() - begun < 30


WRITERS: dict[str, Callable[[Machine, Path], object]] = {
    "manifest": lambda machine, repo: manifest.write(machine, str(repo), Manifest("c" * 40, "103-real")),
    "log": lambda machine, repo: machine.log(manifest.logs(str(repo))).close(),
    "exclude": lambda machine, repo: git_content.exclude(machine, str(repo), "/.k3env/"),
    "write": lambda machine, repo: machine.write(str(repo / ".k3env" / "rank_env.sh"), b"x"),
}


@needs_root
@pytest.mark.parametrize("writer", WRITERS)
@pytest.mark.parametrize("where", [".k3env", ".k3env/logs", ".k3env/logs/local.log", ".git/info", ".git"])
def test_a_checkout_with_links_of_a_stranger(writer: str, where: str, ground: Path) -> None:
    """In a checkout that others may write to, a link of theirs leads nothing of ours elsewhere."""
    repo, treasure = ground / "repo", ground / "treasure"
    treasure.mkdir()
    (repo / ".git").mkdir(parents=True)
    (repo / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    for path in (repo, repo / ".git"):
        path.chmod(0o777)
    place = repo / where
    script = f"mkdir -p {place.parent}; rm -rf {place}; ln -s {treasure} {place}"
    if where == ".git":
        script = f"mv {place} {place}-old; ln -s {treasure} {place}"
    assert other.run("sh", "-c", script).returncode == 0
    with contextlib.suppress(OSError, K3Error):
        WRITERS[writer](Machine(), repo)
    assert not any(treasure.rglob("*"))


@needs_root
@pytest.mark.parametrize("kind", ["link", "hard link", "pipe", "file"])
def test_a_log_that_a_stranger_was_first_to_make(kind: str, ground: Path, victim: Path) -> None:
    logs = ground / "logs"
    logs.mkdir()
    logs.chmod(0o777)
    place = logs / "run-host-1.1.log"
    if kind == "hard link":
        os.link(victim, place)  # where the kernel doesn't protect hard links, a stranger can
    else:
        other.run(*{"link": ("ln", "-s", victim), "pipe": ("mkfifo",), "file": ("touch",)}[kind], place)
    with pytest.raises((OSError, K3Error)):
        Machine(name="run-host-1.1").log(str(logs))
    assert victim.read_text() == CANARY


@needs_root
def test_own_links_lead_on(ground: Path) -> None:
    """A user's `.k3env` on another disk, a link that root made, one in its owner's own directory."""
    (ground / "disk").mkdir()
    repo = ground / "repo"
    repo.mkdir()
    (repo / ".k3env").symlink_to("../disk")
    Machine().write(str(repo / ".k3env" / "file"), b"x")
    other.give(repo)
    Machine().write(str(repo / ".k3env" / "file"), b"y")
    (ground / "to").symlink_to(repo)
    Machine().write(str(ground / "to" / ".k3env" / "file"), b"z")
    assert (ground / "disk" / "file").read_bytes() == b"z"


@needs_root
def test_no_race_is_won(commons: Path, victim: Path) -> None:
    """A directory that is replaced by a link, again and again, between any look at it and its use."""
    treasure = commons.parent / "treasure"
    treasure.mkdir()
    commons.chmod(0o777)
    place = commons / ".k3env"
    script = (
        "import os, sys, time\n"
        "place, treasure, end = sys.argv[1], sys.argv[2], time.monotonic() + 2.0\n"
        "while time.monotonic() < end:\n"
        "    for work in (lambda: os.rename(place, place + '.away'), lambda: os.symlink(treasure, place),\n"
        "                 lambda: os.unlink(place), lambda: os.rename(place + '.away', place)):\n"
        "        try:\n"
        "            work()\n"
        "        except OSError:\n"
        "            pass\n"
    )
    swapping = threading.Thread(target=other.run, args=("python3", "-c", script, place, treasure))
    swapping.start()
    done = refused = 0
    machine = Machine(name="a")
    while swapping.is_alive():
        try:
            machine.make(str(place))
            machine.write(str(place / "manifest.json"), b"{}")
            machine.log(str(place / "logs")).close()
            done += 1
        except (OSError, K3Error):
            refused += 1
    swapping.join()
    assert done and refused and not any(treasure.iterdir())


@needs_root
@pytest.mark.parametrize("name", ["git", "copy", "file", "cache", "rank_env", "command", "manifest"])
def test_nothing_is_written_in_a_stranger_s_directory(name: str, commons: Path, victim: Path) -> None:
    """Below a directory that everybody may write to, in one that a stranger made there: neither work nor lease."""
    made = commons / "project" if name == "git" else commons / "project" / "repo" / ".git"
    assert other.run("mkdir", "-p", made).returncode == 0
    repo = str(commons / "project" / "repo")
    before = sorted(str(path) for path in commons.rglob("*"))
    state = commons.parent / "agent"
    state.mkdir()
    jobs = {
        "git": task("git_checkout", url=str(victim.parent), repo=repo, commit="c" * 40),
        "copy": task("copy", dest=f"{repo}/file", content="x"),
        "file": task("file", path=f"{repo}/directory", state="directory"),
        "cache": task("cache_dirs", base=f"{repo}/base", min_free_gib=0),
        "rank_env": task("rank_env", repo=repo, base="/var/tmp/k3env-base"),
        "command": task("command", argv=["touch", "made"], chdir=repo, checkout=repo, creates="made"),
        "manifest": task("trtllm_build", repo=repo, commit="c" * 40),
    }
    result = Agent(state).follow([jobs[name]]).result()
    assert result["status"] == "failed" and "defect" not in str(result), result
    assert sorted(str(path) for path in commons.rglob("*")) == before
