"""git, working: each command with its progress, its deadline, and what its failure means."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from k3env.errors import TaskFailed
from k3env.node import git
from k3env.node.modules import _steps

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.node.process import Completed

KEPT = "refs/k3env/kept"
FETCHED = "refs/k3env/fetched"


@dataclass(frozen=True)
class Work:
    """git in one checkout."""

    machine: Machine
    root: str
    local: bool
    """Whether origin is a path of this machine; then submodules may be so too."""
    inactivity_s: float
    around: Mapping[str, str] = field(default_factory=dict)
    """Added to git's environment: mirrors that are used instead of the network."""

    def run(self, title: str, *arguments: str, at: str = "") -> None:
        """Run a git command, in a submodule where `at` says so.

        Raises TaskFailed with git's words and what they mean.
        """
        done = self._attempt(title, arguments, at)
        if not done.ok:
            raise git.failure(f"git could not {title} in {self.root}", done, self.root)

    def fetch(self, url: str, commit: str) -> None:
        """Make a commit be there: alone where the server gives it by its id, else with all branches and tags.

        Raises TaskFailed where it can't be had.
        """
        if self._has(commit):
            return
        # What was fetched has a name, so that leaving it later does not look like losing a local commit.
        named = f"{commit}:{FETCHED}/{commit}"
        done = self._attempt("fetch the commit", ("fetch", "--progress", "--no-tags", "origin", named))
        if not done.ok:
            error = git.failure(f"git could not fetch {commit[:12]} from {git.shown(url)}", done, self.root)
            if error.finding.id not in ("git.no_commit", "git.failed"):
                raise error
            self.run("fetch all branches", "fetch", "--progress", "--tags", "origin")
        if not self._has(commit):
            raise TaskFailed(
                f"{git.shown(url)} has no commit {commit}", expected=f"the commit {commit}",
                found="no such commit in its branches and tags",
                remedy="see commit and URL: a commit of a fork or of a pull request is not in the upstream repository",
                id="git.no_commit",
            )  # fmt: skip

    def keep(self, commit: Optional[str], at: str = "") -> None:
        """Name a commit that nothing else names, so that it can be found again after HEAD has left it."""
        if commit is None:
            return
        where = os.path.join(self.root, at)
        names = ("for-each-ref", "--count=1", "--contains", commit, "--format=%(refname)")
        if not git.answer(self.machine, where, *names).strip():
            name = f"{KEPT}/{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{commit[:12]}"
            self.run(f"keep {commit[:12]}", "update-ref", name, commit, at=at)
            self.machine.progress(f"kept the local commit as {name}")

    def checkout(self, commit: str) -> None:
        """Detach HEAD at a commit; files that git ignores are not overwritten either."""
        self.run("check the commit out", "checkout", "--progress", "--detach", "--no-overwrite-ignore", commit)

    def update_submodules(self, moved: tuple[str, ...]) -> None:
        """Bring submodules, and those within them, to the commits that are recorded."""
        for path in moved:
            self.keep(git.head(self.machine, os.path.join(self.root, path)), at=path)
        self.run("update the submodules", "submodule", "update", "--init", "--recursive", "--progress")

    def pull_lfs(self) -> None:
        """Put the files of Git LFS in the place of their pointers."""
        done = git.read(self.machine, self.root, "lfs", "version")
        if not done.ok:
            raise git.failure("the checkout has Git LFS pointers", done, self.root)
        # Without the filters, git would take the pulled files for local changes.
        self.run("set up Git LFS", "lfs", "install", "--local", "--skip-repo")
        # Also what the repository's own .lfsconfig leaves out.
        self.run("pull the Git LFS files", "lfs", "pull", "--include=*", "--exclude=")

    def _has(self, commit: str) -> bool:
        return git.read(self.machine, self.root, "cat-file", "-e", f"{commit}^{{commit}}").ok

    def _attempt(self, title: str, arguments: tuple[str, ...], at: str = "") -> Completed:
        allowed = ("-c", "protocol.file.allow=always") if self.local else ()
        where = os.path.join(self.root, at) if at else self.root
        step = _steps.Step(
            title=title,
            argv=("git", *allowed, "-C", where, *arguments),
            tool="git",
            environment=git.environment(where, {"GIT_OPTIONAL_LOCKS": "1", **self.around}),
            inactivity_s=self.inactivity_s,
        )
        return _steps.attempt(self.machine, step)
