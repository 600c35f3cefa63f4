"""A play's words about failure, and what a run makes of them: real agents here, some that can't be reached."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from k3env import payload
from k3env.connections.connection import Connection
from k3env.connections.process import ProcessConnection
from k3env.connections.process import Target as Program
from k3env.errors import Unreachable
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.outcome import Fold, Outcome
from k3env.protocol.plan import Plan, Start, Task
from k3env.runner.host import Limits, Target
from k3env.runner.policy import Policy
from k3env.runner.record import Record
from k3env.runner.run import Run, Watcher
from k3env.runner.session import Work

# policy, failed, hosts, the verdict's beginning. A share must be exceeded, as in Ansible.
VERDICTS = [
    (Policy(), 0, 4, None),
    (Policy(), 3, 4, None),
    (Policy(any_errors_fatal=True), 0, 4, None),
    (Policy(any_errors_fatal=True), 1, 4, "any_errors_fatal: h0 failed"),
    (Policy(max_fail_percentage=0), 0, 4, None),
    (Policy(max_fail_percentage=0), 1, 400, "max_fail_percentage 0: 1 of 400"),
    (Policy(max_fail_percentage=25), 1, 4, None),
    (Policy(max_fail_percentage=24.9), 1, 4, "max_fail_percentage 24.9: 1 of 4"),
    (Policy(max_fail_percentage=25), 2, 4, "max_fail_percentage 25: 2 of 4"),
    (Policy(max_fail_percentage=100), 4, 4, None),
]


@pytest.mark.parametrize("policy, failed, hosts, verdict", VERDICTS)
def test_verdicts(policy: Policy, failed: int, hosts: int, verdict: str | None) -> None:
    said = policy.verdict([f"h{number}" for number in range(failed)], hosts)
    assert said == verdict if verdict is None else said is not None and said.startswith(verdict)


@pytest.mark.parametrize(
    "policy, failed, hosts, ends",
    [
        (Policy(), 4, 4, True),
        (Policy(), 3, 4, False),
        (Policy(), 0, 0, False),
        (Policy(max_fail_percentage=100), 4, 4, False),
    ],
)
def test_hosts_of_which_all_failed_end_a_run_unless_a_share_allows_it(
    policy: Policy, failed: int, hosts: int, ends: bool
) -> None:
    assert (policy.end([f"h{number}" for number in range(failed)], hosts) is not None) is ends


def _dead() -> Connection:
    raise Unreachable("nobody there")


def _mute() -> Connection:
    """Reach a host that takes its time."""
    time.sleep(30)
    raise Unreachable("nobody there")


def _here() -> Connection:
    return ProcessConnection("local", Program("localhost"))


@dataclass
class Site:
    """Hosts with one plan of three tasks; what a host is called says what becomes of it."""

    root: Path
    notices: list[str] = field(default_factory=list)
    ctrl_c: Callable[[], bool] = lambda: False
    """Whether it is pressed now."""
    together: bool = False
    """Whether `bad` waits for `slow`."""

    def plan(self, host: str) -> Plan:
        """`slow`: its second task takes until another host has failed; `bad`: its second task fails, if it need be
        while `slow` is at its own."""
        failed, busy = self.root / "failed", self.root / "busy"
        wait = "for i in $(seq 100); do [ -e {} ] && break; sleep 0.1; done; {}"
        second = {
            "bad": wait.format(busy, f"touch {failed}; exit 1") if self.together else "exit 1",
            "slow": f"touch {busy}; " + wait.format(failed, f"sleep 1.5; touch {self.root}/{host}-second"),
        }.get(host.rstrip("0123456789"), "true")
        scripts = ("true", second, f"touch {self.root}/{host}-finished")
        return Plan(
            tuple(
                Task(f"1.{at}", f"Task {at}", "command", {"argv": ["sh", "-c", text], "read_only": True})
                for at, text in enumerate(scripts, 1)
            )
        )

    def target(self, host: str) -> Target:
        state = str(self.root / f"state-{host}")
        start = Start("r.1", host, "me", payload=payload.build().digest, state_dir=state, jobs="*")
        work = Work(payload.boot_code(), payload.build(), codec.dumps(self.plan(host)).encode())
        reach: Callable[[], Connection] = {"dead": _dead, "mute": _mute}.get(host.rstrip("0123456789"), _here)
        return Target(host, reach, work, start)

    def run(self, policy: Policy, *batches: str, forks: int = 8) -> Outcome:
        """Run batches of hosts, named with spaces between them, as a play with `serial` does."""
        hosts = " ".join(batches).split()
        fold = Fold("r", "2026-01-01T00:00:00Z", {host: self.plan(host).tasks for host in hosts})
        (self.root / "record").mkdir()

        def tick() -> None:
            if self.ctrl_c():
                raise KeyboardInterrupt

        watcher = Watcher(lambda host, event: None, tick, self.notices.append)
        running = Run(Record(self.root / "record"), fold, Limits(5, 5), forks, watcher)
        for batch in batches:
            if running.over:
                running.leave_out(batch.split())
            else:
                running.stage([self.target(host) for host in batch.split()], policy, may_stop=False)
        return fold.outcome(0.0)

    def finished(self) -> set[str]:
        return {path.name.removesuffix("-finished") for path in self.root.glob("*-finished")}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def statuses(outcome: Outcome) -> dict[str, str]:
    return {name: host.status for name, host in outcome.hosts.items()}


def test_without_a_policy_the_others_go_on(site: Site) -> None:
    outcome = site.run(Policy(), "bad1 ok1 dead1", "ok2")
    assert statuses(outcome) == {"bad1": "failed", "ok1": "ok", "dead1": "unreachable", "ok2": "ok"}
    assert outcome.exit_code() == 2 and site.notices == []


@pytest.mark.parametrize("policy", [Policy(any_errors_fatal=True), Policy(max_fail_percentage=40)])
def test_the_others_stop_at_their_next_task_and_are_notrun(site: Site, policy: Policy) -> None:
    site.together = True
    outcome = site.run(policy, "slow1 bad1", "ok1")
    assert statuses(outcome) == {"slow1": "notrun", "bad1": "failed", "ok1": "notrun"}
    # What it was at is finished, and nothing begun after it.
    assert [task.status for task in outcome.hosts["slow1"].tasks] == ["ok", "ok", "cancelled"]
    assert (site.root / "slow1-second").exists()
    assert (outcome.hosts["ok1"].notrun, outcome.hosts["ok1"].ok) == (3, 0)
    assert "bad1" in outcome.hosts["ok1"].message or "1 of 2" in outcome.hosts["ok1"].message
    assert outcome.exit_code() == 2 and site.finished() == set()
    assert len(site.notices) == 1 and "stop before their next task" in site.notices[0]


def test_a_host_that_is_unreachable_has_failed(site: Site) -> None:
    outcome = site.run(Policy(max_fail_percentage=0), "dead1 ok1", "ok2")
    assert statuses(outcome)["dead1"] == "unreachable" and statuses(outcome)["ok2"] == "notrun"
    assert outcome.exit_code() == 4


def test_hosts_that_wait_for_their_turn_are_not_contacted(site: Site) -> None:
    outcome = site.run(Policy(any_errors_fatal=True), "bad1 ok1 ok2 ok3", forks=1)
    assert statuses(outcome) == {"bad1": "failed", "ok1": "notrun", "ok2": "notrun", "ok3": "notrun"}
    assert not (site.root / "state-ok3").exists()


def test_a_share_that_is_not_exceeded_lets_all_go_on(site: Site) -> None:
    outcome = site.run(Policy(max_fail_percentage=50), "bad1 ok1", "ok2")
    assert statuses(outcome) == {"bad1": "failed", "ok1": "ok", "ok2": "ok"}


def test_a_batch_that_fails_as_a_whole_ends_the_run(site: Site) -> None:
    outcome = site.run(Policy(), "bad1 dead1", "ok1 ok2", "ok3")
    assert statuses(outcome) == {
        "bad1": "failed",
        "dead1": "unreachable",
        "ok1": "notrun",
        "ok2": "notrun",
        "ok3": "notrun",
    }
    assert outcome.hosts["ok3"].message == "all 2 hosts failed"


def test_a_batch_that_fails_as_a_whole_may_be_allowed_to(site: Site) -> None:
    outcome = site.run(Policy(max_fail_percentage=100), "bad1", "bad2", "ok1")
    assert statuses(outcome) == {"bad1": "failed", "bad2": "failed", "ok1": "ok"}


def test_a_run_that_is_to_stop_sends_no_more_work(site: Site) -> None:
    from k3env.runner.host import Follower, Wish

    events: list[Event] = []
    wish = Wish()

    def reach() -> Connection:
        wish.cancel("enough")
        return ProcessConnection("local", Program("localhost"))

    target = site.target("ok1")
    Follower(
        Target("ok1", reach, target.work, target.start), Limits(5, 5), lambda host, event: events.append(event), wish
    ).follow()
    assert [(event.kind, event.data["message"]) for event in events] == [("notrun", "enough")]
    assert site.finished() == set()


@pytest.mark.parametrize("hosts, goes_on", [("mute1 mute2", False), ("mute1 slow1", True)])
def test_ctrl_c_says_that_the_work_goes_on_where_there_is_some(tmp_path: Path, hosts: str, goes_on: bool) -> None:
    pressed: list[bool] = []

    def press() -> bool:
        ready = (tmp_path / "busy").exists() or not goes_on
        pressed.append(ready)
        return ready and pressed.count(True) == 1

    site = Site(tmp_path, ctrl_c=press)
    begun = time.monotonic()
    outcome = site.run(Policy(), hosts, "ok1")
    assert time.monotonic() - begun < 20 and set(statuses(outcome).values()) == {"notrun"}
    (notice,) = site.notices
    assert ("the work goes on" in notice) is goes_on and ("no host has begun" in notice) is not goes_on
    (tmp_path / "failed").touch()
