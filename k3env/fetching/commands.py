"""Commands of a fetch: run here, with their log in the directory, and a failure that says what it means."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from k3env.errors import TaskFailed
from k3env.node.machine import Machine
from k3env.node.modules import _steps

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from k3env.fetching.target import Target
    from k3env.node.process import Completed

INACTIVITY_S = 600.0
LOGS = "logs"
_PIP = {
    "LC_ALL": "C.UTF-8",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "PIP_NO_WARN_CONFLICTS": "1",
    "PIP_NO_COMPILE": "1",  # What a build in isolation installs is used once.
    "PIP_ROOT_USER_ACTION": "ignore",
}
_GIT = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}


@dataclass(frozen=True)
class Commands:
    """What runs the commands of one fetch."""

    directory: str
    machine: Machine = field(default_factory=Machine)

    def pip(self, title: str, *arguments: str, target: Target | None = None) -> None:
        """Run pip, for a target where one is given.

        Raises TaskFailed.
        """
        if target is None:
            self._take(title, (sys.executable, "-m", "pip", *arguments), "pip", _PIP)
            return
        program = os.path.join(os.path.dirname(__file__), "targeted.py")
        words = (sys.executable, program, *arguments, *target.flags())
        self._take(title, words, "pip", {**_PIP, "K3ENV_MARKERS": json.dumps(target.markers())})

    def git(self, title: str, *arguments: str) -> None:
        """Run git.

        Raises TaskFailed.
        """
        self._take(title, ("git", *arguments), "git", _GIT)

    def run(
        self, title: str, words: Sequence[str], *, tool: str = "build", environment: Mapping[str, str] | None = None
    ) -> None:
        """Run another program, whose failure is read as `tool`'s.

        Raises TaskFailed.
        """
        self._take(title, words, tool, {**_PIP, **(environment or {})})

    def ask(self, repository: str, *arguments: str) -> Completed:
        """Return what git says of a repository."""
        words = ("git", "-C", repository, *arguments)
        return self.machine.run(words, timeout_s=120.0, environment=_GIT)

    def answer(self, repository: str, *arguments: str) -> str:
        """Return what git says of a repository.

        Raises TaskFailed.
        """
        done = self.ask(repository, *arguments)
        if not done.ok:
            raise _steps.failed(self.machine, _steps.Step(f"read {repository}", ("git", *arguments), "git"), done)
        return done.text

    def _take(self, title: str, words: Sequence[str], tool: str, environment: Mapping[str, str]) -> None:
        logs = os.path.join(self.directory, LOGS)
        step = _steps.Step(title, words, tool, environment=environment, inactivity_s=INACTIVITY_S, logs=logs)
        _steps.take(self.machine, step)


def said(error: TaskFailed) -> str:
    """Return what a failed command said, all of it that was kept."""
    return "\n".join([error.finding.found or "", *(item.excerpt for item in error.finding.evidence)])
