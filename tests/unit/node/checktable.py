"""Tables of checks: rows of facts, a profile, and the finding that they must lead to."""

from __future__ import annotations

import os
import typing
from typing import Any

import yaml

from k3env.node import checks
from k3env.protocol import codec
from k3env.protocol.finding import Evidence, Finding, Unreadable
from k3env.protocol.profile import Profile

DATA = os.path.join(os.path.dirname(__file__), "..", "..", "data", "checks")
SOURCE = {"source": "a table"}
DEFAULTS: dict[str, dict[str, Any]] = {
    "driver": {"version": "580.105.08", "open_module": True, "cpu": "aarch64", "source": SOURCE},
    "gpus": {"nvml": [], "proc": [], "pci": [], "source": [SOURCE]},
    "fabric_manager": {"source": SOURCE},
    **{
        name: {"source": [SOURCE]}
        for name in (
            *("health", "repairs", "processes", "kernel_log", "build"),
            *("fabric", "links", "channels", "daemon", "domain"),
        )
    },
}


def rows(name: str) -> list[dict[str, Any]]:
    """Return the rows of a table."""
    with open(os.path.join(DATA, name), encoding="utf-8") as file:
        found: list[dict[str, Any]] = yaml.safe_load(file)["rows"]
    return found


def judged(row: dict[str, Any], shaped: typing.Callable[[Any], Any] = lambda value: value) -> Finding:
    """Return the finding that a row's check comes to."""
    (rule,) = checks.select((row["check"],))
    values = {fact: _fact(fact, shaped(row.get(fact.__name__, {}))) for fact in rule.facts}
    return checks.judge(rule, values, codec.decode(Profile, row.get("profile", {})))


def mismatches(finding: Finding, expect: dict[str, str]) -> list[str]:
    """Return in what a finding is not as expected: its status exactly, texts by what they hold."""
    wrong = [] if finding.status == expect["status"] else [f"status {finding.status}"]
    for name in set(expect) - {"status"}:
        if str(expect[name]) not in (getattr(finding, name) or ""):
            wrong.append(f"{name} {getattr(finding, name)!r} lacks {expect[name]!r}")
    return wrong


def _fact(fact: Any, value: Any) -> Any:
    if value is None:
        return None
    if "unreadable" in value:
        return Unreadable(value["unreadable"], Evidence("a table"))
    return codec.decode(codec.hints(fact)["return"], {**DEFAULTS.get(fact.__name__, {}), **value})
