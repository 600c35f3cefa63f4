"""One conversation with a node's agent, without I/O: bytes in, events and bytes out.

Down go frames "NAME LENGTH\\n" and LENGTH bytes: the boot code, Start; after hello the payload if the node lacks it,
secrets, plan. Up come JSON lines behind the run's marker; whatever else a login shell prints is kept as noise.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass

from k3env.errors import Refused, Unreachable
from k3env.payload import Payload
from k3env.protocol import codec
from k3env.protocol.event import Event, parse
from k3env.protocol.line import END, HELLO, LINE_BYTES, LOST, marker
from k3env.protocol.plan import Start
from k3env.runner.become import READY, Become

_BOOT = "import sys;i=sys.stdin.buffer;n=i.readline();exec(i.read(int(n)) if n.strip().isdigit() else 'sys.exit(97)')"
_NOISE_BYTES = 4096
FORMAT = 1
"""Of hello; the boot code has the same."""
EVENT_BYTES = 128 << 20
"""What events may come to in one conversation: a journal holds 8 MiB of progress, and its results."""


def command(python: str, become: Become | None = None) -> str:
    """Return the one command line that is ever sent; sh, bash, dash, csh and fish read it alike."""
    if become is None:
        return f'exec {shlex.quote(python)} -I -S -c "{_BOOT}"'
    ready = f"import sys;sys.stderr.write('{READY}\\n');sys.stderr.flush();"
    return f'exec {become.prefix()}{shlex.quote(python)} -I -S -c "{ready}{_BOOT}"'


def frame(name: str, data: bytes) -> bytes:
    """Return one frame."""
    return b"%s %d\n%s" % (name.encode("ascii"), len(data), data)


@dataclass(frozen=True)
class Hello:
    """Who answers: the first line of an agent."""

    format: int
    python: str
    uid: int
    boot_id: str
    have_payload: bool
    known: bool
    """Whether the node has a journal of this run already."""
    state_dir: str
    simulated: bool
    refusal: str = ""


@dataclass(frozen=True)
class Work:
    """What a host is to do, encoded once for all hosts that share it."""

    boot: bytes
    payload: Payload
    plan: bytes
    secrets: bytes = b"{}"


class Session:
    """The state of one conversation."""

    def __init__(self, start: Start, work: Work) -> None:
        """`start.after` says which events are known from an earlier conversation."""
        self.hello: Hello | None = None
        self.last = start.after
        """The sequence number of the newest event."""
        self.ended = False
        """Whether there is nothing more to come: an end, or a worker that is lost."""
        self.noise = b""
        self._start = start
        self._work = work
        self._marker = marker(start.run)
        self._rest = b""
        self._bytes = 0

    @property
    def run_dir(self) -> str:
        """Where the node keeps this run, once it has said hello."""
        return f"{self.hello.state_dir if self.hello else ''}/runs/{self._start.run}.{self._start.host}"

    def opening(self) -> bytes:
        """Return what is sent first, before anything has come back."""
        start = json.dumps(vars(self._start), ensure_ascii=False).encode()
        return b"%d\n%s" % (len(self._work.boot), self._work.boot) + frame("start", start)

    def cancel(self, now: bool = True) -> bytes:
        """Return what asks the worker to stop: now, or before its next task."""
        return frame("cancel" if now else "stop", b"")

    def ping(self) -> bytes:
        """Return what asks the follower on the node for a sign of life."""
        return frame("ping", b"")

    def receive(self, data: bytes) -> tuple[list[Event], bytes]:
        """Take bytes from the node; return new events, and what is to be sent now.

        Raises Refused where the node can't be used, Unreachable where it speaks another format.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > 2 * LINE_BYTES:
            self._hear(self._rest)
            self._rest = b""
        events: list[Event] = []
        answer = b""
        for line in lines:
            at = line.find(self._marker)
            if at < 0:
                self._hear(line + b"\n")
                continue
            self._bytes += len(line)
            event = self._parse(line[at + len(self._marker) :])
            if event.kind == HELLO:
                answer += self._greeted(event)
            elif event.seq > self.last or event.kind == LOST:
                self.last = max(self.last, event.seq)
                events.append(event)
            self.ended = self.ended or event.kind in (END, LOST)
        return events, answer

    def _parse(self, line: bytes) -> Event:
        if self._bytes > EVENT_BYTES:
            raise _not_ours(f"the agent sent more than {EVENT_BYTES >> 20} MiB of events", line)
        try:
            return parse(line)
        except ValueError as error:
            raise _not_ours(f"the agent sent a line that is no event: {error}", line) from None

    def _greeted(self, event: Event) -> bytes:
        said = repr(event.data).encode()
        if self.hello is not None:
            # Each one would be answered with payload, secrets and plan.
            raise _not_ours("the agent said hello twice", said)
        try:
            self.hello = codec.decode(Hello, event.data)
        except codec.DecodeError as error:
            raise _not_ours(f"the agent's hello can't be read: {error}", said) from None
        if self.hello.format != FORMAT:
            raise _not_ours(f"the agent speaks format {self.hello.format}, not {FORMAT}", said)
        if self.hello.refusal:
            raise Refused(
                f"the node can't be used: {self.hello.refusal}",
                expected="Python 3.9 or later, and a state directory that is ours alone",
                found=f"Python {self.hello.python}, uid {self.hello.uid}, {self.hello.state_dir}",
                remedy="mend that, or set ansible_python_interpreter or k3env_state_dir to another one",
                id="run.node",
            )
        if self._start.action not in ("run", "list") or (self._start.action == "run" and self.hello.known):
            return b""
        if self._start.after:
            raise Refused(
                "the node no longer knows this run",
                expected=self.run_dir,
                found="no journal there",
                remedy="who empties that directory? set k3env_state_dir to a lasting one, then run it again",
                id="run.journal_gone",
            )
        payload = b"" if self.hello.have_payload else frame("payload", self._work.payload.data)
        return payload + frame("secrets", self._work.secrets) + frame("plan", self._work.plan)

    def _hear(self, data: bytes) -> None:
        self.noise = (self.noise + data)[-_NOISE_BYTES:]


def _not_ours(message: str, line: bytes) -> Unreachable:
    return Unreachable(
        message,
        expected="what this version's agent sends",
        found=repr(line[:80]),
        remedy="use one k3env on controller and node; else find out who answers there",
        id="run.protocol",
    )
