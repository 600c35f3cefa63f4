"""gpu.* and nvlink.*: tables of what facts say and what the finding must be."""

from __future__ import annotations

from typing import Any

import pytest

from k3env.node import checks
from k3env.node.checks.gpu import number
from tests.unit.node.checktable import judged, mismatches, rows

ROWS = [*rows("gpu.yaml"), *rows("gpu_health.yaml"), *rows("nvlink.yaml")]


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_table(row: dict[str, Any]) -> None:
    finding = judged(row)
    assert mismatches(finding, row["expect"]) == []
    assert finding.id == row["check"]
    if finding.status in ("fail", "warn"):
        assert finding.expected and finding.found and finding.remedy
    if finding.status not in ("pass", "skip"):
        assert finding.evidence, "a finding says where its values were seen"


def test_every_check_has_rows_that_pass_fail_and_are_unknown() -> None:
    for rule in checks.select(("gpu.*", "nvlink.*")):
        seen = {row["expect"]["status"] for row in ROWS if row["check"] == rule.id}
        assert {"pass", rule.severity, "unknown"} <= seen, rule.id
        assert rule.doc


@pytest.mark.parametrize(
    ("earlier", "later"),
    [("580.82.07", "580.105.08"), ("570.211.01", "580"), ("580", "580.65.06"), ("580.95.05", "590.44.01")],
)
def test_versions_are_numbers(earlier: str, later: str) -> None:
    assert number(earlier) < number(later)


@pytest.mark.parametrize(("one", "other"), [("580.126.09", "580.126.9-0ubuntu1"), ("580", "580.00.0")])
def test_equal_versions(one: str, other: str) -> None:
    assert number(one) == number(other)


def test_a_text_without_a_number_is_no_version() -> None:
    with pytest.raises(ValueError, match="N/A"):
        number("N/A")
