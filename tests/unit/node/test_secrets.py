"""Secrets: what is left on a node after a run holds none, in whatever form a program wrote them."""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from k3env.errors import TaskFailed
from k3env.node import modules
from k3env.node.cancel import Cancel
from k3env.node.leases.together import held
from k3env.node.machine import Machine
from k3env.node.modules import Module, _steps
from k3env.node.modules.copy import Copy
from k3env.node.performer import Performer
from k3env.node.stderr import Masked
from k3env.protocol import codec
from k3env.protocol.finding import Change
from k3env.protocol.masking import MASK, Mask
from k3env.protocol.plan import Plan
from tests.agent import Agent, task
from tests.unit.node.test_lease import owner, quiet

VALUE = "it's-a-s3cret"
PARTS = (VALUE, "s3cret", VALUE.encode().hex())
SPLIT = "printf 'A '; printf %s \"$T\" | cut -c-7 | tr -d '\\n'; sleep 0.3; printf '%s\\n' \"$T\" | cut -c8-"


def clean(root: Path) -> list[Path]:
    """Return the files below a directory, after looking into each."""
    files = [path for path in root.rglob("*") if path.is_file()]
    for path in files:
        assert not [part for part in PARTS if part.encode() in path.read_bytes()], path.read_text()
    return files


def test_a_log_progress_and_the_failure_of_a_long_command(tmp_path: Path) -> None:
    told: list[str] = []
    machine = Machine(
        environment={"T": VALUE}, name="r-h-1", mask=Mask([VALUE]), on_progress=lambda text, _: told.append(text)
    )
    script = f"{SPLIT}; echo \"-- got $T\"; head -c 2030 /dev/zero | tr '\\0' x; exit 3"
    step = _steps.Step(f"try {VALUE}", ("sh", "-c", script, VALUE), "build", logs=str(tmp_path / "logs"))
    done = _steps.attempt(machine, step)
    error = _steps.failed(machine, step, done).finding
    (log,) = clean(tmp_path)
    assert log.read_text().count(MASK) == 3 and f"A {MASK}" in log.read_text()
    assert any(f"-- got {MASK}" in text for text in told) and not [text for text in told if "s3cret" in text]
    assert "s3cret" not in str(error.evidence) + str(done)
    assert error.evidence[-1].excerpt.startswith(f"-- got {MASK}\n") or error.evidence[-1].excerpt.startswith("\n")


def test_a_short_command_and_one_that_can_not_be_started(tmp_path: Path) -> None:
    machine = Machine(environment={"T": VALUE}, mask=Mask([VALUE]))
    done = machine.run(["sh", "-c", f"{SPLIT}; echo $T >&2", "sh", VALUE])
    assert done.stdout.decode().startswith(f"A {MASK}") and done.stderr.decode() == f"{MASK}\n"
    assert "s3cret" not in str(done) and "s3cret" not in str(machine.run([f"/no/{VALUE}"]))
    cut = machine.run(["sh", "-c", "printf %s $T; head -c 2045 /dev/zero | tr '\\0' x"]).evidence()
    assert cut.excerpt.strip("x") == ""


def test_lines_of_files_are_hidden_before_they_are_cut(tmp_path: Path) -> None:
    dest = tmp_path / "file"
    dest.write_text(f"{'x' * 192}{VALUE}\n")
    machine = Machine(mask=Mask([VALUE]))
    (change,) = Copy(str(dest), content=f"{'y' * 192}{VALUE}\n").changes(machine)
    (fresh,) = Copy(str(dest) + "2", content=f"{'y' * 192}{VALUE}\n").changes(machine)
    assert all(MASK[0] in text and "it's" not in text for text in (change.before, change.after, fresh.after))


def test_what_is_left_in_a_lease(tmp_path: Path) -> None:
    target = tmp_path / "repo"
    with pytest.raises(TaskFailed), held((str(target),), owner(), Cancel(), quiet, mask=Mask([VALUE])) as leases:
        leases.progress(f"compiling {VALUE}")
        assert leases._held[0]._progress == f"compiling {MASK}"
        error = TaskFailed(f"no {VALUE}", found=repr(VALUE), remedy="x")
        leases.failed(error)
        raise error
    assert [path.name for path in clean(tmp_path)] == [".repo.k3env-failed.json"]


def test_nothing_of_a_run_holds_one(tmp_path: Path) -> None:
    """In a task's environment; said by a command that fails below a lease, by one that only reads, and by a guard."""
    agent, secret = Agent(tmp_path), {"$secret": "env:T"}
    repo = tmp_path / "repo"
    said = 'echo "$T"; printf %s "$T" | od -An -tx1 | tr -d " \\n"; echo "found $T" >&2; exit 4'
    tasks = [
        replace(task("command", argv=["sh", "-c", said], read_only=True), environment={"T": secret}),
        task("command", "1.2", argv=["sh", "-c", said], unless=["sh", "-c", said], environment={"T": secret}),
        task("command", "1.3", argv=["sh", "-c", said], creates="/no", checkout=str(repo), environment={"T": secret}),
    ]
    heard = agent.follow([replace(item, ignore_errors=True) for item in tasks], secrets={"env:T": VALUE})
    assert heard.results() == {"1.1": "failed", "1.2": "failed", "1.3": "failed"}
    assert all(f"found {MASK}" in str(heard.result(item.id)) for item in tasks)
    assert {"journal", "worker.log", ".repo.k3env-failed.json"} <= {path.name for path in clean(tmp_path)}
    assert "s3cret" not in str(heard.events) + heard.said


def test_one_that_is_too_short_to_be_hidden_is_not_used(tmp_path: Path) -> None:
    job = replace(task("command", argv=["touch", str(tmp_path / "x")], creates=str(tmp_path / "x")), retries=3)
    job = replace(job, environment={"T": {"$secret": "env:T"}})
    result = Agent(tmp_path).follow([job], secrets={"env:T": "ab"}).result()
    assert result["findings"][0]["id"] == "task.secret" and "env:T is too short" in result["message"]
    assert not (tmp_path / "x").exists()


@dataclass(frozen=True)
class Broken(Module):
    """Has a defect."""

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        raise RuntimeError(f"{'x' * 3000} {machine.environment['T']}")


def test_the_trace_of_a_defect(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = io.StringIO()
    monkeypatch.setattr(modules, "find", lambda name: Broken)
    monkeypatch.setattr(sys, "stderr", log)
    emitted: list[Any] = []
    start = {"run": "r.1", "host": "h"}
    made = Performer.begin(
        start, codec.encode(Plan(())), {"env:T": VALUE}, str(tmp_path), lambda *event: emitted.append(event), Cancel()
    )
    job = replace(task("broken"), environment={"T": {"$secret": "env:T"}})
    result = made.perform(codec.encode(job))
    assert result["findings"][0]["id"] == "task.defect" and "RuntimeError" in log.getvalue()
    assert "s3cret" not in log.getvalue() + str(result["findings"][0]["evidence"])
    assert isinstance(sys.stderr, Masked)
    sys.excepthook(ValueError, ValueError(f"bad {VALUE}"), None)
    assert f"bad {MASK}" in log.getvalue() and "s3cret" not in log.getvalue()


def test_a_task_that_can_not_be_read_is_a_failed_one(tmp_path: Path) -> None:
    job = replace(task("command", argv=["true"], creates="/x"), environment=cast(Any, ["a"]))
    assert Agent(tmp_path).follow([job]).result()["findings"][0]["id"] == "task.payload"
