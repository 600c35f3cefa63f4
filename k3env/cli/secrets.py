"""Secrets: from where a reference points to its value, asked for once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from k3env.errors import UsageError
from k3env.protocol import codec
from k3env.protocol.plan import Plan
from k3env.protocol.secret import references


def resolve(plans: Iterable[Plan]) -> dict[str, str]:
    """Return the values of all secrets that these plans name.

    Raises UsageError for one that has none.
    """
    named: set[str] = set().union(*(references(codec.encode(plan)) for plan in plans))
    return {reference: _value(reference) for reference in sorted(named)}


def _value(reference: str) -> str:
    kind, _, name = reference.partition(":")
    if kind == "env":
        value = os.environ.get(name)
        if value:
            return value
        raise UsageError(
            f"secret {reference} has no value", expected=f"${name}", found="unset", remedy=f"export {name}"
        )
    if kind == "file":
        try:
            return Path(name).expanduser().read_text("utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"secret {reference} can't be read: {error}", remedy="name a readable file") from None
    if not sys.stdin.isatty():
        raise UsageError(
            f"secret {reference} is asked for, but nobody is there",
            expected="a terminal",
            found="none",
            remedy="use env:NAME or file:PATH instead of prompt",
        )
    from getpass import getpass

    return getpass(f"{reference}: ")
