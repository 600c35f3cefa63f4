"""Cubins: filled by FlashInfer's downloader or from a copy, compared with checksums, put in place at once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import tarfile
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Optional

from k3env.errors import Refused, TaskFailed
from k3env.k3.caches import CUBINS as VARIABLE
from k3env.node.container import wrap
from k3env.node.modules import _steps
from k3env.protocol import codec

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.protocol.container import Container

CHECKSUMS = "checksums.txt"
RECORD_BYTES = 64 << 20
SHOWN = 3
NEEDED_BYTES = 6 << 30
"""4.3 GiB of FlashInfer 0.6, and some more."""
_FAILED = "Cubin download failed"
"""What FlashInfer says before it ends with 0. Source: flashinfer/__main__.py."""
_PLACES = re.compile(r'(\w+): str = \(?\s*"([0-9a-f]{40}/[^"]+/)"')
_SUMS = re.compile(r'(\w+): str = \(?\s*"([0-9a-f]{64})"')
_FULL = re.compile(r"No space left on device|[Dd]isk quota exceeded")
_ASK_S = 300.0
_ASK = "from flashinfer.jit import env; print(env.FLASHINFER_CUBIN_DIR)"
_TRUSTED = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


@dataclass(frozen=True)
class Record:
    """What a directory was filled with."""

    flashinfer: str
    """"0.6.16", or "0.6.16 @ COMMIT"."""
    image: str = ""
    files: dict[str, int] = field(default_factory=dict)
    """Path to bytes."""
    compared: int = 0
    """Files that were compared with a checksum."""
    served_by: str = ""
    """The directory that FlashInfer takes cubins from instead, in its environment or image."""


@dataclass(frozen=True)
class Cubins:
    """One filling."""

    machine: Machine
    repo: str
    target: str
    source: Optional[str]
    python: str
    site: str
    """Where FlashInfer is installed."""
    flashinfer: str
    container: Container
    downloads: int
    inactivity_s: float

    @property
    def beside(self) -> str:
        """Where it is filled."""
        return f"{self.target}.k3env-partial"

    def fill(self) -> None:
        """Fill the directory.

        Raises Refused, TaskFailed.
        """
        parent = os.path.dirname(self.target)
        self.machine.make(parent)
        owner = os.stat(parent).st_uid
        if os.geteuid() == 0 and owner != 0:
            raise Refused(
                f"root fills no directory of another user: {parent}", expected="root's own directory",
                found=f"uid {owner}", remedy="set k3_user to the owner of the checkout", id="cubins.owner",
            )  # fmt: skip
        if self.machine.space(parent).free_bytes < NEEDED_BYTES:
            raise Refused(
                f"{parent} has too little room for cubins", expected=f"{NEEDED_BYTES >> 30} GiB free",
                found=f"{self.machine.space(parent).free_bytes / (1 << 30):.1f} GiB free", id="cubins.room",
                remedy="make room, or set directory elsewhere",
            )  # fmt: skip
        # Whoever left these is dead: we hold the lease.
        shutil.rmtree(self.beside, ignore_errors=True)
        try:
            self._fill()
        except OSError as error:
            why, path = _first(error)
            path = path or self.target
            if _FULL.search(why):
                raise self._full(f"{why}: {path}") from None
            raise TaskFailed(
                f"{self.target} can't be filled: {why}", expected="files that can be copied",
                found=f"{why}: {path}", id="cubins.failed", remedy="see source, and who may write there",
            ) from None  # fmt: skip
        finally:
            shutil.rmtree(self.beside, ignore_errors=True)

    def _fill(self) -> None:
        if self.source is None or "://" in self.source:
            other = self._other_place()
            if other:
                self._write(Record(self.flashinfer, self.container.image, served_by=other))
                return
            self._download()
        elif self.machine.is_dir(self.source):
            shutil.copytree(self.source, self.beside)
        else:
            self._unpack(self.source)
        self._settle()

    def _other_place(self) -> str:
        """Ask FlashInfer whether it takes cubins from a package, whatever the variable says."""
        done = self.machine.run(
            self._words("-c", _ASK), environment=self._environment(), timeout_s=_ASK_S, cwd=self.repo
        )  # fmt: skip
        if not done.ok or not done.text.strip():
            raise _steps.failed(self.machine, self._step("ask FlashInfer for its directory"), done)
        found = done.text.strip().splitlines()[-1]
        return "" if os.path.normpath(found) == self.beside else found

    def _download(self) -> None:
        os.mkdir(self.beside)
        done = _steps.take(self.machine, self._step("fetch FlashInfer's cubins"))
        failed = [line for line in done.text.splitlines() if _FAILED in line]
        if failed:
            raise self._unfit(failed[-1], "a download that succeeds")

    def _step(self, title: str) -> _steps.Step:
        from k3env.node import manifest

        return _steps.Step(
            title=title,
            argv=self._words("-m", "flashinfer", "download-cubin"),
            tool="run",
            cwd=self.repo,
            environment=self._environment(),
            inactivity_s=self.inactivity_s,
            logs=manifest.logs(self.repo),
        )

    def _words(self, *arguments: str) -> tuple[str, ...]:
        from k3env.node.modules import inside

        container, parent = self.container, os.path.dirname(self.target)
        if not inside(parent, self.repo):
            container = replace(container, mounts=(*container.mounts, f"{parent}:{parent}"))
        return wrap(
            container, (self.python, *arguments), repo=self.repo, environment=self._environment(),
            name=self.machine.name,
        )  # fmt: skip

    def _environment(self) -> dict[str, str]:
        """Return what the downloader gets; a container has nothing of the node's own proxies and authorities."""
        ours = {
            name: value
            for name, value in self.machine.environment.items()
            if name.lower().endswith("_proxy") or name in _TRUSTED
        }
        made = {
            **ours,
            VARIABLE: self.beside,
            "FLASHINFER_CUBIN_DOWNLOAD_THREADS": str(self.downloads),
            "FLASHINFER_LOGGING_LEVEL": "warning",
            "PYTHONNOUSERSITE": "1",
        }
        if self.source is not None:
            made["FLASHINFER_CUBINS_REPOSITORY"] = self.source
        return made

    def _unpack(self, archive: str) -> None:
        """Unpack plain files alone: an archive may name others, and links to anywhere."""
        try:
            with tarfile.open(archive) as pack:
                for member in pack:
                    self.machine.cancel.check()
                    parts = member.name.split("/")
                    if not (member.isfile() or member.isdir()) or member.name.startswith("/") or ".." in parts:
                        raise self._unfit(f"{member.name!r} in {archive}", "a plain file below it")
                    at = os.path.join(self.beside, member.name)
                    os.makedirs(at if member.isdir() else os.path.dirname(at), exist_ok=True)
                    content = pack.extractfile(member) if member.isfile() else None
                    if content is not None:
                        with open(at, "xb") as file:
                            shutil.copyfileobj(content, file, 1 << 20)
        except (tarfile.TarError, EOFError) as error:
            raise self._unfit(f"{archive}: {error}", "a whole .tar file") from None

    def _settle(self) -> None:
        """Compare what came, and put it in the place of what was there."""
        root = _root(self.beside)
        files, compared, wrong = _compared(self.machine, root)
        if wrong:
            more = f" and {len(wrong) - SHOWN} more" if len(wrong) > SHOWN else ""
            raise self._unfit(f"{', '.join(wrong[:SHOWN])}{more}", f"all that {CHECKSUMS} names")
        if not any(path.endswith(".cubin") for path in files):
            raise self._unfit(f"{len(files)} files, no cubin among them", "FlashInfer's cubins")
        for path, digest in known(self.machine, self.site).items():
            if path not in files or _sha256(os.path.join(root, path)) != digest:
                raise self._unfit(f"without {path}, or another one", f"cubins of FlashInfer {self.flashinfer}")
        self.machine.commit()
        old = f"{self.target}.k3env-old"
        shutil.rmtree(old, ignore_errors=True)
        with contextlib.suppress(FileNotFoundError):
            os.rename(self.target, old)
        os.rename(root, self.target)
        self._write(Record(self.flashinfer, self.container.image, files, compared))
        shutil.rmtree(old, ignore_errors=True)

    def _full(self, found: str) -> TaskFailed:
        return TaskFailed(
            f"{os.path.dirname(self.target)} has no room left for cubins",
            expected=f"{NEEDED_BYTES >> 30} GiB, and an inode for each of some ten thousand files", found=found,
            remedy="make room, or set directory elsewhere; see df -h, df -i and the quota", id="cubins.room",
        )  # fmt: skip

    def _unfit(self, found: str, expected: str) -> TaskFailed:
        if _FULL.search(found):
            return self._full(found)
        remedy = (
            "see that this node reaches FlashInfer's server (edge.urm.nvidia.com), set https_proxy, or name a mirror or"
            " a copy in cubins_source"
            if self.source is None
            else f"see what is in {self.source}"
        )
        return TaskFailed(
            f"what came is not FlashInfer's whole set of cubins: {found}", expected=expected, found=found,
            remedy=remedy, id="cubins.incomplete",
        )  # fmt: skip

    def _write(self, made: Record) -> None:
        self.machine.write(beside(self.target), codec.dumps(made).encode())


def _first(error: OSError) -> tuple[str, str]:
    """Return what went wrong, and with which file; of a tree that was copied, the first of all that did."""
    if isinstance(error, shutil.Error) and error.args and isinstance(error.args[0], list) and error.args[0]:
        _, path, why = error.args[0][0]
        return re.sub(r"^\[Errno \d+\] |: '.*$", "", str(why)), str(path)
    return str(error.strerror or error), str(error.filename or "")


def beside(target: str) -> str:
    """Return where the record of a directory is."""
    return f"{target}.json"


def record(machine: Machine, target: str) -> Optional[Record]:
    """Return what was written down when a directory was filled; None: nothing."""
    try:
        return codec.loads(Record, machine.text(beside(target), RECORD_BYTES))  # type: ignore[no-any-return]
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def known(machine: Machine, site: str) -> dict[str, str]:
    """Return the lists of checksums that an installed FlashInfer asks for, and their own SHA-256.

    Source: ArtifactPath and CheckSumHash in its artifacts.py, which have the same names for the same things.
    """
    try:
        text = machine.text(os.path.join(site, "flashinfer", "artifacts.py"))
    except OSError:
        return {}  # it lies in the image, or is of another age
    places = dict(_PLACES.findall(text))
    return {f"{places[name]}{CHECKSUMS}": digest for name, digest in _SUMS.findall(text) if name in places}


def lost(machine: Machine, target: str, made: Record) -> str:
    """Return what of a directory is not as it was filled; "" if all is. Each directory in it is listed once."""
    there: dict[str, int] = {}
    for directory in {os.path.dirname(path) for path in made.files}:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(
            os.path.join(target, directory)
        ) as entries:  # fmt: skip
            there.update(
                (os.path.join(directory, entry.name), entry.stat().st_size) for entry in entries if entry.is_file()
            )  # fmt: skip
    wrong = sorted(path for path, size in made.files.items() if there.get(path) != size)
    if not wrong:
        return ""
    return f"{len(wrong)} of {len(made.files)} files absent or cut, such as {wrong[0]}"


def _root(directory: str) -> str:
    """Return the directory that holds the files: an archive, or a copy, may have one or two around it."""
    at = directory
    while True:
        names = [name for name in os.listdir(at) if not name.startswith(".")] if os.path.isdir(at) else []
        inner = os.path.join(at, names[0]) if len(names) == 1 else ""
        if names not in (["cubins"], ["flashinfer_cubin"]) or not os.path.isdir(inner):
            return at
        at = inner


def _compared(machine: Machine, root: str) -> tuple[dict[str, int], int, list[str]]:
    """Return all files with their sizes, how many were compared, and those that lack or are others.

    A line of checksums.txt is "SHA256 NAME", the name below its own directory. Of what it names, the shared libraries
    of other architectures may lack: the downloader leaves them out. Source: flashinfer/artifacts.py of 0.6.14.
    """
    files: dict[str, int] = {}
    wanted: dict[str, str] = {}
    for directory, _, names in os.walk(root):
        for name in names:
            path = os.path.relpath(os.path.join(directory, name), root)
            if name.endswith(".lock"):
                os.unlink(os.path.join(root, path))
                continue
            files[path] = os.stat(os.path.join(root, path)).st_size
            if name == CHECKSUMS:
                wanted.update(_sums(machine, root, os.path.dirname(path)))
    wrong = [f"{path} is absent" for path in sorted(wanted) if path not in files and path.endswith((".cubin", ".h"))]
    at_hand = sorted(path for path in wanted if path in files)
    for number, path in enumerate(at_hand):
        machine.cancel.check()
        if number % 500 == 0:
            machine.progress(f"compare {number} of {len(at_hand)} files", number / len(at_hand))
        if _sha256(os.path.join(root, path)) != wanted[path]:
            wrong.append(f"{path} has another content")
    return files, len(at_hand), wrong


def _sums(machine: Machine, root: str, directory: str) -> dict[str, str]:
    lines = machine.text(os.path.join(root, directory, CHECKSUMS), RECORD_BYTES).splitlines()
    pairs = (line.split() for line in lines)
    return {os.path.join(directory, pair[1]): pair[0] for pair in pairs if len(pair) == 2}


def _sha256(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.sha256(file.read()).hexdigest()
