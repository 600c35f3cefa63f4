"""Bundle: what k3env-preflight.pyz holds beside the code: plans compiled for no host, and an index of all checks.

By the index, only those files of checks and facts are imported that a context needs.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Optional

from k3env.protocol.context import of_scope

VERSION = 1
FILE = "k3env-bundle.json"
USER = "@connecting_user@"
"""What stands in a plan where the name of its user will: a bundle is made before it is known who runs it."""


@dataclass(frozen=True)
class Entry:
    """A check, as far as it is known without importing it."""

    scope: str
    severity: str
    doc: str
    contexts: tuple[str, ...] = ()
    """Those that it names itself."""

    def runs_in(self, context: str) -> bool:
        """Return whether the check belongs to a context."""
        return context in (self.contexts or of_scope(self.scope))


@dataclass(frozen=True)
class Bundle:
    """What is inside."""

    k3env: str
    """Its version."""
    playbook: str
    plans: tuple[dict[str, Any], ...]
    """The JSON form of a Plan for each play."""
    checks: dict[str, Entry] = field(default_factory=dict)
    version: int = VERSION

    def named(self, patterns: tuple[str, ...], context: str, across: bool = False) -> tuple[str, ...]:
        """Return the ids that patterns mean in a context; an id that stands there itself always.

        Those of scope across only where they are asked for.
        """
        found: dict[str, None] = {}
        for pattern in patterns:
            if pattern in self.checks:
                found[pattern] = None
                continue
            for id, entry in self.checks.items():
                if fnmatchcase(id, pattern) and entry.runs_in(context) and (across or entry.scope != "across"):
                    found[id] = None
        return tuple(found)


def inside(user: str) -> Optional[Bundle]:
    """Return the bundle that this program was started from, for a user; or None."""
    loader = getattr(sys.modules["__main__"], "__loader__", None)
    archive = getattr(loader, "archive", None)
    if loader is None or archive is None:
        return None
    try:
        text = loader.get_data(os.path.join(archive, FILE)).decode().replace(USER, json.dumps(user)[1:-1])
    except OSError:
        return None
    # We wrote it ourselves: nothing in it is decoded by its type, which takes longer than all the rest.
    value = json.loads(text)
    checks = {id: Entry(**entry) for id, entry in value["checks"].items()}
    return Bundle(**{**value, "checks": checks})
