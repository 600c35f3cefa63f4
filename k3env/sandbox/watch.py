"""Watches what an agent says, for the fault that strikes at a task."""

from __future__ import annotations

import json

_MARK = b"k3env:"
_MOST = 128 * 1024  # an event has at most 64 KiB


class TaskWatch:
    """Sees the task of one module begin, in the lines "k3env:RUN {json}" that an agent sends."""

    def __init__(self, module: str) -> None:
        self._module = module
        self._rest = b""

    def sees(self, data: bytes) -> bool:
        """Take what was sent next; return whether the task began in it."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_MOST:]
        return any(self._is_begin(line) for line in lines)

    def _is_begin(self, line: bytes) -> bool:
        if not line.startswith(_MARK):
            return False
        try:
            event = json.loads(line.partition(b" ")[2])
        except ValueError:
            return False
        if not isinstance(event, dict) or event.get("kind") != "task":
            return False
        data = event.get("data")
        return isinstance(data, dict) and data.get("module") == self._module
