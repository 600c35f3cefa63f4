"""What is in use is not rebuilt: markers of ranks, files in memory; real ranks, shells and namespaces."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from k3env.node.facts import Facts
from k3env.node.facts.mapped import Mapped, mapped
from k3env.node.leases import inuse, lease, marking
from k3env.node.leases.inuse import living
from k3env.node.machine import Machine
from k3env.node.modules.rank_env import RankEnv
from k3env.protocol.finding import Unreadable
from k3env.protocol.plan import CHECK
from k3env.protocol.profile import Profile
from tests.agent import Agent, task
from tests.security.other import open_ground
from tests.unit.node.test_rank_env import SHELLS

MAPS = """
import mmap, sys, time
file = open(sys.argv[1], "rb")
kept = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
print("mapped", flush=True)
time.sleep(60)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs namespaces, or two users")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("made") / "venv"
    venv.create(made, with_pip=False, symlinks=True)
    return made


@pytest.fixture
def repo(tmp_path: Path, environment: Path) -> Path:
    """A checkout with a rank_env.sh."""
    path, base = tmp_path / "it's a repo", tmp_path / "base"
    path.mkdir()
    base.mkdir()
    module = RankEnv(str(path), str(base), str(environment), open_files=64)
    module.apply(Machine(), module.changes(Machine()))
    return path


@contextmanager
def rank(repo: Path, shell: str, script: str, *before: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a rank that says `ready` once it serves."""
    around = {"PATH": os.environ["PATH"], "RANK_ENV": str(repo / ".k3env/rank_env.sh"), "SLURM_JOB_ID": "812", **more}
    with subprocess.Popen([*before, shell, "-c", script], env=around, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"ready\n"
        try:
            yield child
        finally:
            child.kill()


def markers(repo: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in (repo / marking.PLACE).glob("*")]


def helpers(repo: Path) -> list[int]:
    """The processes that renew a marker of this checkout: they have its directory open."""
    found = []
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text() == "k3env-in-use\n":
                links = [os.readlink(link) for link in (path.parent / "fd").iterdir()]
                found += [int(path.parent.name)] if str(repo / marking.PLACE) in links else []
        except OSError:
            continue  # it has ended
    return found


def gone(repo: Path, within_s: float = 3.0) -> bool:
    ends = time.monotonic() + within_s
    while list((repo / marking.PLACE).glob("*")) and time.monotonic() < ends:
        time.sleep(0.02)
    return list((repo / marking.PLACE).glob("*")) == []


RANKS = {
    "exec": '. "$RANK_ENV"; echo ready; exec sleep 60',
    "a child": '. "$RANK_ENV"; echo ready; sleep 60; true',
    "strict": 'set -eu; . "$RANK_ENV"; echo ready; exec sleep 60',
    "sourced twice": '. "$RANK_ENV"; . "$RANK_ENV"; echo ready; exec sleep 60',
    "a subshell": '(. "$RANK_ENV"; echo ready; exec sleep 60); sleep 60',
}


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("script", RANKS.values(), ids=RANKS)
def test_a_rank_is_seen_while_it_lives_and_no_longer(repo: Path, shell: str, script: str) -> None:
    with rank(repo, shell, script, SLURM_LOCALID="3") as child:
        (found,) = living(Machine(), str(repo), tidy=True)
        assert (found.job, found.rank, found.host) == ("812", "3", os.uname().nodename)
        assert str(found).startswith(f"a server on {found.host} (pid {found.pid}, of ")
        assert (found.pid == child.pid) is ("(" not in script), "a subshell is a process of its own"
        assert len(helpers(repo)) == 1
        os.kill(found.pid, signal.SIGKILL)
        assert gone(repo)
        assert living(Machine(), str(repo), tidy=True) == ()
    assert helpers(repo) == [], "no process is left behind"


def test_a_rank_that_is_frozen_is_still_there(repo: Path) -> None:
    with rank(repo, "bash", RANKS["exec"]) as child:
        for pid in (child.pid, *helpers(repo)):
            os.kill(pid, signal.SIGSTOP)
        assert len(living(Machine(), str(repo), tidy=True)) == 1
        for pid in (child.pid, *helpers(repo)):
            os.kill(pid, signal.SIGCONT)
    assert gone(repo)


def test_whoever_waits_for_the_end_of_a_rank_s_output_waits_for_the_rank_alone(repo: Path) -> None:
    """And a signal for all of the job leaves the marker to the rank's own end."""
    with rank(repo, "bash", 'trap "" TERM; ' + RANKS["exec"]) as child:
        for pid in helpers(repo):
            os.kill(pid, signal.SIGTERM)
        time.sleep(0.3)
        assert len(markers(repo)) == 1
        child.kill()
        begun = time.monotonic()
        assert child.stdout is not None and child.stdout.read() == b""
        assert time.monotonic() - begun < 2


@needs_root
def test_a_rank_whose_checkout_is_read_only_serves_all_the_same_and_says_so(repo: Path) -> None:
    mount = ["unshare", "--mount", "sh", "-c", f'mount --bind -o ro "{repo}" "{repo}" && exec "$@"', "sh"]
    script = '. "$RANK_ENV" 2>&1; echo ready'
    done = subprocess.run(
        [*mount, "dash", "-c", script], capture_output=True, text=True, timeout=20, check=False,
        env={"PATH": os.environ["PATH"], "RANK_ENV": str(repo / ".k3env/rank_env.sh")},
    )  # fmt: skip
    said, ready = done.stdout.splitlines()
    assert ready == "ready" and said.endswith("can't be marked as in use, and may be rebuilt meanwhile: "
                                              "Read-only file system: in-use")  # fmt: skip


@needs_root
def test_a_rank_in_a_container_is_judged_by_its_counter(repo: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pid means another process here. The beat is shortened in its copy of the file."""
    text = (repo / ".k3env/rank_env.sh").read_text()
    (repo / ".k3env/rank_env.sh").write_text(text.replace(f"+ {marking.EVERY_S}", "+ 0.3"))
    inside = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    with rank(repo, "bash", RANKS["exec"], *inside) as child:
        (found,) = living(Machine(), str(repo), tidy=True, stale_s=6)
        assert found.pid != child.pid
    time.sleep(0.5)
    assert living(Machine(), str(repo), tidy=True, stale_s=1.0) == () and markers(repo) == []


def test_serve_marks_as_a_rank_does(tmp_path: Path) -> None:
    (tmp_path / ".k3env").mkdir()
    with subprocess.Popen(["sleep", "60"]) as child:
        assert marking.mark(str(tmp_path), child.pid, "0") == ""
        assert [marker.pid for marker in living(Machine(), str(tmp_path), tidy=True)] == [child.pid]
        child.kill()
    assert gone(tmp_path)
    assert "No such file or directory" in marking.mark(str(tmp_path / "nowhere"), os.getpid())


def elsewhere(repo: Path, name: str = "m", **more: Any) -> Path:
    """Write the marker of a server on another node."""
    said = {"host": "gb300-09", "boot_id": "another", "pid_namespace": "pid:[1]", "pid": 7, "started": "1",
            "user": "ann", "job": "9", "rank": "0", "since": 1764490500.0, "count": 0, **more}  # fmt: skip
    path = repo / marking.PLACE / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said))
    return path


def test_a_server_on_another_node_is_alive_while_its_counter_moves_whatever_its_clock_says(tmp_path: Path) -> None:
    elsewhere(tmp_path, since=time.time() + 86400)
    stop = threading.Event()

    def beat() -> None:
        count = 0
        while not stop.wait(0.2):
            count += 1
            elsewhere(tmp_path, count=count)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        (found,) = living(Machine(), str(tmp_path), tidy=True, stale_s=5)
    finally:
        stop.set()
        thread.join()
    assert "a server on gb300-09 (pid 7, of ann, job 9, rank 0, since " in str(found)


def test_one_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    path = elsewhere(tmp_path)
    assert living(Machine(), str(tmp_path), tidy=False, stale_s=1.0) == () and path.exists(), "check mode keeps it"
    assert living(Machine(), str(tmp_path), tidy=True, stale_s=1.0) == () and not path.exists()


class Clock:
    """A clock that goes on when somebody sleeps, or when the filesystem stands still."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.mark.parametrize("stall_s", [1.0, 50.0, 1000.0])
@pytest.mark.parametrize("at", [2, 3, 8])
def test_while_the_filesystem_stands_still_nobody_is_taken_for_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stall_s: float, at: int
) -> None:
    """What stalls the one who looks stalls the rank too: its counter rises some seconds after that."""
    elsewhere(tmp_path)
    clock, listdir, looks, until = Clock(), os.listdir, [0], [float("inf")]

    def stalling(path: Any) -> list[str]:
        looks[0] += 1
        if looks[0] == at:
            clock.now += stall_s
            until[0] = clock.now + marking.EVERY_S
        if clock.now >= until[0]:
            elsewhere(tmp_path, count=2)
        return listdir(path)

    monkeypatch.setattr(inuse, "time", clock)
    monkeypatch.setattr(lease, "time", clock)
    monkeypatch.setattr(os, "listdir", stalling)
    assert [marker.name for marker in living(Machine(), str(tmp_path), tidy=True)] == ["m"]


def test_what_is_no_marker_is_passed_over(tmp_path: Path) -> None:
    place = elsewhere(tmp_path).parent
    (place / "m").unlink()
    (place / "link").symlink_to("/dev/zero")
    os.mkfifo(place / "pipe")
    (place / "\x1b[31mred").write_text("{}")
    (place / "deep").write_bytes(b"[" * 100_000)
    elsewhere(tmp_path, "types", pid="7")
    elsewhere(tmp_path, "time", since=1e300, host=["\x1b]0;x"])
    begun = time.monotonic()
    assert living(Machine(), str(tmp_path), tidy=True, stale_s=1.0) == ()
    assert time.monotonic() - begun < 5 and (place / "link").is_symlink()
    assert not (place / "time").exists(), "the one that could be read stood still, and is gone"


@contextmanager
def having(path: Path, *before: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process that has a file in memory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"library")
    with subprocess.Popen([*before, sys.executable, "-c", MAPS, str(path)], stdout=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stdout.readline() == b"mapped\n"
        try:
            yield child
        finally:
            child.kill()


def seen(*roots: Path) -> Mapped:
    look = mapped(tuple(map(str, roots)))
    found = Facts(Machine(), Profile()).collect((look,))[look]
    assert isinstance(found, Mapped)
    return found


@pytest.mark.parametrize("name", ["plain", "it's a repo", "with\nnewline", "ünïcode"])
def test_a_file_in_memory(tmp_path: Path, name: str) -> None:
    repo = tmp_path / name
    with having(repo / "libs/a.so") as child:
        (found,) = seen(repo).processes
        assert (found.pid, found.command) == (child.pid, "python3" if "python3" in sys.executable else "python")
        assert found.file.endswith("/libs/a.so") and abs((found.since or 0) - time.time()) < 60
        (repo / "libs/a.so").unlink()
        assert seen(repo).processes[0].file.endswith("a.so (deleted)"), "what was replaced is still in use"
        link = tmp_path / "link"
        link.symlink_to(repo)
        assert len(seen(link).processes) == 1
        assert seen(tmp_path / name[:3]).processes == (), "a name that only begins alike is another's"
    assert seen(repo).processes == ()


@needs_root
def test_a_file_in_memory_in_a_container_and_of_another_user(tmp_path: Path) -> None:
    inside = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
    mounted = [
        "sh",
        "-c",
        f'mount --bind {tmp_path} {tmp_path} && exec setpriv --reuid 65534 --clear-groups "$@"',
        "sh",
    ]
    for parent in (tmp_path, *tmp_path.parents):
        if parent.stat().st_uid == os.geteuid() and str(parent).startswith("/tmp/"):
            parent.chmod(parent.stat().st_mode | 0o055)
    with having(tmp_path / "repo/a.so", *inside, *mounted):
        (found,) = seen(tmp_path / "repo").processes
        assert found.user == "nobody"


def git(repo: Path, *words: str) -> str:
    argv = ["git", "-C", str(repo), "-c", "user.name=t", "-c", "user.email=t@t", *words]
    return subprocess.run(argv, check=True, capture_output=True, text=True).stdout.strip()


def test_a_checkout_that_somebody_serves_from_is_not_changed_unless_that_is_wanted(tmp_path: Path) -> None:
    origin, repo = tmp_path / "origin", tmp_path / "repo"
    origin.mkdir()
    git(origin, "init", "-q")
    commits = []
    for number in range(2):
        git(origin, "commit", "-q", "--allow-empty", "-m", str(number))
        commits.append(git(origin, "rev-parse", "HEAD"))

    def run(commit: str, **how: Any) -> dict[str, Any]:
        asked = task("git_checkout", repo=str(repo), url=str(origin), commit=commit, submodules=False, lfs=False)
        return Agent(tmp_path / "node").follow([asked], **how).result()

    assert run(commits[0])["status"] == "changed"
    with having(repo / "libs/a.so") as child:
        assert run(commits[0])["status"] == "ok", "nothing is to be changed, so nobody is asked"
        checked = run(commits[1], mode=CHECK)
        assert checked["status"] == "changed"
        assert [(found["id"], found["status"]) for found in checked["findings"]] == [("run.in_use", "warn")]
        refused = run(commits[1])
        (finding,) = refused["findings"]
        assert refused["status"] == "failed" and finding["id"] == "run.in_use"
        assert f"{repo} is in use: " in finding["message"] and f"(pid {child.pid}, of " in finding["message"]
        assert "--force-in-use" in finding["remedy"]
        assert git(repo, "rev-parse", "HEAD") == commits[0]
        assert run(commits[1], force_in_use=True)["status"] == "changed"
    assert git(repo, "rev-parse", "HEAD") == commits[1]


@needs_root
def test_root_that_works_as_another_user_still_sees_everyone_s_processes() -> None:
    with open_ground() as ground:
        origin, repo = ground / "origin", ground / "of nobody" / "repo"
        origin.mkdir()
        repo.parent.mkdir()
        os.chown(repo.parent, 65534, 65534)
        git(origin, "init", "-q")
        commits = []
        for number in range(2):
            git(origin, "commit", "-q", "--allow-empty", "-m", str(number))
            commits.append(git(origin, "rev-parse", "HEAD"))
        for path in (origin, *origin.rglob("*")):
            os.chown(path, 65534, 65534)

        def run(commit: str, **how: Any) -> dict[str, Any]:
            asked = task("git_checkout", repo=str(repo), url=str(origin), commit=commit, submodules=False, lfs=False)
            return Agent(ground / "node").follow([replace(asked, become_user="nobody")], **how).result()

        assert run(commits[0])["status"] == "changed"
        assert repo.stat().st_uid == 65534
        with having(repo / "libs/a.so") as child:
            (checked,) = run(commits[1], mode=CHECK)["findings"]
            refused = run(commits[1])
            assert run(commits[0])["status"] == "ok"
            assert f"(pid {child.pid}, of root, since" in checked["message"] and checked["status"] == "warn"
            assert refused["status"] == "failed" and f"(pid {child.pid}, of root" in str(refused["message"])
        assert run(commits[1])["status"] == "changed"


def test_a_pid_that_has_another_process_by_now_is_nobody_s(tmp_path: Path) -> None:
    here = {"boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip()}
    elsewhere(tmp_path, **here, pid_namespace=os.readlink("/proc/self/ns/pid"), pid=os.getpid(), started="1")
    begun = time.monotonic()
    assert living(Machine(), str(tmp_path), tidy=True) == () and time.monotonic() - begun < 2
    assert markers(tmp_path) == []


def test_a_process_that_has_ended_and_is_not_fetched_yet_is_nobody(tmp_path: Path) -> None:
    here = {"boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip()}
    with subprocess.Popen(["true"]) as child:
        stat = Path(f"/proc/{child.pid}/stat")
        while (words := stat.read_text().rpartition(")")[2].split())[0] != "Z":
            time.sleep(0.01)
        space = os.readlink("/proc/self/ns/pid")
        elsewhere(tmp_path, **here, pid_namespace=space, pid=child.pid, started=words[19])
        assert living(Machine(), str(tmp_path), tidy=False) == ()


@pytest.mark.parametrize("used", [False, True])
def test_what_could_not_be_seen_is_said_and_hides_nothing_that_was_seen(tmp_path: Path, used: bool) -> None:
    if used:
        elsewhere(tmp_path, boot_id=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
                  pid_namespace=os.readlink("/proc/self/ns/pid"), pid=os.getpid(), started=_started())  # fmt: skip
    unseen = Unreadable("/proc/7/maps does not answer")
    found = inuse.in_use(Machine(), (str(tmp_path),), lambda machine, roots: unseen, tidy=True)
    assert found is not None
    assert (found.id, found.status, found.severity) == (
        "run.in_use",
        *(("fail", "fail") if used else ("unknown", "warn")),
    )
    assert used or found.found == unseen.reason


def _started() -> str:
    return Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]
