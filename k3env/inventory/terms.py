"""Terms: the words of a host pattern, each with its place in it.

Commas separate terms; `:&` and `:!` do the same within one, and a colon between names unites them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from k3env.errors import InventoryError, UsageError
from k3env.inventory.hosts import is_ipv6
from k3env.inventory.nodesets import MAX_HOSTS
from k3env.inventory.slurm import PREFIX
from k3env.protocol.finding import Evidence

V6 = re.compile(r"\[(?P<address>[^\[\]]*:[^\[\]]*:[^\[\]]*)\](?::(?P<port>[0-9]{1,5}))?")
RUN = "run:"
_CLOSING = {"[": "]", "(": ")", "{": "}"}


def is_nameable(group: str) -> bool:
    """Return whether a pattern can name a group, and not something else."""
    return not any(char in ",:[]*?@" or char.isspace() for char in group) and group[0] not in "~!&"


def no_runs(run: str) -> Sequence[str]:
    """Know no earlier run.

    Raises UsageError.
    """
    raise UsageError(f"no run {run}", expected="a run that is known here", found=run)


@dataclass(frozen=True)
class Names:
    """What patterns are matched against."""

    hosts: Mapping[str, object]
    groups: Mapping[str, Sequence[str]]
    adhoc: bool = False
    """Whether an unknown name is a host of that name."""
    earlier: Callable[[str], Sequence[str]] = no_runs
    """The hosts that `run:RUN` means."""


@dataclass(frozen=True)
class Term:
    """One word of a pattern."""

    sign: str
    """"", "&" or "!"."""
    text: str
    at: int
    """Offset in the pattern."""


@dataclass
class Pattern:
    """A pattern while it is evaluated; `source` is what it is called in messages."""

    text: str
    source: str
    names: Names
    room: int = MAX_HOSTS
    known: list[str] = field(init=False)

    def __post_init__(self) -> None:
        self.known = [*self.names.groups, *self.names.hosts]

    def wrong(
        self, at: int, message: str, remedy: Optional[str] = None, expected: Optional[str] = None
    ) -> InventoryError:
        """Return the error that points at a character."""
        begin = max(0, at - 60)
        marked = Evidence(self.source, excerpt=f"{self.text[begin : begin + 120]}\n{' ' * (at - begin)}^")
        subject = f"{self.source}:{at + 1}" if self.source.startswith("-") else self.source
        return InventoryError(
            message, subject=subject, expected=expected, found=self.text[:200], remedy=remedy, evidence=(marked,)
        )


def terms(reading: Pattern) -> Iterator[Term]:
    """Return the terms of a pattern in their order.

    Raises InventoryError, pointing at the character, for what is no term.
    """
    for text, at in _split(reading.text, 0, ","):
        if not text.strip():
            raise reading.wrong(at, "a name is missing here", "remove the comma, or write a name")
        at += len(text) - len(text.lstrip())
        for part, offset in _signed(text.strip(), at):
            sign = part[0] if part[0] in "&!" else ""
            name = part[len(sign) :].strip()
            begin = offset + len(part) - len(part[len(sign) :].lstrip())
            if not name:
                raise reading.wrong(begin, f"a name is missing after {sign}", "write a name")
            yield from _united(reading, sign, name, begin)


def _split(text: str, offset: int, separator: str) -> Iterator[tuple[str, int]]:
    """Split at a separator outside brackets; in a regular expression outside all kinds of them."""
    begin, kind, opened = 0, "", []
    for at, char in enumerate(text):
        if not kind and char not in " &!":
            kind = char
        regex = kind == "~"
        if regex and at and text[at - 1] == "\\":
            continue
        if char == "[" or (regex and char in "({"):
            opened.append(_CLOSING[char])
        elif opened and char == opened[-1]:
            opened.pop()
        elif char == separator and not opened:
            yield text[begin:at], offset + begin
            begin, kind = at + 1, ""
    yield text[begin:], offset + begin


def _signed(text: str, at: int) -> Iterator[tuple[str, int]]:
    """Split at `:&` and `:!`."""
    begin = 0
    for found in re.finditer(r":(?=[&!])", text):
        # "(?:" opens a group of a regular expression.
        if found.start() > begin and not text.endswith("(?", begin, found.start()):
            yield text[begin : found.start()], at + begin
            begin = found.end()
    yield text[begin:], at + begin


def _united(reading: Pattern, sign: str, text: str, at: int) -> Iterator[Term]:
    """Split at the colons that unite, which a port and an IPv6 address are not."""
    if text[0] in "~@" or text.startswith((PREFIX, RUN)) or ":" not in text or V6.fullmatch(text) or is_ipv6(text):
        yield Term(sign, text, at)
        return
    parts = list(_split(text, at, ":"))
    numbers = [part for part, _ in parts[1:] if part.isdecimal()]
    if len(parts) == 2 and numbers:
        yield Term(sign, text, at)
        return
    for part, offset in parts:
        if not part or part in numbers:
            raise reading.wrong(offset, "this colon separates no names", "separate names with commas")
        yield Term(sign if offset == at else "", part, offset)
