"""Errors below a descriptor name the whole path."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from k3env.node import way
from k3env.node.machine import Machine


def test_a_file_on_the_way(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for directory in (tmp_path / "file/conan", tmp_path / "file"):
        with pytest.raises(NotADirectoryError) as caught:
            way.make(str(directory))
        assert caught.value.filename == str(directory)


def test_a_place_where_nothing_can_be_made() -> None:
    with pytest.raises(FileNotFoundError) as caught:
        way.make("/proc/x/y")
    assert caught.value.filename == "/proc/x/y"


def test_a_directory_in_the_place_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").mkdir()
    with pytest.raises(IsADirectoryError) as caught:
        Machine().write(str(tmp_path / "manifest.json"), b"")
    assert caught.value.filename == str(tmp_path / "manifest.json")
    assert os.listdir(tmp_path) == ["manifest.json"]


def test_what_has_no_name_at_all(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="full") as caught, way.naming(str(tmp_path), within=False):
        raise OSError(errno.ENOSPC, "full")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path))


@pytest.mark.parametrize("name", ["/a/b", None])
def test_what_is_told_well_stays(name: str | None, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, way.naming(str(tmp_path)):
        raise FileNotFoundError(errno.ENOENT, "none", name)
    assert caught.value.filename == name


def test_a_pipe_is_not_waited_at(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "requirements.txt")
    with pytest.raises(OSError, match="this is a pipe, not a file"):
        Machine().text(str(tmp_path / "requirements.txt"))
