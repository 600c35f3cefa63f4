"""Scalars: what an unquoted word of YAML means, and where readers of YAML differ about it.

Values are those of YAML 1.1 as PyYAML reads it, and so Ansible; only dates stay text.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Optional

from yaml.resolver import Resolver

_NULL, _BOOL, _INT, _FLOAT = (f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float"))
_TRUE = ("true", "yes", "on")
_PLAIN_INT = re.compile(r"[-+]?(0|[1-9][0-9]*|0x[0-9a-fA-F]+)")
# Numbers to YAML 1.2, text to YAML 1.1: 0o17, 08, 1e3.
_NUMBER_TO_OTHERS = re.compile(r"0o[0-7]+|[-+]?0[0-9]*[89][0-9]*|[-+]?[0-9]+(\.[0-9]*)?[eE][-+]?[0-9]+")
# 1.10 is 1.1 as a number; 1.0 loses nothing that Python would not print again.
_ZERO_LOST = re.compile(r"[-+]?([0-9]*\.[0-9]+0|[0-9]+\.00+)")


@dataclass(frozen=True)
class Surprise:
    """Why a word may not mean what its writer meant, and what to write instead."""

    why: str
    write: str


def read(word: str) -> tuple[Any, Optional[Surprise]]:
    """Return the value of an unquoted word, and what is surprising about it.

    Raises ValueError for a number that can't be read: too long, or without digits.
    """
    tag = _tag(word)
    if tag == _NULL:
        return None, None
    if tag == _BOOL:
        return _bool(word)
    if tag == _INT:
        return _int(word)
    if tag == _FLOAT:
        return _float(word)
    if _NUMBER_TO_OTHERS.fullmatch(word):
        return word, Surprise("text to Ansible, a number to other readers of YAML", f'"{word}" for the text')
    return word, None


def _tag(word: str) -> Optional[str]:
    for tag, pattern in Resolver.yaml_implicit_resolvers.get(word[:1], ()):
        if pattern.match(word):
            return str(tag)
    return None


def _bool(word: str) -> tuple[bool, Optional[Surprise]]:
    value = word.lower() in _TRUE
    spelt = "true" if value else "false"
    if word.lower() == spelt:
        return value, None
    return value, Surprise(f"{spelt} to Ansible, text to other readers of YAML", f'{spelt}, or "{word}" for the text')


def _int(word: str) -> tuple[int, Optional[Surprise]]:
    digits = word.lstrip("+-").replace("_", "")
    why = "the number {} to Ansible, text to other readers of YAML"
    if ":" in digits:
        value = _base_60(digits)
    elif digits[:2] in ("0b", "0x"):
        value = int(digits[2:], 2 if digits[1] == "b" else 16)
    elif digits.startswith("0"):
        value = int(digits, 8)
        why = "the octal number {} to Ansible, another number to other readers of YAML"
    else:
        value = int(digits)
    value = -value if word.startswith("-") else value
    return value, None if _PLAIN_INT.fullmatch(word) else _quote(why, word, value)


def _float(word: str) -> tuple[float, Optional[Surprise]]:
    digits = word.lstrip("+-").replace("_", "").lower()
    if digits in (".inf", ".nan"):
        value = math.inf if digits == ".inf" else math.nan
    else:
        value = float(_base_60(digits) if ":" in digits else float(digits))
    value = -value if word.startswith("-") else value
    if not math.isfinite(value):
        return value, Surprise("not a finite number", f'"{word}" for the text')
    if ":" in digits or "_" in word:
        return value, _quote("the number {} to Ansible, text to other readers of YAML", word, value)
    if _ZERO_LOST.fullmatch(word):
        return value, _quote("the number {}, so that a version would lose its last digit", word, value)
    return value, None


def _base_60(digits: str) -> Any:
    value: Any = 0
    for part in digits.split(":"):
        value = value * 60 + (float(part) if "." in part else int(part))
    return value


def _quote(why: str, word: str, value: float) -> Surprise:
    return Surprise(why.format(value), f'"{word}" for the text, or {value} for the number')
