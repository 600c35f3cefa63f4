"""The fault table as Markdown, from what the rows showed: `python -m tests.rack.table` plays them and prints it."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable

from tests.rack.row import Row, Seen

VARIABLE = "K3ENV_RACK_TABLE"
"""Names the file that the tests write the table into."""


def markdown(rows: Iterable[tuple[Row, Seen | None, float]]) -> str:
    """Return the table; a row without what was seen is one that k3env falls short of, or that failed."""
    lines = []
    group = ""
    for row, seen, seconds in rows:
        if row.group != group:
            group = row.group
            lines += [
                "",
                f"**{group.capitalize()}**",
                "",
                "| Fault | What you see | Exit | The next run | s |",
                "|---|---|---|---|---|",
            ]
        if seen is None:
            lines.append(f"| {row.fault} | *falls short: {row.broken or 'see the tests'}* | | | {seconds:.0f} |")
        else:
            words = "; ".join(part for part in (seen.words.replace("|", "\\|") or "nothing of it", seen.note) if part)
            lines.append(f"| {row.fault} | {words} | {seen.said.code} | {seen.next_run} | {seconds:.0f} |")
    return "\n".join(lines[1:]) + "\n"


def main() -> int:
    """Play all rows."""
    import tempfile

    import pytest

    with tempfile.NamedTemporaryFile() as file:
        os.environ[VARIABLE] = file.name
        code = pytest.main(["-q", "tests/rack"])
        print(file.read().decode())
    return int(code)


if __name__ == "__main__":
    sys.exit(main())
