"""The JSON document of a run, `k3env.run/1`, and the lines of `--output jsonl`."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Optional

from k3env.protocol.event import Event
from k3env.protocol.finding import Change, Evidence, Finding
from k3env.protocol.outcome import HostOutcome, Outcome, TaskOutcome

SCHEMA = "k3env.run/1"
EVENT_SCHEMA = "k3env.event/1"


def document(
    outcome: Outcome, command: Sequence[str], *, exit_code: Optional[int] = None, error: Optional[Finding] = None
) -> dict[str, Any]:
    """Return the document of a run. `command` is its argv, secrets masked; without an exit code it is the outcome's."""
    return {
        "schema": SCHEMA,
        "run": outcome.run or None,
        "command": list(command),
        "started": outcome.started,
        "duration_s": round(outcome.duration_s, 3),
        "exit_code": outcome.exit_code() if exit_code is None else exit_code,
        "check": outcome.check,
        "error": None if error is None else _finding(error),
        "hosts": {name: _host(host) for name, host in outcome.hosts.items()},
        "across": [_finding(item) for item in outcome.across],
    }


def error_document(
    command: Sequence[str], error: Finding, exit_code: int, started: float, duration_s: float = 0.0
) -> str:
    """Return the document, as text, of a command that ended before it had a run; `started` is in seconds since 1970."""
    return dumps(document(Outcome("", timestamp(started), duration_s), command, exit_code=exit_code, error=error))


def dumps(value: dict[str, Any]) -> str:
    """Return a document as one line of ASCII; control characters are escaped by JSON itself."""
    return json.dumps(value, separators=(",", ":"))


def event_line(run: str, host: str, event: Event) -> str:
    """Return one line of `--output jsonl`. The last one is the document."""
    known = {"kind": event.kind, "seq": event.seq, "time": event.time, "task": event.task, "data": event.data}
    return dumps({"schema": EVENT_SCHEMA, "run": run, "host": host, **known})


def timestamp(seconds: float) -> str:
    """Return seconds since 1970 as RFC 3339 in UTC."""
    from datetime import datetime, timezone

    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def schema() -> dict[str, Any]:
    """Return the JSON Schema of the document."""
    import pkgutil

    data = pkgutil.get_data(__package__ or "", "schema/k3env.run-1.json")
    if data is None:
        raise FileNotFoundError("schema/k3env.run-1.json")
    loaded: dict[str, Any] = json.loads(data)
    return loaded


def _host(host: HostOutcome) -> dict[str, Any]:
    return {
        "status": host.status,
        "ok": host.ok,
        "changed": host.changed,
        "unreachable": host.unreachable,
        "failed": host.failed,
        "skipped": host.skipped,
        "rescued": host.rescued,
        "ignored": host.ignored,
        "notrun": host.notrun,
        "simulated": host.simulated,
        "message": host.message,
        "tasks": [_task(task) for task in host.tasks],
    }


def _task(task: TaskOutcome) -> dict[str, Any]:
    return {
        "id": task.id,
        "name": task.name,
        "module": task.module,
        "status": task.status,
        "ignored": task.ignored,
        "message": task.message,
        "changes": [_change(item) for item in task.changes],
        "findings": [_finding(item) for item in task.findings],
        "duration_s": task.duration_s,
    }


def _finding(finding: Finding) -> dict[str, Any]:
    return {
        "id": finding.id,
        "status": finding.status,
        "severity": finding.severity,
        "scope": finding.scope,
        "subject": finding.subject,
        "message": finding.message,
        "expected": finding.expected,
        "found": finding.found,
        "remedy": finding.remedy,
        "evidence": [_evidence(item) for item in finding.evidence],
        "duration_ms": finding.duration_ms,
    }


def _evidence(evidence: Evidence) -> dict[str, Any]:
    return {"source": evidence.source, "exit_code": evidence.exit_code, "excerpt": evidence.excerpt}


def _change(change: Change) -> dict[str, Any]:
    return {"what": change.what, "before": change.before, "after": change.after}
