"""Regular expressions in patterns, bounded in time.

Python's `re` goes back and forth without end on some, `~(n+)+x` for one. What can do that, more than one place with a
choice, is matched in a child process that has two seconds.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import warnings
from collections.abc import Iterable

TIMEOUT_S = 2.0
MAX_LENGTH = 1000
_CHOICES = re.compile(r"[*+?{|]")
_CHILD = """
import json, re, sys
pattern, names = json.load(sys.stdin)
match = re.compile(pattern).match
json.dump([name for name in names if match(name)], sys.stdout)
"""


class BadRegex(Exception):
    """An expression can't be used; `at` is the offset of the character that is wrong."""

    def __init__(self, message: str, at: int = 0) -> None:
        super().__init__(message)
        self.message = message
        self.at = at


def matching(pattern: str, names: Iterable[str]) -> list[str]:
    """Return the names that an expression matches from their beginning.

    Raises BadRegex for what is no expression, is not clear, or takes too long.
    """
    if len(pattern) > MAX_LENGTH:
        raise BadRegex(f"this regular expression is longer than {MAX_LENGTH} characters", MAX_LENGTH)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "[[" and "[a&&b]" will mean something else one day
            expression = re.compile(pattern)
    except re.error as error:
        raise BadRegex(f"this is no regular expression: {error.msg}", error.pos or 0) from None
    except (Warning, OverflowError, RecursionError) as error:
        raise BadRegex(f"this regular expression is not clear: {error}") from None
    if len(_CHOICES.findall(pattern)) < 2:
        return [name for name in names if expression.match(name)]
    return _bounded(pattern, list(names))


def _bounded(pattern: str, names: list[str]) -> list[str]:
    try:
        child = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _CHILD],
            input=json.dumps([pattern, names]).encode(),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise BadRegex(f"this regular expression takes more than {TIMEOUT_S:g} s; make it simpler") from None
    except (subprocess.CalledProcessError, OSError) as error:
        raise BadRegex(f"this regular expression can't be evaluated: {error}") from None
    return [str(name) for name in json.loads(child.stdout)]
