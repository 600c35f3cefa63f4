"""Subscripts: `gpu[0]`, `gpu[-1]`, `gpu[0:2]`, `gpu[1:]`: some of a group's hosts, counted from 0, ends included.

Brackets are a subscript only behind the name of a group, or behind a glob. There they are one when they hold a single
number or a colon, as in Ansible; with a dash or a comma they always are a range of names: `gpu[0-2]` is gpu0, gpu1
and gpu2. Behind anything else they always are a range, so that `gpu[0]` is the host gpu0 where no group is named gpu.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional, TypeVar

T = TypeVar("T")

_SUBSCRIPT = re.compile(r"(?P<base>.+)\[(?:(?P<index>-?[0-9]{1,9})|(?P<begin>[0-9]{1,9}):(?P<end>[0-9]{0,9}))\]")


@dataclass(frozen=True)
class Subscript:
    """A term with a subscript."""

    base: str
    """What stands before the bracket."""
    begin: int
    end: Optional[int]
    """Included. None: to the last."""
    single: bool
    """Whether it is one number."""

    def of(self, items: Sequence[T]) -> list[T]:
        """Return what it means; the end may lie behind the last.

        Raises IndexError where it means nothing.
        """
        if self.single:
            return [items[self.begin]]
        end = len(items) if self.end is None else self.end + 1
        if not items[self.begin : end]:
            raise IndexError
        return list(items[self.begin : end])


def read(text: str) -> Optional[Subscript]:
    """Return the subscript that a text ends with, or None."""
    found = _SUBSCRIPT.fullmatch(text)
    if not found:
        return None
    if found["index"] is not None:
        number = int(found["index"])
        return Subscript(found["base"], number, number, single=True)
    return Subscript(found["base"], int(found["begin"]), int(found["end"]) if found["end"] else None, single=False)
