"""Hosts that are not there are tried again after the others, within their time: real agents, roads that open late."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from k3env.connections.connection import Connection
from k3env.errors import AuthFailed, ConnectTimeout, HostKeyMismatch, NotThere, Unreachable
from k3env.protocol.event import Event
from k3env.protocol.line import END, NOTRUN, ROAD, UNREACHABLE
from k3env.runner import turns
from k3env.runner.fanout import Fanout
from k3env.runner.host import Limits, Target, Wish
from k3env.runner.policy import Policy
from tests.unit.runner.test_policy import Site, _here


class Roads:
    """Targets whose roads open at a try; keeps the order of tries and ends."""

    def __init__(self, root: Path) -> None:
        self._site = Site(root)
        self.order: list[str] = []
        self.events: list[tuple[str, Event]] = []
        self.wish = Wish()

    def target(self, host: str, opens: int, error: Unreachable | None = None) -> Target:
        """Return a host that is there from a try on, 1 being the first."""

        def reach() -> Connection:
            self.order.append(host)
            if self.order.count(host) < opens:
                raise error or NotThere(f"{host}: Connection refused")
            return _here()

        return replace(self._site.target(host), reach=reach)

    def follow(self, targets: list[Target], tries: int, forks: int = 1, timeout_s: float = 20.0) -> None:
        fanout = Fanout(targets, forks, Limits(timeout_s, 5, tries), self.wish)
        fanout.begin()
        while fanout.running:
            for host, event in fanout.events(0.1):
                self.events.append((host, event))
                if event.kind == END:
                    self.order.append(f"{host} ended")

    def ends(self) -> dict[str, str]:
        """Return what became of each host."""
        return {host: event.kind for host, event in self.events if event.kind in (END, UNREACHABLE, NOTRUN)}


@pytest.fixture
def roads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Roads]:
    monkeypatch.setattr(turns, "PAUSE_S", (0.0, 0.01))
    monkeypatch.setattr(turns, "LOOK_S", 0.01)
    yield Roads(tmp_path)


# tries, when `late` is there, the order of tries and ends
ORDERS = [
    (3, 1, "late, late ended, ok1, ok1 ended, ok2, ok2 ended"),
    (3, 2, "late, ok1, ok1 ended, ok2, ok2 ended, late, late ended"),
    (3, 3, "late, ok1, ok1 ended, ok2, ok2 ended, late, late, late ended"),
    (3, 4, "late, ok1, ok1 ended, ok2, ok2 ended, late, late"),
    (2, 3, "late, ok1, ok1 ended, ok2, ok2 ended, late"),
    (1, 2, "late, ok1, ok1 ended, ok2, ok2 ended"),
]


@pytest.mark.parametrize("tries, opens, order", ORDERS)
def test_after_the_others(roads: Roads, tries: int, opens: int, order: str) -> None:
    roads.follow([roads.target("late", opens), roads.target("ok1", 1), roads.target("ok2", 1)], tries)
    wanted = order.split(", ")
    # An end is told by its host's thread, and read by ours: only tries have an order of their own.
    assert [word for word in roads.order if " " not in word] == [word for word in wanted if " " not in word]
    assert roads.ends() == {"late": END if "late ended" in wanted else UNREACHABLE, "ok1": END, "ok2": END}
    told = [event.data["message"] for host, event in roads.events if event.kind == ROAD]
    assert told == (["late: Connection refused; it is tried again after the others"] if opens > 1 < tries else [])


def test_the_last_try_waits_until_the_others_have_ended(roads: Roads) -> None:
    slow = roads.target("slow", 1)
    (roads._site.root / "failed").touch()  # then it takes 1.5 s
    roads.follow([roads.target("late", 3), slow], 3, forks=2)
    tries = [number for number, word in enumerate(roads.order) if word == "late"]
    assert len(tries) == 3 and tries[1] < roads.order.index("slow ended") < tries[2]
    assert roads.ends() == {"late": END, "slow": END}


@pytest.mark.parametrize("error", [AuthFailed("no key fits"), HostKeyMismatch("changed"), Unreachable("no such name")])
def test_what_does_not_mend_itself_is_not_tried_again(roads: Roads, error: Unreachable) -> None:
    roads.follow([roads.target("a", 2, error), roads.target("b", 1)], 3)
    assert roads.order.count("a") == 1 and roads.ends() == {"a": UNREACHABLE, "b": END}


def test_all_tries_together_take_no_longer_than_the_timeout(roads: Roads, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turns, "PAUSE_S", (6.0, 6.0))
    roads.follow([roads.target("a", 9)], 3, timeout_s=5.0)
    assert roads.order == ["a"] and roads.ends() == {"a": UNREACHABLE}
    taken = turns.Turns([], Limits(30, 5, 3), Wish())
    turn = turns.Turn(roads.target("b", 1), 2, spent_s=12.0)
    assert taken.limits(turn).timeout_s == 18.0
    assert not taken.again(turn, NotThere("x"), 12.1)


def test_who_waits_for_another_try_when_the_run_is_to_stop_was_unreachable(
    roads: Roads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turns, "PAUSE_S", (10.0, 10.0))

    def stop() -> Connection:
        roads.wish.cancel("enough")
        return _here()

    roads.follow([roads.target("a", 9), replace(roads.target("b", 1), reach=stop)], 3)
    assert roads.order == ["a"] and roads.ends() == {"a": UNREACHABLE, "b": NOTRUN}


def test_a_silent_host_has_used_up_its_time(roads: Roads) -> None:
    roads.follow([roads.target("a", 2, ConnectTimeout("silence"))], 3)
    assert roads.order == ["a"]


def test_hosts_that_are_not_ready_let_others_go_first(roads: Roads) -> None:
    waits = replace(roads.target("a", 1), ready=lambda: "b ended" in roads.order)
    roads.follow([waits, roads.target("b", 1)], 1)
    assert [word for word in roads.order if " " not in word] == ["b", "a"] and set(roads.ends().values()) == {END}


@pytest.mark.parametrize(
    "policy, tries", [(Policy(), 3), (Policy(any_errors_fatal=True), 2), (Policy(max_fail_percentage=50), 2)]
)
def test_a_failure_that_ends_the_play_does_not_wait_for_the_others(policy: Policy, tries: int) -> None:
    assert policy.tries == tries
