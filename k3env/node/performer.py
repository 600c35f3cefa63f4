"""Perform one task: the same road for every module.

`changes`; none, ok. In check mode, report them. Else take the lease on `writes`, look again (another node may have
done it), `apply`, and look once more: what is left fails the task. Then `judge`. A task with `retries` goes all of
this road again while it fails; those tries of `apply` that follow each other have one lease.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Callable, Optional, TextIO, cast

from k3env.errors import K3Error, Refused, TaskFailed
from k3env.node import modules
from k3env.node.cancel import Cancel, Cancelled
from k3env.node.leases.lease import LOST, Owner, nonce
from k3env.node.leases.together import held, holders
from k3env.node.machine import Machine
from k3env.node.memory import Memory
from k3env.node.modules import Module
from k3env.node.tries import Tries
from k3env.protocol import codec
from k3env.protocol.finding import EXCERPT_BYTES, FAIL, SKIP, Change, Evidence, Finding, Result
from k3env.protocol.line import APPLY as APPLYING
from k3env.protocol.line import FACTS, PROGRESS, WAITING
from k3env.protocol.masking import SHORTEST, Mask, mask_of, tail
from k3env.protocol.plan import APPLY, FINISH, STOP, Plan, Start, Task
from k3env.protocol.profile import Profile
from k3env.protocol.secret import reveal, too_short

if TYPE_CHECKING:
    from k3env.node.ahead import Ahead, Download
    from k3env.node.privilege.lookout import Lookout

UNFOLLOWED_S = 15.0
"""How long a plan that stops when nobody follows it goes on, seconds: a reconnect must fit in."""
Emit = Callable[[str, Optional[str], dict[str, Any]], None]


@dataclass
class Performer:
    """What performing tasks of one run needs."""

    start: Start
    plan: Plan
    secrets: dict[str, str]
    run_dir: str
    emit: Emit
    cancel: Cancel
    pending: bool = False
    """Check mode: an earlier task has changes to make."""
    unproven: tuple[str, ...] = ()
    """The users of all tasks, until it was seen that this run can become them."""
    others: dict[str, Any] = field(default_factory=dict)
    """Processes of other users, by name, where this run is not root's."""
    memory: Memory = field(default_factory=Memory)
    """What was read since something was changed."""
    later: tuple[dict[str, Any], ...] = ()
    """The tasks that are still to come, as JSON; what they download may come while one is at work."""
    lookout: Optional[Lookout] = None
    """Who may look at everyone's processes, where this process gave up being root."""
    answers: int = field(default_factory=lambda: os.memfd_create("k3env-answers"))
    """The file of what is asked once in this run, which tasks in forks share."""

    @classmethod
    def begin(
        cls,
        start: dict[str, Any],
        plan: dict[str, Any],
        secrets: dict[str, str],
        run_dir: str,
        emit: Emit,
        cancel: Cancel,
    ) -> Performer:
        """Make ready for the first task; a worker that nobody follows any more may have to stop from now on."""
        if plan.get("when_unfollowed") == STOP:
            from k3env.node.followers import stop_when_unfollowed

            stop_when_unfollowed(run_dir, UNFOLLOWED_S)
        # Its tasks are read one by one, so that one that can't be is a failed task.
        whole: Plan = codec.decode(Plan, {**plan, "tasks": []})
        tasks = [task for task in plan["tasks"] if task.get("skip") is None]
        users = dict.fromkeys(task.get("become_user") or whole.user for task in tasks)
        named = tuple(user for user in users if user is not None)
        made = cls(Start(**start), whole, secrets, run_dir, emit, cancel, unproven=named, later=tuple(tasks))
        if made.mask:
            from k3env.node.stderr import Masked

            sys.stderr = cast(TextIO, Masked(sys.stderr, made.mask))
        return made

    @property
    def mask(self) -> Mask:
        """What hides the secrets of this run."""
        return mask_of(tuple(self.secrets.values()))

    def perform(self, task: dict[str, Any]) -> dict[str, Any]:
        """Perform a task, JSON to JSON; whatever goes wrong becomes its result."""
        self.later = tuple(item for item in self.later if item["id"] != task["id"])
        try:
            decoded: Task = codec.decode(Task, task)
        except codec.DecodeError as error:
            result = _mismatched(f"a task: {error}")
        else:
            result = self._perform(decoded)
        if result.status not in ("ok", "skipped"):
            self.memory.forget()  # also what another user's process has changed
        self.pending = self.pending or (self.plan.mode != APPLY and result.status == "changed")
        encoded: dict[str, Any] = codec.encode(result)
        return encoded

    def _perform(self, task: Task) -> Result:
        """Perform a task as its user, within its deadline."""
        try:
            self.cancel.boundary()
            if task.timeout_s:
                signal.setitimer(signal.ITIMER_REAL, task.timeout_s)
            return self._as_user(task)
        except Cancelled:
            if self.cancel.reason == LOST:
                remedy = "another node may have taken the work over; see who, and run it again: what is done is kept"
                return _failed(
                    "run.lease_lost", f"{LOST}: this node stood still too long, or its filesystem did", remedy
                )
            if not self.cancel.expired:
                return Result("cancelled", self.cancel.reason)
            self.cancel.expired = False
            return _failed("task.timeout", f"took longer than {task.timeout_s:g} s", "raise its timeout")
        except K3Error as error:
            return _refused(error)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    def _as_user(self, task: Task) -> Result:
        name = task.become_user or self.plan.user
        if name is None and not self.unproven:
            return self._safely(task)
        from k3env.node.privilege import users

        users.prove(self.unproven, self.others, self.cancel)
        self.unproven = ()
        if name is None:
            return self._safely(task)

        def order() -> dict[str, Any]:
            whole = {"plan": replace(self.plan, when_unfollowed=FINISH), "task": task, "start": self.start}
            later = [{**item, "become_user": None} for item in self._of_same_user(task)]
            return {**codec.encode(whole), "secrets": self.secrets, "pending": self.pending, "later": later}

        with self._lookout(task) as lookout:
            work = users.Work(lambda emit: self._as(emit, lookout)._safely(task), order, self.others)
            return users.perform(name, work, self.emit, self.cancel)

    def _of_same_user(self, task: Task) -> tuple[dict[str, Any], ...]:
        """Return the later tasks whose user this task's is."""
        user = task.become_user or self.plan.user
        return tuple(item for item in self.later if (item.get("become_user") or self.plan.user) == user)

    def _as(self, emit: Emit, lookout: Optional[Lookout]) -> Performer:
        """Return this performer as another user, who remembers nothing."""
        return replace(self, emit=emit, lookout=lookout, memory=Memory())

    def _lookout(self, task: Task) -> AbstractContextManager[Optional[Lookout]]:
        """Leave somebody behind who may look at everyone's processes, where this task will be asked who uses what."""
        if os.geteuid() != 0 or self.plan.force_in_use:
            return nullcontext()
        with suppress(codec.DecodeError, KeyError, ImportError, ValueError):  # the task will say it
            module = modules.find(task.module)
            if module.disturbs is not Module.disturbs:
                from k3env.node.leases import inuse
                from k3env.node.privilege import lookout

                roots = codec.decode(module, reveal(task.parameters, self.secrets), task.module).disturbs()
                machine = self._machine(task)
                return lookout.Lookout(lambda: codec.encode(inuse.seen(machine, roots)))
        return nullcontext()

    def here(self, task: Task) -> Result:
        """Perform a task for another run's worker, as its user or as the plan's."""
        return self._perform(replace(task, become_user=None, timeout_s=None))

    def _safely(self, task: Task) -> Result:
        """Turn whatever a module raises into a failed result; a defect of ours says so and keeps its trace."""
        try:
            return self._once(task)
        except K3Error as error:
            return _refused(error)
        except OSError as error:
            from k3env.node import oserrors

            return _failed("task.os", oserrors.message(error), oserrors.remedy(error))
        except (codec.DecodeError, KeyError, ImportError) as error:
            return _mismatched(f"module {task.module}: {error}")
        except Exception as error:
            import traceback

            said = self.mask.text(traceback.format_exc())
            trace = Evidence(os.path.join(self.run_dir, "worker.log"), None, tail(said, EXCERPT_BYTES))
            sys.stderr.write(said)
            found = f"{type(error).__name__}: {error}"
            return _failed("task.defect", f"a defect in module {task.module}: {found}", "please report it", trace)

    def _once(self, task: Task) -> Result:
        self._refuse_secrets(task)
        module: Module = codec.decode(modules.find(task.module), reveal(task.parameters, self.secrets), task.module)
        tries = Tries(task.retries, task.delay_s, self.cancel, lambda text: self._progress(task, text, None))
        made: tuple[Change, ...] = ()
        while True:
            try:
                result = self._whole(task, module, tries, made)
            except (K3Error, OSError) as error:
                if not tries.again(str(error)):
                    raise
                self.memory.forget()
                continue
            if result.status != "failed" or not tries.again(result.message):
                return result
            self.memory.forget()
            made = result.changes

    def _refuse_secrets(self, task: Task) -> None:
        short = too_short([task.parameters, task.environment], self.secrets)
        if short:
            raise Refused(
                f"the secret {short[0]} is too short to be hidden: it would be seen wherever it stands",
                expected=f"at least {SHORTEST} characters", found="fewer", remedy="choose a longer one",
                id="task.secret",
            )  # fmt: skip

    def _whole(self, task: Task, module: Module, tries: Tries, made: tuple[Change, ...]) -> Result:
        """Go the whole road once; `made` are the changes of earlier tries."""
        machine = self._machine(task)
        machine.remember(self.memory)
        profile: Profile = codec.decode(Profile, self.plan.profile)
        changes, message = module.changes(machine), ""
        unseen: tuple[Finding, ...] = ()
        pending = self.pending
        if changes:
            from k3env.node.mounted import refuse_unmounted

            refuse_unmounted(machine, module.writes())
            from k3env.node.rootless import refuse_root

            refuse_root(machine, module.writes())
        if changes and self.plan.mode != APPLY:
            message, pending = self._holders(module, task), True
            unseen = self._in_use(module, machine)
        elif changes:
            from k3env.node.leases.busy import refuse_busy

            machine.remember(None)
            unseen = refuse_busy(machine, self.start.jobs)
            changes, unsure, adopted = self._under_lease(task, module, machine, tries)
            if adopted is not None:
                return adopted
            unseen = (*unseen, *unsure)
        changes = tuple(dict.fromkeys((*made, *changes)))
        findings = (*unseen, *module.judge(machine, profile))
        if pending:
            findings = _after_pending(findings)
        failed = [finding for finding in findings if finding.status == FAIL]
        if failed:
            return Result("failed", _summary(failed), changes, findings)
        if self.plan.explain and not changes:
            from k3env.node.reasons import told

            message = told(module, machine, findings)
        return Result("changed" if changes else "ok", message, changes, findings)

    def _under_lease(
        self, task: Task, module: Module, machine: Machine, tries: Tries
    ) -> tuple[tuple[Change, ...], tuple[Finding, ...], Optional[Result]]:
        """Return the changes that were made and what could not be seen before, or the result of another host."""

        def is_done() -> bool:
            return not module.changes(machine)

        with held(module.writes(), self._owner(task), self.cancel, self._waiting(task), is_done, self.mask) as leases:
            if leases.adopted is not None:
                tries.spend()  # the other host has tried for all
            if leases.adopted is not None or leases.done:
                return (), (), leases.adopted

            def tell(text: str, fraction: Optional[float]) -> None:
                self._progress(task, text, fraction)
                leases.progress(text if fraction is None else f"{fraction:.0%} {text}")

            machine.on_progress(tell)
            machine.on_commit(leases.confirm)
            while True:
                try:
                    return (*self._apply(task, module, machine), None)
                except (K3Error, OSError) as error:
                    if not tries.again(str(error)):
                        leases.failed(error)
                        raise

    def _apply(self, task: Task, module: Module, machine: Machine) -> tuple[tuple[Change, ...], tuple[Finding, ...]]:
        """Make the changes; return them, and what could not be seen before."""
        changes = module.changes(machine)
        if not changes:
            return (), ()
        unseen = self._in_use(module, machine)
        self.emit(APPLYING, task.id, {"changes": codec.encode(changes), "module": task.module})
        beside: list[Ahead] = []
        machine.on_beside(lambda: self._beside(task, machine, beside))
        module.apply(machine, changes)
        left = module.changes(machine)
        if left:
            raise TaskFailed(
                f"{task.module} is not done: "
                + "; ".join(f"{item.what}: {item.before} → {item.after}" for item in left),
                expected="nothing left to change",
                found=f"{len(left)} of {len(changes)} changes are left",
                remedy="see the task's log; run it again with --diff",
                id="task.unproven",
            )
        return changes, (*unseen, *(finding for ahead in beside for finding in ahead.failures))

    def _beside(self, task: Task, machine: Machine, begun: list[Ahead]) -> AbstractContextManager[object]:
        """Download what later tasks need while this one is at work.

        Raises Refused where one of them is known to fail: now, instead of after an hour.
        """
        from k3env.node.ahead import Ahead

        for later in self._of_same_user(task):
            self._foresee(later)
        downloads = [item for later in self._of_same_user(task) for item in self._downloads(later)]
        begun.append(Ahead(downloads, self.cancel, machine.progress))
        return begun[-1]

    def _foresee(self, later: dict[str, Any]) -> None:
        with suppress(codec.DecodeError, KeyError, ImportError, ValueError, OSError):  # that task will say it
            task, module = self._later(later)
            if task.ignore_errors:
                return
            try:
                module.foresee(self._machine(task))
            except K3Error as error:
                if error.finding.id.startswith("offline."):  # no earlier task brings that
                    raise

    def _later(self, later: dict[str, Any]) -> tuple[Task, Module]:
        task: Task = codec.decode(Task, later)
        module: Module = codec.decode(modules.find(task.module), reveal(task.parameters, self.secrets), task.module)
        return task, module

    def _downloads(self, later: dict[str, Any]) -> tuple[Download, ...]:
        with suppress(codec.DecodeError, KeyError, ImportError, ValueError, K3Error, OSError):  # that task will say it
            task, module = self._later(later)
            machine = self._machine(task)
            downloads = module.ahead(machine)
            # From here on it is another thread's.
            machine.cancel = Cancel()
            machine.on_progress(lambda text, fraction: None)
            return downloads
        return ()

    def _in_use(self, module: Module, machine: Machine) -> tuple[Finding, ...]:
        """Ask whether somebody serves from what is to be changed; in check mode a refusal is a warning."""
        roots = module.disturbs()
        if not roots or self.plan.force_in_use:
            return ()
        from k3env.node.leases import inuse

        look = inuse.seen if self.lookout is None else inuse.by(self.lookout)
        if self.plan.mode == APPLY:
            return inuse.refuse_in_use(machine, roots, look)
        finding = inuse.in_use(machine, roots, look, tidy=False)
        return () if finding is None else (inuse.warned(finding),)

    def _holders(self, module: Module, task: Task) -> str:
        return "; ".join(f"{path} is held by {owner}" for path, owner in holders(module.writes(), self._owner(task)))

    def _machine(self, task: Task) -> Machine:
        machine = Machine(
            overlay=self.start.overlay,
            environment=reveal(task.environment, self.secrets),
            mask=self.mask,
            name=f"{self.start.run}-{self.start.host}-{task.id}",
            number=self.start.number,
            peers=self.start.peers,
            common=self.start.run,
            cancel=self.cancel,
            on_progress=lambda text, fraction: self._progress(task, text, fraction),
            answers=self.answers,
        )
        if not self.pending:
            machine.on_facts(lambda facts: self._facts(task, facts), compared=self.start.peers > 1)
        return machine

    def _facts(self, task: Task, facts: dict[str, Any]) -> None:
        # One fact a line: a line is at most 64 KiB.
        for name, value in facts.items():
            self.emit(FACTS, task.id, {"facts": {name: value}})

    def _progress(self, task: Task, text: str, fraction: Optional[float]) -> None:
        self.emit(PROGRESS, task.id, {"text": self.mask.text(text)[:200], "fraction": fraction})

    def _waiting(self, task: Task) -> Callable[[Any, str], None]:
        last: list[Any] = [None, 0.0]

        def tell(owner: Any, progress: str) -> None:
            if (owner, progress) != last[0] and time.monotonic() - last[1] >= 1.0:
                last[:] = [(owner, progress), time.monotonic()]
                self.emit(WAITING, task.id, {"owner": str(owner), "host": owner.host, "progress": progress})

        return tell

    def _owner(self, task: Task) -> Owner:
        boot_id = Machine(overlay=self.start.overlay).text("/proc/sys/kernel/random/boot_id").strip()
        return Owner(
            host=self.start.host,
            nodename=os.uname().nodename,
            boot_id=boot_id,
            pid=os.getpid(),
            pid_namespace=os.readlink("/proc/self/ns/pid"),
            run=self.start.run,
            task=task.id,
            person=self.start.owner,
            nonce=nonce(),
            since=time.time(),
        )


def _after_pending(findings: tuple[Finding, ...]) -> tuple[Finding, ...]:
    """Turn failures into skips: check mode can't see what the changes before would have made."""
    return tuple(
        replace(item, status=SKIP, message="after pending changes") if item.status == FAIL else item
        for item in findings
    )


def _summary(failed: list[Finding]) -> str:
    first = failed[0].message or f"{failed[0].id}: expected {failed[0].expected}, found {failed[0].found}"
    return first if len(failed) == 1 else f"{first} (+{len(failed) - 1} more)"


def _mismatched(what: str) -> Result:
    return _failed("task.payload", what, "use one k3env on controller and node")


def _refused(error: K3Error) -> Result:
    return Result("failed", str(error), findings=(replace(error.finding, scope="node"),))


def _failed(id: str, message: str, remedy: str, *evidence: Evidence) -> Result:
    finding = Finding(id, FAIL, message=message, remedy=remedy, evidence=evidence)
    return Result("failed", message, findings=(finding,))
