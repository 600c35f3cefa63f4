"""Finding: everything that is told to a person, and the values around it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from k3env.protocol.masking import tail

PASS, WARN, FAIL, SKIP, UNKNOWN = "pass", "warn", "fail", "skip", "unknown"
STATUSES = (PASS, WARN, FAIL, SKIP, UNKNOWN)
SEVERITIES = ("fail", "warn", "info")
SCOPES = ("node", "rank", "across", "static")
EXCERPT_BYTES = 2048


@dataclass(frozen=True)
class Evidence:
    """Where a value was read, and what stood there."""

    source: str
    """A path, or a command as a person would type it."""
    exit_code: Optional[int] = None
    excerpt: str = ""
    """At most 2 KiB, control characters escaped."""


@dataclass(frozen=True)
class Unreadable:
    """A value that could not be read. None means "looked, not there"; this means "could not look"."""

    reason: str
    evidence: Optional[Evidence] = None


@dataclass(frozen=True)
class Finding:
    """One statement about a node, a run or an input: what was expected, what was found, what to do."""

    id: str
    status: str
    severity: str = "fail"
    scope: str = "node"
    subject: str = ""
    """A host, a GPU, or a position "playbooks/trtllm.yml:12:5"."""
    message: str = ""
    expected: Optional[str] = None
    found: Optional[str] = None
    remedy: Optional[str] = None
    evidence: tuple[Evidence, ...] = ()
    duration_ms: Optional[float] = None


@dataclass(frozen=True)
class Change:
    """One thing that is not as wanted: its name, what is there, what is wanted. Secrets are masked."""

    what: str
    before: str = ""
    after: str = ""


@dataclass(frozen=True)
class Result:
    """What became of a task: ok, changed, failed, skipped or cancelled."""

    status: str
    message: str = ""
    changes: tuple[Change, ...] = ()
    findings: tuple[Finding, ...] = ()
    duration_s: float = 0.0


def printable(text: str) -> str:
    """Return the text with its control characters escaped, newlines and tabs kept."""
    if text.isprintable():
        return text
    return "".join(
        char if char in "\n\t" or char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def excerpt(data: bytes) -> str:
    """Return the last 2 KiB of some output, decoded with replacement and safe to print.

    Secrets must be masked in it already: of one that is cut, what is left would not be recognised.
    """
    text = tail(_standing(data), EXCERPT_BYTES).decode("utf-8", "replace")
    return tail(printable(text).strip("\n"), EXCERPT_BYTES)


def _standing(data: bytes) -> bytes:
    """Return what a terminal would still show of progress meters: they go back to a line's begin, and write over it.

    What else was written over is shown: somebody may have wanted it unseen.
    """
    if b"\r" not in data:
        return data
    shown = []
    for line in data.split(b"\n"):
        *over, last = line.rstrip(b"\r").split(b"\r")
        shown += [part for part in over if part and b"%" not in part] + [last]
    return b"\n".join(shown)
