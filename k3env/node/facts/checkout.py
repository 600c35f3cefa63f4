"""Checkout: what a TensorRT LLM checkout is and asks for, read from its files; neither date nor version says that."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Optional

from k3env.k3 import build
from k3env.k3.pins import FLASHINFER
from k3env.node import git, guide, requirements
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence
from k3env.protocol.profile import Profile

_FLAG = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class Checkout:
    """A TensorRT LLM checkout."""

    root: str
    commit: Optional[str]
    """HEAD; None: it is no git checkout."""
    version: Optional[str] = None
    """Of tensorrt_llm/version.py."""
    guides: tuple[str, ...] = build.GUIDES
    """Those of its README and guide for Kimi K3 that are there; none: nothing says what it asks for."""
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
    there = tuple(name for name in build.GUIDES if machine.is_file(os.path.join(root, name)))
    asked, where = _fork(machine, root)
    read = (where,) if where else build.GUIDES
    return Checkout(
        root,
        git.head(machine, root),
        version[1] if version else None,
        there,
        asked is not None,
        asked.commit if asked is not None else None,
        requirements.line_of(machine, _text(machine, root, build.REQUIREMENTS), FLASHINFER),
        tuple(Evidence(os.path.join(root, name)) for name in read),
    )


def asks_for_fork(machine: Machine, root: str) -> bool:
    """Return whether a checkout's README or guide installs FlashInfer from a git repository."""
    return machine.recall(("asks for a fork", root), lambda: _fork(machine, root)[0] is not None)


def names_fork(text: str) -> bool:
    """Return whether the text of a README or guide installs FlashInfer from a git repository."""
    return guide.fork(text) is not None


def flags(text: str) -> frozenset[str]:
    """Return the flags that the --help of a checkout's build_wheel.py lists.

    Those that a description speaks of are none; one that is laid out in another way is searched as a whole.
    Source: argparse, whose heads of options stand two columns in, at any width.
    """
    plain = _COLOUR.sub("", text)
    usage, _, rest = plain.partition("\n\n")
    heads = [re.split(r"\s{2,}", line.strip())[0] for line in rest.splitlines() if re.match(r" {2}-", line)]
    found = _FLAG.findall("\n".join((usage, *heads))) if heads else _FLAG.findall(plain)
    return frozenset(found)


def _fork(machine: Machine, root: str) -> tuple[Optional[guide.Fork], Optional[str]]:
    for name in build.GUIDES:
        found = guide.fork(_text(machine, root, name))
        if found is not None:
            return found, name
    return None, None


def _text(machine: Machine, root: str, name: str) -> str:
    try:
        return machine.text(os.path.join(root, name))
    except (FileNotFoundError, NotADirectoryError):
        return ""
