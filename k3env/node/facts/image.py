"""The container image as a file: its superblock, what it was packed with, for which CPUs it is."""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from typing import Optional, Union

from k3env.node.facts import deadline
from k3env.node.machine import Machine
from k3env.protocol.container import Container
from k3env.protocol.finding import Evidence, Unreadable, excerpt
from k3env.protocol.profile import Profile

MAGIC = b"hsqs"
COMPRESSORS = {1: "gzip", 2: "lzma", 3: "lzo", 4: "xz", 5: "lz4", 6: "zstd"}
"""By the superblock's number, as unsquashfs calls them. Source: the kernel's fs/squashfs/squashfs_fs.h."""
MACHINES = {3: "i386", 40: "arm", 62: "x86_64", 183: "aarch64", 243: "riscv64", 21: "ppc64le"}
"""By e_machine of an ELF header. Source: elf.h."""

_SUPERBLOCK = struct.Struct("<4sIIIIHHHHHHQQ")
# A shell by the names that are no links: unsquashfs follows none out of a merged /usr.
_SHELLS = tuple(f"{place}/{name}" for place in ("usr/bin", "bin") for name in ("dash", "bash", "busybox", "ash", "sh"))
# Only the head is wanted; what unsquashfs says of the names that are not there goes to its errors.
_HEAD = 'image="$1"; shift; unsquashfs -cat "$image" "$@" | head -c 64'


@dataclass(frozen=True)
class Image:
    """The image file that the variable `container` names."""

    path: Optional[str]
    """None: no image file is named."""
    size: Optional[int] = None
    """Bytes; None: nothing is there."""
    mtime_ns: Optional[int] = None
    magic: bool = False
    """Whether it begins as a squashfs does."""
    bytes_used: int = 0
    """By its superblock; a shorter file was cut."""
    made: int = 0
    """Seconds since 1970 when it was packed, by its superblock: with bytes_used it tells images apart."""
    compressor: str = ""
    version: str = ""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Unpacker:
    """What unpacks images here."""

    program: Optional[str]
    """Path of unsquashfs; None: not in PATH."""
    compressors: Union[tuple[str, ...], Unreadable] = ()
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Architecture:
    """For which CPUs an image's programs are, and which CPUs are here."""

    here: str
    image: Union[Optional[str], Unreadable] = None
    """None: no image file is named, nor a container that enroot has."""
    source: tuple[Evidence, ...] = ()


@deadline(5.0)
def image(machine: Machine, profile: Profile) -> Image:
    """Read the head of the image file. Source: the superblock, 96 bytes, in the kernel's squashfs_fs.h."""
    return look(machine, profile.container)


def look(machine: Machine, container: Container) -> Image:
    """Read the head of the image file that a container is of."""
    path = named(container)
    if path is None:
        return Image(None)
    status = machine.stat(path)
    if status is None:
        return Image(path, source=(Evidence(path, excerpt="no such file"),))
    data = machine.read(path, 96)
    told = Evidence(path, excerpt=f"{status.st_size} bytes, beginning with {data[:8].hex(' ')}")
    size, mtime = status.st_size, status.st_mtime_ns
    if data[:4] != MAGIC or len(data) < _SUPERBLOCK.size:
        return Image(path, size, mtime, source=(told,))
    _, _, made, _, _, number, _, _, _, major, minor, _, used = _SUPERBLOCK.unpack(data[: _SUPERBLOCK.size])
    compressor = COMPRESSORS.get(number, f"number {number}")
    return Image(path, size, mtime, True, used, made, compressor, f"{major}.{minor}", (told,))


@deadline(4.0)
def unpacker(machine: Machine) -> Unpacker:
    """Read which compressors unsquashfs can undo. Source: the end of `unsquashfs -help`."""
    program = machine.which("unsquashfs")
    if program is None:
        return Unpacker(None, source=(Evidence("unsquashfs", excerpt="not in PATH"),))
    done = machine.run(("unsquashfs", "-help"), timeout_s=3.0)
    said = f"{done.text}\n{done.stderr.decode('utf-8', 'replace')}"
    words = said.rpartition("ecompressors available:")[2].split("\n\n")[0].split()
    known = tuple(word for word in words if word in COMPRESSORS.values())
    told = Evidence("unsquashfs -help", done.exit_code, " ".join(known))
    if not known:
        return Unpacker(program, Unreadable("unsquashfs -help names no compressors", done.evidence()), (told,))
    return Unpacker(program, known, (told,))


@deadline(10.0)
def architecture(machine: Machine, profile: Profile) -> Architecture:
    """Read for which CPUs a shell in the image, or in enroot's container of that name, is, from its ELF header."""
    here = machine.architecture()
    path = file(profile)
    if path is None:
        return _of_directory(machine, profile.container, here)
    if machine.which("unsquashfs") is None:
        return Architecture(here, Unreadable("no unsquashfs in PATH: it is in the package squashfs-tools"))
    if not machine.is_file(path):
        return Architecture(here, Unreadable(f"{path} is no file"))
    done = machine.run(("sh", "-c", _HEAD, "sh", path, *_SHELLS), timeout_s=8.0)
    source = Evidence(f"unsquashfs -cat {path} {' '.join(_SHELLS)}", done.exit_code, excerpt(done.stderr))
    found = _machine(done.stdout)
    if found is None:
        why = "no answer in time" if done.timed_out else excerpt(done.stderr).rpartition("\n")[2] or "no shell in it"
        return Architecture(here, Unreadable(f"no program could be read from {path}: {why}", source), (source,))
    return Architecture(here, found, (source,))


def _of_directory(machine: Machine, container: Container, here: str) -> Architecture:
    """Read the shell of a container that enroot has by name, which is a directory."""
    from k3env.node.facts import enroot_root

    shell = enroot_root.shell(machine, container)
    if shell is None:
        return Architecture(here)
    found, source = _machine(machine.read(shell, 64)), Evidence(shell)
    return Architecture(here, found or Unreadable(f"{shell} is no program", source), (source,))


def file(profile: Profile) -> Optional[str]:
    """Return the image's path where the variable `container` names a file, as enroot has them."""
    return named(profile.container)


def named(container: Container) -> Optional[str]:
    """Return the path of a container's image, or None where it is no file."""
    name = container.image
    if container.engine != "enroot" or not (name.endswith((".sqsh", ".squashfs")) or os.path.isabs(name)):
        return None
    return name


def _machine(head: bytes) -> Optional[str]:
    """Return the CPUs of an ELF header, or None."""
    if len(head) < 20 or head[:4] != b"\x7fELF" or head[5] not in (1, 2):
        return None
    (number,) = struct.unpack("<H" if head[5] == 1 else ">H", head[18:20])
    return MACHINES.get(number, f"machine {number}")
