"""Commands of a fetch: run here, with their log in the directory, and a failure that says what it means."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from k3env.node import mirrors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from k3env.errors import TaskFailed
    from k3env.fetching.target import Target

_PIP = {
    "LC_ALL": "C.UTF-8",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_NO_WARN_CONFLICTS": "1",
    "PIP_NO_COMPILE": "1",  # What a build in isolation installs is used once.
    "PIP_ROOT_USER_ACTION": "ignore",
}


@dataclass(frozen=True)
class Commands(mirrors.Commands):
    """What runs the commands of one fetch: git's, and pip's."""

    def pip(self, title: str, *arguments: str, target: Target | None = None) -> None:
        """Run pip, for a target where one is given.

        Raises TaskFailed.
        """
        if target is None:
            self.take(title, (sys.executable, "-m", "pip", *arguments), "pip", _PIP)
            return
        program = os.path.join(os.path.dirname(__file__), "targeted.py")
        words = (sys.executable, program, *arguments, *target.flags())
        self.take(title, words, "pip", {**_PIP, "K3ENV_MARKERS": json.dumps(target.markers())})

    def run(
        self, title: str, words: Sequence[str], *, tool: str = "build", environment: Mapping[str, str] | None = None
    ) -> None:
        """Run another program, whose failure is read as `tool`'s.

        Raises TaskFailed.
        """
        self.take(title, words, tool, {**_PIP, **(environment or {})})


def said(error: TaskFailed) -> str:
    """Return what a failed command said, all of it that was kept."""
    return "\n".join([error.finding.found or "", *(item.excerpt for item in error.finding.evidence)])
