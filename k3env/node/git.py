"""git, read: where a checkout stands. Files are read where that is enough, and git itself takes no lock."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from k3env.errors import TaskFailed
from k3env.protocol.finding import printable

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.node.process import Completed

ENVIRONMENT = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_LFS_SKIP_SMUDGE": "1",
}
"""English messages, no question, no lock while reading; LFS files are pulled on purpose, not by the way."""
READ_S = 120.0
COMMIT = re.compile(r"[0-9a-f]{40}\Z")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_MIDWAY = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "BISECT_LOG", "rebase-merge", "rebase-apply")


@dataclass(frozen=True)
class Status:
    """Where HEAD, the tracked files and the submodules are."""

    commit: Optional[str]
    """None before the first commit."""
    branch: Optional[str]
    """None: HEAD is detached."""
    dirty: tuple[str, ...]
    """Tracked files with local changes, those in submodules by the submodule's path."""
    moved: tuple[str, ...]
    """Submodules that stand at another commit than recorded."""


def read(machine: Machine, root: str, *arguments: str, timeout_s: float = READ_S) -> Completed:
    """Run a git command that only reads."""
    return machine.run(["git", "-C", root, *arguments], timeout_s=timeout_s, environment=environment(root))


def environment(root: str, more: Optional[Mapping[str, str]] = None) -> dict[str, str]:
    """Return the environment of a git command; it must not find a repository around the checkout in its stead."""
    return {**ENVIRONMENT, "GIT_CEILING_DIRECTORIES": os.path.dirname(root), **(more or {})}


def answer(machine: Machine, root: str, *arguments: str, timeout_s: float = READ_S) -> bytes:
    """Return what a git command that only reads says.

    Raises TaskFailed with git's words, and what they mean.
    """
    done = read(machine, root, *arguments, timeout_s=timeout_s)
    if not done.ok:
        raise failure(f"git can't read {root}", done, root)
    return done.stdout


def failure(message: str, done: Completed, root: str) -> TaskFailed:
    """Return the error that a failed git command is."""
    if done.exit_code == 127:
        return TaskFailed(
            f"{message}: git is not installed", expected="git in PATH", found="none",
            remedy="install git", id="git.missing", evidence=(done.evidence(),),
        )  # fmt: skip
    if done.timed_out:
        return TaskFailed(
            f"{message}: git did nothing any more", expected="progress", found=f"no end after {done.duration_s:.0f} s",
            remedy="see that the git server, or the filesystem, answers; then run it again", id="git.timeout",
            evidence=(done.evidence(),),
        )  # fmt: skip
    from k3env.k3.diagnoses.lookup import chief, diagnose, last_errors, shells_word

    text = f"{(done.stderr + done.stdout).decode('utf-8', 'replace')}\n{shells_word(done.exit_code)}".rstrip("\n")
    match = diagnose("git", text)
    last = last_errors(text) or text.strip().splitlines()[-1:] or (f"exit code {done.exit_code}",)
    said = printable(match.line if match else chief(last))
    return TaskFailed(
        f"{message}: {match.diagnosis.cause if match else said}",
        expected="git to succeed",
        found=said,
        remedy=match.diagnosis.remedy if match else f"see what git says in {root}",
        id=match.diagnosis.id if match else "git.failed",
        evidence=(done.evidence(),),
    )


def directories(machine: Machine, root: str) -> Optional[tuple[str, str]]:
    """Return a checkout's git directory, and the one that it shares with other worktrees; None: no checkout."""
    at = os.path.join(root, ".git")
    if machine.is_dir(at):
        return at, at
    if not machine.is_file(at):
        return None
    words = machine.text(at).strip()
    if not words.startswith("gitdir: "):
        return None
    own = os.path.normpath(os.path.join(root, words[len("gitdir: ") :]))
    common = os.path.join(own, "commondir")
    if not machine.is_file(common):
        return own, own
    return own, os.path.normpath(os.path.join(own, machine.text(common).strip()))


def head(machine: Machine, root: str) -> Optional[str]:
    """Return the commit that HEAD is at, from git's files; None where there is no checkout or no commit."""
    found = directories(machine, root)
    if found is None or not machine.is_file(os.path.join(found[0], "HEAD")):
        return None
    value = machine.text(os.path.join(found[0], "HEAD")).strip()
    if not value.startswith("ref: "):
        return value if COMMIT.match(value) else None
    name = value[len("ref: ") :]
    for directory in found:
        loose = os.path.join(directory, name)
        if machine.is_file(loose) and COMMIT.match(machine.text(loose).strip()):
            return machine.text(loose).strip()
    packed = os.path.join(found[1], "packed-refs")
    if machine.is_file(packed):
        for line in machine.text(packed, 1 << 26).splitlines():
            commit, _, ref = line.partition(" ")
            if ref == name:
                return commit
    # Other formats of refs than files: ask git.
    done = read(machine, root, "rev-parse", "--verify", "--quiet", "HEAD")
    return done.text if done.ok and COMMIT.match(done.text) else None


def origin(machine: Machine, root: str) -> Optional[str]:
    """Return the URL of `origin`, from git's configuration file; None where there is none."""
    found = directories(machine, root)
    if found is None:
        return None
    config = os.path.join(found[1], "config")
    section = ""
    for line in machine.text(config).splitlines() if machine.is_file(config) else ():
        words = line.strip()
        if words.startswith("["):
            section = words.partition("]")[0] + "]"
        key, sign, value = words.partition("=")
        if section == '[remote "origin"]' and sign and key.strip().lower() == "url":
            return value.strip().strip('"')
    return None


def status(machine: Machine, root: str) -> Status:
    """Return where a checkout stands.

    Raises TaskFailed if git can't say. Source: git-status(1), porcelain format version 2.
    """
    return machine.recall(("git status", root), lambda: _status(machine, root))


def _status(machine: Machine, root: str) -> Status:
    said = answer(
        machine, root, "status", "--porcelain=v2", "--branch", "-z", "--untracked-files=no", "--ignore-submodules=none"
    )
    commit = branch = None
    dirty: list[str] = []
    moved: list[str] = []
    records = iter(said.decode("utf-8", "surrogateescape").split("\0"))
    for record in records:
        kind, _, rest = record.partition(" ")
        if kind == "#":
            key, _, value = rest.partition(" ")
            if key == "branch.oid" and COMMIT.match(value):
                commit = value
            if key == "branch.head" and value != "(detached)":
                branch = value
        elif kind in ("1", "2", "u"):
            fields = rest.split(" ", {"1": 7, "2": 8, "u": 9}[kind])
            path, changed, submodule = fields[-1], fields[0], fields[1]
            if kind == "2":
                next(records)
            if submodule[0] == "S" and submodule[1] == "C":
                moved.append(path)
            if submodule[0] != "S" or changed[0] != "." or submodule[2] == "M":
                dirty.append(path)
    return Status(commit, branch, tuple(dirty), tuple(moved))


def midway(machine: Machine, root: str) -> Optional[str]:
    """Return what a merge, rebase or bisect that is not finished left, or None."""
    found = directories(machine, root)
    return next((name for name in _MIDWAY if found and machine.exists(os.path.join(found[0], name))), None)


def locked(machine: Machine, root: str) -> Optional[str]:
    """Return the path of the index's lock if it is there."""
    found = directories(machine, root)
    path = os.path.join(found[0], "index.lock") if found else ""
    return path if path and machine.exists(path) else None


def shown(url: str) -> str:
    """Return a URL without the name and the password in it."""
    return _USERINFO.sub("********", url)


def same_url(one: str, other: str) -> bool:
    """Return whether two URLs name one repository by their text alone."""

    def plain(url: str) -> str:
        url = url.rstrip("/")
        return url[:-4] if url.endswith(".git") else url

    return plain(one) == plain(other)


def is_local(url: str) -> bool:
    """Return whether a URL is a path of this machine."""
    return url.startswith(("/", "file://"))
