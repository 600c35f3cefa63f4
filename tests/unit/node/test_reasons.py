"""Why a task had nothing to do is told where it was asked for, and nowhere else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k3env.errors import TaskFailed
from k3env.node import modules
from k3env.node.machine import Machine
from k3env.node.modules import Module
from k3env.node.modules.cache_dirs import CacheDirs
from k3env.node.modules.rank_env import RankEnv
from k3env.node.reasons import told
from k3env.protocol.finding import Finding
from k3env.protocol.plan import CHECK, Task
from tests.agent import Agent

FINDINGS_SAY_IT = {"verify", "facts", "lease"}
"""Modules whose findings say all there is to say."""


def messages(agent: Agent, tasks: list[Task], **more: Any) -> list[tuple[str, str]]:
    heard = agent.follow(tasks, **more)
    return [(event.data["status"], event.data.get("message", "")) for event in heard.events if event.kind == "result"]


def test_a_worker_tells_it_where_it_was_asked_for(tmp_path: Path) -> None:
    place = tmp_path / "there"
    tasks = [
        Task("1.1", "made", "command", {"argv": ["touch", str(place)], "creates": str(place)}),
        Task("1.2", "made already", "command", {"argv": ["touch", str(place)], "creates": str(place)}),
        Task("1.3", "looked at", "command", {"argv": ["true"], "read_only": True}),
    ]
    assert messages(Agent(tmp_path / "1"), tasks, explain=True) == [
        ("changed", ""),
        ("ok", f"{place} is there"),
        ("ok", ""),
    ]
    assert messages(Agent(tmp_path / "2"), tasks) == [("ok", "")] * 3
    asked = messages(Agent(tmp_path / "3"), tasks, explain=True, mode=CHECK)
    assert asked[:2] == [("ok", f"{place} is there")] * 2


def test_each_module_that_changes_something_says_why_it_need_not() -> None:
    silent = {name for name in modules.names() if modules.find(name).reasons is Module.reasons}
    assert silent <= FINDINGS_SAY_IT


def test_modules_of_one_file(tmp_path: Path) -> None:
    base = CacheDirs(str(tmp_path / "base"), min_free_gib=0)
    assert base.reasons(Machine()) == (
        f"{tmp_path}/base is there, on a filesystem of the node itself, mode 0700, its user's",
    )
    (reason,) = RankEnv(str(tmp_path), str(tmp_path / "base")).reasons(Machine())
    assert reason.startswith(f"{tmp_path}/.k3env/rank_env.sh is as it would be written, ")


class Silent(Module):
    def writes(self) -> tuple[str, ...]:
        return ("/srv/a", "/srv/b")


class Broken(Module):
    def reasons(self, machine: Machine) -> tuple[str, ...]:
        raise TaskFailed("gone by now", expected="", found="", remedy="")


class Gone(Module):
    def reasons(self, machine: Machine) -> tuple[str, ...]:
        raise FileNotFoundError(2, "No such file or directory", "/srv/a")


@pytest.mark.parametrize(
    ("module", "findings", "words"),
    [
        (Silent(), (), "nothing differs in /srv/a, /srv/b"),
        (Silent(), (Finding("x", "pass"),), ""),
        (Module(), (), "nothing differs"),
        (Broken(), (), "nothing differed; why can't be told any more: gone by now"),
        (Gone(), (), "nothing differed; why can't be told any more: [Errno 2]"),
    ],
)
def test_what_is_told_of_a_module_that_says_nothing(module: Module, findings: tuple[Finding, ...], words: str) -> None:
    assert told(module, Machine(), findings).startswith(words)
