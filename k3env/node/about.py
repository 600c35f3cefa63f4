"""What a run says of itself on its node, for those who ask there without having begun it."""

from __future__ import annotations

import json
import os
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NAME = "about.json"
VERSION = 1
_TOLD = ("id", "name", "module", "ignore_errors", "skip")


def write(run_dir: str, start: dict[str, Any], plan: dict[str, Any]) -> None:
    """Write it, before the first task. Of parameters it holds only which checks are made, so no secret's place either.

    Raises OSError.
    """
    told = {
        "version": VERSION,
        **{key: start.get(key) for key in ("run", "host", "owner", "what", "payload")},
        "nodename": os.uname().nodename,
        "since": round(time.time(), 3),
        "mode": plan.get("mode", "apply"),
        "profile": plan.get("profile", {}) if any(_verifies(task) for task in plan["tasks"]) else {},
        "tasks": [
            {key: task[key] for key in (*_TOLD, *(("parameters",) if _verifies(task) else ())) if key in task}
            for task in plan["tasks"]
        ],
    }
    with open(os.path.join(run_dir, NAME), "w", encoding="utf-8") as file:
        json.dump(told, file)


def _verifies(task: dict[str, Any]) -> bool:
    return bool(task["module"] == "verify")


def read(run_dir: str) -> dict[str, Any]:
    """Return it, or an empty mapping for a run that was cut off, or is of another k3env."""
    try:
        with open(os.path.join(run_dir, NAME), encoding="utf-8") as file:
            told = json.load(file)
    except (OSError, ValueError):
        return {}
    return told if isinstance(told, dict) and told.get("version") == VERSION else {}
