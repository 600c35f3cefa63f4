"""The lease beside a path: one owner at a time, takeover of the dead, adopted failures."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from k3env.errors import Refused, TaskFailed
from k3env.node.cancel import Cancel, Cancelled
from k3env.node.leases import lease_files
from k3env.node.leases.lease import DONE, FAILED, HELD, Lease, Owner, nonce
from k3env.node.leases.together import held, holders

USR = (signal.SIGUSR1, signal.SIGUSR2)
TIMERS: list[threading.Timer] = []
FORK = multiprocessing.get_context("fork")


def owner(host: str = "a", run: str = "r1", task: str = "1.1", boot_id: str = "b", pid: int | None = None) -> Owner:
    return Owner(host, "node", boot_id, pid or os.getpid(), "pid:[1]", run, task, "me@here", nonce(), time.time())


def quiet(holder: Owner, progress: str) -> None:
    """Wait without a word."""


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Give signals back to whom they belonged: `_after` takes them."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGALRM, *USR)}
    yield
    while TIMERS:
        TIMERS.pop().cancel()
    for number, handler in kept.items():
        signal.signal(number, handler)


def test_only_one_of_many_processes_works_at_a_time(tmp_path: Path) -> None:
    target, log = tmp_path / "repo", tmp_path / "log"

    def work(number: int) -> None:
        lease = Lease(str(target), owner(host=f"h{number}"), Cancel(), timeout_s=5)
        assert lease.acquire(quiet) == HELD
        with log.open("a") as file:
            file.write(f"in {number}\n")
        time.sleep(0.05)
        with log.open("a") as file:
            file.write(f"out {number}\n")
        lease.release()

    children = [FORK.Process(target=work, args=(number,)) for number in range(6)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
        assert child.exitcode == 0
    lines = log.read_text().split("\n")[:-1]
    assert len(lines) == 12
    for entered, left in zip(lines[::2], lines[1::2], strict=True):
        assert (entered.split()[0], left.split()[0]) == ("in", "out") and entered.split()[1] == left.split()[1]
    assert [name for name in os.listdir(tmp_path) if "k3env" in name] == []


def test_an_owner_whose_counter_stands_still_is_taken_over_and_a_living_one_is_not(tmp_path: Path) -> None:
    target = str(tmp_path / "repo")
    living = Lease(target, owner("a"), Cancel(), timeout_s=1.2)
    assert living.acquire(quiet) == HELD
    living.progress("[ 42%] compiling")
    told: list[tuple[str, str]] = []
    waiter = Lease(target, owner("b"), _after(3.0), timeout_s=1.2)
    with pytest.raises(Cancelled):
        waiter.acquire(lambda holder, progress: told.append((holder.host, progress)))
    assert ("a", "[ 42%] compiling") in told
    living._stop.set()  # the owner freezes: it neither renews nor releases
    begun = time.monotonic()
    taker = Lease(target, owner("c"), Cancel(), timeout_s=1.2)
    assert taker.acquire(quiet) == HELD
    assert time.monotonic() - begun > 1.0
    with pytest.raises(Refused, match="was lost"):
        living.confirm()
    taker.confirm()
    living.release()
    assert taker.holder() is not None, "a thawed owner's release must not take the lease from the new one"
    taker.release()


def test_an_owner_that_lost_its_lease_stops_its_work(tmp_path: Path) -> None:
    def work() -> None:
        cancel = Cancel()
        cancel.install()
        lease = Lease(str(tmp_path / "repo"), owner(), cancel, timeout_s=0.6)
        assert lease.acquire(quiet) == HELD
        record = tmp_path / ".repo.k3env-lease" / "owner.json"
        record.write_text(json.dumps({**json.loads(record.read_text()), "nonce": "somebody else's"}))
        try:
            with cancel:
                time.sleep(20)
        except Cancelled as error:
            os._exit(7 if "lease was lost" in str(error) else 8)

    child = FORK.Process(target=work)
    child.start()
    child.join(15)
    assert child.exitcode == 7


@pytest.mark.parametrize(
    ("holder", "taken"),
    [
        (owner("a", boot_id="the boot before"), True),
        (owner("a", pid=2**22 - 3), True),
        (owner("a", pid=os.getpid()), False),
        (replace(owner("a", pid=2**22 - 3), pid_namespace="pid:[2]"), False),
        (owner("b", boot_id="another node's"), False),
    ],
    ids=["rebooted", "process gone", "process alive", "in a container", "another node"],
)
def test_an_owner_on_this_node_is_judged_by_boot_and_process(tmp_path: Path, holder: Owner, taken: bool) -> None:
    target = str(tmp_path / "repo")
    first = Lease(target, holder, Cancel(), timeout_s=60)
    assert first.acquire(quiet) == HELD
    first._stop.set()
    second = Lease(target, owner("a"), _after(1.5), timeout_s=60)
    if taken:
        assert second.acquire(quiet) == HELD
        second.release()
    else:
        with pytest.raises(Cancelled):
            second.acquire(quiet)


def test_a_failure_is_adopted_by_waiters_of_the_same_run_and_task_only(tmp_path: Path) -> None:
    target = str(tmp_path / "repo")
    with pytest.raises(TaskFailed), held((target,), owner("a"), Cancel(), quiet) as leases:
        error = TaskFailed("the build failed", remedy="mend it")
        leases.failed(error)
        raise error
    with held((target,), owner("b"), Cancel(), quiet) as leases:
        assert leases.adopted is not None
        assert leases.adopted.message == "failed on a: the build failed"
        assert leases.adopted.findings[0].remedy == "mend it"
    with held((target,), owner("b", task="1.2"), Cancel(), quiet) as leases:
        assert leases.adopted is None
    with held((target,), owner("b", run="r2"), Cancel(), quiet) as leases:
        assert leases.adopted is None


def test_a_waiter_goes_on_when_the_next_owner_does_something_else(tmp_path: Path) -> None:
    """Whoever waits for a checkout need not wait for the build that comes after it."""
    target = str(tmp_path / "repo")
    first = Lease(target, owner("a"), Cancel(), timeout_s=5)
    assert first.acquire(quiet) == HELD
    asked: list[float] = []

    def hand_over(holder: Owner, progress: str) -> None:
        first.release()
        assert Lease(target, owner("a", task="1.2"), Cancel(), timeout_s=5).acquire(quiet) == HELD

    def is_done() -> bool:
        asked.append(time.monotonic())
        return True

    tell = iter([hand_over])
    waiter = Lease(target, owner("b"), Cancel(), timeout_s=5)
    assert waiter.acquire(lambda *_: next(tell)(*_), is_done) == DONE
    assert len(asked) == 1, "while one and the same owner works, nobody looks over its shoulder"


def test_no_lease_where_nothing_can_be_written(tmp_path: Path) -> None:
    missing = tmp_path / "gone" / "repo"
    with pytest.raises(Refused) as caught:
        Lease(str(missing), owner(), Cancel()).acquire(quiet)
    assert caught.value.finding.id == "run.lease" and str(tmp_path / "gone") in (caught.value.finding.expected or "")


UNREADABLE = {
    "binary": b"\xff\xfe\x00{",
    "cut off": b'{"host": "a", "no',
    "a list": b"[1]",
    "wrong types": b'{"host": 5, "nodename": [], "boot_id": {}, "pid": "1", "pid_namespace": 0, "run": 1, "task": 2}',
    "deep": b"[" * 100_000,
    "of another version": b'{"host": "a", "colour": "red"}',
    "absent": None,
}


@pytest.mark.parametrize("record", UNREADABLE.values(), ids=UNREADABLE)
def test_who_waits_for_an_owner_that_can_not_be_read_is_told_so_at_once(tmp_path: Path, record: bytes | None) -> None:
    target, directory = str(tmp_path / "repo"), tmp_path / ".repo.k3env-lease"
    directory.mkdir()
    (directory / "beat").write_bytes(b"\xff")
    if record is not None:
        (directory / "owner.json").write_bytes(record)
    told: list[tuple[float, str, str]] = []
    begun = time.monotonic()
    lease = Lease(target, owner(), Cancel(), timeout_s=0.6)
    state = lease.acquire(lambda holder, progress: told.append((time.monotonic(), str(holder), holder.host)))
    assert state == HELD and time.monotonic() - begun > 0.5, "and it is taken over only when it is dead"
    assert told[0][0] - begun < 0.5 and told[0][1:] == ("unknown, unreadable owner.json", "unknown")
    assert str(lease.holder()).startswith("a (pid")
    lease.release()


def test_check_mode_names_an_owner_that_can_not_be_read(tmp_path: Path) -> None:
    (tmp_path / ".repo.k3env-lease").mkdir()
    (found,) = holders((str(tmp_path / "repo"),), owner())
    assert str(found[1]) == "unknown, unreadable owner.json"


def test_a_failure_that_can_not_be_read_is_adopted_all_the_same(tmp_path: Path) -> None:
    me = owner()
    record = {"run": me.run, "task": me.task, "host": "a", "result": {"status": [], "colour": 1}}
    (tmp_path / ".repo.k3env-failed.json").write_text(json.dumps(record))
    assert Lease(str(tmp_path / "repo"), me, Cancel()).acquire(quiet) == FAILED
    with held((str(tmp_path / "repo"),), me, Cancel(), quiet) as leases:
        assert leases.adopted is not None and leases.adopted.message == "failed on a: what it said can't be read"


def _after(seconds: float) -> Cancel:
    """A wish to stop that comes by itself."""
    cancel = Cancel()
    cancel.install()

    def wish() -> None:
        cancel.request("enough")
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Timer(seconds, wish)
    timer.daemon = True
    timer.start()
    TIMERS.append(timer)
    return cancel


def test_a_failure_between_looking_and_taking_is_adopted_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = str(tmp_path / "repo")
    first = Lease(target, owner("a"), Cancel(), timeout_s=5)
    waiter = Lease(target, owner("b"), Cancel(), timeout_s=5)
    take = Lease._try

    def just_before(lease: Lease) -> bool:
        monkeypatch.setattr(Lease, "_try", take)
        assert first.acquire(quiet) == HELD
        first.release({"status": "failed", "message": "the build failed"})
        return take(lease)

    monkeypatch.setattr(Lease, "_try", just_before)
    assert waiter.acquire(quiet) == "failed" and waiter.failed() is not None
    assert waiter.holder() is None, "nobody holds it after that"


@pytest.mark.parametrize("kind", ["link", "file"])
def test_what_is_no_lease_is_refused_and_left_alone(tmp_path: Path, kind: str) -> None:
    elsewhere, there = tmp_path / "elsewhere", tmp_path / ".repo.k3env-lease"
    elsewhere.mkdir()
    if kind == "link":
        there.symlink_to(elsewhere)
    else:
        there.write_text("mine")
    with pytest.raises(Refused, match="can't be leased") as caught:
        Lease(str(tmp_path / "repo"), owner(), Cancel(), timeout_s=0.5).acquire(quiet)
    assert f"rm -r {there}" in (caught.value.finding.remedy or "")
    assert os.path.lexists(there) and list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["../../escaped", "/escaped", "", "a" * 300, "ab cd"])
def test_a_name_that_somebody_else_made_up_leads_nowhere(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "in" / ".repo.k3env-lease"
    directory.mkdir(parents=True)
    (directory / "owner.json").write_text(json.dumps({**vars(owner("x")), "nonce": name}))
    lease = Lease(str(tmp_path / "in/repo"), owner(), Cancel(), timeout_s=0.5)
    assert lease.acquire(quiet) == HELD
    lease.release()
    assert [path.name for path in tmp_path.iterdir()] == ["in"]
    assert [path.name.partition("-dead-")[2].partition("-")[0] for path in (tmp_path / "in").iterdir()] == ["inode"]


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")


@needs_root
def test_a_failure_that_another_user_wrote_is_nobodys(tmp_path: Path) -> None:
    me, record = owner(), tmp_path / ".repo.k3env-failed.json"
    record.write_text(json.dumps({"run": me.run, "task": me.task, "host": "a", "result": {"status": "failed"}}))
    os.chown(record, 65534, 65534)
    lease = Lease(str(tmp_path / "repo"), me, Cancel())
    assert lease.failed() is None and lease.acquire(quiet) == HELD
    lease.release()


@needs_root
def test_a_dead_lease_of_another_user_is_not_fought_over_for_ever(tmp_path: Path) -> None:
    directory, shared = tmp_path / "shared/.repo.k3env-lease", tmp_path / "shared"
    directory.mkdir(parents=True)
    for parent in tmp_path.parents[: len(tmp_path.parents) - 2]:
        parent.chmod(parent.stat().st_mode | 0o011)
    tmp_path.chmod(0o755)
    os.chown(shared, 0, 65534)
    shared.chmod(0o1775)
    (directory / "owner.json").write_text(json.dumps(vars(owner("x"))))

    def work() -> None:
        os.setgid(65534)
        os.setuid(65534)
        try:
            Lease(str(shared / "repo"), owner(), Cancel(), timeout_s=0.5).acquire(quiet)
        except Refused as error:
            os._exit(7 if "may not take it over" in str(error) and "x (pid" in str(error.finding.found) else 8)

    child = FORK.Process(target=work)
    child.start()
    child.join(15)
    assert child.exitcode == 7


def test_what_dead_ones_left_is_swept_up_when_nobody_can_mistake_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, other = tmp_path / ".repo.k3env-dead-0123456789ab", tmp_path / ".repository.k3env-dead-0123456789ab"
    for directory in (old, other):
        directory.mkdir()
        (directory / "owner.json").write_text("{}")
    (tmp_path / ".repo.k3env-wait-0123456789ab").write_text("")

    def take() -> list[str]:
        lease = Lease(str(tmp_path / "repo"), owner(), Cancel())
        assert lease.acquire(quiet) == HELD
        lease.release()
        return sorted(path.name for path in tmp_path.iterdir())

    assert len(take()) == 3
    monkeypatch.setattr(lease_files, "GRAVE_S", -1.0)
    assert take() == [other.name]


@pytest.mark.parametrize("stood_still", [False, True])
def test_who_may_have_been_taken_for_dead_keeps_its_grave(tmp_path: Path, stood_still: bool) -> None:
    """A waiter that has judged an owner dead takes away nobody's lease when that owner has just given it back."""
    beside = lease_files.Beside(str(tmp_path / "repo"))
    first = Lease(str(tmp_path / "repo"), owner("a"), Cancel())
    assert first.acquire(quiet) == HELD
    judged = beside.standing()
    assert judged is not None
    first._stood_still = stood_still
    first.release()
    second = Lease(str(tmp_path / "repo"), owner("b"), Cancel())
    assert second.acquire(quiet) == HELD
    moved = os.stat(beside.directory).st_ctime_ns
    assert beside.take_away(judged) is None
    second.confirm()
    assert (os.stat(beside.directory).st_ctime_ns == moved) is stood_still
    second.release()
