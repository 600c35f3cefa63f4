"""Answers that hold for a whole run: kept in a file without a name, which all its processes inherit."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Callable

from k3env.protocol import codec

if TYPE_CHECKING:
    from k3env.node.machine import Machine

_BYTES = 1 << 16
_PATIENCE_S, _STEP_S = 6.0, 0.02


def once(machine: Machine, question: str, ask: Callable[[], str]) -> str:
    """Return an answer that was had before in this run, in whatever process of this user's; else ask.

    An empty answer is none, and is not kept. Who asks at the same time waits for who asks already, some seconds.
    """
    named = f"{os.geteuid()} {question}"
    with _alone(machine.answers):
        known = _read(machine.answers)
        if named not in known:
            answer = ask()
            if answer:
                _write(machine.answers, {**known, named: answer})
            return answer
        return known[named]


@contextlib.contextmanager
def _alone(file: int) -> Iterator[None]:
    """Hold the file, unless its holder takes too long: it may hang where nothing can end it."""
    ends, is_held = time.monotonic() + _PATIENCE_S, False
    while not is_held and time.monotonic() < ends:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_held = True
        except OSError:
            time.sleep(_STEP_S)
    try:
        yield
    finally:
        if is_held:
            fcntl.lockf(file, fcntl.LOCK_UN)


def _read(file: int) -> dict[str, str]:
    try:
        found = codec.plain(os.pread(file, _BYTES, 0) or b"{}")
    except ValueError:
        return {}
    # Another user's task of this run may have written anything.
    if not isinstance(found, dict):
        return {}
    return {key: value for key, value in found.items() if isinstance(value, str)}


def _write(file: int, known: dict[str, str]) -> None:
    data = json.dumps(known).encode()
    if len(data) < _BYTES:
        os.ftruncate(file, 0)
        os.pwrite(file, data, 0)
