"""Contained: the words of a command whose processes an engine's daemon holds, with what removes those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

ENGINES_OWN = 125
"""From this exit code on it may be the engine's own, or of a signal. Source: `docker run`, "Exit status"."""


class Contained(tuple[str, ...]):
    """The words of a command in a container. Whoever runs them also removes what its end left behind."""

    removal: tuple[str, ...] = ()
    """The command that removes the container; empty: nothing can be left, since no daemon holds it."""
    mark: str = ""
    """What stands in the environment of all its processes, "NAME=value": they are no children of this command."""


def removal_of(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the command that removes what a command may leave behind; empty for one on the node itself."""
    return argv.removal if isinstance(argv, Contained) else ()


def mark_of(argv: Sequence[str]) -> str:
    """Return what marks the processes of a command in a container; "" for one on the node itself."""
    return argv.mark if isinstance(argv, Contained) else ""


def is_over(exit_code: Optional[int]) -> bool:
    """Return whether a container is gone by itself: its own command ended, and the engine saw it."""
    return exit_code is not None and 0 <= exit_code < ENGINES_OWN
