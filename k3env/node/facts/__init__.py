"""Facts read the world and judge nothing.

A fact is a function of the machine, or of the machine and the profile where the profile says where to look,
that returns a frozen dataclass. A failure to read raises, or returns Unreadable; it never guesses.
"""

from __future__ import annotations

import json
import os
import select
import signal
import time
from typing import Any, Callable, Union

from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Profile

Fact = Callable[..., Any]
DEADLINE_S = 10.0


def read(fact: Fact, machine: Machine, profile: Profile) -> Any:
    """Read one fact in this process; what goes wrong becomes Unreadable."""
    try:
        return fact(machine) if fact.__code__.co_argcount == 1 else fact(machine, profile)
    except (OSError, ValueError) as error:
        return Unreadable(f"{type(error).__name__}: {error}")


class Facts:
    """The facts of one moment, each read once, in children that can be left behind."""

    def __init__(self, machine: Machine, profile: Profile) -> None:
        self._machine = machine
        self._profile = profile
        self._values: dict[Fact, Any] = {}

    def collect(self, facts: tuple[Fact, ...], deadline_s: float = DEADLINE_S) -> dict[Fact, Any]:
        """Return the values of these facts, reading those that are missing side by side.

        A fact that is not there after `deadline_s` seconds is Unreadable; a wedged driver or a dead NFS server
        puts its reader into a wait that no signal ends, so that child is left behind.
        """
        missing = [fact for fact in dict.fromkeys(facts) if fact not in self._values]
        children = {fact: self._spawn(fact) for fact in missing}
        ends = time.monotonic() + deadline_s
        for fact, (pid, descriptor) in children.items():
            self._values[fact] = _receive(fact, pid, descriptor, ends, deadline_s)
        return {fact: self._values[fact] for fact in facts}

    def _spawn(self, fact: Fact) -> tuple[int, int]:
        receiver, sender = os.pipe()
        pid = os.fork()
        if pid:
            os.close(sender)
            return pid, receiver
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            os.close(receiver)
            value = read(fact, self._machine, self._profile)
            kind = "unreadable" if isinstance(value, Unreadable) else "value"
            data = json.dumps([kind, codec.encode(value)]).encode()
            while data:
                data = data[os.write(sender, data) :]
        except BaseException:  # noqa: S110 - a child of fork must not come back; the parent sees an empty pipe
            pass
        finally:
            os._exit(0)


def _receive(fact: Fact, pid: int, descriptor: int, ends: float, deadline_s: float) -> Any:
    data = b""
    try:
        while True:
            ready, _, _ = select.select([descriptor], [], [], max(0.0, ends - time.monotonic()))
            if not ready:
                os.kill(pid, signal.SIGKILL)
                return Unreadable(f"no answer after {deadline_s:g} s")
            chunk = os.read(descriptor, 1 << 16)
            if not chunk:
                break
            data += chunk
    finally:
        os.close(descriptor)
        _reap(pid)
    if not data:
        return Unreadable("the reader ended without an answer")
    kind, value = json.loads(data)
    wanted = Unreadable if kind == "unreadable" else codec.hints(fact)["return"]
    return codec.decode(Union[wanted, Unreadable], value)


def _reap(pid: int) -> None:
    """Collect a child if it has ended; one in an endless wait stays."""
    for pause in (0.0, 0.001, 0.01, 0.1):
        time.sleep(pause)
        if os.waitpid(pid, os.WNOHANG)[0]:
            return
