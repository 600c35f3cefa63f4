"""What the node-local base of the rank caches must be."""

from __future__ import annotations

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.checks._rank_caches import collision, executable, filled_cubins, jit_caches, other_caches
from k3env.node.facts import mounts
from k3env.node.facts.cache import (
    MODE,
    Base,
    Filesystem,
    Probe,
    Room,
    cache_base,
    cache_filesystem,
    cache_probe,
    cache_room,
    unsafe,
)
from k3env.protocol.finding import WARN, Finding
from k3env.protocol.profile import Profile

__all__ = ("collision", "executable", "filled_cubins", "jit_caches", "other_caches")

NO_BASE = "no cache base in this play"
GIB = 1 << 30

# What to do when a step of the probe fails.
_REMEDIES = {
    "create": "see whether the filesystem is full or read-only, or set cache_base elsewhere",
    "map": "mount it without noexec, or set cache_base to a filesystem that is: compiled kernels are loaded from there",
    "lock": "set cache_base to a filesystem with flock: ranks lock their caches",
}
_ELSEWHERE = "set cache_base to a local filesystem such as ext4 or xfs"


@check("cache.locality", cache_filesystem, scope="node", severity="fail", contexts=("job",))
def locality(filesystem: Filesystem, profile: Profile) -> Finding:
    """The cache base is on a filesystem of the node itself: JIT caches on a shared one lose files to each other."""
    if filesystem.path is None or filesystem.locality is None:
        return skip(NO_BASE)
    mount = filesystem.locality.data
    found = f"{mount.fstype} at {mount.point}"
    if mount.kind == mounts.NETWORK:
        return fail(
            expected="a filesystem of the node itself",
            found=f"{found}, from {mount.source}",
            remedy="set cache_base to a directory on a local disk, such as /local or /scratch of this site",
        )
    if not filesystem.exists:
        return _absent(filesystem.path)
    if mount.kind == mounts.UNLISTED:
        return unknown(f"{filesystem.path} is on {found}, a type that is not known to be local; {_ELSEWHERE}")
    if mount.kind == mounts.AMBIGUOUS:
        # Not a failure: such a type is local more often than not, and the root of most containers is an overlay.
        return Finding(
            "",
            WARN,
            expected="a filesystem of the node itself",
            found=f"{found}, which may be local or not",
            remedy=f"see where its data lies, or {_ELSEWHERE}",
        )
    return passed(found)


@check("cache.owner", cache_base, scope="node", severity="fail", contexts=("job",))
def owner(base: Base, profile: Profile) -> Finding:
    """The cache base belongs to the user of the ranks, who alone may enter it, and nobody else can replace it."""
    if base.path is None:
        return skip(NO_BASE)
    expected = f"a directory of uid {base.wanted_uid}, mode {MODE:04o}"
    strange = next((item for item in base.components if item.kind != "directory"), None)
    if strange is not None and (strange.kind == "other" or strange.path == base.path):
        kind = "a symbolic link" if strange.kind == "link" else "no directory"
        return fail(
            expected=expected, found=f"{strange.path} is {kind}", remedy="remove it, or set cache_base elsewhere"
        )
    danger = unsafe(base.components, base.wanted_uid)
    if danger is not None:
        return fail(expected=expected, found=danger, remedy="set cache_base below a directory that is yours or root's")
    if strange is not None:
        return fail(
            expected=expected,
            found=f"{strange.path}, on the way to {base.path}, is a symbolic link",
            remedy=f"set cache_base to the directory that it leads to: realpath {base.path}",
        )
    itself = base.itself
    if itself is None:
        return _absent(base.path)
    if itself.uid != base.wanted_uid:
        remedy = f"chown -R {base.wanted_uid} {base.path}, or set cache_base elsewhere"
        return fail(expected=expected, found=f"uid {itself.uid}", remedy=remedy)
    if itself.mode != MODE:
        return fail(expected=expected, found=f"mode {itself.shown}", remedy="run invoke caches, which mends the mode")
    return passed(f"uid {itself.uid}, mode {itself.shown}")


@check("cache.writable_exec", cache_probe, scope="node", severity="fail", contexts=("job",))
def writable_exec(probe: Probe, profile: Profile) -> Finding:
    """In the cache base files can be made, loaded as code, locked, renamed and removed."""
    if probe.path is None:
        return skip(NO_BASE)
    if not probe.exists:
        return _absent(probe.path)
    if probe.failed is not None:
        return fail(
            expected="create, map as code, lock, rename and remove a file",
            found=f"{probe.failed}: {probe.reason}",
            remedy=_REMEDIES.get(probe.failed, _ELSEWHERE),
        )
    return passed("created, mapped as code, locked, renamed and removed a file")


@check("cache.space", cache_room, scope="node", severity="warn", contexts=("job",))
def space(room: Room, profile: Profile) -> Finding:
    """The cache base has room for what the ranks will compile."""
    if room.path is None:
        return skip(NO_BASE)
    if not room.exists:
        return _absent(room.path)
    wanted = profile.cache
    expected = f">= {wanted.free_gib:g} GiB and {wanted.free_inodes} inodes free"
    found = f"{room.free_bytes / GIB:.1f} GiB and {room.free_inodes} inodes free"
    if room.free_bytes < wanted.free_gib * GIB or room.free_inodes < wanted.free_inodes:
        return fail(expected=expected, found=found, remedy=f"make room, or set cache_base elsewhere than {room.path}")
    return passed(found)


def _absent(path: str) -> Finding:
    return fail(expected=f"the directory {path}", found="no such directory", remedy="run invoke caches")
