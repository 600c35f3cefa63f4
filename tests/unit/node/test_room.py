"""Room for a build: each filesystem is measured by what lands on it, and quotas are read as their tools say them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from k3env.k3 import build as k3
from k3env.k3.build import GIB
from k3env.node.facts.mounts import Mount, locality
from k3env.node.facts.quota import MMLSQUOTA, Quota, quota
from k3env.node.machine import Machine, Space
from k3env.node.modules import _ground, _room
from k3env.node.modules._room import Need, needs
from k3env.node.modules.trtllm_build import TrtllmBuild
from k3env.protocol.finding import Unreadable

GID = os.getegid()


def told(wanted: list[Need]) -> dict[tuple[str, str], tuple[int, int]]:
    return {(need.path, need.what): (need.size, need.inodes) for need in wanted}


@pytest.mark.parametrize(
    ("build_root", "compiled", "made", "wanted"),
    [
        (None, False, False, {("/r", "objects"): k3.OBJECTS, ("/r", "environment and libraries"): k3.PACKAGE_FIRST}),
        (
            "/local/b",
            False,
            False,
            {("/local/b", "objects"): k3.OBJECTS, ("/r", "environment and libraries"): k3.PACKAGE_FIRST},
        ),
        # Another node's environment and libraries, and this one's first objects.
        ("/local/b", False, True, {("/local/b", "objects"): k3.OBJECTS, ("/r", "libraries"): k3.PACKAGE_AGAIN}),
        (
            "/local/b",
            True,
            True,
            {("/local/b", "objects"): k3.OBJECTS_AGAIN, ("/r", "libraries"): k3.PACKAGE_AGAIN},
        ),
    ],
)
def test_what_lands_where(build_root: str | None, compiled: bool, made: bool, wanted: Mapping[object, object]) -> None:
    assert told(needs("/r", build_root, (), compiled=compiled, made=made)) == wanted


def test_a_first_build_takes_what_its_documents_say() -> None:
    whole = needs("/r", None, (), compiled=False, made=False)
    assert sum(need.size for need in whole) == 63 * GIB and sum(need.inodes for need in whole) == 400_000


class Filesystems(Machine):
    """A machine whose directories lie on filesystems of this much room, by device."""

    def __init__(self, rooms: dict[str, tuple[int, Space]]) -> None:
        super().__init__()
        self.rooms, self.asked = rooms, list[str]()

    def _of(self, path: str) -> tuple[int, Space]:
        return self.rooms[max((name for name in self.rooms if path.startswith(name)), key=len)]

    def stat(self, path: str, follow: bool = True) -> os.stat_result | None:
        found = super().stat(path, follow)
        if found is None:
            return None
        values = list(found)[:10]
        values[2] = self._of(path)[0]
        return os.stat_result(values)

    def space(self, path: str) -> Space:
        self.asked.append(path)
        return self._of(path)[1]


def test_two_filesystems_are_measured_each_by_its_own(tmp_path: Path) -> None:
    shared, local = tmp_path / "shared", tmp_path / "local"
    shared.mkdir(), local.mkdir()
    machine = Filesystems({str(shared): (1, Space(11 * GIB, 90_000)), str(local): (2, Space(54 * GIB, 400_000))})
    wanted = needs(f"{shared}/r", f"{local}/not/yet", (), compiled=False, made=False)
    rooms = _room.look(machine, wanted)
    assert [room.short for room in rooms] == [None, None], "neither could take all of it, and need not"
    assert sorted(machine.asked) == [str(local), str(shared)]
    machine.rooms[str(shared)] = (1, Space(9 * GIB, 90_000))
    machine.rooms[str(local)] = (2, Space(54 * GIB, 300_000))
    told = {room.wanted: room.short for room in _room.look(machine, wanted)}
    assert told == {
        f"53 GiB and 320000 inodes free at {local}/not/yet (objects)": "54.0 GiB and 300000 inodes",
        f"10 GiB and 80000 inodes free at {shared}/r (environment and libraries)": "9.0 GiB and 90000 inodes",
    }


def test_one_filesystem_is_measured_by_the_sum(tmp_path: Path) -> None:
    machine = Filesystems({str(tmp_path): (1, Space(62 * GIB, 1 << 30))})
    root = str(tmp_path)
    wanted = needs(f"{root}/r", f"{root}/b", (f"{root}/c",), compiled=False, made=False)
    (room,) = _room.look(machine, wanted)
    assert room.short is not None and room.size == 65 * GIB and len(room.needs) == 3


def test_where_a_build_with_its_own_root_is_measured(tmp_path: Path) -> None:
    module = TrtllmBuild(str(tmp_path / "r"), "a" * 40, build_root=str(tmp_path / "b"))
    around = {"CONAN_HOME": str(tmp_path / "c/conan"), "PIP_CACHE_DIR": str(tmp_path / "c/pip")}
    found = _ground._needs(Machine(), module, around, compiled=False, python="3.12")
    assert [(need.path, need.what) for need in found] == [
        (str(tmp_path / "b"), "objects"),
        (str(tmp_path / "r"), "environment and libraries"),
        (str(tmp_path / "c/conan"), "caches"),
    ]
    for path in (tmp_path / "r/.venv-3.12", tmp_path / "c/conan/p", tmp_path / "c/pip/http"):
        path.mkdir(parents=True)
    found = _ground._needs(Machine(), module, around, compiled=False, python="3.12")
    assert [need.what for need in found] == ["objects", "libraries"]


# Quotas. There are none on this machine's kernel, so that the tools are stand-ins that say what theirs do.

QUOTA = """Disk quotas for user me (uid 1000): 
     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
          /home 1000000  2000000 3000000       0   10000       0   20000       0
           /srv      12       1       1       0       1       1       1       0
"""  # noqa: W291
OVER = """     Filesystem  blocks   quota   limit   grace   files   quota   limit   grace
          /home 2000001* 2000000 3000000 1796048430   10000       0   20000       0
"""
LFS = "         /home 1000000  2000000 3000000       -   10000       0   20000       -\n"
LFS_WRAPPED = "      /home\n                1000000* 2000000 3000000       - [10000]       0   20000       -\n"
GPFS = """mmlsquota::HEADER:version:reserved:reserved:filesystemName:quotaType:id:name:blockUsage:blockQuota:blockLimit:blockInDoubt:blockGrace:filesUsage:filesQuota:filesLimit:filesInDoubt:filesGrace:
mmlsquota::0:1:::home:USR:1000:me:1000000:2000000:3000000:0:none:10000:0:20000:0:none:
mmlsquota::0:1:::home:GRP:4242:others:5:5:5:0:none:5:5:5:0:none:
mmlsquota::0:1:::home:FILESET:7:f:5:5:5:0:none:5:5:5:0:none:
"""  # noqa: E501
LEFT = (1000000 * 1024, 10000)


def node(tmp_path: Path, name: str, said: str, exit_code: int = 0) -> Machine:
    """Return a machine with one such tool, which notes how it was asked."""
    (tmp_path / "said").write_text(said)
    program = tmp_path / name
    program.write_text(f"#!/bin/sh\necho \"$@\" >> '{tmp_path}/asked'\ncat '{tmp_path}/said'\nexit {exit_code}\n")
    program.chmod(0o755)
    return Machine(environment={"PATH": f"{tmp_path}:/usr/bin:/bin"})


@pytest.mark.parametrize(
    ("tool", "fstype", "said", "left"),
    [
        ("quota", "ext4", QUOTA, LEFT),
        ("quota", "nfs4", OVER, (0, 10000)),
        ("quota", "xfs", "", (None, None)),
        ("quota", "xfs", "Disk quotas for user me (uid 1000): none\n", (None, None)),
        ("quota", "xfs", "          /home 1 0 0 0 1 0 0 0\n", (None, None)),
        ("lfs", "lustre", LFS, LEFT),
        ("lfs", "lustre", LFS_WRAPPED, LEFT),
        ("lfs", "lustre", "Some errors happened when getting quota info.\n      /home  -  -\n", (None, None)),
    ],
)
def test_what_is_left_of_a_quota(
    tmp_path: Path, tool: str, fstype: str, said: str, left: tuple[int | None, int | None]
) -> None:
    machine = node(tmp_path, tool, said, exit_code=1)
    found = quota(machine, Mount("/home", fstype, "server:/export"), str(tmp_path))
    assert isinstance(found, Quota) and (found.free_bytes, found.free_inodes) == left
    asked = (tmp_path / "asked").read_text()
    assert f"-u {os.geteuid()}" in asked and f"-g {GID}" in asked and "/home" in asked


def test_gpfs_speaks_of_this_user_and_its_groups_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = node(tmp_path, "mmlsquota", GPFS)
    monkeypatch.setattr("k3env.node.facts.quota.MMLSQUOTA", str(tmp_path / "mmlsquota"))
    found = quota(machine, Mount("/home", "gpfs", "/dev/home"), str(tmp_path))
    assert isinstance(found, Quota) and (found.free_bytes, found.free_inodes) == LEFT
    assert (tmp_path / "asked").read_text() == "-Y home\n" and MMLSQUOTA.startswith("/usr/lpp")


def test_a_lustre_directory_of_a_project(tmp_path: Path) -> None:
    machine = node(tmp_path, "lfs", " 1234 P /home/x\n")
    quota(machine, Mount("/home", "lustre", "10.0.0.1@tcp:/home"), str(tmp_path))
    assert "quota -q -p 1234 /home\n" in (tmp_path / "asked").read_text()


def test_a_server_that_does_not_answer_is_no_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = node(tmp_path, "quota", "")
    (tmp_path / "quota").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr("k3env.node.facts.quota.ASK_S", 0.2)
    assert isinstance(quota(machine, Mount("/home", "nfs4", "s:/x"), str(tmp_path)), Unreadable)


@pytest.mark.parametrize("fstype", ["lustre", "gpfs", "ext4"])
def test_where_nobody_can_be_asked(tmp_path: Path, fstype: str) -> None:
    assert quota(Machine(environment={"PATH": str(tmp_path)}), Mount("/", fstype, "x"), "/") is None


def test_a_quota_counts_as_room_does(tmp_path: Path) -> None:
    machine = node(tmp_path, "quota", "")
    point = locality(machine, str(tmp_path)).mount.point
    (tmp_path / "said").write_text(QUOTA.replace("/home", point))
    (room,) = _room.look(machine, [Need(str(tmp_path / "not/yet"), "objects", 1 << 30, 10)])
    assert room.quota is not None and room.quota.free_bytes == LEFT[0]
    assert room.short == "a quota with 1.0 GiB left"
    (tmp_path / "quota").write_text("#!/bin/sh\nexit 1\n")
    assert [room.short for room in _room.look(machine, room.needs)] == [None]
