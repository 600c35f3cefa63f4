"""Node sets: `gb300-[01-04,7]`, `rack[0-1]_blade[0-1]`, checked and bounded here, expanded by ClusterShell."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

MAX_HOSTS = 65_536
"""As many as Slurm expands at most."""

_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_IN_NAMES = re.compile(r"[A-Za-z0-9_.-]")
_RANGE = re.compile(r"([0-9]+)(?:-([0-9]+)(?:/([0-9]+))?)?")


@dataclass
class BadNodeSet(Exception):
    """A node set can't be read; `at` is the offset of the character that is wrong."""

    message: str
    at: int
    remedy: Optional[str] = None


def is_nodeset(text: str) -> bool:
    """Return whether a text holds brackets, so that it is not a plain name."""
    return "[" in text or "]" in text


def expand(text: str, at_most: int = MAX_HOSTS) -> list[str]:
    """Return the names of a node set.

    Raises BadNodeSet, also for more than `at_most` names, before any of them is made.
    """
    count, end = 1, 0
    for found in _BRACKETS.finditer(text):
        _refuse_stray(text, end, found.start())
        if end and found.start() == end:
            raise BadNodeSet("two ranges stand next to each other", end, "write something between them")
        count *= _count(found.group(1), found.start(1), text[: found.start()])
        if count > at_most:
            raise BadNodeSet(f"more than {at_most} hosts", found.start(1))
        end = found.end()
    _refuse_stray(text, end, len(text))
    from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet

    return [str(name) for name in NodeSet(text, resolver=RESOLVER_NOGROUP)]


def _refuse_stray(text: str, begin: int, end: int) -> None:
    """Refuse between two ranges what no name holds, and what ClusterShell would take for an operator."""
    for at in range(begin, end):
        if text[at] == "[":
            raise BadNodeSet("this bracket is not closed", at, "close it with ]")
        if text[at] == "]":
            raise BadNodeSet("this bracket was never opened", at)
        if not _IN_NAMES.fullmatch(text[at]):
            raise BadNodeSet(f"{text[at]!r} can't be in a host name", at)


def _count(ranges: str, offset: int, before: str) -> int:
    """Return how many numbers the inside of a pair of brackets means; `before` is what stands before it."""
    if not ranges:
        raise BadNodeSet("the brackets are empty", offset, "write numbers or ranges: [01-04,7]")
    count, at = 0, offset
    for part in ranges.split(","):
        found = _RANGE.fullmatch(part)
        if not found:
            raise _unreadable(part, at, before)
        count += _span(found[1], found[2], found[3], at)
        at += len(part) + 1
    return count


def _unreadable(part: str, at: int, before: str) -> BadNodeSet:
    if not part:
        return BadNodeSet("a number is missing here", at, "remove the comma, or write a number")
    if part.startswith(":"):
        return BadNodeSet("the first hosts of a group begin with number 0", at, f"write {before}[0{part}]")
    if ":" in part:
        return BadNodeSet(
            "ranges are written with a dash here", at + part.index(":"), f"write {part.replace(':', '-')}"
        )
    wrong = re.match(r"[0-9]*-?[0-9]*/?[0-9]*", part)
    return BadNodeSet("this is no range of numbers", at + (wrong.end() if wrong else 0), "write 01-04, or 1-9/2")


def _span(low: str, high: Optional[str], step: Optional[str], at: int) -> int:
    if max(len(low), len(high or "")) > 18:
        raise BadNodeSet("this number is too long", at)
    if high is None:
        return 1
    padded = any(len(number) > 1 and number.startswith("0") for number in (low, high))
    if padded and len(low) != len(high):
        width = max(len(low), len(high))
        remedy = f"write {low.zfill(width)}-{high.zfill(width)}, or split the range"
        raise BadNodeSet("the two ends have different numbers of digits", at, remedy)
    if int(low) > int(high):
        raise BadNodeSet("the range ends before it begins", at, f"write {high}-{low}")
    if step is not None and int(step) == 0:
        raise BadNodeSet("a step of 0 never ends", at + len(low) + len(high) + 2)
    return (int(high) - int(low)) // int(step or 1) + 1
