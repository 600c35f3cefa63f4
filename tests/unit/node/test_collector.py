"""Facts are read side by side, each within its deadline; what hangs, lies or floods costs no more than that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

import pytest

from k3env.node import collector
from k3env.node.facts import DEADLINE_S, Facts, deadline, deadline_of, privileged
from k3env.node.machine import Machine
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Profile


@dataclass(frozen=True)
class Value:
    """What a fact of these tests says."""

    text: str
    number: Optional[int] = None


SHORT_S = 0.3
LEFT = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('{mark}', 'w'); time.sleep(97)"


def fine(machine: Machine) -> Value:
    return Value("fine")


def placed(machine: Machine, profile: Profile) -> Value:
    return Value(profile.context)


def refuses(machine: Machine) -> Value:
    raise PermissionError(13, "Permission denied", "/x")


def wrong(machine: Machine) -> Value:
    raise ValueError("no number")


def broken(machine: Machine) -> Value:
    return {}["nothing"]  # type: ignore[no-any-return]


def leaves(machine: Machine) -> Value:
    sys.exit(0)


def dies(machine: Machine) -> Value:
    os.kill(os.getpid(), signal.SIGKILL)
    return Value("")


def another(machine: Machine) -> Value:
    return 5  # type: ignore[return-value]


def lies(machine: Machine) -> Value:
    return Value(5, "six")  # type: ignore[arg-type]


def says_so(machine: Machine) -> Union[Value, Unreadable]:
    return Unreadable("could not look")


def floods(machine: Machine) -> Value:
    return Value("x" * (collector.ANSWER_BYTES + 1))


def large(machine: Machine) -> Value:
    return Value("x" * (collector.ANSWER_BYTES // 2))


@deadline(SHORT_S)
def hangs(machine: Machine) -> Value:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(97)
    return Value("")


@deadline(SHORT_S)
def hangs_too(machine: Machine) -> Value:
    time.sleep(97)
    return Value("")


@pytest.mark.parametrize(
    ("fact", "told"),
    [
        (refuses, "PermissionError: [Errno 13] Permission denied: '/x'"),
        (wrong, "ValueError: no number"),
        (broken, "the reader itself failed: KeyError: 'nothing'"),
        (leaves, "the reader ended without an answer"),
        (dies, "the reader ended without an answer"),
        (another, "the reader's answer is none: $: expected an object, found int"),
        (lies, "the reader's answer is none: $.text: expected str, found int"),
        (floods, "the reader said more than 8 MiB"),
        (hangs, "no answer after 0.3 s"),
        (says_so, "could not look"),
    ],
)
def test_what_is_no_answer_is_unreadable_and_the_others_are_read(fact: Any, told: str) -> None:
    values = Facts(Machine(), Profile()).collect((fine, fact, placed))
    assert values == {fine: Value("fine"), fact: Unreadable(told), placed: Value("job")}


def test_a_large_answer_is_one() -> None:
    assert len(Facts(Machine(), Profile()).collect((large,))[large].text) == collector.ANSWER_BYTES // 2


def test_each_fact_is_read_once(tmp_path: Path) -> None:
    def counted(machine: Machine) -> Value:
        with open(tmp_path / "count", "a", encoding="utf-8") as file:
            file.write("x")
        return Value("counted")

    counted.__annotations__["return"] = Value
    facts = Facts(Machine(), Profile())
    facts.collect((counted, counted))
    facts.collect((counted,))
    assert (tmp_path / "count").read_text(encoding="utf-8") == "x"


def test_hung_facts_cost_the_longest_deadline_once() -> None:
    begun = time.monotonic()
    values = Facts(Machine(), Profile()).collect((hangs, hangs_too, fine))
    took = time.monotonic() - begun
    assert values[fine] == Value("fine")
    assert values[hangs] == values[hangs_too] == Unreadable("no answer after 0.3 s")
    # Far from the sleep, whatever else this machine does.
    assert SHORT_S <= took < 30


def hanging(number: int) -> Any:
    @deadline(0.5)
    def hangs(machine: Machine) -> Value:
        time.sleep(97)
        return Value("")

    hangs.__annotations__["return"] = Value
    return hangs


def test_more_facts_that_hang_than_children_that_begin_hold_up_no_other() -> None:
    hung = [hanging(number) for number in range(8 * collector.CHILDREN)]
    # One after another in four children they would take 4 s.
    values = Facts(Machine(), Profile(), time.monotonic() + 3.5).collect((*hung, fine))
    assert values.pop(fine) == Value("fine")
    assert set(values.values()) == {Unreadable("no answer after 0.5 s")}


def test_a_child_that_dies_takes_only_what_it_read(tmp_path: Path) -> None:
    def dying(number: int) -> Any:
        def dies(machine: Machine) -> Value:
            os.kill(os.getpid(), signal.SIGKILL)
            return Value("")

        dies.__annotations__["return"] = Value
        return dies

    dead = [dying(number) for number in range(3 * collector.CHILDREN)]
    values = Facts(Machine(), Profile()).collect((*dead, fine, placed))
    assert (values.pop(fine), values.pop(placed)) == (Value("fine"), Value("job"))
    assert set(values.values()) == {Unreadable("the reader ended without an answer")}


def test_a_user_that_nobody_becomes_hides_only_what_is_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    import pwd

    @privileged
    def roots(machine: Machine) -> Value:
        return Value("root's")

    def refuse(entry: pwd.struct_passwd) -> dict[str, str]:
        raise PermissionError(1, "Operation not permitted")

    roots.__annotations__["return"] = Value
    monkeypatch.setattr("k3env.node.privilege.become.become", refuse)
    values = Facts(Machine(), Profile(), None, pwd.getpwuid(0)).collect((fine, roots, placed))
    assert values == {
        roots: Value("root's"),
        fine: Unreadable("the reader ended without an answer"),
        placed: Unreadable("the reader ended without an answer"),
    }


def test_what_is_left_of_the_context_bounds_every_fact() -> None:
    facts = Facts(Machine(), Profile(), time.monotonic() + 0.2)
    value = facts.collect((hangs,))[hangs]
    assert value.reason.startswith("no answer after 0.") and value.reason < "no answer after 0.21"
    assert facts.collect((fine,))[fine].reason == "not read: the time of this context was over before"


def test_deadlines_are_declared() -> None:
    assert (deadline_of(hangs), deadline_of(fine)) == (SHORT_S, DEADLINE_S)


def test_a_command_ends_in_time_for_its_fact_to_tell_of_it() -> None:
    @deadline(1.0)
    def asks(machine: Machine) -> Value:
        done = machine.run(("/bin/sh", "-c", "trap '' TERM; echo so far; sleep 97 & wait; sleep 97"), timeout_s=60)
        return Value(done.text, int(done.timed_out))

    asks.__annotations__["return"] = Value
    assert Facts(Machine(), Profile()).collect((asks,))[asks] == Value("so far", 1)


def test_what_a_hung_reader_has_started_ends_with_it(tmp_path: Path) -> None:
    @deadline(2.0)
    def starts(machine: Machine) -> Value:
        mark = tmp_path / "started"
        code = LEFT.format(mark=mark)
        child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
        (tmp_path / "pid").write_text(str(child.pid), encoding="utf-8")
        time.sleep(97)
        return Value("")

    starts.__annotations__["return"] = Value
    Facts(Machine(), Profile()).collect((starts,))
    pid = int((tmp_path / "pid").read_text(encoding="utf-8"))
    ends = time.monotonic() + 30
    while _runs(pid):
        assert time.monotonic() < ends, "it was left behind"
        time.sleep(0.01)


def test_a_child_that_cannot_be_reaped_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    # A wait that no signal ends can't be made here without a broken driver: signals that never arrive come near.
    monkeypatch.setattr(os, "kill", lambda pid, number: None)
    children: list[int] = []
    fork = os.fork

    def remembered() -> int:
        pid = fork()
        children.append(pid)
        return pid

    monkeypatch.setattr(os, "fork", remembered)
    values = Facts(Machine(), Profile()).collect((hangs, fine))
    monkeypatch.undo()
    assert values == {hangs: Unreadable("no answer after 0.3 s"), fine: Value("fine")}
    (left,) = [pid for pid in children if _runs(pid)]
    os.kill(left, signal.SIGKILL)
    assert os.waitpid(left, 0)[0] == left


def test_without_processes_left_facts_are_unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", refuse)
    before = len(os.listdir("/proc/self/fd"))
    value = Facts(Machine(), Profile()).collect((fine,))[fine]
    assert value == Unreadable("no reader could be started: Resource temporarily unavailable")
    assert len(os.listdir("/proc/self/fd")) == before


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
