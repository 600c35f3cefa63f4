"""Context: where a preflight runs, which decides what is checked, in what time, and what an unknown counts as."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from k3env.protocol.finding import FAIL, Finding


@dataclass(frozen=True)
class Context:
    """One place where checks run."""

    name: str
    doc: str
    scopes: tuple[str, ...]
    """Checks of these scopes run here, unless they name their contexts themselves."""
    seconds: float
    """For all facts together."""
    fail_open: bool = False
    """Only what stops() is told by the exit code; own errors, unknowns and timeouts go to syslog."""


CONTEXTS = {
    context.name: context
    for context in (
        Context("hc", "a health check that Slurm or a monitor starts every few minutes", ("node",), 5.0, True),
        Context("prolog", "before a job, as root: an error here drains the node", ("node",), 5.0, True),
        Context("job", "in the job, where its ranks will run", ("node", "rank", "across", "static"), 60.0),
        Context("login", "a login node: files and settings, no GPU", ("static",), 3.0),
        Context("image", "inside a container image that is being made or tested, no GPU", ("static",), 60.0),
    )
}
DEFAULT = "job"
ON_REQUEST = "on request"
"""Stands among the contexts of a check that runs only where its id is named, whatever the context."""

STEP = "srun --ntasks-per-node=1 /opt/k3env/k3env-preflight.pyz"
"""What runs the checks of scope rank, where a rank is: in the job's step."""
NEEDS_STEP = "needs the job's context"


def of_scope(scope: str) -> tuple[str, ...]:
    """Return the contexts in which checks of a scope run."""
    return tuple(name for name, context in CONTEXTS.items() if scope in context.scopes)


def stops(finding: Finding) -> bool:
    """Return whether a finding may stop a job or a node where we fail open: severity fail, scope node, failed."""
    return (finding.status, finding.severity, finding.scope) == (FAIL, "fail", "node")


def severity(id: str, own: str, site: Mapping[str, str]) -> str:
    """Return a check's severity at a site: an exact id before a glob, a longer glob before a shorter, else its own."""
    if id in site:
        return site[id]
    for pattern in sorted(site, key=len, reverse=True):
        if fnmatchcase(id, pattern):
            return site[pattern]
    return own
