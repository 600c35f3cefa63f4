"""Read values side by side, in children that can be left behind.

A few children take values from a queue, one after another: most are read in less time than a child takes to start.
When those at work are slow, as many again join them, so that what hangs holds up no other.
"""

from __future__ import annotations

import json
import os
import select
import signal
import struct
import time
import types
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Callable, NoReturn, Optional, TypeVar, Union

from k3env.node.trees import end_tree, reap
from k3env.protocol import codec
from k3env.protocol.finding import Unreadable

ANSWER_BYTES = 8 << 20
"""More than this is no answer of a fact."""
CHILDREN = 4
"""That begin at once."""
PATIENCE_S = 0.015
"""When no child was free for so long, others join."""
ENTER_S = 10.0
"""What a child may take to begin its first value."""

_JOB, _HEAD = struct.Struct("<H"), struct.Struct("<cHI")
_BEGUN, _ANSWER = b"b", b"a"
_OVER = "not read: the time of this context was over before"
_SILENT = "the reader ended without an answer"
_Name = TypeVar("_Name", bound=Hashable)


@dataclass(frozen=True)
class Reading:
    """How one value is read."""

    read: Callable[[float], Any]
    """Returns the value, or Unreadable; called in a child, with the end of its time on time.monotonic()."""
    kind: Callable[[], Any]
    """Returns the value's type."""
    seconds: float
    """After so long its child is left behind."""
    group: str = ""
    """Values of one group are read in the same children."""


@dataclass
class _Child:
    """A child that reads values."""

    group: str
    pid: int
    descriptor: int
    ends: float
    """When it is given up if it says nothing."""
    at: Optional[int] = None
    """The value that it reads."""
    seconds: float = ENTER_S
    data: bytearray = field(default_factory=bytearray)


def collect(
    readings: Mapping[_Name, Reading],
    ends: Optional[float] = None,
    enter: Mapping[str, Callable[[], object]] = types.MappingProxyType({}),
    *,
    at_once: int = CHILDREN,
    meanwhile: Callable[[], object] = lambda: None,
) -> dict[_Name, Any]:
    """Return all values; one that did not come in time, or is none, is Unreadable.

    However many hang, that costs the longest of their deadlines, once. `ends`, on time.monotonic(), is when all must be
    read. `enter` holds what children of a group call first. `at_once` children begin; `meanwhile` is done beside them.
    """
    found = _Collecting(list(readings.values()), ends, enter).run(at_once, meanwhile)
    return dict(zip(readings, found))


class _Collecting:
    """Values on their way."""

    def __init__(
        self, readings: Sequence[Reading], ends: Optional[float], enter: Mapping[str, Callable[[], object]]
    ) -> None:
        self._readings, self._ends, self._enter = readings, ends, enter
        self._values: dict[int, Any] = {}
        self._waiting: dict[str, set[int]] = {}
        """Those that no child has begun, by group."""
        for number, reading in enumerate(readings):
            self._waiting.setdefault(reading.group, set()).add(number)
        self._queues: dict[str, int] = {}
        self._joined: dict[str, float] = {}
        """When a group last had a free child, or got one."""
        self._children: dict[int, _Child] = {}
        self._pids: list[int] = []
        self._poll = select.poll()

    def run(self, at_once: int, meanwhile: Callable[[], object]) -> list[Any]:
        try:
            for group, numbers in self._waiting.items():
                self._queues[group] = _queue(numbers)
                for _ in range(min(at_once, len(numbers))):
                    self._join(group)
            meanwhile()
            while self._children:
                self._wait()
        finally:
            for queue in self._queues.values():
                os.close(queue)
            for child in list(self._children.values()):
                self._drop(child)
            reap(self._pids)
        missing = _OVER if self._is_over() else _SILENT
        return [self._values.get(number, Unreadable(missing)) for number in range(len(self._readings))]

    def _is_over(self) -> bool:
        return self._ends is not None and time.monotonic() >= self._ends

    def _wait(self) -> None:
        """Take in what children say until one says something, is late, or another one should join."""
        now = time.monotonic()
        awaited = [child.ends for child in self._children.values()]
        awaited += [self._joined[group] + PATIENCE_S for group, numbers in self._waiting.items() if numbers]
        for descriptor, _ in self._poll.poll(max(0.0, min(awaited) - now) * 1000):
            self._hear(self._children[descriptor])
        now = time.monotonic()
        for child in [child for child in self._children.values() if child.ends <= now]:
            self._give_up(child, f"no answer after {child.seconds:.3g} s")
        for group, numbers in self._waiting.items():
            if numbers and now >= self._joined[group] + PATIENCE_S:
                busy = sum(child.group == group for child in self._children.values())
                for _ in range(min(len(numbers), max(1, busy))):
                    self._join(group)

    def _join(self, group: str) -> None:
        """Start a child for a group."""
        self._joined[group] = time.monotonic()
        if self._is_over():
            return self._waiting[group].clear()
        receiver, sender = os.pipe()
        try:
            pid = os.fork()
        except OSError as error:
            os.close(receiver)
            os.close(sender)
            if not any(child.group == group for child in self._children.values()):
                self._fail(group, f"no reader could be started: {error.strerror}")
            return None
        if not pid:
            os.close(receiver)
            self._work(group, sender)
        os.close(sender)
        self._pids.append(pid)
        self._children[receiver] = _Child(group, pid, receiver, self._bounded(ENTER_S))
        self._poll.register(receiver, select.POLLIN)
        return None

    def _bounded(self, seconds: float) -> float:
        ends = time.monotonic() + seconds
        return ends if self._ends is None else min(ends, self._ends)

    def _hear(self, child: _Child) -> None:
        chunk = os.read(child.descriptor, 1 << 16)
        child.data += chunk
        while len(child.data) >= _HEAD.size:
            kind, number, length = _HEAD.unpack_from(child.data)
            if kind not in (_BEGUN, _ANSWER) or number >= len(self._readings) or length > ANSWER_BYTES:
                known = kind in (_BEGUN, _ANSWER) and number < len(self._readings)
                told = f"the reader said more than {ANSWER_BYTES >> 20} MiB" if known else "the reader's answer is none"
                return self._give_up(child, told)
            if len(child.data) < _HEAD.size + length:
                break
            said = bytes(child.data[_HEAD.size : _HEAD.size + length])
            del child.data[: _HEAD.size + length]
            if kind == _BEGUN:
                self._waiting[child.group].discard(number)
                child.at, child.seconds = number, self._readings[number].seconds
                left = self._bounded(child.seconds) - time.monotonic()
                child.ends, child.seconds = time.monotonic() + left, min(child.seconds, left)
            else:
                self._values[number] = _value(said, self._readings[number].kind)
                # What it reads next is told at once, or there is nothing left and it ends.
                child.at, child.ends, child.seconds = None, self._bounded(ENTER_S), ENTER_S
                self._joined[child.group] = time.monotonic()
        if not chunk:
            self._forget(child)
            if child.at is not None:
                self._values[child.at] = Unreadable(_SILENT)
                self._replace(child)
            else:
                # Its queue is empty: what is not begun yet by what we have heard, another child has taken.
                self._waiting[child.group].clear()
        return None

    def _give_up(self, child: _Child, why: str) -> None:
        """Leave a child behind, with the value that it reads."""
        if child.at is not None:
            self._values[child.at] = Unreadable(why)
        elif not self._is_over():
            self._fail(child.group, f"no reader could be started: {why}")
        self._drop(child)
        self._replace(child)

    def _replace(self, child: _Child) -> None:
        """Start another child where one was lost that had more to read."""
        if self._waiting[child.group]:
            self._join(child.group)

    def _fail(self, group: str, why: str) -> None:
        """Give up all values of a group that no child has begun to read."""
        self._values.update((number, Unreadable(why)) for number in self._waiting[group])
        self._waiting[group].clear()

    def _drop(self, child: _Child) -> None:
        end_tree(child.pid)
        self._forget(child)

    def _forget(self, child: _Child) -> None:
        self._poll.unregister(child.descriptor)
        os.close(child.descriptor)
        del self._children[child.descriptor]

    def _work(self, group: str, sender: int) -> NoReturn:
        """Read values from the queue until it is empty; the child's whole life."""
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.setsid()
            if group in self._enter:
                self._enter[group]()
            while job := os.read(self._queues[group], _JOB.size):
                (number,) = _JOB.unpack(job)
                _say(sender, _BEGUN, number)
                value = self._readings[number].read(self._bounded(self._readings[number].seconds))
                kind = "unreadable" if isinstance(value, Unreadable) else "value"
                _say(sender, _ANSWER, number, json.dumps([kind, codec.encode(value)]).encode())
        except BaseException:  # noqa: S110 - a child of fork must not come back; the parent sees its pipe end
            pass
        finally:
            os._exit(0)


def _queue(numbers: Iterable[int]) -> int:
    """Return a pipe that holds these numbers, and ends behind them."""
    receiver, sender = os.pipe()
    try:
        for number in sorted(numbers):
            os.write(sender, _JOB.pack(number))
    finally:
        os.close(sender)
    return receiver


def _say(sender: int, kind: bytes, number: int, said: bytes = b"") -> None:
    data = memoryview(_HEAD.pack(kind, number, len(said)) + said)
    while data:
        data = data[os.write(sender, data) :]


def _value(said: bytes, kind: Callable[[], Any]) -> Any:
    try:
        word, value = json.loads(said)
        return codec.decode(Union[kind() if word == "value" else Unreadable, Unreadable], value)
    except (ValueError, TypeError, RecursionError) as error:
        return Unreadable(f"the reader's answer is none: {error}")
