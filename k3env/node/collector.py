"""Read values side by side, each in a child of its own that can be left behind."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import time
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Callable, NoReturn, Optional, TypeVar, Union

from k3env.protocol import codec
from k3env.protocol.finding import Unreadable

ANSWER_BYTES = 8 << 20
"""More than this is no answer of a fact."""
_PAUSES_S = (0.0, 0.001, 0.01, 0.1)
_Name = TypeVar("_Name", bound=Hashable)


@dataclass(frozen=True)
class Reading:
    """How one value is read."""

    read: Callable[[], Any]
    """Returns the value, or Unreadable; called in the child."""
    kind: Callable[[], Any]
    """Returns the value's type."""
    seconds: float
    """After so long its child is left behind."""


@dataclass
class _Child:
    """A child that reads."""

    pid: int
    descriptor: int
    ends: float
    data: bytearray = field(default_factory=bytearray)
    failed: Optional[str] = None


def collect(readings: Mapping[_Name, Reading]) -> dict[_Name, Any]:
    """Return all values; one that did not come in time, or is none, is Unreadable.

    However many hang, that costs the longest of their deadlines, once.
    """
    values: dict[_Name, Any] = {}
    children: dict[_Name, _Child] = {}
    for name, reading in readings.items():
        if reading.seconds <= 0:
            values[name] = Unreadable("not read: the time of this context was over before")
            continue
        try:
            children[name] = _spawn(reading)
        except OSError as error:
            values[name] = Unreadable(f"no reader could be started: {error.strerror}")
    _receive(list(children.values()), {child.pid: readings[name].seconds for name, child in children.items()})
    for name, child in children.items():
        values[name] = _value(child, readings[name].kind)
    return {name: values[name] for name in readings}


def end_tree(pid: int) -> None:
    """End a child and all that it started, in whatever session; what is in an endless wait stays."""
    for number in (pid, *descendants(pid)):
        with contextlib.suppress(OSError):
            os.kill(number, signal.SIGKILL)


def reap(pids: list[int]) -> None:
    """Collect those children that have ended; what is in an endless wait stays."""
    for pause in _PAUSES_S:
        if not pids:
            return
        time.sleep(pause)
        pids = [pid for pid in pids if not os.waitpid(pid, os.WNOHANG)[0]]


def _spawn(reading: Reading) -> _Child:
    ends = time.monotonic() + reading.seconds
    receiver, sender = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(receiver)
        os.close(sender)
        raise
    if not pid:
        os.close(receiver)
        _answer(reading, sender)
    os.close(sender)
    return _Child(pid, receiver, ends)


def _answer(reading: Reading, sender: int) -> NoReturn:
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        value = reading.read()
        kind = "unreadable" if isinstance(value, Unreadable) else "value"
        data = memoryview(json.dumps([kind, codec.encode(value)]).encode())
        while data:
            data = data[os.write(sender, data) :]
    except BaseException:  # noqa: S110 - a child of fork must not come back; the parent sees an empty pipe
        pass
    finally:
        os._exit(0)


def _receive(children: list[_Child], seconds: Mapping[int, float]) -> None:
    """Read what the children say, each until its end or its deadline."""
    open_: dict[int, _Child] = {child.descriptor: child for child in children}
    poll = select.poll()
    for descriptor in open_:
        poll.register(descriptor, select.POLLIN)
    try:
        while open_:
            left = min(child.ends for child in open_.values()) - time.monotonic()
            for descriptor, _ in poll.poll(max(0, left) * 1000):
                chunk = os.read(descriptor, 1 << 16)
                child = open_[descriptor]
                child.data += chunk
                if len(child.data) > ANSWER_BYTES:
                    child.failed = f"the reader said more than {ANSWER_BYTES >> 20} MiB"
                if not chunk or child.failed:
                    poll.unregister(descriptor)
                    del open_[descriptor]
            now = time.monotonic()
            for descriptor, child in list(open_.items()):
                if child.ends <= now:
                    child.failed = f"no answer after {seconds[child.pid]:.3g} s"
                    poll.unregister(descriptor)
                    del open_[descriptor]
    finally:
        for child in children:
            os.close(child.descriptor)
            if child.failed or child.descriptor in open_:
                end_tree(child.pid)
        reap([child.pid for child in children])


def _value(child: _Child, kind: Callable[[], Any]) -> Any:
    if child.failed is not None:
        return Unreadable(child.failed)
    if not child.data:
        return Unreadable("the reader ended without an answer")
    try:
        said, value = json.loads(child.data)
        return codec.decode(Union[kind() if said == "value" else Unreadable, Unreadable], value)
    except (ValueError, TypeError, RecursionError) as error:
        return Unreadable(f"the reader's answer is none: {error}")


def descendants(pid: int) -> list[int]:
    """Return what a process started, what that started, and so on: field 4 of /proc/PID/stat is the parent."""
    parents: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb") as file:
                parent = int(file.read(4096).rpartition(b")")[2].split()[1])
                parents.setdefault(parent, []).append(int(name))
    found = [pid]
    for number in found:
        found += parents.get(number, [])
    return found[1:]
