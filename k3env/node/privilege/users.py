"""Work as another user, in a child that has given up everything else."""

from __future__ import annotations

import json
import os
import pwd
import signal
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Callable, Optional

from k3env.errors import Refused
from k3env.node.cancel import Cancel
from k3env.node.guard import Guard
from k3env.node.privilege.become import become
from k3env.protocol import codec
from k3env.protocol.finding import Result

CHILD_GRACE_S = 6.0
"""How long a child may take to end its own command when the worker was killed, seconds."""
Emit = Callable[[str, Optional[str], dict[str, Any]], None]


@dataclass(frozen=True)
class Work:
    """A task, in the forms in which it can be done."""

    here: Callable[[Emit], Result]
    """In this process, or in a fork of it."""
    order: Callable[[], dict[str, Any]]
    """As JSON, for a process of another user."""
    others: dict[str, Any]
    """The processes of other users that this run has begun."""


def perform(name: str, work: Work, emit: Emit, cancel: Cancel) -> Result:
    """Do work as a user, passing its events on: here if that is who we are, else as root, else behind `sudo -n`.

    Raises Refused if the user is unknown, or if we may not become it.
    """
    entry = _entry(name)
    if entry.pw_uid == os.geteuid():
        return work.here(emit)
    if os.geteuid() != 0:
        from k3env.node.privilege import behind_sudo

        return behind_sudo.perform(name, work.order(), work.others, emit, cancel)
    return _in_child(entry, work.here, emit, cancel)


def prove(names: Iterable[str], others: dict[str, Any], cancel: Cancel) -> None:
    """Make sure that this run can become all of these users, before any of them writes something.

    Raises Refused as `perform` does.
    """
    for name in names:
        if os.geteuid() not in (0, _entry(name).pw_uid):
            from k3env.node.privilege import behind_sudo

            behind_sudo.prove(name, others, cancel)


def _entry(name: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        raise Refused(
            f"user {name} is unknown on this node", expected="a user of this node", found="no such user",
            remedy="set k3_user or become_user to one that is", id="task.user",
        ) from None  # fmt: skip


def _in_child(entry: pwd.struct_passwd, work: Callable[[Emit], Result], emit: Emit, cancel: Cancel) -> Result:
    _preload()
    receiver, sender = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(receiver)
        _child(entry, work, sender)
    os.close(sender)
    result: Optional[Result] = None
    try:
        with Guard(pid, CHILD_GRACE_S), os.fdopen(receiver, "rb") as lines:
            while True:
                with cancel:
                    line = lines.readline()
                if not line:
                    break
                kind, task, data = json.loads(line)
                if kind == "result":
                    result = codec.decode(Result, data)
                else:
                    emit(kind, task, data)
    finally:
        if result is None:
            os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    return result or Result("failed", f"the work as {entry.pw_name} ended without a result")


def _child(entry: pwd.struct_passwd, work: Callable[[Emit], Result], sender: int) -> None:
    def send(kind: str, task: Optional[str], data: dict[str, Any]) -> None:
        os.write(sender, json.dumps([kind, task, data]).encode() + b"\n")

    code = 1
    try:
        become(entry)
        send("result", None, codec.encode(work(send)))
        code = 0
    finally:
        os._exit(code)


def _preload() -> None:
    """Import all that travelled: the state directory it lies in is closed to everybody else."""
    import pkgutil
    from importlib import import_module

    import packaging

    import k3env

    for package in (k3env, packaging):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            # The boot code runs when it is imported.
            if not found.name.endswith((".boot", ".__main__")):
                import_module(found.name)
