"""command: what no other module does, behind a guard that says whether it is needed."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from k3env.errors import TaskFailed
from k3env.node.modules import Module
from k3env.protocol.container import Container
from k3env.protocol.finding import Change, Finding, printable

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.node.process import Completed
    from k3env.protocol.profile import Profile

GUARD_S = 30.0


@dataclass(frozen=True)
class Command(Module):
    """Run a command where its guard says that it is needed, and see afterwards that it is not needed any more.

    It has one guard: `creates`, `removes`, `unless`, or `read_only: true`. No shell reads the words.
    """

    argv: tuple[str, ...]
    """The program and its arguments, each a word."""
    creates: Optional[str] = None
    """A path that the command makes: it runs where that is absent."""
    removes: Optional[str] = None
    """A path that the command removes: it runs where that is there."""
    unless: tuple[str, ...] = ()
    """A command that ends with 0 where there is nothing to do. It only reads, also in check mode, and is quick."""
    read_only: bool = False
    """The command only reads: it runs each time, also in check mode, and never counts as a change."""
    chdir: Optional[str] = None
    """The directory it runs in, absolute; a relative path in `creates` or `removes` is in it."""
    checkout: Optional[str] = None
    """The checkout that it writes in: no other node changes that meanwhile, and a container sees it."""
    environment: dict[str, str] = field(default_factory=dict)
    """Added to its environment."""
    container: Container = Container()
    """The image that it runs in."""
    timeout_s: float = 600.0
    """How long it may take, seconds."""

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise ValueError("argv names no program")
        guards = [
            name
            for name, given in (
                ("creates", self.creates is not None),
                ("removes", self.removes is not None),
                ("unless", bool(self.unless)),
                ("read_only", self.read_only),
            )
            if given
        ]
        if not guards:
            raise ValueError("command needs creates, removes, unless or read_only: true")
        if len(guards) > 1:
            raise ValueError(f"command takes one guard, found {' and '.join(guards)}")
        for name, path in (("chdir", self.chdir), ("checkout", self.checkout)):
            if path is not None and not os.path.isabs(path):
                raise ValueError(f"{name} must be an absolute path, found {path!r}")
        for name, path in (("creates", self.creates), ("removes", self.removes)):
            if path is not None and not os.path.isabs(os.path.join(self.chdir or "", path)):
                raise ValueError(f"{name} must be an absolute path, or chdir be set; found {path!r}")
        if self.timeout_s <= 0:
            raise ValueError(f"timeout_s must be above 0, found {self.timeout_s:g}")

    def writes(self) -> tuple[str, ...]:
        """Return the checkout that it writes in, if it names one."""
        return (self.checkout,) if self.checkout is not None and not self.read_only else ()

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return the change that its guard asks for.

        Raises TaskFailed if the guard does not answer in time.
        """
        if self.creates is not None:
            path = os.path.join(self.chdir or "", self.creates)
            return () if machine.exists(path) else (Change(self._words(), f"{path} is absent", f"{path} is there"),)
        if self.removes is not None:
            path = os.path.join(self.chdir or "", self.removes)
            there = machine.stat(path, follow=False) is not None
            return (Change(self._words(), f"{path} is there", f"{path} is absent"),) if there else ()
        if not self.unless:
            return ()
        done = self._run(machine, self.unless, GUARD_S)
        if done.timed_out:
            raise self._failed("the guard of a command gave no answer", done, f"an answer within {GUARD_S:g} s")
        # A guard that can't be started may be what an earlier task is still to make.
        return () if done.ok else (Change(self._words(), f"guard ends with {done.exit_code}", "guard ends with 0"),)

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return what its guard says."""
        if self.creates is not None:
            return (f"{os.path.join(self.chdir or '', self.creates)} is there",)
        if self.removes is not None:
            return (f"{os.path.join(self.chdir or '', self.removes)} is absent",)
        return (f"{' '.join(map(shlex.quote, self.unless))} ends with 0",) if self.unless else ()

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Run it.

        Raises TaskFailed with what it said if it does not end with 0 in time.
        """
        done = self._run(machine, self.argv, self.timeout_s)
        if not done.ok:
            raise self._failed("a command failed", done, f"exit code 0 within {self.timeout_s:g} s")
        left = self.changes(machine)
        if left:
            raise TaskFailed(
                f"a command ended with 0 without doing its work: {self._words()}: {left[0].before}",
                expected=left[0].after, found=left[0].before,
                remedy="see what it said; let it fail where its work fails, and see that its guard asks for that work",
                evidence=(done.evidence(),), id="task.unproven",
            )  # fmt: skip

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Run a command that only reads, and return what it said.

        Raises TaskFailed if it does not end with 0 in time.
        """
        if not self.read_only:
            return ()
        done = self._run(machine, self.argv, self.timeout_s)
        if not done.ok:
            raise self._failed("a command failed", done, f"exit code 0 within {self.timeout_s:g} s")
        said = done.evidence()
        return (Finding("command", "pass", message=said.excerpt.partition("\n")[0][:200], evidence=(said,)),)

    def _run(self, machine: Machine, argv: tuple[str, ...], timeout_s: float) -> Completed:
        from k3env.node.container import wrap
        from k3env.node.modules._around import inside

        container, environment = inside(machine, self.container, self.environment)
        words = wrap(
            container,
            argv,
            repo=self.checkout or self.chdir,
            environment=environment,
            workdir=self.chdir,
            name=machine.name,
        )
        return machine.run(
            words, timeout_s=timeout_s, cwd=self.chdir, environment=environment, guarded=argv is self.argv
        )

    def _failed(self, message: str, done: Completed, expected: str) -> TaskFailed:
        from k3env.k3.diagnoses.lookup import chief, diagnose, last_errors

        found = f"no end after {done.duration_s:.0f} s" if done.timed_out else f"exit code {done.exit_code}"
        text = (done.stdout + done.stderr).decode("utf-8", "replace")
        match, errors = diagnose("run", text), last_errors(text)
        said = match.line if match else chief(errors) if errors else ""
        advice = "raise timeout_s if it needs longer" if done.timed_out else "see what it said"
        return TaskFailed(
            f"{message}: {self._words()}: {match.diagnosis.cause if match else found}", expected=expected,
            found=f"{found}: {printable(said)[:300]}" if said else found,
            remedy=match.diagnosis.remedy if match else advice,
            evidence=(done.evidence(),), id=match.diagnosis.id if match else "command.failed",
        )  # fmt: skip

    def _words(self) -> str:
        return " ".join(map(shlex.quote, self.argv))
