"""Errors of the operating system: what a person is told to do about each, with the path that is in the way."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from k3env.node import manifest, oserrors
from k3env.protocol.plan import Task
from tests.agent import Agent
from tests.unit.node.ground import machine

TOLD = [
    (OSError(errno.EISDIR, "Is a directory", "/r/f"), "Is a directory: /r/f", "mv /r/f /r/f.old"),
    (OSError(errno.ENOSPC, "No space left on device", b"/r/f"), "No space left on device: /r/f", "df -h"),
    (OSError(errno.EROFS, "Read-only file system", "/r"), "Read-only file system: /r", "read-write"),
    (OSError(errno.EACCES, "Permission denied", "/r"), "Permission denied: /r", "whether this user may use it"),
    (OSError(errno.EISDIR, "Is a directory"), "Is a directory", "see what the path is"),
    (OSError("odd"), "odd", "see what the path is"),
]


@pytest.mark.parametrize(("error", "message", "remedy"), TOLD, ids=[row[1] for row in TOLD])
def test_each_says_what_to_do(error: OSError, message: str, remedy: str) -> None:
    assert oserrors.message(error) == message
    assert remedy in oserrors.remedy(error)


def test_what_is_in_the_way_is_named_and_not_what_would_lie_in_it(tmp_path: Path) -> None:
    (tmp_path / ".k3env").write_text("")
    with pytest.raises(NotADirectoryError) as caught:
        machine(tmp_path).make(str(tmp_path / ".k3env/logs"))
    assert f"mv {tmp_path}/.k3env {tmp_path}/.k3env.old" in oserrors.remedy(caught.value)


def test_a_directory_in_the_place_of_the_manifest_is_told_before_anything_is_done(tmp_path: Path) -> None:
    repo = tmp_path / "repo"
    path = Path(manifest.path(str(repo)))
    path.mkdir(parents=True)
    parameters = {"repo": str(repo), "commit": "0" * 40, "arch": "103-real"}
    result = Agent(tmp_path / "node").follow([Task("1.1", "Build", "trtllm_build", parameters)]).result()
    (finding,) = result["findings"]
    assert finding["id"] == "task.os" and finding["message"] == f"Is a directory: {path}"
    assert f"mv {path} {path}.old" in finding["remedy"]
