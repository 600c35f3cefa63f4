"""Event: one line from a node to its controller."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Optional

from k3env.protocol import codec
from k3env.protocol.finding import SCOPES, SEVERITIES, STATUSES, Finding, Result
from k3env.protocol.line import BEGIN, END, KINDS, RESULT, VERSION

ENDS = ("ok", "failed", "cancelled")
MAX_DEPTH = 32
RESULTS = ("ok", "changed", "failed", "skipped", "cancelled")


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
    """Read one line behind its marker; what comes from a node is believed in nothing, not even in its types.

    Raises ValueError for anything that is not an event of this version.
    """
    return checked(loads(line))


def loads(line: bytes) -> Any:
    """Return the JSON value of a line.

    Raises ValueError for what is none, and for numbers that JSON has not.
    """
    try:
        return json.loads(line, parse_constant=_refused, parse_float=_finite)
    except RecursionError:
        raise ValueError("too deeply nested") from None


def checked(value: Any) -> Event:
    """Return the event that a JSON value is.

    Raises ValueError for anything that is not an event of this version.
    """
    if not isinstance(value, dict) or value.get("version", VERSION) != VERSION:
        raise ValueError("not an event of this version")
    kind, task, data = value.get("kind"), value.get("task"), value.get("data", {})
    seq: Any = value.get("seq", 0)
    time: Any = value.get("time", 0.0)
    whole = isinstance(seq, int) and not isinstance(seq, bool) and seq >= 0
    told = isinstance(time, (int, float)) and not isinstance(time, bool)
    if kind not in KINDS or not whole or not told or not isinstance(data, dict):
        raise ValueError("not an event")
    if not (isinstance(task, str) or (task is None and kind != RESULT)):
        raise ValueError("not an event")
    if _is_deep(data, MAX_DEPTH):
        raise ValueError("too deeply nested")
    _look_into(kind, data)
    return Event(kind, seq, time, task, data)


def _look_into(kind: str, data: dict[str, Any]) -> None:
    """Raise ValueError for a result, a beginning or an end that reports could not tell."""
    findings: tuple[Finding, ...] = ()
    if kind == RESULT:
        result: Result = codec.decode(Result, data)
        findings = result.findings
        if result.status not in RESULTS:
            raise ValueError(f"no result is {result.status!r:.40}")
    elif kind in (BEGIN, END):
        findings = codec.decode(tuple[Finding, ...], data.get("findings", []))
    if kind == END and data.get("status", ENDS[0]) not in ENDS:
        raise ValueError(f"no run ends {data['status']!r:.40}")
    for item in findings:
        if item.status not in STATUSES or item.severity not in SEVERITIES or item.scope not in SCOPES:
            raise ValueError(f"no finding is {item.status!r:.40}, {item.severity!r:.40}, {item.scope!r:.40}")


def _is_deep(value: Any, levels: int) -> bool:
    items = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return levels == 0 or any(_is_deep(item, levels - 1) for item in items)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"the number {text:.40} is too large")
    return number


def _refused(text: str) -> float:
    raise ValueError(f"{text} is no number of JSON")
