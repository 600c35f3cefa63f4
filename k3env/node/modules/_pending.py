"""A requirement that is not met, and what pip must be told to meet it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from k3env.node.facts.packages import Distribution

ANEW, OVER = "--force-reinstall", "--ignore-installed"
FLAGS = (ANEW, OVER, None)


@dataclass(frozen=True)
class Pending:
    """A requirement that is not met."""

    needed: Requirement
    before: str
    flag: Optional[str]
    """What pip must be told, which would call it satisfied; None: nothing."""


def flag_for(needed: Requirement, found: Optional[Distribution]) -> Optional[str]:
    """Return what makes pip install a requirement that it would call satisfied.

    By its lights another commit of one version is satisfied, and a package whose files are gone; and one without a
    RECORD, which an installation writes last, it can't remove.
    """
    if found is None or not (needed.url or found.lost):
        return None
    return OVER if any(path.endswith("/RECORD") for path in found.lost) else ANEW
