"""Ranges as Ansible writes them in host names: `gb[01:04]`, `[a:c]`, `n[1:9:2]`."""

from __future__ import annotations

import re
import string
from collections.abc import Sequence

from k3env.inventory.nodesets import MAX_HOSTS, BadNodeSet

_RANGE = re.compile(r"\[([^\[\]]*:[^\[\]]*)\]")


def is_range(text: str) -> bool:
    """Return whether a text holds a range in Ansible's notation."""
    return _RANGE.search(text) is not None


def expand_range(text: str) -> list[str]:
    """Return the names that a text with ranges means, in Ansible's order.

    Raises BadNodeSet, also for a range that means nothing and for more than 65,536 names.
    """
    names, end, count = [""], 0, 1
    for found in _RANGE.finditer(text):
        literal = text[end : found.start()]
        _refuse_brackets(literal, end)
        items = _items(found.group(1), found.start(1))
        count *= len(items)
        if count > MAX_HOSTS:
            raise BadNodeSet(f"more than {MAX_HOSTS} hosts", found.start(1))
        names = [name + literal + item for name in names for item in items]
        end = found.end()
    _refuse_brackets(text[end:], end)
    return [name + text[end:] for name in names]


def _refuse_brackets(literal: str, offset: int) -> None:
    for at, char in enumerate(literal):
        if char in "[]":
            raise BadNodeSet("this bracket belongs to no range", offset + at, "write [begin:end]")


def _items(inside: str, at: int) -> Sequence[str]:
    bounds = inside.split(":")
    if len(bounds) > 3:
        raise BadNodeSet("a range has a begin, an end and a step", at, "write [begin:end:step]")
    begin, end, step = bounds[0] or "0", bounds[1], bounds[2] if len(bounds) == 3 else "1"
    if not end:
        raise BadNodeSet("the range has no end", at + len(bounds[0]) + 1, "write [begin:end]")
    if not step.isdecimal() or int(step[:18]) == 0:
        raise BadNodeSet("the step must be a number above 0", at + len(bounds[0]) + len(end) + 2)
    if len(begin) == len(end) == 1 and begin in string.ascii_letters and end in string.ascii_letters:
        return _letters(begin, end, int(step), at)
    if not (begin.isdecimal() and end.isdecimal()) or max(len(begin), len(end), len(step)) > 18:
        raise BadNodeSet("a range goes from number to number or from letter to letter", at)
    return _numbers(begin, end, int(step), at)


def _letters(begin: str, end: str, step: int, at: int) -> Sequence[str]:
    first, last = string.ascii_letters.index(begin), string.ascii_letters.index(end)
    if first > last:
        raise BadNodeSet("the range ends before it begins", at)
    return string.ascii_letters[first : last + 1 : step]


def _numbers(begin: str, end: str, step: int, at: int) -> Sequence[str]:
    padded = begin.startswith("0") and len(begin) > 1
    if padded and len(begin) != len(end):
        raise BadNodeSet("begin and end have different numbers of digits", at, f"write {begin}:{end.zfill(len(begin))}")
    numbers = range(int(begin), int(end) + 1, step)
    if not numbers:
        raise BadNodeSet("the range ends before it begins", at, f"write {end}:{begin}")
    if len(numbers) > MAX_HOSTS:
        raise BadNodeSet(f"more than {MAX_HOSTS} hosts", at)
    return [str(number).zfill(len(begin) if padded else 0) for number in numbers]
