"""Drain this node in Slurm: only when asked for, only over a reason of ours, and never in the way of a prolog.

Source: scontrol's manual. `scontrol show node --oneliner` prints `State=IDLE+DRAIN …` and, behind everything else,
`Reason=TEXT [USER@TIME]`. The helper that marks nodes may hang when the controller does (mej/nhc#161 and others).
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NoReturn, Optional

from k3env.protocol.finding import Finding, printable

if TYPE_CHECKING:
    from k3env.node.machine import Machine

OURS = "k3env:"
REASON = 200
"""Characters of a reason that people still read."""
TIMEOUT_S = 20.0
_REASON = re.compile(r"\bReason=(?P<reason>.*?)(?: \[\S+@\S+\])?\s*(?:Comment=.*)?\Z", re.DOTALL)
_UNAVAILABLE = ("DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "MAINT")


def reason(findings: tuple[Finding, ...]) -> str:
    """Return what Slurm will say of the node: the first finding, and how many more there are."""
    first = findings[0]
    said = first.message or f"expected {first.expected}, found {first.found}"
    more = f" (+{len(findings) - 1} more)" if len(findings) > 1 else ""
    told = " ".join(f"{OURS} {first.id}: {printable(said)}".split())
    return told[: REASON - len(more)] + more


def detach(machine: Machine, node: str, why: str) -> None:
    """Drain in a process that nobody waits for; what it does, and why it doesn't, goes to syslog."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
        return
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        os.closerange(3, 256)
        _say(drain(machine, node, why))
    finally:
        os._exit(0)


def drain(machine: Machine, node: str, why: str) -> str:
    """Drain a node; return what was done, or why not."""
    shown = machine.run(("scontrol", "show", "node", "--oneliner", node), timeout_s=TIMEOUT_S)
    if not shown.ok:
        return f"not drained: scontrol show node {node}: {_failure(shown.exit_code, shown.text, shown.timed_out)}"
    if "State=" not in shown.text:
        return f"not drained: scontrol show node {node} tells no state: {' '.join(shown.text.split())[-200:]}"
    held = held_by(shown.text)
    if held is not None:
        return f"not drained: the node has a reason that is not ours: {held}"
    update = ("scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={why}")
    done = machine.run(update, timeout_s=TIMEOUT_S)
    if not done.ok:
        return f"not drained: scontrol update: {_failure(done.exit_code, done.text, done.timed_out)}"
    return f"drained: {why}"


def held_by(shown: str) -> Optional[str]:
    """Return the reason that somebody else gave, or None: there is none, or it is ours."""
    # Comment and Extra are anybody's, and may hold such words too: where one reason is not ours, none is.
    given = ""
    for begun in re.finditer(r"\bReason=", shown):
        found = _REASON.match(shown, begun.start())
        given = found["reason"].strip() if found else ""
        if given and given != "none" and not given.startswith(OURS):
            return given
    state = re.search(r"\bState=(\S+)", shown)
    words = set(re.split(r"[+*$@#~!%\-^]+", state.group(1))) if state else set()
    if not given and words & set(_UNAVAILABLE):
        return "none given, but its state is " + (state.group(1) if state else "")
    return None


def _failure(code: Optional[int], said: str, timed_out: bool) -> str:
    return f"no answer after {TIMEOUT_S:g} s" if timed_out else f"exit code {code} {said[-200:]}".strip()


def _say(message: str) -> NoReturn:
    import syslog

    syslog.openlog("k3env-preflight", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(syslog.LOG_WARNING, message)
    os._exit(0)
