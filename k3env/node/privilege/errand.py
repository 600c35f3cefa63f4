"""Errands: the tasks of a run that are another user's, performed by a process of that user's own, behind sudo.

It reads orders from its input and says events on its output; who ordered them is gone when the input ends, and then
so is what was begun. Each order is performed in a fork, which has everything imported and can be ended alone.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import sys
from typing import Any, Optional

from k3env.protocol import codec
from k3env.protocol.plan import Task

READY, DONE, RESULT = "ready", "done", "result"
GRACE_S = 6.0
"""How long what was begun may take to end when it is asked to, seconds."""


def serve() -> None:
    """Perform orders until there are no more."""
    waker, wakes = os.pipe()
    os.set_blocking(wakes, False)
    os.set_blocking(waker, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    answers = os.memfd_create("k3env-answers")
    say(READY, None, {"uid": os.geteuid()})
    rest = b""
    while True:
        order, rest = _next(rest)
        if order is None:
            return
        gone = _performed(order, waker, answers)
        say(DONE, None, {})
        if gone:
            return


def say(kind: str, task: Optional[str], data: dict[str, Any]) -> None:
    """Write one line to who gave the order."""
    line = json.dumps([kind, task, data]).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


def _next(rest: bytes) -> tuple[Optional[dict[str, Any]], bytes]:
    """Return the next order, a line of JSON, and what came after it; None at the end. An empty line came too late."""
    while True:
        line, end, after = rest.partition(b"\n")
        if end:
            rest = after
            if line:
                return json.loads(line), rest
            continue
        data = os.read(0, 1 << 16)
        if not data:
            return None, b""
        rest += data


def _performed(order: dict[str, Any], waker: int, answers: int) -> bool:
    """Perform an order; return whether who gave it is gone. Whatever comes meanwhile asks for its end."""
    pid = os.fork()
    if not pid:
        _perform(order, answers)
    gone = False
    patience: Optional[float] = None
    while True:
        watched = [waker] if gone else [0, waker]
        ready = select.select(watched, [], [], patience)[0]
        if waker in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(waker, 4096)
        if os.waitpid(pid, os.WNOHANG)[0]:
            return gone
        if not ready:
            os.kill(pid, signal.SIGKILL)
        elif 0 in ready:
            gone = not os.read(0, 4096)
            os.kill(pid, signal.SIGTERM)
            patience = GRACE_S


def _perform(order: dict[str, Any], answers: int) -> None:
    from k3env.node.cancel import Cancel
    from k3env.node.performer import Performer

    code = 1
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        cancel = Cancel()
        cancel.install()
        for name, value in order["egress"].items():
            os.environ.setdefault(name, value)
        # Nobody else's task is performed here: when_unfollowed is the matter of who gave the order.
        performer = Performer.begin(order["start"], order["plan"], order["secrets"], "", say, cancel)
        performer.answers = answers
        performer.pending = bool(order["pending"])
        performer.later = tuple(order["later"])
        say(RESULT, None, codec.encode(performer.here(codec.decode(Task, order["task"]))))
        code = 0
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
