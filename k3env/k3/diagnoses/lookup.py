"""What the output of a failed build, pip, git, enroot or run means, and what to do: pattern, cause, remedy, source.

Rows are tried in their order, and the special ones stand first: a full disk before what follows from it. A build runs
pip and git, and pip runs git, so a failed build is looked up in all three tables; words that many programs use count
there only beside words of the row's own tool. What passed, such as a fetch that was tried again, is no cause of what
failed after it. Lines that a healthy run says as well are passed over. What no row fits is told by its own errors.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Optional

from k3env.k3.diagnoses.build import BUILD
from k3env.k3.diagnoses.container import CONTAINER
from k3env.k3.diagnoses.diagnosis import Diagnosis
from k3env.k3.diagnoses.enroot import ENROOT
from k3env.k3.diagnoses.git import GIT, GIT_ALONE
from k3env.k3.diagnoses.needles import needles
from k3env.k3.diagnoses.output_lines import (
    COMPILER,
    HARMLESS,
    chief,
    errors_of,
    last_errors,
    lines_of,
    own_errors,
    shells_word,
)
from k3env.k3.diagnoses.pip import PIP
from k3env.k3.diagnoses.run import RUN
from k3env.k3.diagnoses.system import LAST, SYSTEM

__all__ = ["TABLES", "Match", "chief", "diagnose", "last_errors", "shells_word"]


@dataclass(frozen=True)
class Match:
    """A diagnosis, with the line that it was made by."""

    diagnosis: Diagnosis
    line: str


def diagnose(tool: str, output: str) -> Optional[Match]:
    """Return what the output of a failed `build`, `pip`, `git`, `enroot`, `container` or `run` means, or None."""
    lines = list(lines_of(output))
    said = _Said(lines)
    telling = _Said(["" if HARMLESS.search(line) else line for line in lines])
    for row in _LOOKED_UP[tool]:
        if row.also and telling.first(row.also) is None:
            continue
        near = "" if row.id.startswith(f"{tool}.") else row.near
        where = said if row.also else telling
        for at in where.matches(row.pattern):
            if near and not said.near(near, at):
                continue
            if row.passes and telling.passed(row.pattern, at):
                continue
            return Match(row, lines[at])
    return _last(errors_of(lines)[-_NEAR:])


def _last(errors: Sequence[str]) -> Optional[Match]:
    if any(COMPILER.search(line) for line in errors):
        return None
    found = ((row, line) for row in LAST for line in errors if re.search(row.pattern, line))
    return next((Match(row, line) for row, line in found), None)


class _Said:
    """Lines, in which patterns are searched all at once."""

    def __init__(self, lines: Sequence[str]) -> None:
        self._lines = lines
        self._text = "\n".join(lines)
        self._folded = self._text.casefold()
        self._starts = [0, *accumulate(len(line) + 1 for line in lines)]
        self._found: dict[str, list[int]] = {}
        self._last_error: Optional[int] = None

    def matches(self, pattern: str) -> Iterator[int]:
        """Yield which lines a pattern matches; it may not reach over a line's end."""
        words = needles(pattern)
        if words is not None and not any(word in self._folded for word in words):
            return
        compiled = re.compile(pattern.replace("[^", r"[^\n"), re.MULTILINE)
        at = 0
        while at < len(self._text):
            found = compiled.search(self._text, at)
            if found is None:
                return
            line = bisect_right(self._starts, found.start()) - 1
            if compiled.search(self._lines[line]):
                yield line
            at = self._starts[line + 1]

    def first(self, pattern: str) -> Optional[int]:
        return next(self.matches(pattern), None)

    def near(self, pattern: str, at: int) -> bool:
        """Tell whether a line around says it."""
        return self._any(pattern, at - _BEFORE, at + _BEHIND)

    def passed(self, pattern: str, at: int) -> bool:
        """Tell whether work went on behind a line, and then something else failed."""
        if self._last_error is None:
            self._last_error = max(own_errors(self._lines), default=0)
        last = self._last_error
        return self._any(_WENT_ON, at + 1, last) and not re.search(pattern, self._lines[last])

    def _any(self, pattern: str, begin: int, end: int) -> bool:
        if pattern not in self._found:
            self._found[pattern] = list(self.matches(pattern))
        found = self._found[pattern]
        next_at = bisect_left(found, begin)
        return next_at < len(found) and found[next_at] < end


def _ordered(*tables: tuple[Diagnosis, ...]) -> tuple[Diagnosis, ...]:
    return tuple(sorted((row for table in tables for row in table), key=lambda row: row.follows))


_NEAR = 6
_BEFORE = 40
_BEHIND = 20
# What is said where a fetch, an installation or a build goes on.
_WENT_ON = (
    r"^\[ *\d+%\] (Built|Building|Linking)|^\[\d+/\d+\] (Building|Linking|\S*(cc|\+\+|clang)\b)"
    r"|^Successfully (installed|built)|^Submodule path '[^']*': checked out|Resolving deltas: +100%"
    r"|^Updating files: +100%|^HEAD is now at |^Already up to date|^-- (Generating|Configuring) done"
    r"|^Installing collected packages: |^(Installed|Prepared) \d+ pack|^Status: Downloaded newer image"
    r"|^\[INFO\] Creating squashfs"
)

TABLES = {
    "build": BUILD,
    "pip": PIP,
    "git": (*GIT, *GIT_ALONE),
    "enroot": ENROOT,
    "container": CONTAINER,
    "run": RUN,
    "system": (*SYSTEM, *LAST),
}
_LOOKED_UP = {
    "build": _ordered(CONTAINER, BUILD, PIP, GIT, SYSTEM),
    "pip": _ordered(CONTAINER, PIP, BUILD, GIT, SYSTEM),
    "git": _ordered(GIT, GIT_ALONE, SYSTEM),
    "enroot": _ordered(ENROOT, CONTAINER, SYSTEM),
    "container": _ordered(ENROOT, CONTAINER, SYSTEM),
    "run": _ordered(ENROOT, CONTAINER, RUN, BUILD, PIP, GIT, SYSTEM),
    "system": SYSTEM,
}
