"""Import: enroot's work for enroot_image, in directories of its own on a local disk."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Optional

from k3env.errors import Refused, TaskFailed
from k3env.node.modules import _steps
from k3env.protocol import codec
from k3env.protocol.container import Container
from k3env.protocol.profile import Profile

if TYPE_CHECKING:
    from k3env.node.facts.image import Image
    from k3env.node.machine import Machine

GIB = 1 << 30
ROOMY = "/var/tmp"  # noqa: S108 - a directory of our own is made in it; /tmp is often memory
CREDENTIALS = ".credentials"
TOLD_EVERY_S = 5.0
_PREFIX = "k3env-enroot-"


@dataclass(frozen=True)
class Import:
    """One import."""

    machine: Machine
    source: str
    path: str
    arch: str
    compressor: str
    temp: Optional[str]
    temp_free_gib: float
    credentials: Optional[str]
    inactivity_s: float

    def make(self) -> None:
        """Import, look at what came, put it in its place, write its record.

        Raises Refused, TaskFailed.
        """
        if self.machine.which("enroot") is None:
            raise Refused(
                "there is no enroot here", expected="enroot in PATH", found="none", id="image.no_enroot",
                remedy="install enroot and enroot+caps, or import on a node that has them",
            )  # fmt: skip
        self._refuse_format()
        ground = self.temp or self.machine.environment.get("ENROOT_TEMP_PATH") or ROOMY
        self._refuse_ground(ground)
        self.machine.make(os.path.dirname(self.path))
        directory, name = os.path.split(self.path)
        ours = f"{_PREFIX}{hashlib.sha256(self.path.encode()).hexdigest()[:12]}-"
        self._tidy(directory, name, ground, ours)
        # In its own directory, so that its place is one rename away.
        fresh = os.path.join(directory, f".{name}.k3env-{os.urandom(4).hex()}.sqsh")
        work = tempfile.mkdtemp(prefix=ours, dir=ground)
        try:
            _steps.take(self.machine, self._step(work, fresh))
            self._put(fresh)
        finally:
            shutil.rmtree(work, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh)

    def take_over(self, sha256: str, source: str = "") -> None:
        """Compare the file in its place with a digest, reading it once, and write its record, with its source if known.

        Raises Refused for another content or a file that changes meanwhile, TaskFailed for other programs.
        """
        before = read(self.machine, self.path)
        remedy = "copy it again, or see what sha256 is to be: sha256sum " + self.path
        if not before.magic or not 0 < before.bytes_used <= (before.size or 0):
            raise _not(self.path, "a whole squashfs file", f"{before.size or 0} bytes", remedy, "image.cut")
        self._refuse_architecture(self.path)
        found = self._digest(self.path, before.size or 0)
        after = read(self.machine, self.path)
        if (after.size, after.mtime_ns) != (before.size, before.mtime_ns):
            wait = "wait until its copy has ended, and run this again"
            raise _not(self.path, "a file that stays as it is", "it changed while it was read", wait, "image.changing")
        if found != sha256:
            raise _not(self.path, f"sha256 {sha256}", found, remedy, "image.digest")
        self.machine.commit()
        self._note(beside(self.path), before, found, source)

    def _step(self, work: str, fresh: str) -> _steps.Step:
        return _steps.Step(
            title=f"import {self.source}",
            argv=("enroot", "import", "--arch", self.arch, "--output", fresh, "--", self.source),
            tool="enroot",
            environment=self._environment(work),
            inactivity_s=self.inactivity_s,
        )

    def _environment(self, work: str) -> dict[str, str]:
        """Return where enroot has its directories: those of a login session are not there for everybody who logs in."""
        places = {}
        for name in ("TEMP", "CACHE", "DATA", "RUNTIME"):
            places[f"ENROOT_{name}_PATH"] = os.path.join(work, name.lower())
            os.mkdir(places[f"ENROOT_{name}_PATH"], 0o700)
        if self.credentials:
            places["ENROOT_CONFIG_PATH"] = os.path.join(work, "config")
            os.mkdir(places["ENROOT_CONFIG_PATH"], 0o700)
            text = self.credentials if self.credentials.endswith("\n") else f"{self.credentials}\n"
            self.machine.write(os.path.join(places["ENROOT_CONFIG_PATH"], CREDENTIALS), text.encode(), 0o600)
        return {**places, "ENROOT_SQUASH_OPTIONS": f"-comp {self.compressor} -noD -exit-on-error"}

    def _put(self, fresh: str) -> None:
        """Look at the file, and put it in its place."""
        image = read(self.machine, fresh)
        if not image.magic or not 0 < image.bytes_used <= (image.size or 0):
            raise self._wrong("a whole squashfs file", f"{image.size or 0} bytes", "see enroot's output", "image.cut")
        if image.compressor != self.compressor:
            raise self._wrong(
                self.compressor, image.compressor,
                "enroot.conf sets ENROOT_SQUASH_OPTIONS for all: have it changed, or, if all nodes can unpack that,"
                f" set compressor: {image.compressor}", "image.compressor",
            )  # fmt: skip
        self._refuse_architecture(fresh)
        digest = self._digest(fresh, image.size or 0)
        self.machine.commit()
        # The record first: a file without one would count as somebody else's.
        self._note(beside(self.path), image, digest, self.source)
        os.replace(fresh, self.path)

    def _note(self, path: str, image: Image, digest: str, source: str) -> None:
        """Write down what an image is; `source` is "" for one that was imported elsewhere."""
        made = {
            "source": source,
            "arch": self.arch,
            "compressor": image.compressor,
            "size": image.size,
            "mtime_ns": image.mtime_ns,
            "sha256": digest,
            "by": self.machine.name,
        }
        self.machine.write(path, json.dumps(made, indent=1).encode())

    def _refuse_architecture(self, fresh: str) -> None:
        from k3env.node.facts.image import architecture
        from k3env.protocol.finding import Unreadable

        found = architecture(self.machine, profile(fresh)).image
        if found != self.arch:
            told = (
                f"no program that tells: {found.reason}" if isinstance(found, Unreadable) else f"programs for {found}"
            )
            raise self._wrong(
                f"programs for {self.arch}", told,
                "name a tag that has this architecture: those of TensorRT LLM's build hosts with sbsa are for aarch64",
                "image.arch",
            )  # fmt: skip

    def _refuse_format(self) -> None:
        """Raise Refused where this machine could not unpack what it is about to pack."""
        from k3env.node.facts.image import unpacker
        from k3env.protocol.finding import Unreadable

        known = unpacker(self.machine).compressors
        if not isinstance(known, Unreadable) and known and self.compressor not in known:
            raise Refused(
                f"this machine's squashfs-tools know no {self.compressor}", expected=self.compressor,
                found=", ".join(known), remedy="set compressor to one of these", id="image.compressor",
            )  # fmt: skip

    def _refuse_ground(self, ground: str) -> None:
        """Raise Refused for a temporary directory that enroot can't work in."""
        from k3env.node.facts.mounts import NETWORK, locality

        remedy = "set temp to a directory on a local disk"
        if not self.machine.is_dir(ground):
            raise Refused(f"{ground} is no directory", expected="a local directory", found="none", remedy=remedy)
        data = locality(self.machine, ground).data
        where = f"{data.fstype} at {data.point}"
        if data.kind == NETWORK:
            raise Refused(
                f"enroot can't unpack layers in {ground}: it is on a shared filesystem",
                expected="a filesystem of the node itself", found=where, remedy=remedy, id="image.temp",
            )  # fmt: skip
        free = self.machine.space(ground).free_bytes / GIB
        if free < self.temp_free_gib:
            raise Refused(
                f"{ground} has too little room to import an image: {free:.1f} GiB", id="image.temp_room",
                expected=f">= {self.temp_free_gib:g} GiB free", found=f"{free:.1f} GiB free, {where}",
                remedy=f"{remedy} with more, or lower temp_free_gib: three times the image is needed",
            )  # fmt: skip
        if data.fstype != "tmpfs" and not _has_attributes(ground):
            raise Refused(
                f"{ground} is on a filesystem without extended attributes, which whiteouts are written as",
                expected="extended attributes", found=where, remedy=remedy, id="image.temp",
            )  # fmt: skip

    def _digest(self, path: str, size: int) -> str:
        """Read a file once, telling how far it is."""
        digest, done, next_s = hashlib.sha256(), 0, 0.0
        with open(path, "rb") as file:
            while data := file.read(1 << 22):
                self.machine.cancel.check()
                digest.update(data)
                done += len(data)
                if time.monotonic() >= next_s:
                    self.machine.progress(f"read {self.path} for its digest", done / max(size, done))
                    next_s = time.monotonic() + TOLD_EVERY_S
        return digest.hexdigest()

    def _wrong(self, expected: str, found: str, remedy: str, id: str) -> TaskFailed:
        return TaskFailed(
            f"{f'what enroot made of {self.source}' if self.source else self.path} is not what was asked for: {found}",
            expected=expected, found=found, remedy=remedy, id=id,
        )  # fmt: skip

    def _tidy(self, directory: str, name: str, ground: str, ours: str) -> None:
        """Remove what imports before this one left behind: whoever made them is dead, we hold the lease."""
        for old in self.machine.list(directory):
            if old.startswith(f".{name}.k3env-") and old.endswith(".sqsh"):
                os.unlink(os.path.join(directory, old))
        for old in self.machine.list(ground):
            if old.startswith(ours):
                shutil.rmtree(os.path.join(ground, old), ignore_errors=True)


def beside(path: str) -> str:
    """Return where an image's record is."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name}.k3env.json")


def record(machine: Machine, path: str) -> Optional[dict[str, Any]]:
    """Return what was written down of an image when it was imported; None: nothing."""
    try:
        found = codec.plain(machine.read(beside(path)))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def compared(path: str, image: Image, record: Optional[dict[str, Any]], sha256: str) -> bool:
    """Return whether a file is known to be of this digest, by what was written down with its size and time.

    Raises Refused where there is no file, or one that is known to be another.
    """
    if image.size is None:
        raise _not(
            path, f"the file with sha256 {sha256[:12]}…", "no such file",
            "copy it there; no import makes the same bytes again: to import one, leave sha256 (image_sha256) out",
            "image.absent",
        )  # fmt: skip
    if record is None or (image.size, image.mtime_ns) != (record.get("size"), record.get("mtime_ns")):
        return False
    if record.get("sha256") != sha256:
        remedy = "bring the other one, or see what sha256 (image_sha256) is to be"
        raise _not(path, f"sha256 {sha256}", str(record.get("sha256")), remedy, "image.digest")
    return True


def read(machine: Machine, path: str) -> Image:
    """Read an image's head."""
    from k3env.node.facts.image import image

    return image(machine, profile(path))


def profile(path: str) -> Profile:
    """Return a profile that names an image."""
    return Profile(container=Container("enroot", path))


def _not(path: str, expected: str, found: str, remedy: str, id: str) -> Refused:
    return Refused(
        f"{path} is not the image that was asked for: {found}", expected=expected, found=found, remedy=remedy, id=id
    )


def _has_attributes(directory: str) -> bool:
    with tempfile.NamedTemporaryFile(prefix=_PREFIX, dir=directory) as file:
        try:
            os.setxattr(file.name, "user.k3env", b"1")
        except OSError:
            return False
    return True
