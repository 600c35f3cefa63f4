"""cache_dirs: what it makes, what it refuses, and that it never leaves its way."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from k3env.errors import Refused, TaskFailed
from k3env.node.facts import cache
from k3env.node.machine import Machine
from k3env.node.modules.cache_dirs import CacheDirs
from k3env.protocol.finding import Change

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")


def dirs(base: object, **rest: Any) -> CacheDirs:
    return CacheDirs(str(base), **{"min_free_gib": 0, **rest})


def applied(module: CacheDirs) -> tuple[Change, ...]:
    """Do what the worker does, and return the changes it would tell of."""
    found = module.changes(Machine())
    if found:
        module.apply(Machine(), found)
    assert module.changes(Machine()) == ()
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def node(tmp_path: Path, mountinfo: str = "", **answers: Any) -> Machine:
    """Return a machine with other mounts or other free space."""
    place = tmp_path / "overlay/proc/self"
    place.mkdir(parents=True)
    if mountinfo:
        (place / "mountinfo").write_text(f"1 0 254:0 / / rw - ext4 /dev/vda rw\n{mountinfo}\n", encoding="utf-8")
    (tmp_path / "overlay/machine.json").write_text(json.dumps(answers), encoding="utf-8")
    return Machine(overlay=str(tmp_path / "overlay"))


def test_a_base_is_made_and_then_left_alone(tmp_path: Path) -> None:
    base = tmp_path / "base"
    assert applied(dirs(base)) == (Change(f"base {base}", "absent", "directory 0700"),)
    assert mode(base) == 0o700
    assert applied(dirs(base)) == ()
    assert list(base.iterdir()) == []


def test_missing_parents_are_named_one_by_one(tmp_path: Path) -> None:
    base = tmp_path / "a/b/base"
    assert applied(dirs(base)) == (
        Change(f"directory {tmp_path}/a", "absent", "directory 0755"),
        Change(f"directory {tmp_path}/a/b", "absent", "directory 0755"),
        Change(f"base {base}", "absent", "directory 0700"),
    )
    assert [mode(path) for path in (tmp_path / "a", tmp_path / "a/b", base)] == [0o755, 0o755, 0o700]


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        applied(dirs(tmp_path / "a/base"))
    finally:
        os.umask(before)
    assert [mode(tmp_path / "a"), mode(tmp_path / "a/base")] == [0o755, 0o700]


@pytest.mark.parametrize("wrong", [0o755, 0o777, 0o500, 0o1700])
def test_a_mode_is_the_one_change(tmp_path: Path, wrong: int) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / "kernel.so").write_text("kept", encoding="utf-8")
    base.chmod(wrong)
    assert applied(dirs(base)) == (Change("base mode", f"{wrong:04o}", "0700"),)
    assert mode(base) == 0o700
    assert (base / "kernel.so").read_text(encoding="utf-8") == "kept"


def test_a_slash_at_the_end_changes_nothing(tmp_path: Path) -> None:
    applied(dirs(f"{tmp_path}/base/"))
    assert dirs(f"{tmp_path}/base").changes(Machine()) == ()


def test_changes_change_nothing(tmp_path: Path) -> None:
    dirs(tmp_path / "a/base").changes(Machine())
    assert list(tmp_path.iterdir()) == []


def test_it_takes_no_lease() -> None:
    assert CacheDirs("/local/k3").writes() == ()


@pytest.mark.parametrize("base", ["cache", "", "/", "/a/../b", "/a//b", "/a/./b", "//a"])
def test_a_base_must_be_a_plain_absolute_path(base: str) -> None:
    with pytest.raises(ValueError, match="base must be an absolute path"):
        CacheDirs(base)


def test_room_is_not_negative() -> None:
    with pytest.raises(ValueError, match="min_free_gib"):
        CacheDirs("/a", min_free_gib=-1)


# Refusals: nothing is made, and the component is named.


def refused(module: CacheDirs, machine: Machine | None = None) -> Refused:
    with pytest.raises(Refused) as caught:
        module.changes(machine or Machine())
    assert caught.value.finding.expected and caught.value.finding.found and caught.value.finding.remedy
    return caught.value


def test_a_link_in_its_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "base").symlink_to(tmp_path / "real")
    assert f"{tmp_path}/base is a symbolic link to {tmp_path}/real" in str(refused(dirs(tmp_path / "base")))


@pytest.mark.parametrize("target", ["real", "nowhere"])
def test_a_link_on_the_way(tmp_path: Path, target: str) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / target)
    assert f"{tmp_path}/link is a symbolic link" in str(refused(dirs(tmp_path / "link/base")))
    assert list((tmp_path / "real").iterdir()) == []


@pytest.mark.parametrize("name", ["base", "base/deeper"])
def test_a_file_in_its_place(tmp_path: Path, name: str) -> None:
    (tmp_path / "base").write_text("", encoding="utf-8")
    assert f"{tmp_path}/base is no directory" in str(refused(dirs(tmp_path / name)))


def test_a_parent_that_anybody_may_replace_things_in(tmp_path: Path) -> None:
    (tmp_path / "open/base").mkdir(parents=True, mode=0o700)
    (tmp_path / "open").chmod(0o777)
    assert f"anybody may replace {tmp_path}/open/base" in str(refused(dirs(tmp_path / "open/base")))


@as_root
def test_somebody_elses_base(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    os.chown(tmp_path / "base", OTHER, OTHER)
    assert f"belongs to uid {OTHER}" in str(refused(dirs(tmp_path / "base")))


@as_root
def test_somebody_elses_directory_below_a_sticky_one(tmp_path: Path) -> None:
    (tmp_path / "sticky/theirs").mkdir(parents=True)
    (tmp_path / "sticky").chmod(0o1777)
    os.chown(tmp_path / "sticky/theirs", OTHER, OTHER)
    error = refused(dirs(tmp_path / "sticky/theirs/base"))
    assert f"{tmp_path}/sticky/theirs belongs to uid {OTHER}" in str(error)
    assert list((tmp_path / "sticky/theirs").iterdir()) == []


@as_root
def test_a_home_of_somebody_else_is_their_word(tmp_path: Path) -> None:
    """Its parent is not open to all, so nobody but its owner can have made it: root may be sent there."""
    (tmp_path / "home").mkdir(mode=0o755)
    os.chown(tmp_path / "home", OTHER, OTHER)
    assert applied(dirs(tmp_path / "home/base"))


@pytest.mark.parametrize(
    ("fstype", "options", "told"),
    [
        ("nfs4", "rw", "is on a shared filesystem"),
        ("lustre", "rw", "is on a shared filesystem"),
        ("fuse.juicefs", "rw", "is on a shared filesystem"),
        ("ext4", "rw,noexec", "mounted noexec"),
        ("squashfs", "ro", "mounted read-only"),
    ],
)
def test_a_filesystem_that_can_not_serve(tmp_path: Path, fstype: str, options: str, told: str) -> None:
    machine = node(tmp_path, f"2 1 0:9 / {tmp_path}/mnt {options} - {fstype} filer:/x rw")
    error = refused(dirs(tmp_path / "mnt/base"), machine)
    assert told in str(error)
    assert "set cache_base" in (error.finding.remedy or "")
    assert fstype in (error.finding.found or "")


def test_a_dead_server_is_refused_before_the_path_is_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def touched(path: str) -> None:
        raise AssertionError(f"{path} was touched")

    machine = node(tmp_path, f"2 1 0:9 / {tmp_path}/mnt rw - nfs filer:/x rw")
    monkeypatch.setattr(cache, "components", touched)
    assert "shared filesystem" in str(refused(dirs(tmp_path / "mnt/base"), machine))


def test_too_little_room_to_begin_with(tmp_path: Path) -> None:
    machine = node(tmp_path, free_bytes={"/": 5 << 30})
    error = refused(dirs(tmp_path / "base", min_free_gib=20), machine)
    assert "5.0 GiB are free, 20 are wanted" in str(error)


def test_room_that_the_caches_took_is_no_refusal(tmp_path: Path) -> None:
    machine = node(tmp_path, free_bytes={"/": 5 << 30})
    (tmp_path / "base").mkdir(mode=0o700)
    assert dirs(tmp_path / "base", min_free_gib=20).changes(machine) == ()


# Between looking and making


def test_a_directory_that_became_a_link_is_not_entered(tmp_path: Path) -> None:
    module = dirs(tmp_path / "a/base")
    found = module.changes(Machine())
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(TaskFailed, match="can't be made"):
        module.apply(Machine(), found)
    assert list((tmp_path / "elsewhere").iterdir()) == []


@as_root
def test_a_directory_that_somebody_made_first_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "sticky").mkdir()
    (tmp_path / "sticky").chmod(0o1777)
    module = dirs(tmp_path / "sticky/a/base")
    found = module.changes(Machine())
    (tmp_path / "sticky/a").mkdir()
    os.chown(tmp_path / "sticky/a", OTHER, OTHER)
    with pytest.raises(Refused, match=f"belongs to uid {OTHER}"):
        module.apply(Machine(), found)
    assert list((tmp_path / "sticky/a").iterdir()) == []


def test_another_run_may_make_it_first(tmp_path: Path) -> None:
    module = dirs(tmp_path / "a/base")
    found = module.changes(Machine())
    applied(dirs(tmp_path / "a/base"))
    module.apply(Machine(), found)
    assert module.changes(Machine()) == ()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_parent_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    module = dirs(tmp_path / "closed/base")
    with pytest.raises(TaskFailed, match="Permission denied") as caught:
        module.apply(Machine(), module.changes(Machine()))
    assert "have its parent made" in (caught.value.finding.remedy or "")


def test_a_base_that_can_not_serve_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "probe", lambda path: cache.Probe(path, True, "map", "Operation not permitted"))
    module = dirs(tmp_path / "base")
    with pytest.raises(TaskFailed, match="can't hold caches: map: Operation not permitted"):
        module.apply(Machine(), module.changes(Machine()))


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    applied(dirs(tmp_path / "a/b/base"))
    assert os.listdir("/proc/self/fd") == before


def test_a_home_is_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    module = CacheDirs("~/cache", min_free_gib=0)
    module.apply(Machine(), module.changes(Machine()))
    assert (tmp_path / "cache").is_dir() and module.changes(Machine()) == ()
    with pytest.raises(ValueError, match="absolute path"):
        CacheDirs("~other/cache")
