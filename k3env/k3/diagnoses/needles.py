"""The words without which a regular expression can't match: a text that has none of them need not be searched."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import Any, Optional

# The parser of `re` has no public name: it is `_parser`, and `sre_parse` before Python 3.11.
_parser: Any = getattr(re, "_parser", None) or getattr(re, "sre_parse", None)


@cache
def needles(pattern: str) -> Optional[frozenset[str]]:
    """Return words, case-folded, of which each match has one at least; None where there are no such words."""
    return None if _parser is None else _of(_parser.parse(pattern))


def _of(items: Iterable[tuple[Any, Any]]) -> Optional[frozenset[str]]:
    found: list[frozenset[str]] = []
    word = ""
    for operator, value in items:
        name = str(operator)
        if name == "LITERAL":
            word += chr(value).casefold()
            continue
        if len(word) >= _SHORTEST:
            found.append(frozenset((word,)))
        word = ""
        inner = _within(name, value)
        if inner is not None:
            found.append(inner)
    if len(word) >= _SHORTEST:
        found.append(frozenset((word,)))
    return max(found, key=lambda words: min(map(len, words)), default=None)


def _within(name: str, value: Any) -> Optional[frozenset[str]]:
    if name == "SUBPATTERN":
        return _of(value[-1])
    if name in ("MAX_REPEAT", "MIN_REPEAT") and value[0] > 0:
        return _of(value[2])
    if name != "BRANCH":
        return None
    branches = [_of(branch) for branch in value[1]]
    known = [words for words in branches if words is not None]
    return frozenset().union(*known) if len(known) == len(branches) else None


_SHORTEST = 3
