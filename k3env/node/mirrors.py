"""Mirrors: bare git repositories, with submodules of their own mirrors, and Git LFS files, at the commits asked for."""

from __future__ import annotations

import os
import posixpath
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Optional
from urllib.parse import quote, urlsplit

from k3env.errors import TaskFailed
from k3env.node import git
from k3env.node.machine import Machine
from k3env.node.modules import _steps
from k3env.node.modules._parameters import has_credentials
from k3env.node.offline import GIT, Mirror

if TYPE_CHECKING:
    from k3env.node.process import Completed

INACTIVITY_S = 600.0
LOGS = "logs"
_ENVIRONMENT = {"LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_LFS_SKIP_SMUDGE": "1"}
NAMED = "refs/k3env"
_SERVES = ("uploadpack.allowFilter", "uploadpack.allowAnySHA1InWant")
_PART = ".part"


@dataclass(frozen=True)
class Commands:
    """What runs the commands that fill a directory, with their log in it."""

    directory: str
    machine: Machine = field(default_factory=Machine)

    def git(self, title: str, *arguments: str) -> None:
        """Run git.

        Raises TaskFailed.
        """
        self.take(title, ("git", *arguments), "git", self._around())

    def ask(self, repository: str, *arguments: str) -> Completed:
        """Return what git says of a repository."""
        words = ("git", "-C", repository, *arguments)
        return self.machine.run(words, timeout_s=120.0, environment=self._around())

    def _around(self) -> dict[str, str]:
        """Return git's environment: a damaged mirror must not lead to a repository that the directory lies in."""
        return {**_ENVIRONMENT, "GIT_CEILING_DIRECTORIES": self.directory}

    def answer(self, repository: str, *arguments: str) -> str:
        """Return what git says of a repository.

        Raises TaskFailed.
        """
        done = self.ask(repository, *arguments)
        if not done.ok:
            raise _steps.failed(self.machine, _steps.Step(f"read {repository}", ("git", *arguments), "git"), done)
        return done.text

    def take(self, title: str, words: Sequence[str], tool: str, environment: Mapping[str, str]) -> None:
        """Run a long command.

        Raises TaskFailed.
        """
        logs = os.path.join(self.directory, LOGS)
        step = _steps.Step(title, words, tool, environment=environment, inactivity_s=INACTIVITY_S, logs=logs)
        _steps.take(self.machine, step)


@dataclass
class Mirrors:
    """The mirrors of a directory."""

    commands: Commands
    known: dict[str, Mirror] = field(default_factory=dict)
    """By URL, those that an earlier fetch finished."""
    lfs: bool = True
    """Whether files of Git LFS belong to a commit."""
    made: dict[str, Mirror] = field(default_factory=dict)

    def whole(self, url: str, commit: str) -> str:
        """Make a commit be there with all that belongs to it, submodules and Git LFS files; return the mirror's path.

        Raises TaskFailed where it can't be had.
        """
        found = self.made.get(url) or self.known.get(url)
        path = self.path(url)
        is_there = found is not None and commit in found.commits and self.has(path, commit)
        if not is_there:
            self._fetch(url, path, commit)
        if self.lfs:
            self._lfs(path, commit, is_known=is_there)
        for inner, at in self._submodules(url, path, commit):
            self.whole(inner, at)
        self._note(url, commit)
        return path

    def at_revision(self, url: str, revision: str) -> str:
        """Make a tag, branch or commit be there, with all that belongs to it; return its commit.

        Raises TaskFailed where it can't be had.
        """
        if git.COMMIT.match(revision):
            self.whole(url, revision)
            return revision
        path = self.path(url)
        if not self._resolved(path, revision):
            self._clone(url, path)
        if not self._resolved(path, revision):
            self.commands.git(f"update {git.shown(url)}", "-C", path, "fetch", "--quiet", "--tags", "origin")
        commit = self._resolved(path, revision)
        if commit is None:
            raise _absent(url, revision)
        self.whole(url, commit)
        return commit

    def read(self, path: str, commit: str, name: str) -> Optional[str]:
        """Return a file of a commit as text, or None where it has none."""
        done = self.commands.ask(path, "cat-file", "blob", f"{commit}:{name}")
        return done.text if done.ok else None

    def path(self, url: str) -> str:
        """Return where a URL's mirror is."""
        return os.path.join(self.commands.directory, relative(url))

    def has(self, path: str, commit: str) -> bool:
        """Return whether a mirror has a commit."""
        return os.path.isdir(path) and self.commands.ask(path, "cat-file", "-e", f"{commit}^{{commit}}").ok

    def _note(self, url: str, commit: str) -> None:
        found = self.made.get(url) or self.known.get(url) or Mirror(_named(url), relative(url), ())
        self.made[url] = replace(found, commits=tuple(sorted({*found.commits, commit})))

    def _resolved(self, path: str, revision: str) -> Optional[str]:
        if not os.path.isdir(path):
            return None
        for name in (f"refs/tags/{revision}", f"refs/heads/{revision}"):
            done = self.commands.ask(path, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
            if done.ok:
                return done.text.strip()
        return None

    def _clone(self, url: str, path: str) -> None:
        """Clone beside the place, then rename: a clone that is cut off never looks finished.

        What is no repository there was one, and has lost files: it is made anew.
        """
        if os.path.isdir(path) and self.commands.ask(path, "rev-parse", "--is-bare-repository").ok:
            return
        shutil.rmtree(path, ignore_errors=True)
        fresh = path + _PART
        shutil.rmtree(fresh, ignore_errors=True)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self.commands.git(f"mirror {git.shown(url)}", "clone", "--quiet", "--mirror", "--", url, fresh)
        for name in _SERVES:
            self.commands.git("let it serve", "-C", fresh, "config", name, "true")
        os.rename(fresh, path)

    def _fetch(self, url: str, path: str, commit: str) -> None:
        self._clone(url, path)
        if self.has(path, commit):
            return
        # Alone where the server gives it by its id, and named, so that git keeps it; else with all that is named there.
        named = f"+{commit}:{NAMED}/{commit}"
        try:
            self.commands.git(f"fetch {commit[:12]} of {git.shown(url)}", "-C", path, "fetch", "--quiet", url, named)
        except TaskFailed as error:
            if error.finding.id == "git.corrupt":
                shutil.rmtree(path)
                self._clone(url, path)
                if self.has(path, commit):
                    return
            elif error.finding.id not in ("git.no_commit", "git.failed"):
                raise
            self.commands.git(f"update {git.shown(url)}", "-C", path, "fetch", "--quiet", "--tags", "origin")
        if not self.has(path, commit):
            raise _absent(url, commit)

    def _lfs(self, path: str, commit: str, *, is_known: bool) -> None:
        """Fetch the files of Git LFS; of a commit that was fetched before, where one is not as it was."""
        attributes = self.commands.ask(
            path, "grep", "-q", "filter=lfs", commit, "--", "*.gitattributes", ".gitattributes"
        )
        if not attributes.ok:
            return
        if not self.commands.ask(path, "lfs", "version").ok:
            raise TaskFailed(
                f"{path} has files of Git LFS, and git-lfs is not installed here",
                expected="git-lfs", found="none", remedy="install git-lfs on this host", id="git.lfs_missing",
            )  # fmt: skip
        # What the repository's own .lfsconfig leaves out is wanted too.
        every = ("-c", "lfs.fetchinclude=", "-c", "lfs.fetchexclude=")
        if is_known and self.commands.ask(path, *every, "lfs", "fsck", "--objects", commit).ok:
            return
        self.commands.git("fetch its Git LFS files", *every, "-C", path, "lfs", "fetch", "origin", commit)

    def _submodules(self, url: str, path: str, commit: str) -> Iterator[tuple[str, str]]:
        """Yield URL and commit of each submodule."""
        listed = self.commands.ask(
            path, "config", "--blob", f"{commit}:.gitmodules", "--get-regexp", r"^submodule\..*\.(path|url)$"
        )
        if not listed.ok:
            return
        places: dict[str, dict[str, str]] = {}
        for line in listed.text.splitlines():
            key, _, value = line.partition(" ")
            name, _, kind = key.rpartition(".")
            places.setdefault(name, {})[kind] = value
        for place in places.values():
            entry = self.commands.answer(path, "ls-tree", commit, "--", place.get("path", "")).split()
            if place.get("url") and len(entry) > 2 and entry[1] == "commit":
                yield absolute(url, place["url"]), entry[2]


def absolute(parent: str, url: str) -> str:
    """Return a submodule's URL; one that begins with ./ or ../ is below its parent's. Source: git-submodule(1)."""
    if not url.startswith(("./", "../")):
        return url
    match = re.match(r"(\w+://[^/]*|[^/:]+@[^/:]+:)?(.*)", parent.rstrip("/"))
    base, place = (match[1] or "", match[2]) if match else ("", parent)
    joined = posixpath.normpath(posixpath.join(place, url))
    return f"{base}{joined}"


def relative(url: str) -> str:
    """Return the path of a URL's mirror in the directory, which tells URLs apart and is a plain one."""
    parts = urlsplit(url if "://" in url else re.sub(r"^(?:[^@/]+@)?([^/:]+):(?!//)", r"ssh://\1/", url))
    place = re.sub(r"(\.git)?/*$", "", parts.path.lstrip("/"))
    words = [quote(word, safe="+") for word in place.split("/") if word not in ("", ".", "..")]
    return posixpath.join(GIT, quote(parts.netloc.rpartition("@")[2], safe="") or "local", *words) + ".git"


def _named(url: str) -> str:
    """Return a URL as git is asked for it, and the manifest names it: with ssh's user name, without a secret."""
    return git.shown(url) if has_credentials(url) else url


def _absent(url: str, revision: str) -> TaskFailed:
    return TaskFailed(
        f"{git.shown(url)} has no {revision}",
        expected=f"the commit, tag or branch {revision}", found="none of this name",
        remedy="see URL and commit: a commit of a fork or of a pull request is not in the upstream repository",
        id="git.no_commit",
    )  # fmt: skip
