"""All errors that reach a user, grouped by what the user can do.

K3Error
├── UsageError            mend the command line
│   └── DocumentError     mend a file, at file:line:column
├── InventoryError        mend the inventory or the pattern
├── Unreachable           mend the road to the host
│   ├── AuthFailed
│   ├── HostKeyMismatch
│   ├── ConnectTimeout
│   ├── NotThere          it refuses, or no road leads there
│   └── Dropped
├── TaskFailed            mend the node
│   └── Refused           a module won't touch what it found
└── Interrupted           it was you
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Optional

from k3env.protocol.finding import FAIL, Evidence, Finding
from k3env.protocol.masking import bare

LONGEST = 2000
"""Characters of what an error says in each of its parts: a value of someone's file may be of any length."""


def _told(text: Any) -> Any:
    """Return what may be told of a text: no password of a URL, and no more than anybody reads."""
    if text is None:
        return None
    text = bare(text)
    return f"{text[:LONGEST]}…" if len(text) > LONGEST else text


class K3Error(Exception):
    """The root: a message for people, carried as a Finding."""

    id = "error"

    def __init__(
        self,
        message: str,
        *,
        expected: Optional[str] = None,
        found: Optional[str] = None,
        remedy: Optional[str] = None,
        subject: str = "",
        evidence: tuple[Evidence, ...] = (),
        id: Optional[str] = None,
    ) -> None:
        message, expected, found, remedy = map(_told, (message, expected, found, remedy))
        super().__init__(message)
        self.finding = Finding(
            id=id or self.id,
            status=FAIL,
            scope="static",
            subject=subject,
            message=message,
            expected=expected,
            found=found,
            remedy=remedy,
            evidence=tuple(replace(item, excerpt=bare(item.excerpt)) for item in evidence),
        )


class UsageError(K3Error):
    """The command line asks for something that is not there."""

    id = "usage"


class DocumentError(UsageError):
    """A file that a person wrote is wrong; `subject` is file:line:column."""

    id = "document"


class InventoryError(K3Error):
    """An inventory or a host pattern is wrong."""

    id = "inventory"


class Unreachable(K3Error):
    """A host could not be reached, or was lost."""

    id = "run.unreachable"


class AuthFailed(Unreachable):
    """The host refused every key."""

    id = "run.auth"


class HostKeyMismatch(Unreachable):
    """The host's key is unknown, changed or revoked."""

    id = "run.host_key"


class ConnectTimeout(Unreachable):
    """The host did not answer in time."""

    id = "run.timeout"


class NotThere(Unreachable):
    """Nobody takes the connection, or no road leads to the host: it may be back in a while."""


class Dropped(Unreachable):
    """The connection was lost."""

    id = "run.dropped"


class TaskFailed(K3Error):
    """A task could not bring its thing into the wanted state."""

    id = "task.failed"


class Refused(TaskFailed):
    """A module won't touch what it found."""

    id = "task.refused"


class Interrupted(K3Error):
    """The user stopped the command."""

    id = "run.interrupted"


EXIT_OK, EXIT_USAGE, EXIT_FAILED, EXIT_UNKNOWN, EXIT_UNREACHABLE, EXIT_CHANGES, EXIT_INTERRUPTED = 0, 1, 2, 3, 4, 5, 130

_EXIT_CODES = ((Interrupted, EXIT_INTERRUPTED), (TaskFailed, EXIT_FAILED), (Unreachable, EXIT_UNREACHABLE))


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error: 130 interrupted, 2 failed, 4 unreachable, 1 anything else."""
    for kind, code in _EXIT_CODES:
        if isinstance(error, kind):
            return code
    return EXIT_USAGE


def nearest(word: str, known: list[str] | tuple[str, ...]) -> Optional[str]:
    """Return the known word that a misspelt one most likely meant, or None."""
    from difflib import get_close_matches

    matches = get_close_matches(word, list(known), n=1, cutoff=0.6)
    return matches[0] if matches else None
