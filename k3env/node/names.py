"""Names of what lies in a package, without importing it."""

from __future__ import annotations

import pkgutil
import sys
from collections.abc import Iterable


def within(package: str, path: Iterable[str]) -> tuple[str, ...]:
    """Return the names of a package's modules, those that begin with an underscore left out.

    One that works as another user can't list the directory that the package came from, and has imported all before.
    """
    there = {entry.name for entry in pkgutil.iter_modules(path)}
    before = f"{package}."
    imported = {name[len(before) :] for name in tuple(sys.modules) if name.startswith(before)}
    return tuple(sorted(name for name in there | imported if not name.startswith("_") and "." not in name))
