"""Mounts: on which filesystem a path lies, and whether that is the node's own."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Optional

from k3env.node.machine import Machine

MOUNTINFO = "/proc/self/mountinfo"

LOCAL, NETWORK, AMBIGUOUS, UNLISTED = "local", "network", "ambiguous", "unlisted"

# Names as in mountinfo. Sources: the table of file systems in coreutils' stat.c, the kernel's filesystems documents,
# and for FUSE the clients' own names. 9p, which coreutils calls local, is ambiguous here: its data may be elsewhere.
_KINDS = {
    LOCAL: "ext2 ext3 ext4 xfs btrfs zfs f2fs bcachefs jfs reiserfs nilfs2 tmpfs ramfs rootfs devtmpfs hugetlbfs"
    " squashfs erofs iso9660 udf vfat exfat ntfs ntfs3 fuse.fuse2fs",
    NETWORK: "nfs nfs4 lustre gpfs mmfs beegfs fhgfs ceph cifs smb3 smb2 smbfs panfs afs kafs coda gfs gfs2 ocfs2 snfs"
    " ibrix acfs orangefs pvfs2 wekafs glusterfs ncpfs fuse.sshfs fuse.glusterfs fuse.ceph fuse.ceph-fuse fuse.juicefs"
    " fuse.gcsfuse fuse.s3fs fuse.goofys fuse.mountpoint-s3 fuse.rclone fuse.lustre fuse.dfs fuse.3fs fuse.hf3fs"
    " fuse.cvmfs fuse.blobfuse fuse.blobfuse2 fuse.moosefs fuse.mfs fuse.alluxio-fuse fuse.seaweedfs"
    " fuse.dav fuse.davfs",
    AMBIGUOUS: "fuse fuseblk fuse.squashfuse fuse.squashfuse_ll fuse.fuse-overlayfs fuse.unionfs fuse.mergerfs"
    " fuse.bindfs virtiofs 9p overlay overlayfs aufs autofs vboxsf prl_fs vmhgfs fuse.vmhgfs-fuse",
}
_KIND_OF = {fstype: kind for kind, names in _KINDS.items() for fstype in names.split()}
_OVERLAYS = ("overlay", "overlayfs")
_STATS = {"ext2/ext3": "ext4", "overlayfs": "overlay", "nfs": "nfs4", "fuseblk": "fuse"}
"""What coreutils' stat calls a filesystem, where mountinfo has another word."""


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo."""

    point: str
    fstype: str
    source: str
    """A device, a server's export, or a word without meaning."""
    options: tuple[str, ...] = ()
    """Of this mount: ro, noexec, nosuid."""
    super_options: tuple[str, ...] = ()
    """Of its filesystem: ro, upperdir=…"""

    @property
    def kind(self) -> str:
        """Whether the data lies on this node, by the type alone: local, network, ambiguous or unlisted."""
        return _KIND_OF.get(self.fstype, UNLISTED)

    @property
    def read_only(self) -> bool:
        """Whether nothing can be written here."""
        return "ro" in self.options or "ro" in self.super_options

    @property
    def noexec(self) -> bool:
        """Whether nothing can be executed, or mapped as code, from here."""
        return "noexec" in self.options

    @property
    def upper(self) -> Optional[str]:
        """Where an overlay's new files really go, as the mounting namespace named it."""
        if self.fstype not in _OVERLAYS:
            return None
        found = [option for option in self.super_options if option.startswith("upperdir=")]
        return found[0].partition("=")[2] if found else None


@dataclass(frozen=True)
class Locality:
    """The filesystem under a path."""

    path: str
    """The deepest part of the path that exists, its links resolved."""
    mount: Mount
    data: Mount
    """Where the data lies: of an overlay, the mount of its upper directory if that can be seen from here."""


def mounts(machine: Machine) -> tuple[Mount, ...]:
    """Read this process's mounts, in the order in which they were made.

    Source: /proc/self/mountinfo, as proc(5) describes it. A container sees its own.
    """
    table = tuple(_mount(line) for line in machine.text(MOUNTINFO).splitlines() if line)
    return table if any(mount.point == "/" for mount in table) else (_chroots(machine), *table)


def _chroots(machine: Machine) -> Mount:
    """Return the mount of a chroot's root, which mountinfo does not show: its type is what stat(1) calls it."""
    named = machine.run(("stat", "-f", "-c", "%T", "/")).text.strip()
    flags = os.statvfs("/").f_flag
    options = [name for name, flag in (("ro", os.ST_RDONLY), ("noexec", os.ST_NOEXEC)) if flags & flag]
    return Mount("/", _STATS.get(named, named), "the root of a chroot", tuple(options))


def containing(table: tuple[Mount, ...], path: str) -> Mount:
    """Return the mount that a path without links lies on: of the longest prefixes the last, which covers the others.

    Raises ValueError if no mount contains the path.
    """
    best: Optional[Mount] = None
    for mount in table:
        if _contains(mount.point, path) and (best is None or len(mount.point) >= len(best.point)):
            best = mount
    if best is None:
        raise ValueError(f"{MOUNTINFO} has no mount for {path}")
    return best


def locality(machine: Machine, path: str) -> Locality:
    """Return on which filesystem a path is, or would be.

    It may block on a dead server where a link leads there, so only a fact, in its child, may call it.
    """
    existing = machine.realpath(path)
    while machine.stat(existing, follow=False) is None and existing != "/":
        existing = os.path.dirname(existing)
    machine.stat(existing)  # an automounter's placeholder becomes its filesystem
    table = mounts(machine)
    mount = containing(table, existing)
    return Locality(existing, mount, data_mount(table, mount, machine))


def data_mount(table: tuple[Mount, ...], mount: Mount, machine: Machine) -> Mount:
    """Return where an overlay's data lies, which is the overlay itself if its upper directory is not visible here."""
    for _ in table:
        if mount.upper is None or not machine.is_dir(mount.upper):
            break
        below = containing(table, mount.upper)
        if below == mount:
            break
        mount = below
    return mount


def _mount(line: str) -> Mount:
    """Parse one line.

    Raises ValueError for one that is none.
    """
    before, dash, after = line.partition(" - ")
    left, right = before.split(" "), after.split(" ")
    if not dash or len(left) < 6 or len(right) < 3:
        raise ValueError(f"{MOUNTINFO} has a line of another form: {line!r}")
    return Mount(_unescaped(left[4]), right[0], _unescaped(right[1]), _options(left[5]), _options(" ".join(right[2:])))


def _options(text: str) -> tuple[str, ...]:
    """Split options at commas; one within a value is escaped by a backslash, as overlay does it."""
    return tuple(option.replace("\\,", ",") for option in re.split(r"(?<!\\),", _unescaped(text)))


def _unescaped(text: str) -> str:
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found.group(1), 8)), text)


def _contains(point: str, path: str) -> bool:
    return point == "/" or path == point or path.startswith(point + "/")
