"""system.* and slurm.*: tables of what facts say and what the finding must be."""

from __future__ import annotations

from typing import Any

import pytest

from k3env.node import checks
from tests.unit.node.checktable import judged, mismatches, rows

ROWS = [*rows("system.yaml"), *rows("slurm.yaml")]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['check']}: {row['name']}" for row in ROWS])
def test_table(row: dict[str, Any]) -> None:
    finding = judged(row)
    assert mismatches(finding, row["expect"]) == []
    assert finding.id == row["check"]
    if finding.status in ("fail", "warn"):
        assert finding.expected and finding.found and finding.remedy
    for text in (finding.expected, finding.found, finding.remedy, finding.message):
        assert "None" not in (text or "") and "{" not in (text or ""), text


@pytest.mark.parametrize("rule", checks.select(("system.*", "slurm.*")), ids=lambda rule: rule.id)
def test_every_check_has_rows_of_all_kinds(rule: checks.Check) -> None:
    seen = {row["expect"]["status"] for row in ROWS if row["check"] == rule.id}
    assert {"pass", "unknown"} <= seen
    assert seen & {"fail", "warn"} or rule.severity == "info"
    assert rule.doc


def test_nothing_asks_the_controller_before_a_job_starts() -> None:
    """Slurm commands in a prolog hang when the controller waits for that very prolog."""
    for rule in checks.select(("slurm.*", "system.*")):
        facts = {fact.__name__ for fact in rule.facts if fact.__module__.endswith(".slurm")}
        if facts - {"shape", "private"}:
            assert not rule.runs_in("prolog") and not rule.runs_in("hc"), rule.id
