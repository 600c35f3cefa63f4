"""The journal on a disk that is full for a while."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from k3env.node import journal as journals
from k3env.node.journal import Journal
from k3env.protocol.line import PROGRESS, RESULT


class Disk:
    """Stands for one with little room: writes as much as there is, and gets more now and then."""

    def __init__(self, *rooms: int) -> None:
        self._rooms = list(rooms)
        self._write = os.write

    def write(self, descriptor: int, data: bytes) -> int:
        room = self._rooms.pop(0) if self._rooms else len(data)
        if room == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return self._write(descriptor, data[:room])


def lines(root: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (root / "journal").read_bytes().splitlines()]


@pytest.mark.parametrize("rooms", [(0, 0), (10, 0, 5), (1, 1, 1)])
def test_a_line_waits_for_room_and_is_written_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rooms: tuple[int, ...]
) -> None:
    journal = Journal(str(tmp_path), -1)
    with monkeypatch.context() as patch:
        patch.setattr("os.write", Disk(*rooms).write)
        journal.append(RESULT, "1.1", {"status": "ok"})
    journal.append(RESULT, "1.2", {"status": "ok"})
    assert [(line["seq"], line["task"]) for line in lines(tmp_path)] == [(1, "1.1"), (2, "1.2")]


def test_progress_waits_for_nothing_and_leaves_no_gap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal(str(tmp_path), -1)
    with monkeypatch.context() as patch:
        patch.setattr("os.write", Disk(0).write)
        journal.append(PROGRESS, "1.1", {"text": "x"})
    journal.append(RESULT, "1.1", {"status": "ok"})
    assert [(line["seq"], line["kind"]) for line in lines(tmp_path)] == [(1, RESULT)]


def test_a_disk_that_stays_full_ends_the_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "ROOM_S", 0.2)
    journal = Journal(str(tmp_path), -1)
    with monkeypatch.context() as patch:
        patch.setattr("os.write", Disk(*[0] * 1000).write)
        with pytest.raises(OSError, match="No space"):
            journal.append(RESULT, "1.1", {"status": "ok"})
