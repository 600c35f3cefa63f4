"""k3env.run/1: real documents against the schema that is shipped, and the schema against what it must refuse."""

from __future__ import annotations

import copy
import json
from typing import Any

import jsonschema
import pytest

from k3env.errors import DocumentError
from k3env.protocol.event import Event
from k3env.protocol.finding import SCOPES, SEVERITIES, STATUSES, Finding
from k3env.protocol.outcome import HOST_STATUSES, TASK_STATUSES, Outcome
from k3env.reports import document as documents
from k3env.reports.document import document, dumps, error_document, event_line, schema, timestamp
from tests.unit.reports.runs import quiet, rack, rebooted

VALIDATOR = jsonschema.Draft202012Validator(schema())
COMMAND = ("invoke", "provision", "--hosts", "tray-[01-04]")


def valid(text: str) -> Any:
    """Return a document that the schema accepts."""
    value = json.loads(text)
    VALIDATOR.validate(value)
    return value


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(schema())


def test_a_run() -> None:
    value = valid(dumps(document(rack(), COMMAND)))
    assert list(value) == [
        "schema", "run", "command", "started", "duration_s", "exit_code", "check", "error", "hosts", "across",
    ]  # fmt: skip
    assert (value["schema"], value["run"], value["exit_code"]) == ("k3env.run/1", "20261130-080000-1f2e3d", 2)
    assert (value["command"], value["duration_s"], value["check"]) == (list(COMMAND), 12.346, False)
    assert {name: host["status"] for name, host in value["hosts"].items()} == {
        "tray-01": "changed", "tray-02": "changed", "tray-03": "failed", "tray-04": "unreachable",
    }  # fmt: skip
    first = value["hosts"]["tray-01"]
    assert {key: item for key, item in first.items() if key != "tasks"} == {
        "status": "changed", "ok": 2, "changed": 1, "unreachable": 0, "failed": 0, "skipped": 1, "rescued": 0,
        "ignored": 0, "notrun": 0, "simulated": True, "message": "",
    }  # fmt: skip
    assert first["tasks"][1] == {
        "id": "1.2", "name": "Make the node-local caches", "module": "cache_dirs", "status": "changed",
        "ignored": False, "message": "", "findings": [], "duration_s": 0.1,
        "changes": [{"what": "base /local/k3", "before": "absent", "after": "directory 0700"}],
    }  # fmt: skip
    (finding,) = value["hosts"]["tray-03"]["tasks"][0]["findings"]
    assert list(finding) == [
        "id", "status", "severity", "scope", "subject", "message", "expected", "found", "remedy", "evidence",
        "duration_ms",
    ]  # fmt: skip
    assert finding["evidence"][0]["exit_code"] is None
    assert value["hosts"]["tray-04"]["tasks"][0]["findings"][0]["id"] == "run.timeout"


def test_an_empty_run_and_a_rebooted_host() -> None:
    valid(dumps(document(Outcome("r", "2026-11-30T08:00:00Z"), ())))
    value = valid(dumps(document(rebooted("x"), COMMAND)))
    assert value["hosts"]["a"]["tasks"][0]["findings"][0]["id"] == "run.rebooted"


def test_the_exit_code_is_who_ends_the_process() -> None:
    assert document(quiet(), COMMAND)["exit_code"] == 0
    assert document(quiet(), COMMAND, exit_code=5)["exit_code"] == 5


def test_a_usage_error_is_a_document_too() -> None:
    error = DocumentError("unknown module", subject="site.yml:3:5", remedy="did you mean cache_dirs?")
    value = valid(error_document(("invoke", "provision"), error.finding, 1, 1796025600.5, 0.25))
    assert (value["run"], value["hosts"], value["exit_code"]) == (None, {}, 1)
    assert value["started"] == "2026-11-30T08:00:00Z"
    assert (value["error"]["subject"], value["error"]["scope"]) == ("site.yml:3:5", "static")


def test_what_a_node_says_stays_data() -> None:
    text = dumps(document(rebooted("\x1b[2Jgone\r\n\u202e \udcff"), COMMAND))
    assert text.isascii() and text.isprintable()
    assert valid(text)["hosts"]["a"]["message"] == "\x1b[2Jgone\r\n\u202e \udcff"


def test_a_line_for_each_event() -> None:
    line = event_line("r", "tray-01", Event("progress", 7, 12.5, "1.2", {"text": "\x1b[1m"}))
    assert "\n" not in line
    assert json.loads(line) == {
        "schema": "k3env.event/1", "run": "r", "host": "tray-01", "kind": "progress", "seq": 7, "time": 12.5,
        "task": "1.2", "data": {"text": "\x1b[1m"},
    }  # fmt: skip


def test_timestamps_are_utc() -> None:
    assert timestamp(0) == "1970-01-01T00:00:00Z"


# The schema refuses what is not the contract


def _objects(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all objects with fixed keys in a document."""
    found: list[tuple[Any, ...]] = []
    if isinstance(value, dict):
        found += [path] if path[-1:] != ("hosts",) else []
        for key, item in value.items():
            found += _objects(item, (*path, key))
    elif isinstance(value, list):
        for at, item in enumerate(value):
            found += _objects(item, (*path, at))
    return found


GOOD = document(rack(), COMMAND, error=Finding("usage", "fail", scope="static"))
PLACES = _objects(GOOD)


def at(value: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        value = value[key]
    return value


def test_every_kind_of_object_is_looked_at() -> None:
    kinds = {tuple(key for key in path if isinstance(key, str) and not key.startswith("tray")) for path in PLACES}
    assert {("hosts", "tasks", "findings", "evidence"), ("hosts", "tasks", "changes"), ("error",), ()} <= kinds


@pytest.mark.parametrize("path", PLACES, ids=str)
def test_nothing_more_and_nothing_less(path: tuple[Any, ...]) -> None:
    more = copy.deepcopy(GOOD)
    at(more, path)["surprise"] = 1
    assert not VALIDATOR.is_valid(more)
    for key in at(GOOD, path):
        less = copy.deepcopy(GOOD)
        del at(less, path)[key]
        assert not VALIDATOR.is_valid(less), key


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "k3env.run/2"),
        (("started",), "2026-11-30 08:00:00"),
        (("started",), "2026-11-30T08:00:00+01:00"),
        (("exit_code",), 6),
        (("hosts", "tray-01", "status"), "cancelled"),
        (("hosts", "tray-01", "ok"), -1),
        (("hosts", "tray-01", "tasks", 0, "status"), "unreachable"),
        (("error", "status"), "error"),
        (("error", "severity"), "critical"),
    ],
)
def test_values_are_of_the_contract(path: tuple[Any, ...], value: Any) -> None:
    wrong = copy.deepcopy(GOOD)
    at(wrong, path[:-1])[path[-1]] = value
    assert not VALIDATOR.is_valid(wrong)


def test_the_schema_lists_what_the_code_has() -> None:
    definitions = schema()["$defs"]
    assert definitions["host"]["properties"]["status"]["enum"] == list(HOST_STATUSES)
    assert definitions["task"]["properties"]["status"]["enum"] == list(TASK_STATUSES)
    finding = definitions["finding"]["properties"]
    assert finding["status"]["enum"] == list(STATUSES)
    assert finding["severity"]["enum"] == list(SEVERITIES)
    assert finding["scope"]["enum"] == list(SCOPES)
    assert schema()["$id"] == documents.SCHEMA
