"""What the bundle's checks are, from its index."""

from __future__ import annotations

from fnmatch import fnmatchcase

from k3env.errors import UsageError, nearest
from k3env.node.preflight.bundle import Bundle
from k3env.protocol.context import CONTEXTS


def listed(bundle: Bundle) -> str:
    """Return a line for each check: its id, severity, scope and contexts."""
    width = max(map(len, bundle.checks), default=0)
    return "\n".join(
        f"{id:<{width}}  {entry.severity:<4}  {entry.scope:<6}  {' '.join(filter(entry.runs_in, CONTEXTS))}"
        for id, entry in bundle.checks.items()
    )


def check(bundle: Bundle, pattern: str) -> str:
    """Return what the checks of an id or glob demand.

    Raises UsageError with the nearest id.
    """
    found = {id: entry for id, entry in bundle.checks.items() if fnmatchcase(id, pattern)}
    if not found:
        close = nearest(pattern, tuple(bundle.checks))
        raise UsageError(
            f"no check is called {pattern}",
            expected="the id of a check, or a glob that some have",
            found=pattern,
            remedy=f"did you mean {close}?" if close else "see --list",
        )
    return "\n\n".join(
        f"{id}\n  {entry.doc}\n  severity {entry.severity}, scope {entry.scope}, "
        f"contexts {', '.join(filter(entry.runs_in, CONTEXTS))}"
        for id, entry in found.items()
    )
