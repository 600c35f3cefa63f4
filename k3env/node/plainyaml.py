"""The part of YAML that configurations of servers are written in, for nodes that have no YAML library.

Block mappings and sequences, flow ones on one line, plain and quoted scalars, comments: read as PyYAML's safe loader
reads them. Everything else (anchors, tags, block scalars, several documents, tabs) is refused, never guessed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Optional

DEPTH = 20
_KEY = re.compile(
    r"""(?P<key>"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s#&*!|>'"%@`{}\[\],?:-][^#:]*?|-?[\w./]+)\s*:(?:\s+|$)"""
)
_BOOLS = {
    **dict.fromkeys(("yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
}
_NULLS = ("", "~", "null", "Null", "NULL")
_INT = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)\Z")
# PyYAML wants a dot, a sign in the exponent, and none before a dot: 1e-3 and -.5 are texts to it.
_FLOAT = re.compile(r"[-+]?(?:[0-9][0-9_]*)\.[0-9_]*(?:[eE][-+][0-9]+)?\Z|\.[0-9][0-9_]*(?:[eE][-+][0-9]+)?\Z")
# What YAML 1.1 reads as something else than a text: octal, hexadecimal, base 60, dates, infinities, "=", "<<".
_ODD = re.compile(
    r"[-+]?0[0-7_]+\Z|[-+]?0[xb]|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+|\d{4}-\d\d?-\d\d?|[-+]?\.(?:inf|nan)\Z|=\Z|<<\Z",
    re.I,
)
_INDICATORS = "&*!|>%@`?,[]{}#:"


class NotPlain(ValueError):
    """A text that this reader does not read, with the line."""


@dataclass(frozen=True)
class _Line:
    number: int
    indent: int
    text: str


def loads(text: str) -> Any:
    """Return the value of a document; None of an empty one.

    Raises NotPlain, which names the line.
    """
    # A byte order mark, as editors on Windows leave it, is no part of the first key.
    lines = _lines(text[1:] if text.startswith("\ufeff") else text)
    if not lines:
        return None
    value, rest = _block(lines, 0, lines[0].indent, DEPTH)
    if rest < len(lines):
        raise NotPlain(f"line {lines[rest].number}: its indentation fits nothing above it")
    return value


def _lines(text: str) -> list[_Line]:
    found: list[_Line] = []
    begun = False
    for number, raw in enumerate(text.splitlines(), 1):
        line = _uncommented(raw).rstrip(" ")
        if not line or (line == "---" and not found and not begun):
            begun = begun or line == "---"
            continue
        stripped = line.lstrip(" ")
        if "\t" in line or line == "..." or line.startswith(("---", "%")):
            raise NotPlain(f"line {number}: a tab, a directive or a second document is not read here")
        found.append(_Line(number, len(line) - len(stripped), stripped))
    return found


def _uncommented(line: str) -> str:
    quote = ""
    for at, char in enumerate(line):
        if quote:
            quote = "" if char == quote and not (quote == '"' and line[at - 1] == "\\") else quote
        elif char in "'\"" and (at == 0 or line[at - 1] in " [{,:"):
            quote = char
        elif char == "#" and (at == 0 or line[at - 1] in " \t"):
            return line[:at]
    return line


def _block(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[Any, int]:
    """Return the mapping, sequence or scalar that begins at a line, and the line after it."""
    if depth == 0:
        raise NotPlain(f"line {lines[at].number}: nested more than {DEPTH} deep")
    first = lines[at].text
    if first == "-" or first.startswith("- "):
        return _sequence(lines, at, indent, depth)
    if _KEY.match(first):
        return _mapping(lines, at, indent, depth)
    if at + 1 < len(lines) and lines[at + 1].indent >= indent:
        raise NotPlain(f"line {lines[at].number}: a value that goes on in the next line is not read here")
    return _value(first, lines[at].number), at + 1


def _mapping(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while at < len(lines) and lines[at].indent == indent:
        line = lines[at]
        match = _KEY.match(line.text)
        if match is None:
            raise NotPlain(f"line {line.number}: expected a key and a colon, found {line.text[:40]!r}")
        key = _value(match["key"], line.number)
        if not isinstance(key, str) or key in found:
            raise NotPlain(f"line {line.number}: the key {key!r} is no text, or stands there twice")
        rest = line.text[match.end() :]
        if rest:
            found[key], at = _value(rest, line.number), at + 1
            if at < len(lines) and lines[at].indent > indent:
                raise NotPlain(f"line {lines[at].number}: a value that goes on in the next line is not read here")
        else:
            found[key], at = _nested(lines, at, indent, depth, sequences_too=True)
    return found, at


def _sequence(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while at < len(lines) and lines[at].indent == indent and (lines[at].text + " ").startswith("- "):
        line = lines[at]
        rest = line.text[1:].lstrip(" ")
        if not rest:
            value, at = _nested(lines, at, indent, depth, sequences_too=False)
        else:
            # What stands behind the dash is the first line of a block of its own.
            inner = indent + len(line.text) - len(rest)
            lines[at] = _Line(line.number, inner, rest)
            value, at = _block(lines, at, inner, depth - 1)
        found.append(value)
    return found, at


def _nested(lines: list[_Line], at: int, indent: int, depth: int, sequences_too: bool) -> tuple[Any, int]:
    """Return what stands below a key or a dash; a sequence below a key may stand as far left as the key."""
    after = at + 1
    if after < len(lines):
        deeper = lines[after].indent > indent
        beside = sequences_too and lines[after].indent == indent and (lines[after].text + " ").startswith("- ")
        if deeper or beside:
            return _block(lines, after, lines[after].indent, depth - 1)
    return None, after


def _value(text: str, number: int) -> Any:
    """Return the value of a text on one line."""
    reader = _Flow(text.strip(), number)
    value = reader.value(DEPTH, flow=False)
    reader.end()
    return value


class _Flow:
    """Reads one line from left to right."""

    def __init__(self, text: str, number: int) -> None:
        self._text, self._at, self._number = text, 0, number

    def value(self, depth: int, flow: bool) -> Any:
        char = self._peek()
        if char == "" or depth == 0:
            return None if depth else self._refuse("nested too deep")
        if char in "[{":
            return self._list(depth) if char == "[" else self._map(depth)
        if char in "'\"":
            return self._quoted(char)
        return self._plain(flow)

    def end(self) -> None:
        if self._peek():
            self._refuse(f"{self._text[self._at :][:40]!r} is left over")

    def _list(self, depth: int) -> list[Any]:
        found = []
        self._at += 1
        while self._peek() != "]":
            found.append(self.value(depth - 1, flow=True))
            self._separate("]")
        self._at += 1
        return found

    def _map(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        while self._peek() != "}":
            key = self._quoted(self._peek()) if self._peek() in "'\"" else self._plain(flow=True, key=True)
            if self._peek() != ":" or not isinstance(key, str) or key in found:
                self._refuse(f"expected a key of its own and a colon, found {key!r}")
            self._at += 1
            found[key] = self.value(depth - 1, flow=True) if self._peek() not in ",}" else None
            self._separate("}")
        self._at += 1
        return found

    def _separate(self, end: str) -> None:
        if self._peek() == ",":
            self._at += 1
        elif self._peek() != end:
            self._refuse(f"expected a comma or {end}")

    def _quoted(self, quote: str) -> str:
        pattern = r"'((?:[^']|'')*)'" if quote == "'" else r'"([^"\\]*)"'
        match = re.compile(pattern).match(self._text, self._at)
        if match is None:
            self._refuse("a quoted text with escapes, or without an end, is not read here")
            raise AssertionError
        self._at = match.end()
        return match[1].replace("''", "'") if quote == "'" else match[1]

    def _plain(self, flow: bool, key: bool = False) -> Any:
        pattern = r"(?:[^,\[\]{}:#]|:(?![\s,\[\]{}]|$)|(?<! )#)*" if flow else r"(?:[^:#]|:(?!\s|$)|(?<! )#)*"
        match = re.compile(pattern).match(self._text, self._at)
        text = match[0].strip() if match else ""
        self._at = match.end() if match else self._at
        if text[:1] in tuple(_INDICATORS) or _ODD.match(text) or (flow and not text):
            self._refuse(f"{text[:40]!r} is not read here")
        if text[:1] == "-" and (len(text) == 1 or text[1] == " "):
            self._refuse("a list within a value is not read here")
        return text if key else _scalar(text)

    def _peek(self) -> str:
        while self._at < len(self._text) and self._text[self._at] == " ":
            self._at += 1
        return self._text[self._at : self._at + 1]

    def _refuse(self, why: str) -> Optional[Any]:
        raise NotPlain(f"line {self._number}: {why}")


def _scalar(text: str) -> Any:
    if text in _NULLS:
        return None
    if text in _BOOLS:
        return _BOOLS[text]
    if _INT.match(text):
        return int(text.replace("_", ""))
    if _FLOAT.match(text):
        return float(text.replace("_", ""))
    return text
