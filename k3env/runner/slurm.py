"""Slurm's administration from this machine: the state of nodes, draining and resuming them, the jobs on them.

Source: the manuals of scontrol and squeue, and what 22.05 prints: an update that is not allowed ends with `Invalid user
id` and exit code 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from k3env.errors import UsageError
from k3env.inventory import slurm
from k3env.inventory.commands import Said, ask
from k3env.node.facts.jobs import Job
from k3env.protocol.finding import printable

TIMEOUT_S = 20.0
_DENIED = re.compile(r"Invalid user id|[Pp]ermission denied|Access/permission")
_OUT = frozenset(("DRAIN", "DOWN", "FAIL", "FAILING", "FUTURE", "INVAL"))
"""States in which no job is given to a node. Source: scontrol(1). One that was just resumed does not respond yet."""
# Pending jobs have no nodes, and ended ones are gone from them.
_STATES = "CONFIGURING,RUNNING,SUSPENDED,STOPPED,SIGNALING,COMPLETING"


@dataclass(frozen=True)
class Node:
    """A node as Slurm's controller sees it."""

    name: str
    aliases: frozenset[str]
    """Its name, its host name and its address."""
    states: frozenset[str]
    """IDLE, ALLOCATED, DRAIN, …"""
    reason: str
    """Why it is drained or down; empty: nobody said."""
    by: str = ""
    """Who said so, and when."""

    @property
    def drained(self) -> bool:
        """Whether somebody drained it."""
        return "DRAIN" in self.states

    @property
    def out(self) -> frozenset[str]:
        """The states that keep jobs away from it."""
        return self.states & _OUT


@dataclass(frozen=True)
class Running:
    """A job on a node, as a person follows it."""

    job: Job
    ends: str
    """When its time is over, or "NONE"."""

    def __str__(self) -> str:
        """Return whose job it is, and how long it may take."""
        return f"{self.job}, until {self.ends} at most" if self.ends[:1].isdigit() else str(self.job)


def nodes() -> dict[str, Node]:
    """Return all of Slurm's nodes by name.

    Raises UsageError where Slurm is not here, or does not answer.
    """
    said = _said(["scontrol", "--all", "show", "node"])
    return {node.name: node for block in said.split("\n\n") if (node := _node(block)) is not None}


def drain(names: Sequence[str], reason: str) -> None:
    """Let nodes take no further job.

    Raises UsageError where that is not allowed.
    """
    _said(["scontrol", "update", f"nodename={','.join(names)}", "state=drain", f"reason={reason}"])


def resume(names: Sequence[str]) -> None:
    """Let nodes take jobs again.

    Raises UsageError where that is not allowed.
    """
    _said(["scontrol", "update", f"nodename={','.join(names)}", "state=resume"])


def jobs(names: Sequence[str]) -> dict[str, list[Running]]:
    """Return the jobs on each of these nodes; nodes without any are left out.

    Raises UsageError where Slurm does not answer.
    """
    argv = ["squeue", "--noheader", "--all", f"--nodelist={','.join(names)}", f"--states={_STATES}"]
    found: dict[str, list[Running]] = {}
    for line in _said([*argv, "--format=%N|%A|%i|%u|%S|%e|%j"]).splitlines():
        row = line.strip().split("|", 6)
        if len(row) == 7:
            where, id, task, user, since, ends, name = row
            running = Running(Job(id, user, since, printable(name), "" if task == id else task), ends)
            for node in slurm.expanded(where, "squeue"):
                found.setdefault(node, []).append(running)
    return {name: found[name] for name in names if name in found}


def _node(block: str) -> Node | None:
    words = dict(_words(block))
    if "NodeName" not in words:
        return None
    name = words["NodeName"]
    # Signs behind a state say more: "*" that it does not respond, "~" that it sleeps, …
    states = [word.rstrip("*~#!%$@^-") for word in words.get("State", "").split("+")]
    reason, _, by = words.get("Reason", "").rpartition(" [")
    aliases = frozenset((name, words.get("NodeHostName", name), words.get("NodeAddr", name)))
    return Node(name, aliases, frozenset(states), printable(reason), by.rstrip("]"))


def _words(block: str) -> Iterator[tuple[str, str]]:
    for line in block.splitlines():
        if line.strip().startswith(("Reason=", "Comment=", "Extra=", "OS=")):
            # The rest of their line is one value.
            key, _, value = line.strip().partition("=")
            yield key, value
        else:
            yield from ((key, value) for word in line.split() for key, found, value in [word.partition("=")] if found)


def _said(argv: Sequence[str]) -> str:
    try:
        said = ask(argv, TIMEOUT_S)
    except OSError as error:
        raise UsageError(
            f"{argv[0]} can't be run: {error.strerror}",
            expected="Slurm's programs in PATH on this machine: nodes are drained from here",
            found="no Slurm",
            remedy="run this on a login node, or leave --drain out",
        ) from None
    if said.exit_code or said.timed_out or said.too_much:
        raise _refused(argv, said)
    return said.stdout.decode("utf-8", "replace")


def _refused(argv: Sequence[str], said: Said) -> UsageError:
    lines = said.stderr.decode("utf-8", "replace").strip().splitlines()
    words = printable(lines[-1]) if lines else f"exit code {said.exit_code}"
    if said.timed_out:
        words = f"no answer within {TIMEOUT_S:g} s"
    denied = _DENIED.search(words)
    return UsageError(
        "Slurm does not let this user drain or resume nodes" if denied else f"{argv[0]} failed: {words}",
        expected="an operator or administrator of Slurm" if denied else "an answer of Slurm's controller",
        found=words,
        remedy="run it as one, or leave --drain out" if denied else "see: scontrol ping",
        evidence=(said.evidence(),),
    )
