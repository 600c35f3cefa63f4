"""git_checkout: a checkout at exactly one commit, local changes never lost."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from k3env.errors import Refused, TaskFailed
from k3env.node.modules import Module
from k3env.node.modules._parameters import check_commit, check_path, has_credentials
from k3env.protocol.finding import Change, Finding

if TYPE_CHECKING:
    from k3env.node import git
    from k3env.node.machine import Machine
    from k3env.node.modules._gitting import Work
    from k3env.protocol.profile import Profile

EXCLUDED = "/.k3env/"
# No host or user begins with a dash: ssh, which git starts, would take it for an option.
_URL = re.compile(r"(https?|ssh|git|file)://(?!-|[^/@]*@-)\S+|/\S+|\w[\w.-]*@\w[\w.-]*:(?!-)\S+")
_SHOWN = 5


@dataclass(frozen=True)
class GitCheckout(Module):
    """Check a repository out at a full commit.

    Branches stay where they are: HEAD is detached. Local changes are never lost: changed files with another commit
    wanted are a refusal, and a local commit that nothing else names is kept under refs/k3env/kept.
    """

    repo: str
    """Absolute path of the checkout, the same that the jobs use."""
    url: str
    """https, ssh or file URL, an absolute path, or user@host:path. No password stands in it."""
    commit: str
    """All 40 hexadecimal digits, small letters."""
    submodules: bool = True
    """Initialise submodules, and those within them, at the commits that are recorded."""
    lfs: bool = True
    """Pull the files whose Git LFS pointer lies in their place; of the checkout itself, not of its submodules."""
    offline: Optional[str] = None
    """A directory that `invoke fetch` has filled: what is in it is used, and nothing else."""
    inactivity_s: float = 600.0
    """How long git may do nothing, seconds."""

    def __post_init__(self) -> None:
        check_path("repo", self.repo)
        check_commit("commit", self.commit)
        if self.offline is not None:
            check_path("offline", self.offline)
        if not _URL.fullmatch(self.url):
            raise ValueError(
                f"url must be an https, ssh or file URL, a path, or user@host:path, found {self._shown()!r}"
            )
        if has_credentials(self.url):
            raise ValueError(f"url must hold no name and password: use a credential helper; found {self._shown()!r}")

    def writes(self) -> tuple[str, ...]:
        """Return the checkout's root."""
        return (self.repo,)

    def disturbs(self) -> tuple[str, ...]:
        """Return the checkout."""
        return (self.repo,)

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return what differs: origin, HEAD, submodules, LFS files, and whether git overlooks .k3env/.

        Raises Refused for a directory that is no checkout, for local changes that a move of HEAD would touch, and for a
        commit that `offline` lacks.
        """
        from k3env.node import git, git_content

        if not self._is_checkout(machine):
            self._refuse_unfetched(machine)
            return (Change(f"checkout {self.repo}", "absent", f"{git.shown(self.url)} at {self.commit}"),)
        found: list[Change] = []
        origin = git.origin(machine, self.repo)
        if origin is None or not git.same_url(origin, self.url):
            found.append(Change("origin", git.shown(origin or "none"), git.shown(self.url)))
        if git_content.exclude_problem(machine, self.repo, EXCLUDED):
            found.append(Change("git's exclude file", f"{EXCLUDED} is absent", EXCLUDED))
        status = git.status(machine, self.repo)
        if status.commit != self.commit:
            self._refuse_unfetched(machine)
        content = self._content(machine, status)
        lock = git.locked(machine, self.repo) if content else None
        if lock is not None:
            raise Refused(
                f"another git works in {self.repo}, or one was cut off",
                expected="no lock on the index", found=lock,
                remedy=f"see that no git runs there on any node, then: rm {lock}", id="git.lock",
            )  # fmt: skip
        return (*found, *content)

    def _refuse_unfetched(self, machine: Machine) -> None:
        """Raise Refused for a commit that the directory used instead of the network does not hold."""
        from k3env.node.modules._around import opened

        if self.offline is not None:
            opened(machine, self.offline).require(self.url, self.commit)

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Clone or fetch, then move HEAD, submodules and LFS files.

        Raises TaskFailed with git's words and what they mean.
        """
        from k3env.node.modules._around import explained

        with explained(machine, self.offline):
            self._bring(machine)

    def _bring(self, machine: Machine) -> None:
        from k3env.node import git, git_content

        if not self._is_checkout(machine):
            self._clone(machine)
        work = self._work(machine, self.repo)
        git_content.exclude(machine, self.repo, EXCLUDED)
        origin = git.origin(machine, self.repo)
        if origin is None:
            work.run("set origin", "remote", "add", "origin", self.url)
        elif not git.same_url(origin, self.url):
            work.run("set origin", "remote", "set-url", "origin", self.url)
        status = git.status(machine, self.repo)
        if status.commit != self.commit:
            self._refuse_loss(machine, status)
            work.fetch(self.url, self.commit)
            work.keep(status.commit)
            work.checkout(self.commit)
            status = git.status(machine, self.repo)
        if self.submodules and (status.moved or git_content.absent_submodules(machine, self.repo)):
            work.update_submodules(status.moved)
        pointers = git_content.lfs_pointers(machine, self.repo) if self.lfs else ()
        if pointers:
            work.pull_lfs()

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return where HEAD and origin are, and what of submodules and LFS files was looked at."""
        from k3env.node import git, git_content

        found = [f"HEAD of {self.repo} is at {self.commit[:12]}", f"origin is {git.shown(self.url)}"]
        if self.submodules:
            count = len(git_content.submodule_paths(machine, self.repo))
            found.append(f"{_counted(count, 'submodule')} as recorded" if count else "no submodules")
        if self.lfs:
            count = len(git_content.lfs_files(machine, self.repo))
            found.append(f"{_counted(count, 'file')} of Git LFS, none a pointer" if count else "no files of Git LFS")
        return tuple(found)

    def _work(self, machine: Machine, root: str) -> Work:
        from k3env.node import git
        from k3env.node.modules._around import opened
        from k3env.node.modules._gitting import Work

        instead: dict[str, str] = {}
        if self.offline is not None:
            offline = opened(machine, self.offline)
            mirror = offline.require(self.url, self.commit)
            # A checkout may name another server for its Git LFS files.
            instead = offline.git(lfs_url=offline.url(mirror.path))
        return Work(machine, root, git.is_local(self.url), self.inactivity_s, instead)

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Warn of local changes to tracked files: what is built from them is not that commit."""
        from k3env.node import git

        if git.directories(machine, self.repo) is None:
            return ()
        status = git.status(machine, self.repo)
        if not status.dirty or status.commit != self.commit:
            return ()
        return (
            Finding(
                "git.dirty", "warn", "warn", subject=self.repo,
                message=f"{self.repo} has local changes on top of {self.commit[:12]}",
                expected="tracked files as in the commit",
                found=_listed(status.dirty),
                remedy=f"see `git -C {self.repo} diff HEAD`; commit or stash them where they are not wanted",
            ),
        )  # fmt: skip

    def _shown(self) -> str:
        from k3env.node import git

        return git.shown(self.url)

    def _is_checkout(self, machine: Machine) -> bool:
        """Return whether a checkout is there; where nothing is, False.

        Raises Refused for anything else.
        """
        from k3env.node import git

        if git.directories(machine, self.repo) is not None:
            return True
        status = machine.stat(self.repo, follow=False)
        if status is None or (machine.is_dir(self.repo) and not machine.list(self.repo)):
            return False
        is_dir = machine.is_dir(self.repo)
        raise Refused(
            f"{self.repo} is not a git checkout, and not empty" if is_dir else f"{self.repo} is not a directory",
            expected="a git checkout, an empty directory, or nothing",
            found=_listed(machine.list(self.repo)) if is_dir else "something else, or a link to nothing",
            remedy="set trtllm_repo elsewhere, or move what is there away",
            id="git.not_a_checkout",
        )

    def _content(self, machine: Machine, status: git.Status) -> tuple[Change, ...]:
        """Return what differs in the work tree; what follows from a move of HEAD is not known before it."""
        from k3env.node import git_content

        if status.commit != self.commit:
            self._refuse_loss(machine, status)
            at = status.commit or "no commit"
            return (Change("HEAD", f"{at} (branch {status.branch})" if status.branch else at, self.commit),)
        found: list[Change] = []
        if self.submodules:
            found += [Change(f"submodule {path}", "at another commit", "as recorded") for path in status.moved]
            absent = git_content.absent_submodules(machine, self.repo)
            found += [Change(f"submodule {path}", "not initialised", "as recorded") for path in absent]
        pointers = git_content.lfs_pointers(machine, self.repo) if self.lfs else ()
        if pointers:
            found.append(Change("Git LFS files", f"pointers: {_listed(pointers)}", "pulled"))
        return tuple(found)

    def _refuse_loss(self, machine: Machine, status: git.Status) -> None:
        from k3env.node import git

        midway = git.midway(machine, self.repo)
        if not status.dirty and midway is None:
            return
        if status.commit is None:
            raise self._nowhere(status)
        found = f"changed: {_listed(status.dirty)}" if status.dirty else f"not finished: {midway}"
        raise Refused(
            f"{self.repo} has local changes, and HEAD would have to move to {self.commit[:12]}",
            expected="tracked files as committed, no merge or rebase under way", found=found,
            remedy=f"commit or stash them (git -C {self.repo} stash), or set trtllm_commit to what HEAD is at",
            id="git.local_changes",
        )  # fmt: skip

    def _nowhere(self, status: git.Status) -> Refused:
        """Return the error of files that git tracks while HEAD is at no commit: of which one, nobody can tell."""
        at = f"names branch {status.branch}, which has no commit" if status.branch else "names no commit"
        return Refused(
            f"HEAD of {self.repo} {at}, and git tracks files there",
            expected="HEAD at a commit, or no files", found=f"tracked: {_listed(status.dirty)}",
            remedy=f"name the commit that they are of: git -C {self.repo} update-ref --no-deref HEAD COMMIT; "
            "where nobody knows it, move the checkout away: it is cloned anew",
            id="git.unborn",
        )  # fmt: skip

    def _clone(self, machine: Machine) -> None:
        """Clone beside the place, then rename: a clone that is cut off never looks finished."""
        import shutil
        import uuid

        from k3env.node import git_content

        machine.make(os.path.dirname(self.repo))
        target = os.path.realpath(self.repo)
        if os.path.ismount(target):
            raise Refused(
                f"{target} is a mount point, which a finished clone can't be renamed to",
                expected="a directory below it", found="a mount point",
                remedy=f"set trtllm_repo to a directory below, such as {target}/TensorRT-LLM", id="git.mount_point",
            )  # fmt: skip
        parent, name = os.path.split(target)
        beside = f".{name}.k3env-clone-"
        # Whoever left these is dead: we hold the lease.
        for old in os.listdir(parent):
            if old.startswith(beside):
                shutil.rmtree(os.path.join(parent, old), ignore_errors=True)
        fresh = os.path.join(parent, f"{beside}{uuid.uuid4().hex[:8]}")
        try:
            os.mkdir(fresh)
            work = self._work(machine, fresh)
            work.run("begin the clone", "init", "--quiet")
            work.run("set origin", "remote", "add", "origin", self.url)
            git_content.exclude(machine, fresh, EXCLUDED)
            work.fetch(self.url, self.commit)
            work.checkout(self.commit)
            os.rename(fresh, target)
        except OSError as error:
            raise TaskFailed(
                f"{self.repo} can't be made: {error.strerror}",
                expected="a directory that this user may write in", found=f"{error.strerror}: {error.filename}",
                remedy=f"see who owns {parent}, and whether there is room", id="git.not_writable",
            ) from None  # fmt: skip
        finally:
            shutil.rmtree(fresh, ignore_errors=True)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _listed(names: tuple[str, ...]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
