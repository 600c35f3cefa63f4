"""Drive a node's agent over the local connection, as the runner does, and keep what it says."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from k3env import payload
from k3env.connections.process import ProcessConnection, Target
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.line import END, RESULT
from k3env.protocol.plan import APPLY, FINISH, Plan, Start, Task
from k3env.runner.session import Session, Work, command


@dataclass
class Agent:
    """One node that keeps its state below a directory."""

    root: Path
    python: str = "python3"
    overlay: str | None = None
    run: str = field(default_factory=lambda: f"t-{uuid.uuid4().hex[:8]}.1")

    @property
    def state(self) -> Path:
        """Its state directory."""
        return self.root / "state"

    @property
    def run_dir(self) -> Path:
        """Its directory of this run."""
        return self.state / "runs" / f"{self.run}.node"

    def start(self, after: int = 0, action: str = "run", host: str = "node") -> Start:
        """Return a Start for this node."""
        digest = payload.build().digest
        return Start(
            self.run, host, "me@here", after=after, action=action, payload=digest,
            state_dir=str(self.state), overlay=self.overlay, jobs="*",  # this machine may run a test's Slurm
        )  # fmt: skip

    def follow(
        self,
        tasks: Sequence[Task] = (),
        *,
        after: int = 0,
        action: str = "run",
        mode: str = APPLY,
        force_in_use: bool = False,
        explain: bool = False,
        when_unfollowed: str = FINISH,
        until: Any = None,
        secrets: dict[str, str] | None = None,
        profile: Any = None,
        on_hello: Callable[[], object] = lambda: None,
        what: str = "",
        detached: bool = False,
    ) -> Heard:
        """Start the plan, or follow it; drop the connection when `until(event)` says so."""
        plan = Plan(
            tuple(tasks), codec.encode(profile) if profile else {}, mode, when_unfollowed,
            force_in_use=force_in_use, explain=explain,
        )  # fmt: skip
        work = Work(
            payload.boot_code(), payload.build(), codec.dumps(plan).encode(), codec.dumps(secrets or {}).encode()
        )
        session = Session(replace(self.start(after, action), what=what, detached=detached), work)
        connection = ProcessConnection("local", Target("localhost"))
        process = connection.start(command(self.python))
        heard = Heard(session)
        ends = time.monotonic() + 60
        try:
            process.send(session.opening())
            while not session.ended and time.monotonic() < ends:
                data = process.receive(0.2)
                if data == b"":
                    break
                met = session.hello
                events, answer = session.receive(data or b"")
                if session.hello is not met:
                    on_hello()
                heard.sent += len(answer)
                if answer:
                    process.send(answer)
                heard.events += events
                if until is not None and any(until(event) for event in events):
                    break
            heard.said = process.said()
        finally:
            connection.close()
        return heard


@dataclass
class Heard:
    """What one conversation brought."""

    session: Session
    events: list[Event] = field(default_factory=list)
    sent: int = 0
    said: str = ""

    def kinds(self) -> list[str]:
        """The events' kinds in order."""
        return [event.kind for event in self.events]

    def results(self) -> dict[str, str]:
        """Task id to status."""
        return {str(event.task): event.data["status"] for event in self.events if event.kind == RESULT}

    def result(self, task: str = "1.1") -> dict[str, Any]:
        """The result of one task."""
        (found,) = [event.data for event in self.events if event.kind == RESULT and event.task == task]
        return found

    @property
    def status(self) -> str | None:
        """The status of the end, if there was one."""
        return next((event.data["status"] for event in self.events if event.kind == END), None)


def task(module: str, id: str = "1.1", **parameters: Any) -> Task:
    """Return a task with these parameters."""
    return Task(id, f"{module} of a test", module, parameters)
