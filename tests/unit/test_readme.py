"""README.md's fault table tells of rows that are played."""

from __future__ import annotations

from tests.rack import table
from tests.rack.rows import ROWS


def test_what_stands_in_the_fault_table_is_played() -> None:
    told = table.faults(table.README.read_text("utf-8"))
    stale = set(told) - {row.fault for row in ROWS}
    assert not stale, "python -m tests.rack.table writes it anew"
    assert len(told) >= 40
