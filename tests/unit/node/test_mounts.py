"""Mounts: parsing mountinfo, and finding the filesystem under a path."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from k3env.node.facts import Facts, mounts
from k3env.node.facts.cache import cache_filesystem
from k3env.node.facts.mounts import AMBIGUOUS, LOCAL, NETWORK, UNLISTED, Mount, containing, locality
from k3env.node.machine import Machine
from k3env.protocol.profile import Paths, Profile

# A node with an NFS home, a local disk, a path with a blank, and a second mount over the first one on /data.
NODE = r"""
1 0 254:0 / / rw,relatime - ext4 /dev/vda rw
2 1 0:50 / /home rw,relatime shared:1 - nfs4 filer:/export/home rw,vers=4.2,addr=10.0.0.9
3 1 259:1 / /local rw,nosuid,noexec,relatime - xfs /dev/nvme0n1 rw,attr2
4 1 259:2 / /with\040blank\134and\011more rw - ext4 /dev/disk\040one rw
5 1 0:51 / /data rw - lustre 10.0.0.1@tcp:/fsx rw,flock
6 1 259:3 / /data rw - ext4 /dev/nvme1n1 rw
7 1 0:52 / /data/old ro,relatime - fuse.sshfs a:/ rw,user_id=0
8 1 0:53 / /database rw - wekafs fs rw
"""
# As a container engine mounts a root: the upper directory is a path of the host.
CONTAINER = r"""
1 0 0:60 / / rw,relatime - overlay overlay rw,lowerdir=/l/A:/l/B,upperdir={upper},workdir=/work
2 1 0:61 / /proc rw - proc proc rw
3 1 0:62 / {other} rw - {other_type} something rw
"""


def machine(tmp_path: Path, text: str) -> Machine:
    place = tmp_path / "overlay/proc/self/mountinfo"
    place.parent.mkdir(parents=True)
    place.write_text(text.lstrip("\n"), encoding="utf-8")
    return Machine(overlay=str(tmp_path / "overlay"))


@pytest.mark.parametrize(
    ("path", "point", "fstype", "kind"),
    [
        ("/", "/", "ext4", LOCAL),
        ("/opt/x", "/", "ext4", LOCAL),
        ("/home", "/home", "nfs4", NETWORK),
        ("/home/u/.cache", "/home", "nfs4", NETWORK),
        ("/homes", "/", "ext4", LOCAL),
        ("/local/k3", "/local", "xfs", LOCAL),
        ("/with blank\\and\tmore/x", "/with blank\\and\tmore", "ext4", LOCAL),
        ("/data/x", "/data", "ext4", LOCAL),  # the last mount covers the first
        ("/data/old/x", "/data/old", "fuse.sshfs", NETWORK),
        ("/database/x", "/database", "wekafs", NETWORK),
    ],
)
def test_the_last_of_the_longest_prefixes(tmp_path: Path, path: str, point: str, fstype: str, kind: str) -> None:
    found = containing(mounts.mounts(machine(tmp_path, NODE)), path)
    assert (found.point, found.fstype, found.kind) == (point, fstype, kind)


def test_options(tmp_path: Path) -> None:
    table = mounts.mounts(machine(tmp_path, NODE))
    assert containing(table, "/local").noexec
    assert not containing(table, "/home").noexec
    assert containing(table, "/data/old").read_only
    assert not containing(table, "/data").read_only
    assert containing(table, "/home").source == "filer:/export/home"
    assert containing(table, "/with blank\\and\tmore").source == "/dev/disk one"


@pytest.mark.parametrize(
    ("fstype", "kind"),
    [
        ("btrfs", LOCAL), ("zfs", LOCAL), ("tmpfs", LOCAL), ("squashfs", LOCAL), ("rootfs", LOCAL),
        ("nfs", NETWORK), ("lustre", NETWORK), ("gpfs", NETWORK), ("beegfs", NETWORK), ("ceph", NETWORK),
        ("cifs", NETWORK), ("smb3", NETWORK), ("panfs", NETWORK), ("fuse.juicefs", NETWORK), ("fuse.3fs", NETWORK),
        ("fuse", AMBIGUOUS), ("fuseblk", AMBIGUOUS), ("9p", AMBIGUOUS), ("virtiofs", AMBIGUOUS),
        ("overlay", AMBIGUOUS), ("autofs", AMBIGUOUS), ("fuse.squashfuse", AMBIGUOUS),
        ("newfs", UNLISTED), ("fuse.newfs", UNLISTED), ("", UNLISTED),
    ],
)  # fmt: skip
def test_kinds(fstype: str, kind: str) -> None:
    assert Mount("/", fstype, "x").kind == kind


def test_an_overlay_is_where_its_upper_directory_is(tmp_path: Path) -> None:
    upper = tmp_path / "scratch/upper"
    upper.mkdir(parents=True)
    text = CONTAINER.format(upper=upper, other=tmp_path / "scratch", other_type="lustre")
    node = machine(tmp_path, text)
    found = locality(node, "/")
    assert (found.mount.fstype, found.data.fstype, found.data.kind) == ("overlay", "lustre", NETWORK)


def test_an_overlay_whose_upper_directory_is_out_of_sight_stays_ambiguous(tmp_path: Path) -> None:
    text = CONTAINER.format(upper="/var/lib/engine/42/diff", other="/var/lib", other_type="nfs")
    found = locality(machine(tmp_path, text), "/")
    assert (found.data.fstype, found.data.kind) == ("overlay", AMBIGUOUS)


def test_an_overlay_over_itself_ends(tmp_path: Path) -> None:
    text = CONTAINER.format(upper=tmp_path, other="/nowhere", other_type="ext4")
    assert locality(machine(tmp_path, text), "/").data.fstype == "overlay"


def test_an_upper_directory_with_a_comma(tmp_path: Path) -> None:
    text = CONTAINER.format(upper=r"/a\134,b", other="/x", other_type="ext4")
    assert mounts.mounts(machine(tmp_path, text))[0].upper == "/a,b"


def test_an_overlay_that_is_only_read_has_no_upper_directory() -> None:
    mount = Mount("/", "overlay", "overlay", ("ro",), ("ro", "lowerdir=/a:/b"))
    assert mount.upper is None


def test_links_are_followed_to_the_deepest_part_that_exists(tmp_path: Path) -> None:
    real = tmp_path / "disk"
    real.mkdir()
    (tmp_path / "link").symlink_to(real)
    node = machine(tmp_path, f"1 0 254:0 / / rw - ext4 /dev/vda rw\n2 1 0:9 / {real} rw - nfs4 filer:/x rw\n")
    found = locality(node, f"{tmp_path}/link/not/there")
    assert (found.path, found.mount.fstype) == (str(real), "nfs4")


@pytest.mark.parametrize("text", ["nonsense\n", "1 0 254:0 / / rw ext4 /dev/vda rw\n", "1 0 254:0 / / rw - ext4\n"])
def test_a_line_of_another_form_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="another form"):
        mounts.mounts(machine(tmp_path, text))


def test_no_mount_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no mount for /x"):
        containing((Mount("/y", "ext4", "x"),), "/x")


def test_this_machine_as_findmnt_sees_it(tmp_path: Path) -> None:
    """The oracle: util-linux looks up the same path."""
    argv = ["findmnt", "-n", "-o", "TARGET,FSTYPE", "--target", str(tmp_path)]
    try:
        done = subprocess.run(argv, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("no findmnt")
    found = locality(Machine(), str(tmp_path))
    assert done.stdout.split() == [found.mount.point, found.mount.fstype]


def test_a_wrong_mountinfo_is_unreadable_not_local(tmp_path: Path) -> None:
    node = machine(tmp_path, "nonsense\n")
    profile = Profile(paths=Paths(cache_base=os.fspath(tmp_path)))
    found = Facts(node, profile).collect((cache_filesystem,))[cache_filesystem]
    assert "another form" in found.reason


def test_a_chroot_does_not_see_its_own_mount(tmp_path: Path) -> None:
    """In a chroot that is no mount point, mountinfo begins with /proc: the root's type is then stat's."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/mountinfo").write_text("30 1 0:5 / /proc rw,nosuid shared:1 - proc proc rw\n")
    machine = Machine(overlay=str(tmp_path))
    found = containing(mounts.mounts(machine), "/var/tmp")
    assert (found.point, found.source) == ("/", "the root of a chroot")
    assert found.kind in ("local", "ambiguous", "network"), found.fstype
