"""enroot_image: a container image as one squashfs file, imported by enroot."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, Optional

from k3env.errors import Refused
from k3env.node.modules import Module
from k3env.node.modules._parameters import check_path
from k3env.protocol.container import Container
from k3env.protocol.finding import Change

if TYPE_CHECKING:
    from k3env.node.facts.image import Image
    from k3env.node.machine import Machine
    from k3env.node.modules._image import Import

# As enroot's own import takes them apart.
_REGISTRY = re.compile(r"docker://([\w.!~*'()%;&=+$,-]+@)?([^#@\s]+#)?[a-z0-9/._-]+(:[\w.:-]+)?")
_DAEMON = re.compile(r"(dockerd|podman)://[\w/.:-]+")


@dataclass(frozen=True)
class EnrootImage(Module):
    """Import an image into a .sqsh file, which appears whole or not at all, and say beside it what it was made from.

    Or take over one that was imported elsewhere and carried here: `sha256` says which.

    Layers and the unpacked image, some three times the file's size, lie in a directory of this node, which is removed
    afterwards: enroot's whiteouts need a filesystem with extended attributes, and no network filesystem does. Beside
    the file `.NAME.k3env.json` has source, size, time and SHA-256. A file that is there without it is not touched.
    """

    SECRETS: ClassVar[tuple[str, ...]] = ("credentials", "environment")

    source: Optional[str] = None
    """docker://[USER@][REGISTRY#]IMAGE[:TAG] from a registry; dockerd://IMAGE[:TAG] or podman://… from this node.
    Needed unless `sha256` is given."""
    path: Optional[str] = None
    """Absolute path of the file, ending with .sqsh; unset: the file that `container` names."""
    arch: Optional[str] = None
    """Of the nodes that run it: aarch64 or x86_64; unset: this machine's."""
    compressor: Literal["zstd", "gzip", "lz4", "lzo", "xz"] = "zstd"
    """What it is packed with: each node must be able to unpack it."""
    sha256: Optional[str] = None
    """Of a file that was imported elsewhere and brought to its place: it is read once and compared, for its programs'
    architecture too, and nothing is imported. What was compared is written down with size and time."""
    temp: Optional[str] = None
    """Absolute path of a directory on a local disk; unset: the node's ENROOT_TEMP_PATH, else /var/tmp."""
    temp_free_gib: float = 100
    """GiB that must be free there: an image of TensorRT LLM takes about 30, and three times that on the way."""
    credentials: Optional[str] = None
    """`{secret: file:PATH}`: lines as in enroot's own .credentials, "machine HOST login USER password TOKEN"; unset:
    the user's own."""
    container: Container = Container()
    """The image of the ranks, for enroot: its file is made where `path` names none."""
    inactivity_s: float = 1800.0
    """How long enroot may neither say nor compute anything, seconds."""

    def __post_init__(self) -> None:
        if self.source is not None:
            _check_source(self.source)
        elif self.sha256 is None:
            raise ValueError("name source, what to import; or sha256, of a file that was imported elsewhere")
        if self.path is None and self.container.engine != "enroot":
            raise ValueError("path names no file, nor does container: {engine: enroot, image: /…/NAME.sqsh}")
        for name, path in (("path", self.file), ("temp", self.temp)):
            if path is not None:
                check_path(name, path)
        if not self.file.endswith((".sqsh", ".squashfs")):
            raise ValueError(f"path must end with .sqsh, found {self.file!r}")
        if self.arch not in (None, "aarch64", "x86_64"):
            raise ValueError(f"arch must be aarch64 or x86_64, found {self.arch!r}")
        if self.sha256 is not None and not re.fullmatch(r"[0-9a-f]{64}", self.sha256):
            raise ValueError(f"sha256 must be 64 hexadecimal digits, found {self.sha256!r}; see sha256sum FILE")
        if self.temp_free_gib < 0:
            raise ValueError(f"temp_free_gib must not be negative, found {self.temp_free_gib:g}")

    @property
    def file(self) -> str:
        """The file that is made."""
        return self.path or self.container.image

    def writes(self) -> tuple[str, ...]:
        """Return the file."""
        return (self.file,)

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return the file if it is absent, cut, or of another source, architecture or compressor than its record says.

        Raises Refused for a file that was not made here, and for one of another digest than `sha256`.
        """
        from k3env.node.modules import _image

        image = _image.read(machine, self.file)
        record = _image.record(machine, self.file)
        if self.sha256 is not None:
            known = _image.compared(self.file, image, record, self.sha256)
            return () if known else (Change(f"sha256 of {self.file}", "not compared", self.sha256),)
        if image.size is None:
            return (Change(self.file, "absent", self._wanted(machine)),)
        if record is None:
            raise Refused(
                f"{self.file} is there, and nothing says from what it was made",
                expected="no file, or one that was imported here", found=f"{image.size} bytes", id="image.foreign",
                remedy="move it away to have it imported anew, or leave it: --skip-tags image",
            )  # fmt: skip
        before = self._unlike(image, record, machine)
        return () if before is None else (Change(self.file, before, self._wanted(machine)),)

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Import it beside its place, look at it, and put it there; or compare the one that is there.

        Raises Refused where enroot, room or a local filesystem lacks; TaskFailed with enroot's words otherwise.
        """
        from k3env.node.modules._image import Import

        importing = Import(
            machine, self.source or "", self.file, self._arch(machine), self.compressor, self.temp, self.temp_free_gib,
            self.credentials, self.inactivity_s,
        )  # fmt: skip
        if self.sha256 is not None:
            importing.take_over(self.sha256)
        elif not self._is_the_same(importing):
            importing.make()

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return what the image was made from, or what it was compared with."""
        from k3env.node.modules import _image

        record = _image.record(machine, self.file) or {}
        made = "was compared and taken over" if self.sha256 is not None else f"was imported from {record.get('source')}"
        return (
            f"{self.file} {made}: {record.get('arch')}, {record.get('compressor')}",
            f"size and time are those of sha256 {str(record.get('sha256'))[:12]}, which is not read again",
        )

    def _is_the_same(self, importing: Import) -> bool:
        """Return whether the file that is there has what its record says of it, but for its time, as a copy may."""
        from k3env.node.modules import _image

        image, record = _image.read(importing.machine, self.file), _image.record(importing.machine, self.file)
        if record is None or image.size is None or image.size != record.get("size"):
            return False
        if self._unlike(image, {**record, "mtime_ns": image.mtime_ns}, importing.machine) is not None:
            return False
        try:
            importing.take_over(str(record.get("sha256")), self.source or "")
        except Refused as error:
            if error.finding.id != "image.digest":
                raise
            return False
        return True

    def _unlike(self, image: Image, record: dict[str, object], machine: Machine) -> Optional[str]:
        if not image.magic or not 0 < image.bytes_used <= (image.size or 0):
            return f"{image.size} bytes, cut or no squashfs"
        if (image.size, image.mtime_ns) != (record.get("size"), record.get("mtime_ns")):
            return "another file than was imported"
        wanted = {"source": self.source, "arch": self._arch(machine), "compressor": self.compressor}
        other = [str(record.get(key)) for key, value in wanted.items() if record.get(key) != value]
        return ", ".join(other) or None

    def _arch(self, machine: Machine) -> str:
        return self.arch or machine.architecture()

    def _wanted(self, machine: Machine) -> str:
        return f"{self.source}, {self._arch(machine)}, {self.compressor}"


def _check_source(source: str) -> None:
    """Raise ValueError for what enroot would not import, or would look for elsewhere."""
    if not (_REGISTRY.fullmatch(source) or _DAEMON.fullmatch(source)):
        raise ValueError(
            "source must be docker://[USER@][REGISTRY#]IMAGE[:TAG], dockerd://IMAGE[:TAG] or podman://IMAGE[:TAG],"
            f" without a password, found {source!r}"
        )
    host, slash, rest = source.partition("://")[2].partition("/")
    if source.startswith("docker:") and slash and "#" not in source and re.search(r"[.:]", host):
        raise ValueError(
            f"enroot takes {host!r} for a part of the image's name and asks Docker Hub: write docker://{host}#{rest}"
        )
