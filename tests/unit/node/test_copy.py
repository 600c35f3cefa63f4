"""copy and template: a whole file, replaced at once, never through a link."""

from __future__ import annotations

import os
import resource
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3env.errors import Refused, TaskFailed
from k3env.node.machine import Machine
from k3env.node.modules import Module
from k3env.node.modules.copy import Copy
from k3env.node.modules.template import Template
from k3env.protocol.finding import Change
from k3env.protocol.plan import CHECK
from tests.agent import Agent, task

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
KINDS = [Copy, Template]


def applied(module: Module, machine: Machine | None = None) -> tuple[Change, ...]:
    """Do what the worker does."""
    on = machine or Machine()
    found = module.changes(on)
    if found:
        module.apply(on, found)
    assert module.changes(on) == ()
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_is_made_and_then_left_alone(tmp_path: Path, kind: type[Any]) -> None:
    dest = tmp_path / "k3.conf"
    module = kind(str(dest), content="* - memlock unlimited\n")
    assert applied(module) == (Change(str(dest), "absent", "file 0644\n* - memlock unlimited"),)
    assert dest.read_text() == "* - memlock unlimited\n" and mode(dest) == 0o644
    before = dest.stat()
    assert applied(module) == () and dest.stat().st_ino == before.st_ino
    assert os.listdir(tmp_path) == ["k3.conf"]


# there, wanted, before, after: the first lines that differ
DIFFERENCES = [
    (b"a\nb\nc\n", "a\nB\nc\n", "line 2: b\nline 3: c", "line 2: B\nline 3: c"),
    (b"a\n", "a\nb\n", "line 2: none", "line 2: b"),
    (b"a\nb\n", "a\n", "line 2: b", "line 2: none"),
    (b"", "a\n", "line 1: none", "line 1: a"),
    (b"a", "a\n", "1 bytes", "2 bytes, other ends of lines"),
    (b"a\r\nb\r\n", "a\nb\n", "6 bytes", "4 bytes, other ends of lines"),
    (b"caf\xe9\n", "café\n", "line 1: caf\ufffd", "line 1: café"),
    (b"\xff\xfe\x00", "x\n", "line 1: \ufffd\ufffd\\x00", "line 1: x"),
    (b"\x1b[2Jx\n", "x\n", "line 1: \\x1b[2Jx", "line 1: x"),
    (b"1\n2\n3\n4\n5\n6\n", "x\n", "line 1: 1\nline 2: 2\nline 3: 3\nline 4: 4\n… 2 lines more", "line 1: x"),
    (b"y" * 500 + b"\n", "x\n", "line 1: " + "y" * 199 + "…", "line 1: x"),
]


@pytest.mark.parametrize("there, wanted, before, after", DIFFERENCES)
def test_the_first_lines_that_differ_are_shown(
    tmp_path: Path, there: bytes, wanted: str, before: str, after: str
) -> None:
    dest = tmp_path / "file"
    dest.write_bytes(there)
    assert applied(Copy(str(dest), content=wanted)) == (Change(f"content of {dest}", before, after),)
    assert dest.read_bytes() == wanted.encode()


def test_what_is_not_asked_for_stays(tmp_path: Path) -> None:
    dest = tmp_path / "file"
    dest.write_text("old")
    dest.chmod(0o751)
    applied(Copy(str(dest), content="new"))
    assert mode(dest) == 0o751


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o777])
def test_modes_do_not_depend_on_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        applied(Copy(str(tmp_path / "a"), content="x"))
        applied(Copy(str(tmp_path / "b"), content="x", mode="2750"))
    finally:
        os.umask(before)
    assert [mode(tmp_path / "a"), mode(tmp_path / "b")] == [0o644, 0o2750]


def test_a_mode_is_the_one_change(tmp_path: Path) -> None:
    dest = tmp_path / "file"
    dest.write_text("same")
    dest.chmod(0o666)
    assert applied(Copy(str(dest), content="same", mode="0640")) == (Change(f"mode of {dest}", "0666", "0640"),)
    assert mode(dest) == 0o640


@as_root
def test_an_owner_by_name_and_by_number(tmp_path: Path) -> None:
    dest = tmp_path / "file"
    dest.write_text("same")
    changes = applied(Copy(str(dest), content="same", owner="nobody", group="65534"))
    assert changes == (
        Change(f"owner of {dest}", "root", "nobody"),
        Change(f"group of {dest}", "root", "65534"),
    )
    applied(Copy(str(dest), content="other"))
    assert (dest.stat().st_uid, dest.stat().st_gid) == (OTHER, 65534)


def test_secret_content_is_shown_neither_before_nor_after(tmp_path: Path) -> None:
    dest = tmp_path / "token"
    assert applied(Copy(str(dest), content="s3cret\nlines\n", sensitive=True, mode="0600")) == (
        Change(str(dest), "absent", "file 0600\n(not shown)"),
    )
    (change,) = applied(Copy(str(dest), content="n3w", sensitive=True))
    assert change == Change(f"content of {dest}", "(not shown)", "(not shown)")


def test_changes_change_nothing(tmp_path: Path) -> None:
    Copy(str(tmp_path / "a"), content="x").changes(Machine())
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["d (1)", "š é", "-rf", "'q\"", "x" * 200])
def test_paths_that_other_tools_stumble_over(tmp_path: Path, name: str) -> None:
    applied(Copy(str(tmp_path / name), content="x"))
    assert os.listdir(tmp_path) == [name]


WRONG = [
    ({"dest": "x", "content": ""}, "dest must be an absolute path"),
    ({"dest": "/a/../b", "content": ""}, "dest must be an absolute path"),
    ({"dest": "/a/", "content": ""}, "dest must be an absolute path"),
    ({"dest": "/", "content": ""}, "dest must be an absolute path"),
    ({"dest": "~x/a", "content": ""}, "dest must be an absolute path"),
    ({"dest": "/a"}, "needs content or src"),
    ({"dest": "/a", "content": "", "src": "b"}, "needs content or src"),
    ({"dest": "/a", "content": "", "mode": "u+x"}, "mode must be octal digits"),
    ({"dest": "/a", "content": "", "mode": "0o644"}, "mode must be octal digits"),
    ({"dest": "/a", "content": "", "mode": "0888"}, "mode must be octal digits"),
    ({"dest": "/a", "content": "", "mode": "64"}, "mode must be octal digits"),
    ({"dest": "/a", "content": "", "owner": "a b"}, "owner must be a name"),
    ({"dest": "/a", "content": "", "group": ""}, "group must be a name"),
]


@pytest.mark.parametrize("parameters, message", WRONG)
@pytest.mark.parametrize("kind", KINDS)
def test_parameters_that_can_not_be(kind: type[Any], parameters: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**parameters)


def refused(module: Module, machine: Machine | None = None) -> str:
    on = machine or Machine()
    with pytest.raises(Refused) as caught:
        module.apply(on, module.changes(on))
    assert caught.value.finding.expected and caught.value.finding.found and caught.value.finding.remedy
    return str(caught.value)


def _link(path: Path) -> None:
    (path.parent / "target").write_text("untouched")
    path.symlink_to("target")


IN_THE_WAY: dict[str, tuple[Callable[[Path], object], str]] = {
    "link": (_link, "is a symbolic link to target"),
    "dangling link": (lambda path: path.symlink_to("nowhere"), "is a symbolic link to nowhere"),
    "directory": (lambda path: path.mkdir(), "is a directory"),
    "pipe": (os.mkfifo, "is no regular file"),
}


@pytest.mark.parametrize("name", IN_THE_WAY)
def test_what_is_no_file_is_left_alone(tmp_path: Path, name: str) -> None:
    make, told = IN_THE_WAY[name]
    dest = tmp_path / "dest"
    make(dest)
    assert told in refused(Copy(str(dest), content="x"))
    with pytest.raises(Refused):
        Copy(str(dest), content="x").apply(Machine(), ())
    assert not (tmp_path / "target").exists() or (tmp_path / "target").read_text() == "untouched"


def test_a_directory_that_is_missing(tmp_path: Path) -> None:
    module = Copy(str(tmp_path / "a/b"), content="x")
    assert "has no directory to be in" in refused(module)
    # In check mode an earlier task may be about to make it.
    assert module.changes(Machine()) == (Change(str(tmp_path / "a/b"), "absent", "file 0644\nx"),)


def test_users_that_the_node_does_not_know(tmp_path: Path) -> None:
    assert "user nosuch is unknown" in refused(Copy(str(tmp_path / "a"), content="x", owner="nosuch"))
    assert "group nosuch is unknown" in refused(Copy(str(tmp_path / "a"), content="x", group="nosuch"))


def test_a_parent_that_anybody_may_replace_things_in(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open/dir").mkdir()
    assert "anybody may replace" in refused(Copy(str(tmp_path / "open/dir/file"), content="x"))
    assert list((tmp_path / "open/dir").iterdir()) == []


@as_root
def test_somebody_elses_directory_and_link_below_a_sticky_one(tmp_path: Path) -> None:
    (tmp_path / "ours").mkdir()
    sticky = tmp_path / "sticky"
    (sticky / "theirs").mkdir(parents=True)
    sticky.chmod(0o1777)
    os.chown(sticky / "theirs", OTHER, OTHER)
    (sticky / "link").symlink_to(tmp_path / "ours")
    os.chown(sticky / "link", OTHER, OTHER, follow_symlinks=False)
    (tmp_path / "hop").symlink_to(sticky / "link")
    for way in ("sticky/theirs", "sticky/link", "hop"):
        assert f"belongs to uid {OTHER}" in refused(Copy(str(tmp_path / way / "file"), content="x")), way
    assert list((tmp_path / "ours").iterdir()) == []


def test_our_own_links_on_the_way_are_gone_along(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    applied(Copy(str(tmp_path / "link/file"), content="x"))
    assert (tmp_path / "real/file").read_text() == "x"


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "links" in refused(Copy(str(tmp_path / "a/file"), content="x"))


def test_a_directory_that_became_a_link_is_not_entered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dir").mkdir()
    (tmp_path / "elsewhere").mkdir()
    module = Copy(str(tmp_path / "dir/file"), content="x")
    there = module._file(Machine())
    (tmp_path / "dir").rmdir()
    (tmp_path / "dir").symlink_to("elsewhere")
    with pytest.raises(TaskFailed, match="can't be written"):
        there.put()
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_that_is_not_ours(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(TaskFailed, match="Permission denied") as caught:
        Copy(str(tmp_path / "closed/file"), content="x").apply(Machine(), ())
    assert "become" in (caught.value.finding.remedy or "")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(TaskFailed, match="File too large"):
            Copy(str(tmp_path / "a"), content="x" * 9000).apply(Machine(), ())
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == ["a"] and (tmp_path / "a").read_text() == "old"


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    applied(Copy(str(tmp_path / "a"), content="x"))
    assert os.listdir("/proc/self/fd") == before


def test_a_home_is_the_nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    applied(Copy("~/a", content="x"))
    assert (tmp_path / "a").read_text() == "x"


def test_a_simulated_node_keeps_what_is_not_its_own_in_its_overlay(tmp_path: Path) -> None:
    overlay = tmp_path / "rack/tray/overlay"
    overlay.mkdir(parents=True)
    machine = Machine(overlay=str(overlay))
    module = Copy("/etc/k3env-of-a-test.conf", content="x")
    module.changes(machine)
    assert list(overlay.iterdir()) == []
    applied(module, machine)
    assert (overlay / "etc/k3env-of-a-test.conf").read_text() == "x"
    assert machine.text("/etc/k3env-of-a-test.conf") == "x"
    assert not Path("/etc/k3env-of-a-test.conf").exists()
    assert "no directory" in refused(Copy("/nosuch/k3env", content="x"), machine)
    home = tmp_path / "rack/tray/home"
    home.mkdir()
    applied(Copy(str(home / "a"), content="x"), machine)
    assert (home / "a").read_text() == "x"


def test_through_the_agent_with_a_secret(tmp_path: Path) -> None:
    dest = tmp_path / "token"
    parameters = {"dest": str(dest), "content": {"$secret": "env:T"}, "sensitive": True}
    checked = Agent(tmp_path / "1").follow([task("copy", **parameters)], secrets={"env:T": "a\nsecret\n"}, mode=CHECK)
    assert checked.result()["status"] == "changed" and not dest.exists()
    heard = Agent(tmp_path / "2").follow([task("copy", **parameters)], secrets={"env:T": "a\nsecret\n"})
    assert heard.result()["status"] == "changed" and dest.read_text() == "a\nsecret\n"
    assert "secret" not in str([event.data for event in (*checked.events, *heard.events)])
    again = Agent(tmp_path / "3").follow([task("copy", **parameters)], secrets={"env:T": "a\nsecret\n"})
    assert again.result()["status"] == "ok"
