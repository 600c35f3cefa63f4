"""file: directories, links, modes and owners, and what is to be gone."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3env.errors import Refused, TaskFailed
from k3env.node.machine import Machine
from k3env.node.modules.file import File
from k3env.protocol.finding import Change

OTHER = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def file(path: Path, state: str, **rest: Any) -> File:
    return File(str(path), state, **rest)  # type: ignore[arg-type]


def applied(module: File) -> tuple[Change, ...]:
    """Do what the worker does."""
    found = module.changes(Machine())
    if found:
        module.apply(Machine(), found)
    assert module.changes(Machine()) == ()
    return found


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_directory_with_those_above_it(tmp_path: Path) -> None:
    at = tmp_path / "a/b/c"
    before = os.umask(0o077)
    try:
        assert applied(file(at, "directory", mode="2770")) == (
            Change(f"{tmp_path}/a", "absent", "directory 0755"),
            Change(f"{tmp_path}/a/b", "absent", "directory 0755"),
            Change(str(at), "absent", "directory 2770"),
        )
    finally:
        os.umask(before)
    assert [mode(path) for path in (tmp_path / "a", tmp_path / "a/b", at)] == [0o755, 0o755, 0o2770]
    assert applied(file(at, "directory")) == ()
    assert applied(file(at, "directory", mode="0700")) == (Change(f"mode of {at}", "2770", "0700"),)


def test_a_new_directory_has_a_mode_of_its_own(tmp_path: Path) -> None:
    applied(file(tmp_path / "d", "directory"))
    assert mode(tmp_path / "d") == 0o755


def test_a_file_has_its_mode_changed_and_its_content_kept(tmp_path: Path) -> None:
    at = tmp_path / "f"
    at.write_text("kept")
    at.chmod(0o666)
    inode = at.stat().st_ino
    assert applied(file(at, "file", mode="0400")) == (Change(f"mode of {at}", "0666", "0400"),)
    assert at.read_text() == "kept" and at.stat().st_ino == inode


@as_root
def test_owners(tmp_path: Path) -> None:
    at = tmp_path / "d"
    assert applied(file(at, "directory", owner="nobody", mode="4755"))
    assert (at.stat().st_uid, mode(at)) == (OTHER, 0o4755)
    assert applied(file(at, "directory", owner="0")) == (Change(f"owner of {at}", "nobody", "0"),)
    link = tmp_path / "l"
    applied(file(link, "link", src="d"))
    assert applied(file(link, "link", src="d", owner="nobody")) == (Change(f"owner of {link}", "root", "nobody"),)
    assert (link.lstat().st_uid, at.stat().st_uid) == (OTHER, 0)


def test_links(tmp_path: Path) -> None:
    at = tmp_path / "current"
    assert applied(file(at, "link", src="releases/1")) == (Change(str(at), "absent", "link to releases/1"),)
    (change,) = applied(file(at, "link", src="/releases/2"))
    assert change == Change(f"target of {at}", "releases/1", "/releases/2")
    assert os.readlink(at) == "/releases/2" and os.listdir(tmp_path) == ["current"]


def _full(path: Path) -> None:
    path.mkdir()
    (path / "kept").write_text("")


@pytest.mark.parametrize(
    "make, kind",
    [
        (lambda path: path.write_text("x"), "file"),
        (lambda path: path.mkdir(), "directory"),
        (lambda path: path.symlink_to("target"), "link"),
        (lambda path: os.mkfifo(path), "other"),
    ],
)
def test_what_is_to_be_gone(tmp_path: Path, make: Callable[[Path], object], kind: str) -> None:
    (tmp_path / "target").mkdir()
    at = tmp_path / "x"
    make(at)
    assert applied(file(at, "absent")) == (Change(str(at), kind, "absent"),)
    assert os.listdir(tmp_path) == ["target"]
    assert applied(file(tmp_path / "never/there", "absent")) == ()


# what stands there, the wanted state, part of the message
REFUSED: dict[str, tuple[Callable[[Path], object], str, dict[str, str], str]] = {
    "no directory for a link": (lambda path: None, "link", {"src": "y", "path": "x/y"}, "no directory to be in"),
    "no file": (lambda path: None, "file", {}, "there is no file"),
    "a link for a directory": (lambda path: path.symlink_to("/"), "directory", {}, "is a symbolic link"),
    "a link for a file": (lambda path: path.symlink_to("/etc/passwd"), "file", {"mode": "0666"}, "is a symbolic link"),
    "a file for a directory": (lambda path: path.write_text(""), "directory", {}, "is a file, not a directory"),
    "a directory for a file": (lambda path: path.mkdir(), "file", {}, "is a directory, not a file"),
    "a directory for a link": (lambda path: path.mkdir(), "link", {"src": "x"}, "is a directory, not a link"),
    "a file for a link": (lambda path: path.write_text(""), "link", {"src": "x"}, "is a file, not a link"),
    "a pipe for a file": (os.mkfifo, "file", {}, "is no regular file"),
    "something in it": (_full, "absent", {}, "is a directory that holds something"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(tmp_path: Path, name: str) -> None:
    make, state, given, message = REFUSED[name]
    rest = dict(given)
    make(tmp_path / "x")
    module = file(tmp_path / rest.pop("path", "x"), state, **rest)
    with pytest.raises(Refused, match=message) as caught:
        module.apply(Machine(), module.changes(Machine()))
    assert caught.value.finding.expected and caught.value.finding.found and caught.value.finding.remedy


@pytest.mark.parametrize(
    "parameters, message",
    [
        ({"path": "x"}, "path must be an absolute path"),
        ({"path": "/x", "state": "link"}, "src is what a link leads to"),
        ({"path": "/x", "src": "y"}, "src is what a link leads to"),
        ({"path": "/x", "state": "link", "src": ""}, "src can't be"),
        ({"path": "/x", "state": "link", "src": "y", "mode": "0777"}, "mode has no meaning"),
        ({"path": "/x", "state": "absent", "mode": "0777"}, "mode has no meaning"),
        ({"path": "/x", "state": "absent", "owner": "root"}, "owner has no meaning"),
        ({"path": "/x", "mode": "rwx"}, "mode must be octal digits"),
    ],
)
def test_parameters_that_can_not_be(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        File(**parameters)


@as_root
def test_nothing_is_made_in_somebody_elses_directory(tmp_path: Path) -> None:
    sticky = tmp_path / "sticky"
    (sticky / "theirs").mkdir(parents=True)
    sticky.chmod(0o1777)
    os.chown(sticky / "theirs", OTHER, OTHER)
    for state, rest in (("directory", {}), ("link", {"src": "x"}), ("absent", {})):
        with pytest.raises(Refused, match=f"belongs to uid {OTHER}"):
            file(sticky / "theirs/x", state, **rest).changes(Machine())
    assert list((sticky / "theirs").iterdir()) == []


def test_what_became_a_link_meanwhile_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir(mode=0o700)
    module = file(tmp_path / "x", "directory", mode="0777")
    found = module.changes(Machine())
    (tmp_path / "x").symlink_to("target")
    with pytest.raises((TaskFailed, Refused)):
        module.apply(Machine(), found)
    assert mode(tmp_path / "target") == 0o700


def test_changes_change_nothing_and_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = os.listdir("/proc/self/fd")
    file(tmp_path / "a/b", "directory").changes(Machine())
    assert list(tmp_path.iterdir()) == []
    applied(file(tmp_path / "a/b", "directory"))
    applied(file(tmp_path / "a/l", "link", src="b"))
    applied(file(tmp_path / "a/b", "absent"))
    assert os.listdir("/proc/self/fd") == before
