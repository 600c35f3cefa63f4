"""Event: one line from a node to its controller."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Optional

from k3env.protocol.line import KINDS, VERSION


@dataclass(frozen=True)
class Event:
    """Something that happened on a node."""

    kind: str
    seq: int = 0
    """Counted from 1 within a run on a node."""
    time: float = 0.0
    """Seconds since the epoch, on the node's clock."""
    task: Optional[str] = None
    data: dict[str, Any] = field(default_factory=dict)
    version: int = VERSION


def parse(line: bytes) -> Event:
    """Read one line behind its marker.

    Raises ValueError for anything that is not an event of this version.
    """
    value = json.loads(line)
    if not isinstance(value, dict) or value.get("version", VERSION) != VERSION:
        raise ValueError("not an event of this version")
    kind, task = value.get("kind"), value.get("task")
    if kind not in KINDS or not (task is None or isinstance(task, str)) or not isinstance(value.get("data", {}), dict):
        raise ValueError("not an event")
    return Event(kind, int(value.get("seq", 0)), float(value.get("time", 0.0)), task, value.get("data", {}))
