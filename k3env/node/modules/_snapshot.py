"""What hf_snapshot and hf_dataset share: from a repository at a commit to its files in a directory."""

from __future__ import annotations

import contextlib
import os
import re
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar
from urllib.parse import urlsplit

from k3env.errors import K3Error, Refused, TaskFailed
from k3env.node.modules._parameters import check_path, has_credentials
from k3env.node.web import snapshot
from k3env.node.web.hub import DATASET, HUB, MODEL, HubFile, Repository, chosen, failure, files
from k3env.node.web.snapshot import Snapshot
from k3env.protocol import codec
from k3env.protocol.finding import Change, Finding

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.node.web.opening import Web

GIB = 1 << 30
SPARE_BYTES = GIB
"""What must be left where a snapshot comes to lie, or a twentieth of the snapshot if that is less."""
RECORD_EVERY_S = 10.0
SHOWN = 5
_REPO = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
_INDEX = ".safetensors.index.json"
_SHARD = ".safetensors"
T = TypeVar("T")


def check(repo_id: str, revision: str, target: str, endpoint: Optional[str], kind: str = MODEL) -> None:
    """Raise ValueError for what names no repository, no commit, or no place."""
    if not _REPO.fullmatch(repo_id):
        raise ValueError(f"repo_id must be OWNER/NAME, found {repo_id!r}")
    if not re.fullmatch(r"[0-9a-f]{40}", revision):
        page = f"{endpoint or HUB}/{'datasets/' if kind == DATASET else ''}{repo_id}"
        raise ValueError(
            f"revision must be a full commit, 40 hexadecimal digits, found {revision!r}: a branch or tag may be another"
            f" one tomorrow; see what it is today: git ls-remote {page} {revision}"
        )
    check_path("target", target)
    if endpoint is not None and (urlsplit(endpoint).scheme not in ("http", "https") or has_credentials(endpoint)):
        raise ValueError("endpoint must be an http or https URL without name and password")


@dataclass(frozen=True)
class Staging:
    """One directory that is to hold files of a repository."""

    kind: str
    id: str
    revision: str
    target: str
    include: tuple[str, ...]
    exclude: tuple[str, ...]
    endpoint: Optional[str]
    token: Optional[str]
    jobs: int
    stall_s: float

    def repository(self, machine: Machine) -> Repository:
        """Return the repository; a mirror may be named by the node's own HF_ENDPOINT."""
        endpoint = self.endpoint or machine.environment.get("HF_ENDPOINT") or HUB
        return Repository(self.kind, self.id, self.revision, endpoint.rstrip("/"))

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return what is missing, by the record and the files' sizes and times; no server is asked.

        Raises Refused for patterns that leave nothing.
        """
        wanted = self.repository(machine)
        record = snapshot.read(machine, self.target)
        if record is None or not record.is_of(wanted):
            before = "not known" if record is None and machine.is_dir(self.target) else "absent"
            before = before if record is None else f"{record.id} at {record.revision[:12]}"
            return (Change(f"snapshot {self.target}", before, str(wanted)),)
        return _listed(self._pending(machine, record))

    def apply(self, machine: Machine) -> None:
        """Fetch what is missing.

        Raises Refused before anything is fetched where access, room or a shard is lacking; TaskFailed later.
        """
        from k3env.node.web.download import Fetcher

        repository = self.repository(machine)
        token = self.token or machine.environment.get("HF_TOKEN") or None
        web = self._web(machine, repository, token)
        old = snapshot.read(machine, self.target)
        record = old
        if record is None or not record.is_of(repository):
            machine.progress(f"{repository}: ask what is in it")
            listed = _patiently(machine, lambda: files(web, repository), repository, token is not None)
            record = Snapshot(repository.kind, repository.id, repository.revision, listed)
        pending = self._pending(machine, record)
        self._refuse_crowded(machine, pending)
        book = _Book(machine, self.target, record)
        first = [file for file in pending if not file.lfs or file.path.endswith(_INDEX)]
        for some in (first, [file for file in pending if file not in first]):
            fetcher = Fetcher(
                machine, web, repository, self.target, jobs=self.jobs, has_token=token is not None
            )  # fmt: skip
            try:
                fetcher.fetch(some, book.note)
            except BaseException:
                with contextlib.suppress(OSError, K3Error):
                    book.close()
                raise
            book.close()
            self._refuse_lacking(machine, record)
        self._refuse_misfits(machine, record)
        self._tidy(machine, old, book.record)

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return how many files of which commit are there, by size and time as when their digests were right."""
        record = snapshot.read(machine, self.target)
        if record is None:
            return ()
        selected = self._selected(record)
        amount = _amount(sum(file.size for file in selected))
        files = f"{len(selected)} file{'' if len(selected) == 1 else 's'}"
        return (
            f"{self.target} has {files} ({amount}) of {record.id} at {record.revision[:12]}",
            "size and time of each are those of the content that was compared with the hub's digests",
        )

    def judge(self, machine: Machine) -> tuple[Finding, ...]:
        """Warn of shards that are not the repository's: loaders take every one that they find."""
        record = snapshot.read(machine, self.target)
        if record is None or not machine.is_dir(self.target):
            return ()
        known = {file.path for file in record.files}
        others = [name for name in machine.list(self.target) if name.endswith(_SHARD) and name not in known]
        if not others or not any(path.endswith(_SHARD) for path in known):
            return ()
        return (
            Finding(
                "hub.others", "warn", "warn", subject=self.target,
                message=f"{self.target} has shards that are not of {record.id}: {_some(others)}",
                expected="the repository's own *.safetensors alone", found=_some(others),
                remedy="move them away: a loader takes every *.safetensors that it finds",
            ),
        )  # fmt: skip

    def _pending(self, machine: Machine, record: Snapshot) -> tuple[HubFile, ...]:
        selected = self._selected(record)
        return tuple(
            file for file in selected if not snapshot.is_intact(machine, self.target, file, record.proven)
        )  # fmt: skip

    def _selected(self, record: Snapshot) -> tuple[HubFile, ...]:
        selected = chosen(record.files, self.include, self.exclude)
        if not selected:
            raise Refused(
                f"no file of {record.id} is left by include and exclude",
                expected="at least one file", found=f"{len(record.files)} files, none chosen",
                remedy="see the patterns: `*` matches slashes too", id="hub.nothing_chosen",
            )  # fmt: skip
        return selected

    def _web(self, machine: Machine, repository: Repository, token: Optional[str]) -> Web:
        from k3env.node.web.opening import Web
        from k3env.node.web.weberrors import is_loopback

        if token and repository.endpoint.startswith("http:") and not is_loopback(repository.endpoint):
            raise Refused(
                f"a token is not sent to {repository.endpoint} in the clear", expected="https", found="http",
                remedy="give the mirror a certificate, or leave the token out", id="hub.clear",
            )  # fmt: skip
        return Web(repository.endpoint, machine.environment, token, self.stall_s)

    def _refuse_crowded(self, machine: Machine, pending: tuple[HubFile, ...]) -> None:
        there = self.target
        while not machine.is_dir(there):
            there = os.path.dirname(there)
        need = 0
        for file in pending:
            found = machine.stat(os.path.join(self.target, file.path))
            part = machine.stat(os.path.join(snapshot.parts(self.target), snapshot.part_name(file)))
            begun = 0 if part is None else min(part.st_size, file.size)
            need += 0 if found is not None and found.st_size == file.size else file.size - begun
        space = machine.space(there)
        if need and (space.free_bytes < need + min(SPARE_BYTES, need // 20) or space.free_inodes < len(pending)):
            free = f"{_amount(space.free_bytes)} and {space.free_inodes} inodes are free at {there}"
            raise Refused(
                f"{self.target} has no room for {self.id}: {_amount(need)} are to come, {free}",
                expected=f"{_amount(need)} free", found=free, id="hub.no_room",
                remedy="make room, or choose another target; a part of the files: include and exclude",
            )  # fmt: skip

    def _refuse_lacking(self, machine: Machine, record: Snapshot) -> None:
        """Compare an index with the repository before the shards come, and with what is chosen of it."""
        selected = {file.path for file in self._selected(record)}
        if not any(path.endswith(_SHARD) for path in selected):
            return
        for path in sorted(path for path in selected if path.endswith(_INDEX)):
            names = _named(machine, os.path.join(self.target, path))
            below = os.path.dirname(path)
            lacking = sorted(name for name in names if os.path.join(below, name) not in selected)
            if lacking:
                there = {file.path for file in record.files}
                left_out = all(os.path.join(below, name) in there for name in lacking)
                raise Refused(
                    f"{len(lacking)} of {len(names)} shards that {path} names are not "
                    + ("chosen" if left_out else f"in {record.id} at {record.revision[:12]}"),
                    expected=f"all shards of {path}", found=f"without {_some(lacking)}", id="hub.missing_shard",
                    remedy="widen include and exclude" if left_out else "choose another revision: this is not whole",
                )  # fmt: skip

    def _refuse_misfits(self, machine: Machine, record: Snapshot) -> None:
        """Compare the shards with their headers and the index, as the check model.complete does."""
        from k3env.node.facts.model import INDEX, Shards, shards
        from k3env.protocol.profile import Paths, Profile

        selected = {file.path for file in self._selected(record)}
        if INDEX not in selected or not any(path.endswith(_SHARD) for path in selected):
            return
        found = shards(machine, Profile(paths=Paths(checkpoint=self.target)))
        if isinstance(found, Shards) and not found.missing and not found.misfits:
            return
        told = _some((*found.missing, *found.misfits)) if isinstance(found, Shards) else str(found)
        raise TaskFailed(
            f"{record.id} at {record.revision[:12]} came whole, and is not: {told}",
            expected="shards as large as their headers say", found=told, id="hub.misfit",
            remedy="choose another revision: the repository itself is broken",
        )  # fmt: skip

    def _tidy(self, machine: Machine, old: Optional[Snapshot], new: Snapshot) -> None:
        """Remove what an earlier revision left, and what was begun and is not wanted any more."""
        selected = {file.path for file in self._selected(new)}
        for file in old.files if old is not None else ():
            if file.path not in selected and snapshot.is_intact(machine, self.target, file, old.proven if old else {}):
                _remove(self.target, file.path)
        begun = snapshot.parts(self.target)
        for name in machine.list(begun) if machine.is_dir(begun) else ():
            _remove(begun, name)
        if machine.is_dir(begun):
            os.rmdir(begun)


class _Book:
    """Writes down what is proven while it comes: what was compared once is not compared again."""

    def __init__(self, machine: Machine, target: str, record: Snapshot) -> None:
        self.record = record
        self._machine = machine
        self._target = target
        self._new: dict[str, int] = {}
        self._next = time.monotonic() + RECORD_EVERY_S

    def note(self, file: HubFile, mtime_ns: int) -> None:
        """Note a file that is there."""
        self._new[file.path] = mtime_ns
        if time.monotonic() >= self._next:
            self.close()

    def close(self) -> None:
        """Write the record."""
        self.record = replace(self.record, proven={**self.record.proven, **self._new})
        self._next = time.monotonic() + RECORD_EVERY_S
        from k3env.node.web.download import full

        try:
            snapshot.write(self._machine, self._target, self.record)
        except OSError as error:
            raise full(error, self._target) from None


def _patiently(machine: Machine, ask: Callable[[], T], repository: Repository, has_token: bool) -> T:
    """Ask until there is an answer, or it would be in vain."""
    from k3env.node.web.download import pause
    from k3env.node.web.weberrors import WebError

    idle = 0
    while True:
        try:
            with machine.cancel:
                return ask()
        except WebError as error:
            idle += 1
            delay = pause(error, idle)
            if delay is None:
                raise failure(repository, error, has_token) from None
            machine.progress(f"{repository}: {error}; again in {delay:.0f} s")
            with machine.cancel:
                time.sleep(delay)


def _remove(directory: str, path: str) -> None:
    """Remove a file by the directory that it is in, so that no link leads elsewhere."""
    from k3env.node import way

    below, name = os.path.split(os.path.join(directory, path))
    at = way.entered(below)
    try:
        os.unlink(name, dir_fd=at)
    finally:
        os.close(at)


def _named(machine: Machine, path: str) -> tuple[str, ...]:
    """Return the shards that an index names."""
    from k3env.node.facts.model import INDEX_BYTES

    try:
        told: Any = codec.plain(machine.read(path, INDEX_BYTES))
        return tuple(sorted({str(name) for name in told["weight_map"].values()}))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise TaskFailed(
            f"{path} is no index of shards", expected="weight_map: tensors to files", found="something else",
            remedy="choose another revision", id="hub.missing_shard",
        ) from None  # fmt: skip


def _listed(pending: tuple[HubFile, ...]) -> tuple[Change, ...]:
    if len(pending) <= SHOWN:
        return tuple(
            Change(file.path, "absent or another", f"{file.size} bytes, {file.digest[:12]}") for file in pending
        )
    names = [file.path for file in pending]
    return (Change(f"{len(names)} files", f"absent or others: {_some(names)}", _amount(sum(f.size for f in pending))),)


def _some(names: Any) -> str:
    listed = list(names)
    more = len(listed) - SHOWN
    return ", ".join(listed[:SHOWN]) + (f" and {more} more" if more > 0 else "")


def _amount(number: int) -> str:
    return f"{number / GIB:.1f} GiB" if number >= GIB // 10 else f"{number} bytes"
