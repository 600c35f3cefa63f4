"""Text with styles: what a terminal may colour, and what everybody else reads plain."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

Span = tuple[str, str]
"""Text and the name of its style, which may be empty: `rich.text.Text.assemble` takes spans as they are."""

STYLES = {
    "ok": "green",
    "changed": "yellow",
    "failed": "red",
    "unreachable": "bold red",
    "skipped": "cyan",
    "cancelled": "magenta",
    "notrun": "magenta",
    "unknown": "magenta",
    "warn": "yellow",
    "pass": "green",
    "fail": "red",
    "skip": "cyan",
    "header": "bold",
    "detail": "dim",
    "removed": "red",
    "added": "green",
    "": "",
}
"""How a terminal shows each style, in rich's words."""


@dataclass(frozen=True)
class Styled:
    """Spans in order, line ends included."""

    spans: tuple[Span, ...] = ()

    def __str__(self) -> str:
        """Return the text without styles and without its last line end."""
        return "".join(text for text, _ in self.spans).rstrip("\n")

    def __add__(self, other: Styled) -> Styled:
        return Styled(self.spans + other.spans)

    def __bool__(self) -> bool:
        return bool(self.spans)


def line(*spans: Span) -> Styled:
    """Return one line."""
    return Styled((*spans, ("\n", "")))


def join(parts: Iterable[Styled]) -> Styled:
    """Return the parts one after another."""
    return Styled(tuple(span for part in parts for span in part.spans))
