"""Download: files of a repository into a directory, several at once, resumed where they were cut, each proven whole."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.client
import os
import queue
import random
import stat
import threading
import time
from collections.abc import Sequence
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Callable, Optional, Union

from k3env.errors import TaskFailed
from k3env.node.web import hub, snapshot
from k3env.node.web.hub import HubFile, Repository
from k3env.node.web.weberrors import Answered, Cut, WebError, is_passing, shown

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.node.web.opening import Web

TRIES = 6
"""Attempts in a row that bring nothing."""
BACKOFF_S, LONGEST_S = 1.0, 60.0
RETRY_AFTER_S = 900.0
"""The longest wait that a server may ask for."""
CHUNK = 1 << 20
POLL_S = 0.5
STOP_S = 5.0
GIB = 1 << 30
_FULL = {
    errno.ENOSPC: ("hub.no_space", "no space left on device", "make room, or choose another target"),
    errno.EDQUOT: (
        "hub.quota",
        "disk quota exceeded",
        "have the quota raised (lfs quota, quota -s), or choose another",
    ),
}


class Stopped(Exception):
    """Nobody wants the rest any more."""


class Fetcher:
    """Brings files of one repository into one directory."""

    def __init__(
        self, machine: Machine, web: Web, repository: Repository, target: str, *, jobs: int, has_token: bool
    ) -> None:
        """`jobs` is how many files are fetched at once."""
        self._machine = machine
        self._web = web
        self._repository = repository
        self._target = target
        self._jobs = jobs
        self._has_token = has_token
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._bytes = 0
        self._begun = time.monotonic()

    def fetch(self, files: Sequence[HubFile], on_done: Callable[[HubFile, int], None]) -> None:
        """Make files be there; `on_done` gets each with its time (ns), in this thread.

        Raises TaskFailed for the first one that can't be had; what has come of the others is kept.
        """
        waiting: queue.SimpleQueue[HubFile] = queue.SimpleQueue()
        results: queue.Queue[Union[tuple[HubFile, int], BaseException]] = queue.Queue()
        for file in files:
            waiting.put(file)
        threads = [
            threading.Thread(target=self._work, args=(waiting, results), daemon=True)
            for _ in range(min(self._jobs, len(files)))
        ]
        done, total = 0, sum(file.size for file in files)
        try:
            for thread in threads:
                thread.start()
            while done < len(files):
                found = self._next(results)
                if isinstance(found, BaseException):
                    raise found
                if found is not None:
                    done += 1
                    on_done(*found)
                self._tell(done, len(files), total)
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(STOP_S)

    def _next(self, results: queue.Queue[Any]) -> Any:
        with self._machine.cancel:
            try:
                return results.get(timeout=POLL_S)
            except queue.Empty:
                return None

    def _tell(self, done: int, files: int, total: int) -> None:
        speed = self._bytes / max(time.monotonic() - self._begun, 1e-3)
        text = (
            f"{self._bytes / GIB:.1f} of {total / GIB:.1f} GiB, {done} of {files} files, {speed / (1 << 20):.0f} MiB/s"
        )
        self._machine.progress(f"{self._repository}: {text}", self._bytes / total if total else None)

    def _work(self, waiting: queue.SimpleQueue[HubFile], results: queue.Queue[Any]) -> None:
        while not self._stop.is_set():
            try:
                file = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                results.put((file, self._bring(file)))
            except Stopped:
                return
            except BaseException as error:
                results.put(full(error, self._target))
                return

    def _bring(self, file: HubFile) -> int:
        """Make one file be there; return its time."""
        path = os.path.join(self._target, file.path)
        found = self._machine.stat(path)
        if found is not None and stat.S_ISREG(found.st_mode) and found.st_size == file.size:
            if self._is_right(path, file):
                return found.st_mtime_ns
            self._count(-file.size)
        with contextlib.closing(_Part(snapshot.parts(self._target), file, self._count, self._stop)) as part:
            self._download(file, part)
            return part.settle(path)

    def _is_right(self, path: str, file: HubFile) -> bool:
        digest = _digest(file)
        with open(path, "rb") as source:
            while data := source.read(CHUNK):
                self._check_stop()
                digest.update(data)
                self._count(len(data))
        return bool(digest.hexdigest() == file.digest)

    def _download(self, file: HubFile, part: _Part) -> None:
        idle, wrong = 0, 0
        while True:
            had = part.size
            try:
                self._continue(file, part)
            except WebError as error:
                idle = 1 if part.size > had else idle + 1
                delay = pause(error, idle)
                if delay is None:
                    raise hub.failure(self._repository, error, self._has_token) from None
                if self._stop.wait(delay):
                    raise Stopped from None
                continue
            if part.is_right():
                return
            part.restart()
            wrong += 1
            if wrong > 1:
                raise TaskFailed(
                    f"{file.path} of {self._repository} has another content than the hub says, twice",
                    expected=f"digest {file.digest}", found="another one", id="hub.wrong_hash",
                    remedy="see what stands between this node and the hub: a proxy or a mirror that changes files",
                )  # fmt: skip

    def _continue(self, file: HubFile, part: _Part) -> None:
        """Fetch what is missing of a file.

        Raises WebError where it was not all; TaskFailed for a file of another size.
        """
        if part.size == file.size:
            return
        url = self._repository.url(file.path)
        try:
            answer = self._web.open(url, {"Range": f"bytes={part.size}-"} if part.size else {})
        except Answered as error:
            if error.status != 416:
                raise
            part.restart()
            raise Cut(f"{shown(url)} has no such range") from None
        with answer:
            if part.size and answer.status != 206:
                part.restart()
            total = _total(answer, part.size)
            if total is not None and total != file.size:
                raise self._wrong_size(file, total)
            while data := _read(answer, url):
                self._check_stop()
                if part.size + len(data) > file.size:
                    raise self._wrong_size(file, part.size + len(data))
                part.append(data)
        if part.size < file.size:
            raise Cut(f"{shown(url)}: the connection was cut after {part.size} of {file.size} bytes")

    def _wrong_size(self, file: HubFile, found: int) -> TaskFailed:
        return TaskFailed(
            f"{file.path} of {self._repository} has another size than the hub says",
            expected=f"{file.size} bytes", found=f"{found} bytes or more", id="hub.wrong_size",
            remedy="see what stands between this node and the hub: a page that asks for a login, a proxy, a mirror",
        )  # fmt: skip

    def _count(self, number: int) -> None:
        with self._lock:
            self._bytes += number

    def _check_stop(self) -> None:
        if self._stop.is_set():
            raise Stopped


class _Part:
    """What has come of a file. It is kept by what it will be: another revision's is never taken for it."""

    def __init__(self, directory: str, file: HubFile, count: Callable[[int], None], stop: threading.Event) -> None:
        from k3env.node import way

        self._file = file
        self._count = count
        self._name = snapshot.part_name(file)
        self._at = way.entered(directory, make=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            with way.naming(directory):
                self._descriptor = os.open(self._name, flags, 0o644, dir_fd=self._at)
        except OSError:
            os.close(self._at)
            raise
        self.size = 0
        self._digest = _digest(file)
        if os.fstat(self._descriptor).st_size > file.size:
            os.ftruncate(self._descriptor, 0)
        while data := os.read(self._descriptor, CHUNK):
            if stop.is_set():
                self.close()
                raise Stopped
            self._add(data)

    def append(self, data: bytes) -> None:
        """Write what has come."""
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
        self._add(data)

    def restart(self) -> None:
        """Forget what has come."""
        os.lseek(self._descriptor, 0, os.SEEK_SET)
        os.ftruncate(self._descriptor, 0)
        self._count(-self.size)
        self.size, self._digest = 0, _digest(self._file)

    def is_right(self) -> bool:
        """Return whether it is the file."""
        return bool(self.size == self._file.size and self._digest.hexdigest() == self._file.digest)

    def settle(self, path: str) -> int:
        """Put the file in its place at once, and return its time."""
        from k3env.node import way

        os.fsync(self._descriptor)
        directory, name = os.path.split(path)
        at = way.entered(directory, make=True)
        try:
            with way.naming(path, within=False):
                os.replace(self._name, name, src_dir_fd=self._at, dst_dir_fd=at)
        finally:
            os.close(at)
        return os.fstat(self._descriptor).st_mtime_ns

    def close(self) -> None:
        """Close it; what has come is kept."""
        os.close(self._descriptor)
        os.close(self._at)

    def _add(self, data: bytes) -> None:
        self._digest.update(data)
        self.size += len(data)
        self._count(len(data))


def pause(error: WebError, idle: int) -> Optional[float]:
    """Return how long to wait before asking again, in seconds; None: it would be in vain.

    `idle` is how many attempts in a row brought nothing.
    """
    if idle >= TRIES:
        return None
    if isinstance(error, Answered):
        # A signed URL of another server is good for a while: the hub gives a new one.
        if not is_passing(error.status) and not error.elsewhere:
            return None
        asked = _retry_after(error.headers.get("Retry-After"))
        if asked is not None:
            return None if asked > RETRY_AFTER_S else asked
    elif not isinstance(error, Cut):
        return None
    return min(LONGEST_S, BACKOFF_S * 2.0 ** (idle - 1)) * random.uniform(0.5, 1.0)  # noqa: S311 - spreads, hides nothing


def full(error: BaseException, target: str) -> BaseException:
    """Return what an error of this node's filesystem means."""
    if not isinstance(error, OSError) or error.errno not in _FULL:
        return error
    id, found, remedy = _FULL[error.errno]
    return TaskFailed(
        f"{target} takes no more: {found}", expected="room for all files", found=found, id=id,
        remedy=f"{remedy}; run it again: it goes on where it stopped",
    )  # fmt: skip


def _retry_after(text: Optional[str]) -> Optional[float]:
    """Return the seconds that a header asks for: a number, or a date."""
    if not text:
        return None
    if text.strip().isdecimal():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return None


def _digest(file: HubFile) -> Any:
    if file.lfs:
        return hashlib.sha256()
    # Git's own name of a blob.
    return hashlib.sha1(b"blob %d\0" % file.size, usedforsecurity=False)


def _read(answer: http.client.HTTPResponse, url: str) -> bytes:
    try:
        return answer.read1(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise Cut(f"{shown(url)}: {error or type(error).__name__}") from None


def _total(answer: http.client.HTTPResponse, begin: int) -> Optional[int]:
    """Return the size of the whole file, as an answer tells it; None where it does not.

    Raises Cut for another part of it than was asked for.
    """
    if answer.status == 206:
        span, _, total = (answer.headers.get("Content-Range") or "").partition("/")
        if not span.startswith(f"bytes {begin}-"):
            raise Cut(f"asked for the bytes from {begin} on, got {span or 'others'}")
        return int(total) if total.isdecimal() else None
    length = answer.headers.get("Content-Length") or ""
    return int(length) if length.isdecimal() else None
