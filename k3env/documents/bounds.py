"""Bounds: how large what a template makes may get, before it is made where that can be told."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

MAX_SIZE = 1 << 20
"""Characters of a value; a number, a list and each of its items count as a few."""
MAX_DEPTH = 100
"""Lists and mappings within one another; a file may hold 64."""
MAX_BITS = 4096
"""Of a whole number."""
_OF_AN_ITEM = 4
_AT_WORK = 16
"""How often as much a format may be on the way, by a rough estimate."""
_WIDTHS = re.compile(r"%(?:\(.*?\))?[-+ #0]*([0-9]+|\*)?(?:\.([0-9]+|\*))?|:[^{}]*?([0-9]+|\{)(?:\.([0-9]+))?")


class TooLarge(Exception):
    """A template gives, or would give, more than a value may hold."""

    def __init__(self) -> None:
        super().__init__(f"it gives more than {MAX_SIZE >> 20} MiB")


class Size:
    """What a value has come to so far."""

    def __init__(self) -> None:
        self._left = MAX_SIZE

    def add(self, text: object = "") -> None:
        """Count one more item, and its text.

        Raises TooLarge.
        """
        self._left -= _OF_AN_ITEM + (len(text) if isinstance(text, str) else 0)
        if self._left < 0:
            raise TooLarge

    def measure(self, value: Any, depth: int = 0) -> None:
        """Count a plain value with all that is in it, as often as it is in it.

        Raises TooLarge, and RecursionError for one that is nested more deeply than other parts of k3env follow.
        """
        if depth > MAX_DEPTH:
            raise RecursionError
        self.add(value)
        if isinstance(value, Mapping):
            for key, item in value.items():
                self.add(key)
                self.measure(item, depth + 1)
        elif isinstance(value, (list, tuple)):
            for item in value:
                self.measure(item, depth + 1)


def number(value: int) -> int:
    """Return a number that is not too long to be written down.

    Raises OverflowError.
    """
    if value.bit_length() > MAX_BITS:
        raise OverflowError(f"it gives a number of more than {MAX_BITS} bits")
    return value


def operate(operator: str, left: Any, right: Any, apply: Callable[[Any, Any], Any]) -> Any:
    """Return what an operator makes of two values.

    Raises TooLarge and OverflowError, without making it, where that would be too large.
    """
    if operator == "**" and isinstance(left, int) and isinstance(right, int):
        if right > 0 and left.bit_length() * right > 2 * MAX_BITS:
            raise OverflowError(f"it gives a number of more than {MAX_BITS} bits")
    elif operator == "*":
        for one, other in ((left, right), (right, left)):
            if isinstance(one, (str, bytes, list, tuple)) and isinstance(other, int) and len(one) * other > MAX_SIZE:
                raise TooLarge
    elif operator == "+" and isinstance(left, (str, bytes, list, tuple)) and isinstance(right, type(left)):
        if len(left) + len(right) > MAX_SIZE:
            raise TooLarge
    elif operator == "%" and isinstance(left, str):
        formatted(left, right)
    made = apply(left, right)
    return number(made) if isinstance(made, int) else made


def formatted(text: str, *values: Any) -> None:
    """Refuse a format, of % or of str.format, whose widths, or whose values repeated, may come to too much.

    Raises TooLarge.
    """
    given = list(_scalars(values))
    widths = [word for found in _WIDTHS.finditer(text) for word in found.groups() if word]
    widest = max([abs(value) for value in given if isinstance(value, int)], default=0)
    padding = sum(widest if word in "*{" else int(word[:9]) for word in widths)
    longest = max([len(value) for value in given if isinstance(value, str)], default=0)
    if padding > MAX_SIZE or len(text) + longest * (text.count("%") + text.count("{")) > _AT_WORK * MAX_SIZE:
        raise TooLarge


def _scalars(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, (list, tuple)):
        for item in value:
            yield from _scalars(item)
    else:
        yield value


def called(function: Any, arguments: tuple[Any, ...], named: Mapping[str, Any]) -> None:
    """Refuse a call of a text's own method that would make too much of it.

    Raises TooLarge.
    """
    text = getattr(function, "__self__", None)
    name = getattr(function, "__name__", "")
    if not isinstance(text, str):
        return
    if name == "format":
        formatted(text, arguments, named)
    if name == "replace" and len(arguments) > 1 and isinstance(arguments[0], str):
        replaced(text, arguments[0], arguments[1])
    if name in ("center", "ljust", "rjust", "zfill", "expandtabs"):
        width(text.count("\t") + 1, *arguments)


def summed(start: Any) -> None:
    """Refuse to sum up anything but numbers: lists are copied once for each.

    Raises TypeError.
    """
    if isinstance(start, bool) or not isinstance(start, (int, float)):
        raise TypeError(f"sum adds numbers up, not {type(start).__name__}s")


def width(times: int, *numbers: Any) -> None:
    """Refuse to pad to a width that is too large.

    Raises TooLarge.
    """
    if any(isinstance(number, int) and number * times > MAX_SIZE for number in numbers):
        raise TooLarge


def replaced(text: str, old: str, new: Any) -> None:
    """Refuse to replace what would make a text too large.

    Raises TooLarge.
    """
    if text.count(old) * len(str(new)) > MAX_SIZE:
        raise TooLarge
