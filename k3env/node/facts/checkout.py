"""Checkout: what a TensorRT LLM checkout is and asks for, read from its files; neither date nor version says that."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Optional

from k3env.k3 import build
from k3env.k3.pins import FLASHINFER, normalised
from k3env.node import git
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence
from k3env.protocol.profile import Profile

_FORK = re.compile(r"flashinfer[^\n]*git\+\S+?(?:@([0-9a-f]{7,40}))?[\"'\s\\]", re.IGNORECASE)
_FLAG = re.compile(r"(?<![\w-])--[a-zA-Z][\w-]*|(?<![\w-])-[a-zA-Z](?![\w-])")


@dataclass(frozen=True)
class Checkout:
    """A TensorRT LLM checkout."""

    root: str
    commit: Optional[str]
    """HEAD; None: it is no git checkout."""
    version: Optional[str] = None
    """Of tensorrt_llm/version.py."""
    asks_for_fork: bool = False
    """Whether its README or guide installs FlashInfer from a git repository."""
    fork_commit: Optional[str] = None
    """The commit of it that they name."""
    flashinfer_pin: Optional[str] = None
    """The line of requirements.txt."""
    source: tuple[Evidence, ...] = ()


def checkout(machine: Machine, profile: Profile) -> Optional[Checkout]:
    """Read the checkout that the profile names; None where the profile names none, or none is there."""
    repo = profile.paths.repo
    return None if repo is None or not machine.is_dir(repo) else recognise(machine, repo)


def recognise(machine: Machine, root: str) -> Checkout:
    """Read what a checkout is and asks for."""
    version = re.search(r"(?m)^__version__\s*=\s*[\"']([^\"']+)", _text(machine, root, build.VERSION))
    asked, commit, where = _fork(machine, root)
    read = (where,) if where else build.GUIDES
    return Checkout(
        root,
        git.head(machine, root),
        version[1] if version else None,
        asked,
        commit,
        _pin(_text(machine, root, build.REQUIREMENTS)),
        tuple(Evidence(os.path.join(root, name)) for name in read),
    )


def asks_for_fork(machine: Machine, root: str) -> bool:
    """Return whether a checkout's README or guide installs FlashInfer from a git repository."""
    return _fork(machine, root)[0]


def names_fork(guide: str) -> bool:
    """Return whether the text of a README or guide installs FlashInfer from a git repository."""
    return _FORK.search(guide + "\n") is not None


def flags(text: str) -> frozenset[str]:
    """Return the flags that the --help of a checkout's build_wheel.py lists."""
    return frozenset(_FLAG.findall(text))


def _fork(machine: Machine, root: str) -> tuple[bool, Optional[str], Optional[str]]:
    for guide in build.GUIDES:
        match = _FORK.search(_text(machine, root, guide) + "\n")
        if match:
            return True, match[1], guide
    return False, None, None


def _pin(requirements: str) -> Optional[str]:
    """Return the line that pins FlashInfer; lines of options and comments are passed over."""
    for line in requirements.splitlines():
        text = line.partition("#")[0].strip()
        name = re.match(r"[A-Za-z0-9._-]+", text)
        if name and not text.startswith("-") and normalised(name[0]) == FLASHINFER:
            return text
    return None


def _text(machine: Machine, root: str, name: str) -> str:
    try:
        return machine.text(os.path.join(root, name))
    except (FileNotFoundError, NotADirectoryError):
        return ""
