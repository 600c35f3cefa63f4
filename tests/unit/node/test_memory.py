"""What a run remembers of its node: read once while nothing changes, and anew as soon as something did."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from k3env.node import git, memory
from k3env.node.machine import Machine
from k3env.node.memory import Memory
from k3env.protocol.event import Event
from k3env.protocol.plan import CHECK
from tests.agent import Agent, task
from tests.unit.node import ground


def test_a_reading_is_kept_for_a_while_and_an_error_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr(memory.time, "monotonic", lambda: clock[0])
    kept, read = Memory(), iter(range(9))
    assert [kept.recall("it", lambda: next(read)) for _ in range(2)] == [0, 0]
    assert kept.recall(("it", "elsewhere"), lambda: next(read)) == 1
    clock[0] += memory.LASTS_S
    assert kept.recall("it", lambda: next(read)) == 2
    kept.forget()
    assert kept.recall("it", lambda: next(read)) == 3
    with pytest.raises(OSError, match="gone"):
        kept.recall("other", lambda: (_ for _ in ()).throw(OSError("gone")))
    assert kept.recall("other", lambda: 4) == 4


def test_nothing_is_remembered_where_nobody_asked_for_it(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    ground.commit(repo, "first", seen="one")
    machine = ground.machine(tmp_path / "home")
    for text in ("one", "two"):
        (repo / "seen").write_text(text)
        assert bool(git.status(machine, str(repo)).dirty) == (text == "two")


def test_a_machine_that_changes_something_makes_all_forget(tmp_path: Path) -> None:
    kept, read = Memory(), iter(range(9))
    looking, changing = Machine(), Machine()
    for machine in (looking, changing):
        machine.remember(kept)
        assert machine.recall("it", lambda: next(read)) == 0
    changing.remember(None)
    assert [changing.recall("it", lambda: next(read)) for _ in range(2)] == [1, 2]
    assert looking.recall("it", lambda: next(read)) == 3


def test_a_task_sees_what_the_one_before_has_changed(tmp_path: Path) -> None:
    upstream = tmp_path / "upstream"
    first = ground.commit(upstream, "first", seen="one")
    second = ground.commit(upstream, "second", seen="two")
    repo = str(tmp_path / "repo")
    checkout = task("git_checkout", repo=repo, url=str(upstream), commit=second)
    assert Agent(tmp_path).follow([checkout]).results() == {"1.1": "changed"}
    words = ["git", "-C", repo, "checkout", "-q", first]
    moving = task("command", "1.2", argv=words, unless=["grep", "-q", first, f"{repo}/.git/HEAD"])
    heard = Agent(tmp_path).follow([checkout, moving, replace(checkout, id="1.3")])
    assert heard.results() == {"1.1": "ok", "1.2": "changed", "1.3": "changed"}


def test_a_try_looks_anew(tmp_path: Path) -> None:
    """A task that fails by what it has read, and that somebody else mends before its next try."""
    upstream = tmp_path / "upstream"
    first = ground.commit(upstream, "first", seen="one")
    checkout = task("git_checkout", repo=str(tmp_path / "repo"), url=str(upstream), commit=first)
    assert Agent(tmp_path).follow([checkout]).results() == {"1.1": "changed"}
    second = ground.commit(upstream, "second", seen="two")
    seen = tmp_path / "repo" / "seen"
    seen.write_text("by hand")
    wanted = replace(checkout, parameters={**checkout.parameters, "commit": second}, retries=3, delay_s=0.5)

    def mend(event: Event) -> bool:
        if str(event.data.get("text", "")).startswith("retry 1"):
            seen.write_text("one")
        return False

    assert Agent(tmp_path).follow([wanted], until=mend).results() == {"1.1": "changed"}


def test_check_mode_reads_once_too(tmp_path: Path) -> None:
    upstream = tmp_path / "upstream"
    first = ground.commit(upstream, "first", seen="one")
    repo = str(tmp_path / "repo")
    checkout = task("git_checkout", repo=repo, url=str(upstream), commit=first)
    assert Agent(tmp_path).follow([checkout]).results() == {"1.1": "changed"}
    programs, calls = tmp_path / "bin", tmp_path / "calls"
    programs.mkdir()
    real = ground.machine(tmp_path / "home").which("git")
    (programs / "git").write_text(f'#!/bin/sh\necho "$3" >> {calls}\nexec {real} "$@"\n')
    (programs / "git").chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    for mode in ("apply", CHECK):
        calls.unlink(missing_ok=True)
        again = replace(checkout, environment={"PATH": path})
        assert Agent(tmp_path).follow([again], mode=mode).results() == {"1.1": "ok"}
        assert sorted(calls.read_text().split()) == ["ls-files", "status"]
