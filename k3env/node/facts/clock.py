"""The clock: whether somebody sets it, and how far it is from ours."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from k3env.node.facts import deadline
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence

CHRONY = ("chronyc", "-n", "-c", "tracking")
TIMEDATECTL = ("timedatectl", "show", "-p", "NTPSynchronized", "--value")
_ANSWER_S = 2.0


@dataclass(frozen=True)
class Clock:
    """A node's clock."""

    synchronized: Optional[bool]
    """Whether a time service says that it sets this clock; None: no service that can be asked."""
    offset_s: Optional[float] = None
    """By which the service says that it is off; None: it does not say."""
    lag_s: Optional[float] = None
    """Behind the judge's clock, with what the road took; the judge fills it in, a node can't know."""
    source: Evidence = Evidence("")


@deadline(3 * _ANSWER_S)
def clock(machine: Machine) -> Clock:
    """Ask chrony, else systemd, whether this clock is set by somebody.

    Source: `chronyc -c tracking`, whose fifth field is the offset in seconds and whose last is the leap status;
    `timedatectl show`, whose NTPSynchronized is yes or no.
    """
    if machine.which(CHRONY[0]) is not None:
        done = machine.run(CHRONY, timeout_s=_ANSWER_S)
        cells = done.text.strip().split(",")
        if done.ok and len(cells) >= 14:
            return Clock(cells[-1] != "Not synchronised", _seconds(cells[4]), source=done.evidence())
    if machine.which(TIMEDATECTL[0]) is not None:
        done = machine.run(TIMEDATECTL, timeout_s=_ANSWER_S)
        word = done.text.strip()
        if done.ok and word in ("yes", "no"):
            return Clock(word == "yes", source=done.evidence())
        return Clock(None, source=done.evidence())
    return Clock(None, source=Evidence(CHRONY[0], None, "neither chronyc nor timedatectl is here"))


def _seconds(text: str) -> Optional[float]:
    return float(text) if re.fullmatch(r"-?\d+(\.\d+)?(e-?\d+)?", text) else None
