"""Hugging Face's hub: what is in a repository at a commit, and what its refusals mean.

Sources: the hub's own OpenAPI document (/api/models/{repo}/revision/{revision}, /tree/{revision}), GitHub-like paging
by Link headers, and the header X-Error-Code as huggingface_hub reads it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Optional
from urllib.parse import quote

from k3env.errors import Refused, TaskFailed
from k3env.node.web.weberrors import Answered, Distrusted, WebError, is_passing, joined, shown
from k3env.protocol import codec
from k3env.protocol.finding import Evidence

if TYPE_CHECKING:
    from k3env.node.web.opening import Web

HUB = "https://huggingface.co"
MODEL, DATASET = "model", "dataset"
ANSWER_BYTES = 64 << 20
PAGES = 1000
_ABSENT = {
    "RevisionNotFound": "{0.id} has no revision {0.revision}",
    "EntryNotFound": "{0.id} at {0.revision} lacks a file that it lists",
}
_NAME_BYTES = 255
_NEXT = re.compile(r'<([^>]*)>\s*;[^,]*\brel="?next"?')
_DIGITS = {False: re.compile(r"[0-9a-f]{40}"), True: re.compile(r"[0-9a-f]{64}")}


@dataclass(frozen=True)
class HubFile:
    """One file of a repository."""

    path: str
    size: int
    digest: str
    """Of its content: SHA-256 of what Git LFS keeps, else SHA-1 as git makes it of a blob."""
    lfs: bool = False


@dataclass(frozen=True)
class Repository:
    """A repository at a commit."""

    kind: str
    id: str
    revision: str
    endpoint: str = HUB

    def __str__(self) -> str:
        return f"{self.id} at {self.revision[:12]}"

    @property
    def page(self) -> str:
        """Where people see it."""
        return f"{self.endpoint}/{'datasets/' if self.kind == DATASET else ''}{self.id}"

    def url(self, path: str) -> str:
        """Return the URL of a file."""
        return f"{self.page}/resolve/{self.revision}/{quote(path)}"

    def api(self, what: str) -> str:
        """Return the URL of an answer about it."""
        return f"{self.endpoint}/api/{self.kind}s/{self.id}/{what}/{self.revision}"


def files(web: Web, repository: Repository) -> tuple[HubFile, ...]:
    """Return all files of a repository.

    Raises WebError, Refused for a name that would lead out of a directory, TaskFailed for an answer without sense.
    """
    said = _json(web, repository.api("revision"))[0]
    found = said.get("sha") if isinstance(said, dict) else None
    if found != repository.revision:
        raise _senseless(repository, f"commit {repository.revision}", f"commit {found}")
    url: Optional[str] = f"{repository.api('tree')}?recursive=true"
    made: dict[str, HubFile] = {}
    for _ in range(PAGES):
        if url is None:
            return tuple(made[path] for path in sorted(made))
        entries, link = _json(web, url)
        if not isinstance(entries, list):
            raise _senseless(repository, "a list of files", type(entries).__name__)
        for entry in entries:
            file = _file(repository, entry)
            if file is not None:
                made[file.path] = file
        following = _NEXT.search(link)
        url = joined(url, following[1]) if following else None
    raise _senseless(repository, f"at most {PAGES} pages of files", "more")


def chosen(files: tuple[HubFile, ...], include: tuple[str, ...], exclude: tuple[str, ...]) -> tuple[HubFile, ...]:
    """Return the files that some pattern includes, or all where there is none, and that none excludes."""
    return tuple(
        file
        for file in files
        if (not include or any(fnmatchcase(file.path, pattern) for pattern in include))
        and not any(fnmatchcase(file.path, pattern) for pattern in exclude)
    )


def failure(repository: Repository, error: WebError, has_token: bool) -> TaskFailed:
    """Return what an error of the web means for who wants a repository."""
    if isinstance(error, Answered) and (not error.elsewhere or is_passing(error.status)):
        return _answered(repository, error, has_token)
    if isinstance(error, Distrusted):
        return TaskFailed(
            f"{repository} can't be fetched: {error}", expected="the hub itself, or a mirror that is trusted",
            found=str(error), id="hub.distrusted",
            remedy=error.remedy or "see hf_endpoint, and what stands between it and this node",
        )  # fmt: skip
    return TaskFailed(
        f"{repository} can't be fetched: {error}", expected=f"answers of {shown(repository.endpoint)}",
        found=str(error), id="hub.unreachable",
        remedy="run it again: it goes on where it stopped. Without a way out of this node set https_proxy, or "
        "hf_endpoint to a mirror, or stage on a host with egress",
    )  # fmt: skip


def _answered(repository: Repository, error: Answered, has_token: bool) -> TaskFailed:
    code = error.headers.get("X-Error-Code") or ""
    told = error.headers.get("X-Error-Message") or error.said
    evidence = (Evidence(str(error), excerpt=told[:500]),)
    wait = error.headers.get("Retry-After")
    found = ", ".join(filter(None, (f"status {error.status}", code, f"Retry-After: {wait}" if wait else "")))
    advice = "set hf_token: {secret: env:HF_TOKEN}, a token that may read it"
    if error.status == 401:
        message = f"{repository.id} is not given to {'this token' if has_token else 'anybody without a token'}"
        remedy = f"see that the token is valid and may read {repository.page}" if has_token else advice
        return Refused(
            message, expected="access", found=found, id="hub.token", evidence=evidence,
            remedy=f"{remedy}; the hub answers so for a name that does not exist, too",
        )  # fmt: skip
    if error.status == 403:
        return Refused(
            f"{repository.id} is gated, or this {'token' if has_token else 'access'} may not read it",
            expected="access", found=found, id="hub.gated", evidence=evidence,
            remedy=f"accept the terms on {repository.page} with the account of the token"
            + ("" if has_token else f"; {advice}"),
        )  # fmt: skip
    if error.status == 404:
        what = _ABSENT.get(code, "there is no {0.id}").format(repository)
        return Refused(
            what, expected=f"{repository.revision} in {repository.page}", found=found, id="hub.not_found",
            remedy=f"see the commits on {repository.page}/commits/main, and pin one by its 40 digits",
            evidence=evidence,
        )  # fmt: skip
    return TaskFailed(
        f"{repository} can't be fetched: {error}", expected="an answer", found=found, id="hub.busy", evidence=evidence,
        remedy="run it again later: it goes on where it stopped; a token raises what the hub allows (status 429)",
    )  # fmt: skip


def _json(web: Web, url: str) -> tuple[Any, str]:
    data, headers = web.read(url, ANSWER_BYTES)
    try:
        return codec.plain(data), headers.get("Link") or ""
    except ValueError:
        raise Distrusted(f"{shown(url)} answers no JSON: something else stands between it and this node") from None


def _file(repository: Repository, entry: Any) -> Optional[HubFile]:
    """Return what an entry of a tree tells; None for a directory."""
    try:
        if entry["type"] != "file":
            return None
        lfs = entry.get("lfs")
        told = lfs or entry
        path, size, digest = entry["path"], told["size"], told["oid"].rpartition(":")[2]
        whole = isinstance(path, str) and isinstance(size, int) and size >= 0 and _DIGITS[bool(lfs)].fullmatch(digest)
    except (KeyError, TypeError, AttributeError):
        whole = None
    if not whole:
        raise _senseless(repository, "files with path, size and digest", repr(entry)[:200])
    parts = path.split("/")
    too_long = any(len(part.encode("utf-8", "replace")) > _NAME_BYTES for part in parts)
    if (
        too_long
        or path.startswith("/")
        or not path.isprintable()
        or set(parts) & {"", ".", ".."}
        or parts[0] == ".k3env"
    ):
        raise Refused(
            f"{repository} names a file that is not written: {path!r}", expected="a plain path below the target",
            found=repr(path), remedy="look at that repository before you use anything of it", id="hub.path",
        )  # fmt: skip
    return HubFile(path, size, digest, bool(lfs))


def _senseless(repository: Repository, expected: str, found: str) -> TaskFailed:
    return TaskFailed(
        f"{shown(repository.endpoint)} gives no sense about {repository}", expected=expected, found=found,
        remedy="see hf_endpoint: a mirror must speak the hub's language", id="hub.senseless",
    )  # fmt: skip
