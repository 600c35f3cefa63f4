"""Leases under faults: clients that know names by heart, silent servers, frozen nodes, clocks that are off.

Real processes; the network filesystem is played by tests/netfs.c.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.netfs import HERE, Netfs

TIMEOUT_S = 1.2
LAG_S = 15.0
NODE = """
import sys, time
from k3env.node.cancel import Cancel, Cancelled
from k3env.node.leases.lease import HELD, Lease, Owner, nonce

name, timeout_s, work_s, *paths = sys.argv[1:]


def say(word, path):
    with open(SAID, "a") as file:
        file.write(f"{word} {name} {path}\\n")


SAID = paths.pop()
cancel = Cancel()
cancel.install()
for path in paths:
    owner = Owner(name, name, f"boot of {name}", 1, "pid:[1]", "r1", "1.1", "me@here", nonce(), time.time())
    lease = Lease(path, owner, cancel, float(timeout_s))
    say("waits", path)
    assert lease.acquire(lambda *_: None) == HELD
    say("in", path)
    try:
        with cancel:
            time.sleep(float(work_s))
        lease.confirm()
    except Cancelled as error:
        say("lost" if "lease was lost" in str(error) else "stopped", path)
    else:
        say("out", path)
    lease.release()
say("end", "")
"""


@dataclass
class Nodes:
    """Processes that take leases, each as a node of its own."""

    netfs: Netfs
    log: Path
    children: dict[str, subprocess.Popen[bytes]]

    def start(
        self, name: str, *paths: str, work_s: float = 60.0, lag_s: float = 0.0, clock_s: int = 0, timeout_s: float = 0.0
    ) -> None:
        """Let a node take the lease of each path, and work under it."""
        where = [str(self.netfs.root / path) for path in paths or ("repo",)]
        argv = [sys.executable, "-c", NODE, name, str(timeout_s or TIMEOUT_S), str(work_s), *where, str(self.log)]
        environment = {**self.netfs.client(lag_s, clock_s), "PYTHONPATH": str(HERE.parent)}
        self.children[name] = subprocess.Popen(argv, env=environment)

    def said(self) -> list[str]:
        """What they did, in order."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.rpartition(" ")[0] for line in lines]

    def deeds(self) -> list[str]:
        """Who went in and how they came out, in order."""
        return [line for line in self.said() if line.split()[0] in ("in", "out", "lost", "stopped")]

    def until(self, line: str, within_s: float = 30.0) -> float:
        """Wait until a node has done something; return for how long."""
        begun = time.monotonic()
        while line not in self.said():
            assert time.monotonic() - begun < within_s, f"no {line!r} in {self.said()}"
            time.sleep(0.02)
        return time.monotonic() - begun

    def signal(self, name: str, number: int) -> None:
        """Send a node's process a signal."""
        self.children[name].send_signal(number)


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[Nodes]:
    """Return nodes that share an empty directory; their processes are ended."""
    shared, libraries = tmp_path / "shared", tmp_path / "libraries"
    shared.mkdir()
    libraries.mkdir()
    made = Nodes(Netfs(shared, libraries), tmp_path / "log", {})
    yield made
    for child in made.children.values():
        child.send_signal(signal.SIGCONT)
        child.kill()
        child.wait()


def test_what_the_stand_in_plays(tmp_path: Path) -> None:
    """A name that another client has given to a new file leads to the old one until the lag is over, or one writes."""
    (tmp_path / "shared").mkdir()
    netfs = Netfs(tmp_path / "shared", tmp_path)
    look = """
import os, sys
def read(): return open("shared/a").read()
open("shared/a", "w").write("old")
print(read(), flush=True); sys.stdin.readline()
print(read(), os.path.exists("shared/c")); os.close(os.open("shared/b", os.O_CREAT)); print(read())
""".replace("shared", str(netfs.root))
    argv = [sys.executable, "-c", look]
    with subprocess.Popen(
        argv, env=netfs.client(60), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None and child.stdout.readline() == "old\n"
        (netfs.root / "fresh").write_text("new")
        (netfs.root / "fresh").rename(netfs.root / "a")
        said, _ = child.communicate("go on\n", 10)
    assert said == "old False\nnew\n"


def nothing(nodes: Nodes) -> None:
    time.sleep(3 * TIMEOUT_S)


def silent_server(nodes: Nodes) -> None:
    nodes.netfs.stall()
    time.sleep(3 * TIMEOUT_S)
    nodes.netfs.answer()
    time.sleep(2 * TIMEOUT_S)


def frozen_waiter(nodes: Nodes) -> None:
    for _ in range(3):
        nodes.signal("b", signal.SIGSTOP)
        time.sleep(2 * TIMEOUT_S)
        nodes.signal("b", signal.SIGCONT)
        time.sleep(0.3)


def shortly_frozen_owner(nodes: Nodes) -> None:
    for _ in range(4):
        nodes.signal("a", signal.SIGSTOP)
        time.sleep(0.4 * TIMEOUT_S)
        nodes.signal("a", signal.SIGCONT)
        time.sleep(TIMEOUT_S / 2)


@pytest.mark.parametrize("lag_s", [0.0, LAG_S], ids=["", "names known by heart"])
@pytest.mark.parametrize("fault", [nothing, silent_server, frozen_waiter, shortly_frozen_owner])
def test_a_living_owner_keeps_its_lease(nodes: Nodes, fault: Callable[[Nodes], None], lag_s: float) -> None:
    nodes.start("a", lag_s=lag_s)
    nodes.until("in a")
    nodes.start("b", lag_s=lag_s, work_s=0)
    nodes.until("waits b")
    fault(nodes)
    assert nodes.deeds() == ["in a"]
    nodes.signal("a", signal.SIGTERM)
    nodes.until("out b", 10)
    assert nodes.deeds() == ["in a", "stopped a", "in b", "out b"]


@pytest.mark.parametrize(("owner_s", "waiter_s"), [(3600, -3600), (-86400, 86400)])
def test_clocks_that_are_off_make_no_difference(nodes: Nodes, owner_s: int, waiter_s: int) -> None:
    nodes.start("a", clock_s=owner_s)
    nodes.until("in a")
    nodes.start("b", clock_s=waiter_s, work_s=0)
    nodes.until("waits b")
    time.sleep(2 * TIMEOUT_S)
    assert nodes.deeds() == ["in a"], "a living owner is left alone"
    nodes.children["a"].kill()
    assert nodes.until("in b", 15) > TIMEOUT_S / 2, "and a dead one's time is the waiter's own"


@pytest.mark.parametrize("lag_s", [0.0, LAG_S], ids=["", "names known by heart"])
def test_a_frozen_owner_that_thaws_stops_and_takes_nothing_from_the_new_one(nodes: Nodes, lag_s: float) -> None:
    nodes.start("a", lag_s=lag_s)
    nodes.until("in a")
    nodes.start("b", lag_s=lag_s, work_s=3 * TIMEOUT_S)
    nodes.until("waits b")
    nodes.signal("a", signal.SIGSTOP)
    nodes.until("in b", 15)
    nodes.signal("a", signal.SIGCONT)
    nodes.until("lost a", TIMEOUT_S)
    nodes.start("c", lag_s=lag_s, work_s=0)
    nodes.until("out c", 20)
    assert nodes.deeds() == ["in a", "in b", "lost a", "out b", "in c", "out c"]


@pytest.mark.parametrize("lag_s", [0.0, LAG_S], ids=["", "names known by heart"])
def test_of_several_that_take_over_at_once_one_wins(nodes: Nodes, lag_s: float) -> None:
    """Eight dead owners, five waiters that see each of them die at the same moment."""
    paths = [f"repo-{number}" for number in range(8)]
    for path in paths:
        directory = nodes.netfs.root / f".{path}.k3env-lease"
        directory.mkdir()
        dead = {"host": "x", "nodename": "x", "boot_id": "x", "pid": 1, "pid_namespace": "x", "run": "r0", "task": "1"}
        (directory / "owner.json").write_text(json.dumps({**dead, "nonce": os.urandom(6).hex()}))
        (directory / "beat").write_text('{"count": 7, "progress": ""}')
    names = ["a", "b", "c", "d", "e"]
    for name in names:
        nodes.start(name, *paths, work_s=0.05, lag_s=lag_s, timeout_s=0.8)
    for name in names:
        nodes.until(f"end {name}", 120)
    taken = [line.split() for line in nodes.log.read_text().splitlines() if line[:2] in ("in", "ou", "lo", "st")]
    for path in paths:
        events = [(word, name) for word, name, where in taken if where.endswith(f"/{path}")]
        assert sorted(events[::2]) == sorted(("in", name) for name in names), "each had it, once"
        assert events[1::2] == [("out", name) for _, name in events[::2]], "and was alone with it"
