"""What is asked once in a run: by whatever process of it, and of whatever user's only for that user."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from k3env.node import answers
from k3env.node.facts import image_packages
from k3env.node.facts.image_packages import ImagePackages
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.container import Container
from k3env.protocol.profile import Paths, Profile
from tests.agent import Agent, task
from tests.unit.node import ground
from tests.unit.node.test_venv import plain
from tests.unit.node.tools import Node

DIGEST = "31614bc168abe496a8369f832030ded5842604a83818ae0df19dbec7b4444447"


def forked(machine: Machine, question: str, answer: str) -> str:
    """Ask in a fork of this process, and return what it was told."""
    receiver, sender = os.pipe()
    if not (pid := os.fork()):
        os.write(sender, answers.once(machine, question, lambda: answer).encode())
        os._exit(0)
    os.close(sender)
    with os.fdopen(receiver, "rb") as said:
        told = said.read().decode()
    os.waitpid(pid, 0)
    return told


def test_what_one_process_was_told_all_know() -> None:
    machine = Machine()
    assert machine.answers > 2  # Before anybody forks.
    assert forked(machine, "a", "") == "", "no answer is none"
    assert forked(machine, "a", "first") == "first"
    assert forked(machine, "a", "second") == "first"
    assert answers.once(machine, "a", lambda: "third") == "first"
    assert answers.once(machine, "b", lambda: "other") == "other"
    assert answers.once(Machine(), "a", lambda: "another run") == "another run"
    assert answers.once(Machine(answers=machine.answers), "a", lambda: "x") == "first", "another task of the run"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another")
def test_nobody_elses_answer_counts() -> None:
    machine = Machine()
    assert answers.once(machine, "a", lambda: "root's") == "root's"
    if not (pid := os.fork()):
        os.setresuid(65534, 65534, 65534)
        os._exit(0 if answers.once(machine, "a", lambda: "nobody's") == "nobody's" else 1)
    assert os.waitpid(pid, 0)[1] == 0


@pytest.mark.parametrize("written", [b"{", b"[1]", b'{"a": 1}', b"\xff"])
def test_what_is_no_table_holds_no_answer(written: bytes) -> None:
    machine = Machine()
    os.pwrite(machine.answers, written, 0)
    assert answers.once(machine, "a", lambda: "answer") == "answer"
    assert answers.once(machine, "a", lambda: "no") == "answer"


def test_who_holds_it_and_hangs_holds_up_nobody_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "_PATIENCE_S", 0.3)
    machine = Machine()
    assert machine.answers > 2
    receiver, sender = os.pipe()

    def hang() -> str:
        os.write(sender, b"x")
        time.sleep(60)
        return ""

    if not (pid := os.fork()):
        answers.once(machine, "a", hang)
        os._exit(0)
    os.read(receiver, 1)
    assert answers.once(machine, "a", lambda: "answer") == "answer"
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(receiver), os.close(sender)


@pytest.mark.parametrize("engine", ["docker", "podman"])
def test_an_engine_is_asked_for_a_digest_once_in_a_run(tmp_path: Path, engine: str) -> None:
    node = Node(tmp_path)
    node.program(engine, f"echo asked >> '{tmp_path}/asked'; echo sha256:{DIGEST}")
    container, first = Container(engine, "k3:1"), node.machine()  # type: ignore[arg-type]
    other = node.machine()
    other._answers = first.answers
    assert {image_packages.key(machine, container) for machine in (first, first, other)} == {DIGEST}
    assert (tmp_path / "asked").read_text().count("asked") == 1
    image_packages.key(first, Container(engine, "k3:2"))  # type: ignore[arg-type]
    image_packages.key(node.machine(), container)
    assert (tmp_path / "asked").read_text().count("asked") == 3, "another image, and another run"


def test_an_image_that_is_not_there_yet_is_asked_for_again(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.program("podman", "exit 125")
    machine, container = node.machine(), Container("podman", "k3:1")
    assert image_packages.key(machine, container) == ""
    node.program("podman", f"echo {DIGEST}")
    assert image_packages.key(machine, container) == DIGEST


def test_checks_and_tasks_of_a_run_ask_once_between_them(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.program("docker", f"echo asked >> '{tmp_path}/asked'; echo sha256:{DIGEST}")
    container = Container("docker", "k3:1")
    plain(tmp_path / f".venv-{ground.VERSION}", system=True)
    record = Path(image_packages.path(str(tmp_path)))
    record.parent.mkdir()
    record.write_text(codec.dumps(ImagePackages("k3:1", DIGEST, ground.VERSION, {"torch": "2.12.0"})))
    verify = task("verify", checks=["venv.shadowed", "venv.pip_check"])
    around = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
    tasks = [replace(verify, id=f"1.{number}", environment=around) for number in (1, 2)]
    profile = Profile(paths=Paths(repo=str(tmp_path)), container=container)
    heard = Agent(tmp_path).follow(tasks, profile=profile)
    found = {finding["id"]: finding["status"] for finding in heard.result("1.2")["findings"]}
    assert set(found.values()) == {"pass"}, found
    assert (tmp_path / "asked").read_text().count("asked") == 1
