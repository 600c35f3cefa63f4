"""Progress: what a line of a build's, pip's or git's output says about how far it is."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from k3env.node.machine import Machine

EVERY_S = 1.0
TEXT_CHARS = 100
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_MAKE = re.compile(r"\[\s*(\d{1,3})%\]\s*(.*)")
_NINJA = re.compile(r"\[(\d+)/(\d+)\]\s*(.*)")
_GIT = re.compile(r"(?:remote: )?([A-Z][A-Za-z ]+):\s+\d{1,3}% \((\d+)/(\d+)\)")
_TQDM = re.compile(r"(\S[^:|]*):\s+\d{1,3}%\|[^|]*\| (\d+)/(\d+) \[")
# Steps that tell no total. Source: git's progress meter, pip's log, build_wheel.py's and CMake's own lines.
_STEPS = re.compile(
    r"(?:remote: )?(?:Enumerating|Counting|Receiving|Resolving|Updating|Filtering) [a-z]+: +\d"
    r"|Cloning into |Submodule path "
    r"|(?:Collecting|Obtaining|Processing|Downloading|Using cached|Cloning) "
    r"|(?:Installing|Building|Preparing|Getting|Checking|Uninstalling|Found existing|Attempting|Successfully) [a-z ]*"
    r"|-- \S"
)


@dataclass(frozen=True)
class Progress:
    """How far something is."""

    text: str
    fraction: Optional[float] = None
    """Of 1; None where no total is known."""


def parse(line: str) -> Optional[Progress]:
    """Return what a line of output says about progress, or None."""
    plain = _COLOURS.sub("", line).strip()
    made = _MAKE.match(plain)
    if made and int(made[1]) <= 100:
        return Progress(_short(made[2] or plain), int(made[1]) / 100)
    counted = _NINJA.match(plain)
    if counted and 0 < int(counted[2]) >= int(counted[1]):
        return Progress(_short(f"{counted[1]}/{counted[2]} {counted[3]}"), int(counted[1]) / int(counted[2]))
    metered = _GIT.match(plain) or _TQDM.match(plain)
    if metered and 0 < int(metered[3]) >= int(metered[2]):
        return Progress(f"{metered[1]} {metered[2]}/{metered[3]}", int(metered[2]) / int(metered[3]))
    return Progress(_short(plain)) if _STEPS.match(plain) else None


class Meter:
    """Passes progress on to followers, at most once a second, and always the last."""

    def __init__(self, machine: Machine, title: str) -> None:
        """Tell the title."""
        self._machine = machine
        self._title = title
        self._found: Optional[Progress] = None
        self._told: Optional[Progress] = None
        self._begun = time.monotonic()
        self._next = 0.0
        # What comes right after the last of an earlier step may be thinned out on its way.
        self._is_sure = False
        machine.progress(title)

    def line(self, line: str) -> None:
        """Look at one line of output."""
        self._found = parse(line) or self._found
        if self._found != self._told:
            self._tell()

    def pause(self) -> None:
        """Tell what was found last, if its time has come: what computes in silence said before what that is."""
        if self._found != self._told or not self._is_sure:
            self._tell()

    def _tell(self) -> None:
        now = time.monotonic()
        if now < self._next:
            return
        self._told, self._next, self._is_sure = self._found, now + EVERY_S, now >= self._begun + EVERY_S
        if self._found is None:
            self._machine.progress(self._title)
        else:
            self._machine.progress(f"{self._title}: {self._found.text}", self._found.fraction)


def _short(text: str) -> str:
    return text if len(text) <= TEXT_CHARS else f"{text[: TEXT_CHARS - 1]}…"
