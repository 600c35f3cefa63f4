"""Following one host to the end of its plan, over as many connections as that takes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

from k3env.connections.connection import Connection, Process
from k3env.errors import AuthFailed, ConnectTimeout, Dropped, HostKeyMismatch, K3Error, NotThere, Refused, Unreachable
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.line import BEGIN, FAILED, HELLO, LOST, NOTRUN, ROAD, UNREACHABLE
from k3env.protocol.plan import Start
from k3env.runner.become import Become, Gatekeeper, without_marks
from k3env.runner.session import Hello, Session, Work, command

POLL_S = 0.25
FULL_BYTES = 64 << 10
"""A disk with less room than this can't have held a journal's next lines."""
SILENT_S, ANSWER_S = 10.0, 20.0
"""An agent that has said nothing for so long is asked whether it is awake; a busy node may take a while to answer."""
Tell = Callable[[str, Event], None]


@dataclass(frozen=True)
class Target:
    """A host, how to reach it, what it is to do."""

    host: str
    reach: Callable[[], Connection]
    work: Work
    start: Start
    python: str = "python3"
    become: Become | None = None
    ready: Callable[[], bool] = lambda: True
    """Whether it may be reached now; others are followed until then."""

    @property
    def detached(self) -> bool:
        """Whether the host is left alone as soon as its work has begun."""
        return self.start.detached and self.start.action == "run"


@dataclass(frozen=True)
class Limits:
    """Seconds that the road may take."""

    timeout_s: float = 30.0
    """From the first try to hello, retries included."""
    reconnect_s: float = 300.0
    """To find a host again that was lost."""
    tries: int = 1
    """How often a host is tried that is not there."""


class Wish:
    """What the user wants of hosts that are under way: go on, be left alone, or stop."""

    def __init__(self) -> None:
        """Go on."""
        self.left = threading.Event()
        self._cancelled = threading.Event()
        self._now = threading.Event()
        self._held = threading.Event()
        self.reason = ""

    @property
    def cancelled(self) -> bool:
        """Whether workers are to stop."""
        return self._cancelled.is_set()

    @property
    def now(self) -> bool:
        """Whether they are to stop in the middle of a task."""
        return self._now.is_set()

    @property
    def held(self) -> bool:
        """Whether no further host is to be begun."""
        return self._held.is_set() or self.cancelled

    def hold(self) -> None:
        """Begin no further host."""
        self._held.set()

    def leave(self) -> None:
        """Stop following; workers go on by themselves."""
        self._held.set()
        self.left.set()

    def cancel(self, reason: str, now: bool = True) -> None:
        """Ask every worker to stop, now or before its next task, and begin no further host."""
        self.reason = self.reason or reason
        if now:
            self._now.set()
        self._cancelled.set()


class _NotBegun(Exception):
    """The run was to stop before this host had been sent any work."""


class _Patience:
    """How long a host has been lost, since it last had news."""

    def __init__(self) -> None:
        self.since = time.monotonic()
        self._losses = 0

    def left(self, whole_s: float) -> float:
        return self.since + whole_s - time.monotonic()

    def pause(self) -> float:
        self._losses += 1
        return 0.0 if self._losses == 1 else min(5.0, 0.1 * 2.0**self._losses)


class _Pulse:
    """Whether the follower on the node is awake: a connection lives on where that one is stopped, or stuck."""

    def __init__(self) -> None:
        self._heard = time.monotonic()
        self._asked: float | None = None

    def is_due(self, heard: bool) -> bool:
        """Return whether to ask for a sign of life now.

        Raises Dropped where none has come.
        """
        now = time.monotonic()
        if heard:
            self._heard, self._asked = now, None
        elif self._asked is None and now - self._heard > SILENT_S:
            self._asked = now
            return True
        elif self._asked is not None and now - self._asked > ANSWER_S:
            raise Dropped("connected, but the agent does not answer any more")
        return False


class Follower:
    """One host's thread."""

    def __init__(self, target: Target, limits: Limits, tell: Tell, wish: Wish) -> None:
        """`tell` is called from this host's thread with each event."""
        self._target = target
        self._limits = limits
        self._tell = tell
        self._wish = wish
        self._start = target.start
        self._boot_id: str | None = None
        self._begun = self._ended = False

    def follow(self) -> None:
        """Follow the host until its plan ends or it is given up; whatever happens becomes an event."""
        error = self.attempt()
        if error is not None:
            self.give_up(error)

    def give_up(self, error: Unreachable) -> None:
        """Tell that the host is unreachable."""
        self._say(UNREACHABLE, error=error)

    def postpone(self, error: Unreachable) -> None:
        """Tell that the host will be tried again."""
        self._say(ROAD, f"{error}; it is tried again after the others")

    def attempt(self) -> NotThere | None:
        """Follow the host as `follow` does; return why it was never reached, if it was not there at all."""
        if self._wish.held:
            self._say(NOTRUN, self._wish.reason or "interrupted")
            return None
        try:
            self._keep_following()
        except NotThere as error:
            if self._boot_id is None:
                return error
            self.give_up(error)
        except _NotBegun:
            self._say(NOTRUN, self._wish.reason)
        except Refused as error:
            self._say(FAILED, error=error)
        except Unreachable as error:
            self.give_up(error)
        except Exception as error:
            # A defect of ours must not take the other hosts with it, nor leave this one without an end.
            problem = K3Error(f"a defect in the controller: {type(error).__name__}: {error}", remedy="please report it")
            self._say(FAILED, error=problem)
        return None

    def _keep_following(self) -> None:
        patience: _Patience | None = None
        while not self._ended and not self._wish.left.is_set():
            budget = self._limits.timeout_s if patience is None else patience.left(self._limits.reconnect_s)
            connection, process, session = self._retrying(budget)
            if patience is not None:
                self._say(ROAD, f"connected again after {time.monotonic() - patience.since:.0f} s")
            try:
                self._converse(process, session)
            except Dropped as error:
                if patience is None or session.last > self._start.after:
                    patience = _Patience()
                self._say(ROAD, f"connection lost ({error}); reconnecting")
                # A road that breaks again and again, without a word of news, is given up within the same time.
                self._wish.left.wait(patience.pause())
                if patience.left(self._limits.reconnect_s) <= 0:
                    raise
            finally:
                self._start = replace(self._start, after=session.last)
                connection.close()

    def _retrying(self, budget_s: float) -> tuple[Connection, Process, Session]:
        """Reach the host, again and again where that may help, within some seconds."""
        import tenacity

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(self._is_worth_a_retry),
            stop=tenacity.stop_after_delay(budget_s) | tenacity.stop_when_event_set(self._wish.left),
            wait=tenacity.wait_random_exponential(multiplier=0.3, max=5),
            sleep=tenacity.sleep_using_event(self._wish.left),
            reraise=True,
        )
        return retrying(self._reach, time.monotonic() + budget_s)

    def _is_worth_a_retry(self, error: BaseException) -> bool:
        if not isinstance(error, Unreachable) or isinstance(error, (AuthFailed, HostKeyMismatch)):
            return False
        # A node that is first refused or silent is down; one that was there before may come back.
        return isinstance(error, Dropped) or self._boot_id is not None

    def _reach(self, ends: float) -> tuple[Connection, Process, Session]:
        """Connect, start the agent, and hear its hello."""
        connection = self._target.reach()
        try:
            connection.open(max(0.1, ends - time.monotonic()))
            if connection.note and self._boot_id is None:
                self._say(ROAD, connection.note)
            process = connection.start(command(self._target.python, self._target.become))
            session = Session(self._start, self._target.work)
            gate = Gatekeeper(self._target.become, self._target.host)
            self._pass_sudo(gate, process, session, ends)
            process.send(session.opening())
            while session.hello is None:
                if self._wish.cancelled and self._boot_id is None and self._start.action == "run":
                    raise _NotBegun
                data = process.receive(POLL_S)
                if data is not None:
                    self._take(process, session, data)
                if data == b"":
                    raise self._no_agent(process, session, gate)
                if time.monotonic() > ends:
                    raise ConnectTimeout(
                        "connected, but the agent did not answer in time",
                        found=_tail(process, session),
                        expected="an agent that says hello",
                        remedy="does the login shell wait for something?",
                    )
        except BaseException:
            connection.close()
            raise
        return connection, process, session

    def _pass_sudo(self, gate: Gatekeeper, process: Process, session: Session, ends: float) -> None:
        """Wait until the agent may be spoken to, answering sudo once."""
        while not gate.open:
            data = process.receive(POLL_S / 5)
            if data:
                self._take(process, session, data)
            answer = gate.answer(process.said())
            if answer:
                process.send(answer)
            elif data == b"" and not gate.open:
                raise self._no_agent(process, session, gate)
            elif time.monotonic() > ends:
                raise ConnectTimeout(
                    "connected, but sudo neither asks nor lets us in",
                    expected="sudo's prompt, or the agent",
                    found=_tail(process, session) or "nothing was said",
                    remedy="see what sudo does there by hand, with -S: does it wait for another kind of proof?",
                )

    def _converse(self, process: Process, session: Session) -> None:
        stopped = cancelled = self._start.action == "cancel"
        pulse = _Pulse()
        while not session.ended:
            if self._wish.left.is_set():
                return
            if self._begun and self._target.detached:
                break
            if self._wish.now and not cancelled:
                process.send(session.cancel())
                stopped = cancelled = True
            elif self._wish.cancelled and not stopped:
                process.send(session.cancel(now=False))
                stopped = True
            data = process.receive(POLL_S)
            if data == b"":
                raise self._agent_ended(process, session)
            if data is not None:
                self._take(process, session, data)
            if pulse.is_due(data is not None):
                process.send(session.ping())
        self._ended = True

    def _take(self, process: Process, session: Session, data: bytes) -> None:
        known = session.hello
        events, answer = session.receive(data)
        if session.hello is not known and session.hello is not None:
            self._greet(session.hello)
        if answer:
            process.send(answer)
        for event in events:
            if event.kind == LOST:
                raise _worker_lost(event, process, session)
            self._begun = self._begun or event.kind == BEGIN
            self._tell(self._target.host, event)

    def _greet(self, hello: Hello) -> None:
        boot_id = hello.boot_id
        if self._boot_id is not None and boot_id != self._boot_id:
            raise Refused(
                "the node was rebooted during the run",
                expected=f"boot {self._boot_id}",
                found=f"boot {boot_id}",
                remedy="find out why; then run it again, what is done is kept",
                id="run.rebooted",
            )
        if self._boot_id is None:
            self._boot_id = boot_id
            self._tell(self._target.host, Event(HELLO, time=time.time(), data=asdict(hello)))

    def _agent_ended(self, process: Process, session: Session) -> K3Error:
        """Return what it means that the agent's output ended before its plan did."""
        failure, code = process.failure(), process.exit_code()
        if failure is not None:
            return failure if isinstance(failure, Dropped) else Dropped(str(failure))
        if code is None or code <= 0:
            return Dropped("the agent's output ended")
        return Refused(
            "the agent ended with an error",
            expected="an agent that follows the run to its end",
            found=f"exit code {code}: {_tail(process, session) or 'nothing was said'}",
            remedy=f"see {session.hello.state_dir if session.hello else 'the state directory'}: is it whole, and is "
            "there room?",
            id="run.agent",
        )

    def _no_agent(self, process: Process, session: Session, gate: Gatekeeper) -> Unreachable:
        failure, code = process.failure(), process.exit_code()
        failure = failure or gate.ended(process.said(), code, self._target.python)
        if failure is not None:
            return failure
        if code is None:
            return Dropped("the connection ended before the agent answered")
        remedy = "does the login shell end, or read its input, before it runs a command? See its start files"
        if code in (126, 127):
            remedy = "install Python 3.9 or later, or set ansible_python_interpreter"
        return Unreachable(
            "the agent did not start",
            expected=f"{self._target.python} on the node, in a login shell that runs it",
            found=f"exit code {code}: {_tail(process, session) or 'nothing was said'}",
            remedy=remedy,
            id="run.agent",
        )

    def _say(self, kind: str, message: str = "", error: K3Error | None = None) -> None:
        data: dict[str, object] = {"message": message or str(error)}
        if self._start.overlay is not None:
            data["simulated"] = True
        if error is not None:
            finding = replace(error.finding, subject=self._target.host, scope="node")
            data["finding"] = codec.encode(finding)
        self._tell(self._target.host, Event(kind, time=time.time(), data=data))


def _tail(process: Process, session: Session) -> str:
    from k3env.protocol.finding import excerpt

    return excerpt(without_marks(process.said()).encode() or session.noise)


def _worker_lost(event: Event, process: Process, session: Session) -> Refused:
    """Return what it means that the worker is gone; a full disk takes away its last words too."""
    free = event.data.get("free_bytes")
    full = isinstance(free, int) and free < FULL_BYTES
    found = f"{free} bytes free at {session.run_dir}" if full else _tail(process, session) or "nothing was said"
    remedy = f"see {session.run_dir}/worker.log, and the kernel's log for the out-of-memory killer; run it again"
    return Refused(
        "the worker is gone, without an end" + (": its disk is full" if full else ""),
        expected="a worker that journals its end",
        found=found,
        remedy="make room there, or set k3env_state_dir to another disk; run it again" if full else remedy,
        id="run.worker_lost",
    )
