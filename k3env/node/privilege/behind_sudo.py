"""Another user, by `sudo -n`, where the run is not root's: its tasks go to a process of that user's own (errand.py)."""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import subprocess
import sys
import tempfile
import time
import zipfile
from typing import Any, Callable, Optional

from k3env.errors import Refused
from k3env.node.cancel import Cancel
from k3env.node.privilege.errand import DONE, GRACE_S, READY, RESULT
from k3env.protocol import codec, egress
from k3env.protocol.finding import Result

Emit = Callable[[str, Optional[str], dict[str, Any]], None]
READY_S = 30.0
"""For sudo, which may ask a directory server, and for the process behind it to come up, seconds."""
_SAID_BYTES = 2000
HELLO, GONE = "hello", ""

# What travelled lies where only this run's user can read: it goes on through a pipe, into memory.
_CODE = """
import os, sys
os.write(1, b'["hello", null, {}]\\n')
left, data = int(sys.argv[1]), b""
while len(data) < left:
    more = os.read(0, left - len(data))
    if not more:
        sys.exit(97)
    data += more
store = os.memfd_create("k3env")
os.write(store, data)
sys.path.insert(0, "/proc/self/fd/%d" % store)
os.environ.pop("LC_ALL", None)
os.chdir("/")
from k3env.node.privilege import errand
errand.serve()
"""


def perform(user: str, order: dict[str, Any], others: dict[str, Any], emit: Emit, cancel: Cancel) -> Result:
    """Have a user perform an order, passing its events on; `others` are the processes that this run has begun.

    sudo lets us become the user, or root, which can become anybody. Raises Refused if it does neither.
    """
    prove(user, others, cancel)
    other: _Other = others[user]
    order["plan"]["user"] = None if other.user == user else user
    # sudo empties the environment (env_reset); how this node reaches out must not be lost on the way.
    order["egress"] = egress.present(os.environ)
    try:
        return other.perform(order, emit, cancel)
    finally:
        if other.ended:
            del others[user]


def prove(user: str, others: dict[str, Any], cancel: Cancel) -> None:
    """Begin a user's process if there is none yet.

    Raises Refused if sudo does not let us.
    """
    if user not in others:
        others[user] = _begin(user, cancel)


def _begin(user: str, cancel: Cancel) -> _Other:
    refusals = []
    for name in dict.fromkeys((user, "root")):
        try:
            other = _Other(name)
            said = other.refusal(cancel)
        except FileNotFoundError:
            said = "sudo is not there"
        if said is None:
            return other
        refusals.append(f"sudo -n -u {name}: {said}")
    raise Refused(
        f"this run can't become {user}",
        expected=f"{user} itself, root, or a sudo that lets us become one of them without a password",
        found="; ".join(refusals),
        remedy=f"a NOPASSWD rule for {user}, or --become with --ask-become-pass, or connect as root or as {user}",
        id="task.user",
    )


class _Other:
    """A process behind sudo."""

    def __init__(self, user: str) -> None:
        """Begin it; whether sudo lets it is found out by `refusal`.

        Raises OSError where there is no sudo.
        """
        self.user = user
        self.ended = False
        self._carried = _carried()
        self._rest = b""
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process
        argv = ["sudo", "-n", "-H", "-u", user, "--", sys.executable, "-I", "-S", "-c", _CODE, str(len(self._carried))]
        theirs, self._orders = os.pipe()
        self._events, their_events = os.pipe()
        try:
            self._process = subprocess.Popen(
                argv, stdin=theirs, stdout=their_events, stderr=self._said, cwd="/", env={**os.environ, "LC_ALL": "C"}
            )
        except OSError:
            os.close(self._orders)
            os.close(self._events)
            raise
        finally:
            os.close(theirs)
            os.close(their_events)

    def refusal(self, cancel: Cancel) -> Optional[str]:
        """Wait until the process answers; return what was said instead, or None."""
        ends = time.monotonic() + READY_S
        with contextlib.suppress(BrokenPipeError):  # what it said tells why
            if self._line(cancel, ends)[0] == HELLO:
                self._send(self._carried)
                if self._line(cancel, ends)[0] == READY:
                    return None
        late = time.monotonic() >= ends
        self._end()
        self._said.seek(0)
        said = self._said.read(_SAID_BYTES).decode("utf-8", "replace").strip()
        return said or (f"no answer within {READY_S:.0f} s" if late else "it ended without a word")

    def perform(self, order: dict[str, Any], emit: Emit, cancel: Cancel) -> Result:
        """Send an order and pass on what comes; ask for its end when this run is to stop."""
        result: Optional[Result] = None
        kind = RESULT
        try:
            self._send(json.dumps(order).encode() + b"\n")
            while kind not in (DONE, GONE):
                kind, task, data = self._line(cancel)
                if kind == RESULT:
                    result = codec.decode(Result, data)
                elif kind not in (DONE, GONE):
                    emit(kind, task, data)
        except BrokenPipeError:
            kind = GONE
        finally:
            if kind == GONE:
                self._end()
            elif kind != DONE:
                self._stop()
        return result or Result("failed", f"the work as {self.user} ended without a result")

    def _stop(self) -> None:
        """Ask for the end of an order, and wait for it."""
        ends, calm = time.monotonic() + GRACE_S + 2, Cancel()
        kind = RESULT
        try:
            self._send(b"\n")
            while kind not in (DONE, GONE):
                kind, _, _ = self._line(calm, ends)
        except BrokenPipeError:
            kind = GONE
        if kind == GONE:
            self._end()

    def _line(self, cancel: Cancel, ends: Optional[float] = None) -> tuple[str, Optional[str], dict[str, Any]]:
        """Return the next line: kind, task, data; GONE where there is none any more, or none in time."""
        while b"\n" not in self._rest:
            left = None if ends is None else max(0.0, ends - time.monotonic())
            with cancel:
                ready = select.select([self._events], [], [], left)[0]
            data = os.read(self._events, 1 << 16) if ready else b""
            if not data:
                return GONE, None, {}
            self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        kind, task, data = json.loads(line)
        return str(kind), task, data

    def _send(self, data: bytes) -> None:
        while data:
            data = data[os.write(self._orders, data) :]

    def _end(self) -> None:
        """Let the process end: it is root's or another's, so the end of its input is all that it can be told."""
        if self.ended:
            return
        self.ended = True
        os.close(self._orders)
        os.close(self._events)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S + 2)


def _carried() -> bytes:
    """Return what travelled, as a zip."""
    import k3env

    root = os.path.dirname(os.path.dirname(os.path.abspath(k3env.__file__)))
    if os.path.isfile(root):
        with open(root, "rb") as file:
            return file.read()
    import packaging

    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for package in (k3env, packaging):
            top = os.path.dirname(os.path.abspath(package.__file__ or ""))
            for directory, _, names in os.walk(top):
                for name in (name for name in names if name.endswith(".py")):
                    path = os.path.join(directory, name)
                    archive.write(path, os.path.relpath(path, os.path.dirname(top)))
    return buffer.getvalue()
