"""The fault table of README.md, from what the rows showed: `python -m tests.rack.table` plays them and writes it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.rack.row import Row, Seen

VARIABLE = "K3ENV_RACK_TABLE"
"""Names the file that the tests write the table into."""
README = Path(__file__).parents[2] / "README.md"
BEGIN, END = "<!-- faults: python -m tests.rack.table -->\n", "<!-- end of faults -->\n"
HEAD = "| Fault | You see | Exit | s | The next run |\n|---|---|---|---|---|\n"
_WIDTH = 150


def markdown(rows: Iterable[tuple[Row, Seen | None]]) -> str:
    """Return the table; a row without what was seen is one that k3env falls short of, or that failed."""
    lines = []
    group = ""
    for row, seen in rows:
        if row.group != group:
            group = row.group
            lines.append(f"| **{group[0].upper()}{group[1:]}** | | | | |")
        if seen is None:
            lines.append(f"| {_cell(row.fault)} | *falls short: {_cell(row.broken or 'see the tests')}* | | | |")
            continue
        words = "; ".join(part for part in (_short(seen.words), seen.note) if part) or "–"
        code = str(seen.said.code) if seen.said.code >= 0 else "killed"
        lines.append(f"| {_cell(row.fault)} | {_cell(words)} | {code} | {_seconds(seen)} | {_cell(seen.next_run)} |")
    return HEAD + "".join(f"{line}\n" for line in lines)


def faults(text: str) -> list[str]:
    """Return what stands in the first column of README's table, without its sections."""
    block = text.partition(BEGIN)[2].partition(END)[0].removeprefix("\n").removeprefix(HEAD)
    cells = [re.split(r"(?<!\\)\|", line)[1].strip().replace("\\|", "|") for line in block.strip().splitlines()]
    return [cell for cell in cells if not cell.startswith("**")]


def into(text: str, table: str) -> str:
    """Return README's text with another table."""
    before, _, rest = text.partition(BEGIN)
    return f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}"


def _short(words: str) -> str:
    """Leave out what a finding expected and found: what is said, and what to do, tell enough."""
    told, _, remedy = words.partition("remedy: ")
    told = re.sub(r" --- \w+: ", "; ", re.split(r" (?:expected|found): ", told)[0].strip())
    remedy = re.split(r" (?:unreachable|failed): \[", remedy)[0]
    told = f"{told}; {remedy}" if remedy else told
    return told if len(told) <= _WIDTH else f"{told[: _WIDTH - 1]}…"


def _seconds(seen: Seen) -> str:
    """How long the run took that met the fault; a controller that was killed could not say."""
    try:
        return f"{json.loads(seen.said.out)['duration_s']:.1f}"
    except (ValueError, KeyError, TypeError):
        return "–"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main() -> int:
    """Play all rows, and write the table."""
    with tempfile.NamedTemporaryFile() as file:
        # In a process of its own: here its modules are imported already, without pytest's assertions.
        argv = [sys.executable, "-m", "pytest", "-q", "tests/rack"]
        code = subprocess.run(argv, env={**os.environ, VARIABLE: file.name}).returncode
        made = Path(file.name).read_text("utf-8")
    if not made:
        return code
    README.write_text(into(README.read_text("utf-8"), made), "utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
