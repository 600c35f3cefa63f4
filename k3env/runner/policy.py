"""When a play goes on without some of its hosts, and when it ends for all."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Policy:
    """A play's words about failure; a host that is unreachable has failed."""

    any_errors_fatal: bool = False
    max_fail_percentage: float | None = None
    """The share that must be exceeded, of the hosts that are started together."""

    @property
    def tries(self) -> int:
        """How often a host is tried that is not there: see turns.

        The last try comes when all others have ended, too late for a failure that shall end the play.
        """
        return 3 if not self.any_errors_fatal and self.max_fail_percentage is None else 2

    def verdict(self, failed: Iterable[str], hosts: int) -> str | None:
        """Return why the play must end, or None."""
        names = sorted(failed)
        if not names:
            return None
        if self.any_errors_fatal:
            return f"any_errors_fatal: {names[0]} failed"
        if self.max_fail_percentage is not None and 100 * len(names) > self.max_fail_percentage * hosts:
            return f"max_fail_percentage {self.max_fail_percentage:g}: {len(names)} of {hosts} hosts failed"
        return None

    def end(self, failed: Iterable[str], hosts: int) -> str | None:
        """Return why no further play or batch may begin after hosts that were started together, or None.

        When all of them failed, the next ones most likely will too; a max_fail_percentage says that it shall be tried.
        """
        names = sorted(failed)
        if self.max_fail_percentage is None and hosts and len(names) == hosts:
            return f"all {hosts} hosts failed" if hosts > 1 else f"{names[0]} failed, and no other host was with it"
        return None
