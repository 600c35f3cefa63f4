"""Steps: the long commands of a module, with their log, their progress, and what their failure means."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Optional

from k3env.errors import TaskFailed
from k3env.k3.diagnoses.lookup import Match, chief, diagnose, last_errors, shells_word
from k3env.node.progress import Meter
from k3env.protocol.finding import Evidence, excerpt, printable

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.node.process import Completed

_SHOWN = 300
_ROOM = 64 << 20
"""Bytes: a filesystem with less is as good as full, though what could not be written left some of it."""
_INODES = 64


@dataclass(frozen=True)
class Step:
    """One long command."""

    title: str
    """What it does, for people: "build TensorRT LLM"."""
    argv: Sequence[str]
    tool: str
    """Whose words it speaks: build, pip or git."""
    cwd: Optional[str] = None
    environment: Mapping[str, str] = field(default_factory=dict)
    inactivity_s: float = 1800.0
    logs: Optional[str] = None
    """The directory of its log; None: it keeps none."""


def take(machine: Machine, step: Step) -> Completed:
    """Run a step to its end.

    Raises TaskFailed with the log's path, its tail, and what it means.
    """
    done = attempt(machine, step)
    if not done.ok:
        raise failed(machine, step, done)
    return done


def attempt(machine: Machine, step: Step) -> Completed:
    """Run a step, and return what became of it."""
    meter = Meter(machine, step.title)
    with _log(machine, step.logs) as log:
        log.write(f"$ {_typed(machine, step)}\n".encode())
        log.flush()
        return machine.stream(
            step.argv,
            log=log,
            on_line=meter.line,
            on_quiet=meter.pause,
            inactivity_s=step.inactivity_s,
            cwd=step.cwd,
            environment=step.environment,
        )


def failed(machine: Machine, step: Step, done: Completed) -> TaskFailed:
    """Return the error that a failed step is."""
    output = done.stdout + done.stderr
    # A program that was itself killed says nothing; its shell would have.
    said = "" if done.timed_out else shells_word(done.exit_code)
    text = f"{output.decode('utf-8', 'replace')}\n{said}".rstrip("\n")
    match = diagnose(step.tool, text) if done.started else None
    lines = (match.line,) if match else last_errors(text) if done.started else ()
    full = None if match or not done.started or done.timed_out else _full(machine, step)
    log = None if step.logs is None else os.path.join(step.logs, f"{machine.name}.log")
    what = _ending(step, done)
    command = _typed(machine, step)
    tail = Evidence(log or command, done.exit_code, excerpt(output))
    return TaskFailed(
        f"{step.title} failed: {match.diagnosis.cause if match else full or what}",
        expected=f"`{command}` to succeed",
        found=_joined(what, chief(lines) if lines else _last_words(text, done)),
        remedy=_remedy(match, done, full, log),
        id=match.diagnosis.id if match else "system.disk" if full else f"{step.tool}.failed",
        evidence=(*_quoted(lines, tail), tail),
    )


def _last_words(text: str, done: Completed) -> str:
    """Return what a command that ended by itself said last: why, in words that no pattern knows."""
    ended = done.started and not done.timed_out and (done.exit_code or 0) > 0
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "") if ended else ""


def _joined(what: str, words: str) -> str:
    return f"{what}: {printable(words)[:_SHOWN]}" if words else what


def _typed(machine: Machine, step: Step) -> str:
    """Return a step's command as a person would type it, without secrets."""
    return " ".join(shlex.quote(machine.mask.text(word)) for word in step.argv)


def _ending(step: Step, done: Completed) -> str:
    if done.timed_out:
        return f"no output and no work for {step.inactivity_s:g} s"
    if not done.started:
        return f"{step.argv[0]} can't be started: {excerpt(done.stderr).partition(': ')[2]}"
    if done.exit_code is not None and done.exit_code < 0:
        return f"ended by signal {-done.exit_code}{_named(-done.exit_code)}"
    return f"exit code {done.exit_code}"


def _named(number: int) -> str:
    try:
        return f" ({signal.Signals(number).name})"
    except ValueError:
        return ""


def _full(machine: Machine, step: Step) -> Optional[str]:
    """Return which filesystem has no room left: some programs fail of it without a word, such as `python3 -m venv`."""
    around = {**machine.environment, **step.environment}
    for path in (step.cwd, step.logs, around.get("TMPDIR") or tempfile.gettempdir(), around.get("HOME")):
        with contextlib.suppress(OSError):
            space = machine.space(path) if path else None
            if space is not None and (space.free_bytes < _ROOM or space.free_inodes < _INODES):
                return f"{path} is full: {space.free_bytes / (1 << 20):.1f} MiB and {space.free_inodes} inodes are left"
    return None


def _remedy(match: Optional[Match], done: Completed, full: Optional[str], log: Optional[str]) -> str:
    if match is not None:
        advice = match.diagnosis.remedy
    elif full is not None:
        advice = "make room there; see `df -h`, `df -i` and the quota"
    elif done.timed_out:
        advice = "see where it hangs (network, a full or dead filesystem), or raise inactivity_s"
    elif not done.started:
        advice = "install it, or see PATH"
    else:
        advice = "see what its output says: no diagnosis fits it"
    return f"{advice}; log: {log}" if log else advice


def _quoted(lines: Sequence[str], tail: Evidence) -> tuple[Evidence, ...]:
    """Return the lines that say what went wrong, unless the tail shows them."""
    if all(printable(line) in tail.excerpt for line in lines):
        return ()
    return (Evidence(tail.source, tail.exit_code, excerpt("\n".join(lines).encode())),)


def _log(machine: Machine, directory: Optional[str]) -> IO[bytes]:
    return tempfile.TemporaryFile() if directory is None else machine.log(directory)
