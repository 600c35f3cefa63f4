"""Syntax: what a person did who wrote what YAML's parser refuses."""

from __future__ import annotations

import re

import yaml

from k3env.documents.nodes import Position, problem
from k3env.errors import DocumentError
from k3env.protocol.masking import bare

_UNQUOTED_TEMPLATE = re.compile(r"(^|[:\-,\[])\s+\{\{")
_ADVICE = (
    ("mapping values are not allowed", 'put a value that holds ": " in quotes; look for a line without its colon'),
    ("that cannot start any token", "put a value that begins with this character in quotes"),
    ("alphabetic or numeric character", "put text that begins with * or & in quotes"),
    ("expected key", "look at the indentation, and for a missing colon or dash"),
    ("expected ':'", "write a space after the colon, and a colon after each key"),
    ("expected '-'", "indent all items of a list alike"),
    ("expected <block end>", "look at the indentation, and put text in quotes where quotes or brackets begin it"),
    ("unknown escape", "within double quotes write a backslash twice, or use single quotes"),
)


def explain(error: yaml.MarkedYAMLError, source: str, lines: list[str]) -> DocumentError:
    """Return the error for what the parser refused, pointing at what was opened where something doesn't end."""
    what = " ".join(part for part in (error.context, error.problem) if part)
    unended = "escape" not in what and any(
        kind in what for kind in ("quoted scalar", "flow mapping", "flow sequence", "flow node")
    )
    mark = (error.context_mark if unended else None) or error.problem_mark or error.context_mark
    if mark is None:
        return problem(Position(source), f"this is not YAML: {what}")
    line = lines[mark.line] if mark.line < len(lines) else ""
    if "\t" in _indent(line):
        return _tab(source, mark.line + 1, line)
    position = Position(source, mark.line + 1, mark.column + 1)
    shown = bare(line.strip())[:80]
    if _UNQUOTED_TEMPLATE.search(line):
        return problem(position, "a value that begins with {{ needs quotes", found=shown, remedy='write "{{ name }}"')
    if unended:
        kind = "quote" if "quoted" in what else "bracket"
        return problem(position, f"the {kind} that opens here does not end as it should", found=error.problem)
    remedy = next((advice for sign, advice in _ADVICE if sign in what), None)
    return problem(position, f"this is not YAML: {error.problem or what}", found=shown, remedy=remedy)


def refuse_tabs(text: str, source: str, multiline: list[tuple[int, int]]) -> None:
    """Refuse tabs in the indentation outside scalars of several lines.

    Raises DocumentError: some parsers let them pass within brackets, others don't.
    """
    if "\t" not in text:
        return
    content = {line for first, last in multiline for line in range(first + 1, last + 1)}
    for number, line in enumerate(text.split("\n"), 1):
        rest = line.strip()
        if "\t" in _indent(line) and rest and not rest.startswith("#") and number not in content:
            raise _tab(source, number, line)


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _tab(source: str, number: int, line: str) -> DocumentError:
    return problem(
        Position(source, number, line.index("\t") + 1),
        "a tab stands in the indentation",
        expected="spaces",
        found="a tab",
        remedy="indent with spaces; YAML allows no tabs there",
    )
