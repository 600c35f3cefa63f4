"""Node sets: many names as one short text, gb300-[01-04,07]."""

from __future__ import annotations

import re
from collections.abc import Iterable

# The last number of the part before the first dot, and of an address, whose parts are all numbers, the last number.
_NAME = re.compile(r"(?P<before>[^.]*?)(?P<number>\d+)(?P<after>[^\d.]*(?:\..*)?)", re.DOTALL)
_ADDRESS = re.compile(r"(?P<before>[\d.]*\.)(?P<number>\d+)(?P<after>)")
_SPECIAL = re.compile(r"[\[\],]")


def fold(names: Iterable[str]) -> str:
    """Return the names sorted, with runs of numbers as ranges; a name counts once.

    A number with leading zeros keeps its width: a-[09-10], never a-[9-10]. Names that hold a bracket or a comma, as
    IPv6 addresses do, stand as they are.
    """
    series: dict[tuple[str, str], set[str]] = {}
    for name in set(names):
        before, number, after = _split(name)
        series.setdefault((before, after), set()).add(number)
    return ",".join(_shown(before, numbers, after) for (before, after), numbers in sorted(series.items()))


def _split(name: str) -> tuple[str, str, str]:
    found = None if _SPECIAL.search(name) else _ADDRESS.fullmatch(name) or _NAME.fullmatch(name)
    return (found["before"], found["number"], found["after"]) if found else (name, "", "")


def _shown(before: str, numbers: set[str], after: str) -> str:
    parts = [part for width in _by_width(numbers - {""}) for part in _ranges(*width)]
    parts.sort(key=lambda part: (len(part.partition("-")[0]), part))
    whole = [before + after] if "" in numbers else []
    if len(parts) == 1 and parts[0].isdigit():
        whole.append(before + parts[0] + after)
    elif parts:
        whole.append(f"{before}[{','.join(parts)}]{after}")
    return ",".join(whole)


def _by_width(numbers: set[str]) -> list[tuple[int, list[int]]]:
    """Return the numbers by the width that they are padded to, 0 for those that are not padded.

    10 belongs with 09 if that is there, else with 9.
    """
    widths = {len(number) for number in numbers if len(number) > 1 and number.startswith("0")}
    groups: dict[int, list[int]] = {}
    for number in numbers:
        width = len(number) if len(number) in widths else 0
        groups.setdefault(width, []).append(int(number))
    return [(width, sorted(group)) for width, group in sorted(groups.items())]


def _ranges(width: int, numbers: list[int]) -> list[str]:
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ["-".join(f"{end:0{width}d}" for end in dict.fromkeys(run)) for run in runs]
