"""Requirement files that nothing could read: told before a build, by name, with what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.node.modules import _requirement_files
from tests.unit.node.ground import machine

DEV, PLAIN = "requirements-dev.txt", "requirements.txt"
WRONG = [
    ({PLAIN: b"\xef\xbb\xbftorch\n"}, "requirements.txt begins with a byte order mark"),
    ({PLAIN: "torch\n".encode("utf-16")}, "requirements.txt is in UTF-16"),
    ({PLAIN: "torch\n".encode("utf-16-le")}, "requirements.txt is in UTF-16"),
    ({PLAIN: b"torch\n# Andr\xe9\n"}, "requirements.txt is not in UTF-8: byte 0xe9 in line 2"),
    ({PLAIN: b"-r requirements.txt\n"}, "requirements.txt includes itself"),
    ({DEV: b"-r requirements.txt\n", PLAIN: b"-r ./requirements-dev.txt\n"},
     "requirements.txt includes ./requirements-dev.txt, which leads back to it; "
     "requirements-dev.txt includes requirements.txt, which leads back to it"),
    ({DEV: b"-r requirements.txt\n-c more/c.txt\n", PLAIN: b"", "more/c.txt": b"\xff"},
     "more/c.txt is not in UTF-8: byte 0xff in line 1"),
    ({PLAIN: b"-c constraints.txt\n"}, "requirements.txt includes constraints.txt, which is not there"),
]  # fmt: skip
RIGHT = [
    {},
    {PLAIN: "torch # André\n".encode()},
    {DEV: b"\xef\xbb\xbf-r requirements.txt\n", PLAIN: b"-c a.txt\n-r a.txt\n", "a.txt": b""},
    {PLAIN: b"-r https://host/r.txt\n-c /etc/c.txt\n-r ../r.txt\n-r ${HERE}/r.txt\n"},
]


def written(root: Path, files: dict[str, bytes]) -> tuple[str, ...]:
    for name, data in files.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    return _requirement_files.wrong(machine(root), str(root))


@pytest.mark.parametrize(("files", "told"), WRONG, ids=[told[:60] for _, told in WRONG])
def test_what_is_wrong_is_told_with_its_file(files: dict[str, bytes], told: str, tmp_path: Path) -> None:
    found = written(tmp_path, files)
    assert set(found) == set(told.split("; "))


@pytest.mark.parametrize("files", RIGHT)
def test_what_pip_takes_is_not_spoken_of(files: dict[str, bytes], tmp_path: Path) -> None:
    assert written(tmp_path, files) == ()
