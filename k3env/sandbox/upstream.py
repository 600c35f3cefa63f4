"""The upstream repositories of the sandbox: real git, built from the miniature sources that come with k3env.

A folder under `miniature/NAME` is one commit: its files are laid over those of the commit before. Names, dates and
contents are fixed, so a commit has the same id on every machine; the ids themselves are asked from git.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from k3env.errors import UsageError

SOURCES = Path(__file__).parent / "miniature"
TRTLLM, FLASHINFER = "TensorRT-LLM", "flashinfer"

_RECORD = "commits.json"
_BY = "k3env sandbox <sandbox@k3env.invalid>"
_EPOCH = 1785542400  # 2026-08-01, the month of the deployment guide; a day between commits
_DAY = 86400
_DEADLINE_S = 60
# A package holds no hidden files of its own: they would act on k3env's repository.
_RENAMED = {"gitignore": ".gitignore", "gitmodules": ".gitmodules"}


@dataclass(frozen=True)
class Commit:
    """A commit to make: a folder of changed files, and its message."""

    folder: str
    message: str


HISTORIES: dict[str, tuple[Commit, ...]] = {
    TRTLLM: (
        Commit("trtllm/1-bring-up", "Bring up Kimi K3"),
        Commit("trtllm/2-examples", "Add the Kimi K3 examples, with the FlashInfer step"),
        Commit("trtllm/3-version", "Bump the version"),
        Commit("trtllm/4-no-fork", "Use upstream FlashInfer: drop the step from the README"),
    ),
    FLASHINFER: (
        Commit("flashinfer/1-stock", "Stand where FlashInfer 0.6.16 would"),
        Commit("flashinfer/2-mla", "Add the MLA decode stand-in"),
        Commit("flashinfer/3-later", "Change it again, same version"),
    ),
}
PINNED = {TRTLLM: 2, FLASHINFER: 1}
"""Which commit of each history the sandbox provisions: never the newest, so that a pin is seen to be followed."""


def make(root: Path) -> dict[str, tuple[str, ...]]:
    """Make the repositories under a directory, or find them made, and return their commits, oldest first.

    What a person committed there stays; `main` moves only when the miniature sources of k3env are others.
    """
    record = root / _RECORD
    digest = _digest()
    if record.is_file():
        known = json.loads(record.read_text(encoding="utf-8"))
        if known["sources"] == digest and all((root / name / "HEAD").is_file() for name in HISTORIES):
            return {name: tuple(known["commits"][name]) for name in HISTORIES}
    root.mkdir(parents=True, exist_ok=True)
    commits = {name: _import(root / name, history) for name, history in HISTORIES.items()}
    fresh = record.with_suffix(".new")
    fresh.write_text(json.dumps({"sources": digest, "commits": commits}, indent=2) + "\n", encoding="utf-8")
    fresh.replace(record)
    return commits


def _import(repository: Path, history: tuple[Commit, ...]) -> tuple[str, ...]:
    _git("init", "--quiet", "--bare", "--template=", "--initial-branch=main", str(repository))
    # As a public git host: any commit may be asked for by its id, and clones may leave contents out.
    for key in ("uploadpack.allowAnySHA1InWant", "uploadpack.allowFilter"):
        _git("-C", str(repository), "config", key, "true")
    marks = repository / "marks"
    stream = _stream(history)
    _git("-C", str(repository), "fast-import", "--quiet", "--force", f"--export-marks={marks}", stdin=stream)
    rows = dict(line.split() for line in marks.read_text(encoding="ascii").splitlines())
    marks.unlink()
    return tuple(rows[f":{number}"] for number in range(1, len(history) + 1))


def _stream(history: tuple[Commit, ...]) -> bytes:
    """Return a history in git's fast-import format."""
    parts = []
    for number, commit in enumerate(history, start=1):
        date = f"{_EPOCH + number * _DAY} +0000"
        head = f"commit refs/heads/main\nmark :{number}\nauthor {_BY} {date}\ncommitter {_BY} {date}\n"
        parts.append(head.encode() + _data(commit.message.encode()))
        if number > 1:
            parts.append(b"from :%d\n" % (number - 1))
        for name, content in _files(SOURCES / commit.folder).items():
            parts.append(b"M 100644 inline " + name.encode() + b"\n" + _data(content))
    return b"".join(parts)


def _data(content: bytes) -> bytes:
    return b"data %d\n" % len(content) + content + b"\n"


def _files(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their path in the checkout, in a fixed order."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            relative = path.relative_to(folder)
            name = relative.with_name(_RENAMED.get(relative.name, relative.name))
            found[name.as_posix()] = path.read_bytes()
    return found


def _digest() -> str:
    digest = hashlib.sha256()
    for history in HISTORIES.values():
        digest.update(_stream(history))
    return digest.hexdigest()


def _git(*arguments: str, stdin: bytes = b"") -> None:
    # Neither the user's configuration nor a surrounding repository may change what is made here.
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment = {**kept, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    try:
        done = subprocess.run(
            ["git", *arguments], input=stdin, capture_output=True, env=environment, timeout=_DEADLINE_S, check=False
        )
    except FileNotFoundError as error:
        raise UsageError(
            "the sandbox needs git", expected="git on the PATH", found="none", remedy="install git"
        ) from error
    if done.returncode:
        raise UsageError(
            "the sandbox could not make its upstream repositories",
            expected=f"git {arguments[0]} to succeed",
            found=done.stderr.decode("utf-8", "replace").strip() or f"exit code {done.returncode}",
            remedy="see that the sandbox's directory is writable and has room, then run it again",
        )
