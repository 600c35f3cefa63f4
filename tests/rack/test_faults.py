"""Every row of the fault table, on real nodes."""

from __future__ import annotations

import pytest

from tests.rack.conftest import Plays
from tests.rack.row import Row
from tests.rack.rows import ROWS


def _parameter(row: Row) -> object:
    marks = [pytest.mark.xfail(strict=True, reason=row.broken)] if row.broken else []
    return pytest.param(row, id=row.id, marks=marks)


@pytest.mark.parametrize("row", [_parameter(row) for row in ROWS])
def test_a_fault(plays: Plays, row: Row) -> None:
    """What the row asserts holds: what is seen, what is left behind, what the next run does."""
    assert plays.of(row).next_run
