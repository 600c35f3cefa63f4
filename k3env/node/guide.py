"""A checkout's README or guide, read: whether it installs FlashInfer from a git repository."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional

_FENCE = re.compile(r"\s*(?:[-*]\s+)?(?:```|~~~)")
_VCS = re.compile(r"(?:(?P<name>[\w.-]+)\s*(?:\[[^]]*\])?\s*@\s*)?git\+(?P<url>[^\s\"'`]+)")
_COMMIT = re.compile(r"@([0-9a-f]{7,40})(?:#.*)?\Z")
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_PAST = re.compile(
    r"\bno longer\b|\bnot (?:needed|required|necessary)\b|\bpreviously\b|\bformerly\b|\bearlier (?:re|ver)"
    r"|\bused to (?:be|have|need|install|require)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Fork:
    """An installation of FlashInfer from a git repository."""

    commit: Optional[str]
    """The commit that it names; None: a branch, a tag, or nothing."""


def fork(guide: str) -> Optional[Fork]:
    """Return the installation of FlashInfer from a git repository that a guide asks for, or None.

    Other packages from git count as little as a command that is commented out, or a sentence on how it was once done.
    """
    for command in _commands(guide):
        _, install, rest = command.partition("install")
        if not install:
            continue
        for match in _VCS.finditer(rest):
            if "flashinfer" in f"{match['name'] or ''} {match['url']}".lower():
                commit = _COMMIT.search(match["url"].rstrip(".,;:)"))
                return Fork(commit[1] if commit else None)
    return None


def _commands(guide: str) -> Iterator[str]:
    """Yield the lines of code, those that are continued joined, and the paragraphs of text that tell of today."""
    joined = re.sub(r"\\[ \t]*\r?\n\s*", " ", _COMMENT.sub("", guide))
    is_code, paragraph = False, ""
    for line in [*joined.splitlines(), ""]:
        is_fence = _FENCE.match(line) is not None
        if is_code and not is_fence:
            if not line.lstrip().startswith("#"):
                yield line
            continue
        if is_fence or not line.strip():
            if paragraph and not _PAST.search(paragraph):
                yield paragraph
            paragraph = ""
        else:
            paragraph = f"{paragraph} {line.strip()}"
        is_code = is_code != is_fence
