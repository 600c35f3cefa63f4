"""Node sets as Slurm writes them, gb300-[01-04,07], as names, for where no ClusterShell is."""

from __future__ import annotations

import itertools
import re

MOST = 65_536
"""More names than this are refused."""
_TERM = re.compile(r"(?:[^,\[\]]|\[[^\]]*\])+")
_PART = re.compile(r"\[([^\]]*)\]|([^\[\]]+)")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?\Z")


def unfold(text: str) -> tuple[str, ...]:
    """Return the names of a hostlist, in its order, each once.

    Raises ValueError for what is no hostlist, or holds more names than a cluster has.
    """
    names: dict[str, None] = {}
    at = 0
    for term in _TERM.finditer(text.strip()):
        if text.strip()[at : term.start()].strip(",") or not term.group():
            break
        at = term.end()
        parts = [_values(part, text) for part in _PART.finditer(term.group())]
        count = 1
        for values in parts:
            count *= len(values)
        if count + len(names) > MOST:
            raise ValueError(f"{text!r} has more than {MOST} names")
        names.update(dict.fromkeys("".join(words) for words in itertools.product(*parts)))
    if text.strip()[at:].strip(",") or not names:
        raise ValueError(f"{text!r} is no hostlist such as gb300-[01-04,07]")
    return tuple(names)


def _values(part: re.Match[str], text: str) -> list[str]:
    if part[2] is not None:
        return [part[2]]
    values: list[str] = []
    for piece in part[1].split(","):
        found = _RANGE.match(piece)
        if found is None:
            raise ValueError(f"{piece!r} in {text!r} is no number and no range")
        first, last = found[1], found[2] or found[1]
        if int(last) < int(first) or int(last) - int(first) >= MOST:
            raise ValueError(f"{piece!r} in {text!r} is no range of at most {MOST} numbers")
        values += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return values
