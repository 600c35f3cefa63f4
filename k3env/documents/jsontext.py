"""JSON text: read as strictly as JSON is meant, with the place of every value.

Ansible reads a file as JSON first and as YAML only then; the two differ about 1e3, about tabs, about "\\ud83d\\ude00".
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from typing import Any

from k3env.documents.composer import MAX_DEPTH
from k3env.documents.nodes import Node, Position, problem
from k3env.errors import DocumentError

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_SCALAR = re.compile(r"true|false|null|NaN|-?Infinity|-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")


def is_json(text: str) -> bool:
    """Return whether a whole text is one JSON object or list."""
    if text.lstrip(" \t\n\r")[:1] not in ("{", "["):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def loads(text: str, source: str) -> Node:
    """Read a text that holds one value.

    Raises DocumentError, pointing at what is wrong; a key given twice is.
    """
    return _Reader(text, source).read()


class _Reader:
    """Reads from `at`, which moves on."""

    def __init__(self, text: str, source: str) -> None:
        self.text = text
        self.source = source
        self.at = 0
        self.lines = [0, *(found.end() for found in re.finditer("\n", text))]

    def read(self) -> Node:
        node = self.value(0)
        if self.peek():
            raise self.wrong("something follows the JSON text", expected="one JSON value")
        return node

    def peek(self) -> str:
        """Skip white space; return the next character, "" at the end."""
        found = _SPACE.match(self.text, self.at)
        self.at = found.end() if found else self.at
        return self.text[self.at : self.at + 1]

    def position(self) -> Position:
        line = bisect_right(self.lines, self.at)
        return Position(self.source, line, self.at - self.lines[line - 1] + 1)

    def wrong(self, message: str, expected: str) -> DocumentError:
        found = self.text[self.at : self.at + 40].partition("\n")[0]
        return problem(self.position(), message, expected=expected, found=repr(found) if found else "the end")

    def value(self, depth: int) -> Node:
        first, position = self.peek(), self.position()
        if depth > MAX_DEPTH:
            raise problem(position, "too deeply nested", expected=f"at most {MAX_DEPTH} levels")
        if first == "{":
            return self.mapping(position, depth)
        if first == "[":
            return self.sequence(position, depth)
        return Node(self.text_value() if first == '"' else self.scalar(), position)

    def text_value(self) -> str:
        try:
            value, end = _DECODER.raw_decode(self.text, self.at)
        except json.JSONDecodeError as error:
            self.at = error.pos
            raise self.wrong(f"this is not JSON: {error.msg}", expected="text in double quotes") from None
        if "\0" in value or any("\ud800" <= char <= "\udfff" for char in value):
            raise self.wrong("text with a NUL or half a character can't be passed on", expected="other text")
        self.at = end
        return str(value)

    def scalar(self) -> Any:
        found = _SCALAR.match(self.text, self.at)
        if not found or not found.group():
            raise self.wrong("this is not JSON", expected="a JSON value")
        try:
            value = json.loads(found.group())
        except ValueError:  # more digits than Python converts
            raise self.wrong("this number can't be read", expected="a shorter number") from None
        self.at = found.end()
        return value

    def mapping(self, position: Position, depth: int) -> Node:
        items: dict[str, Node] = {}
        keys: dict[str, Position] = {}
        self.at += 1
        while self.peek() != "}" or items:
            if self.peek() != '"':
                raise self.wrong("this is not JSON", expected="a key in double quotes")
            where, key = self.position(), self.text_value()
            if key in items:
                found = f"it stands at {keys[key]} too"
                raise problem(where, f"the key {key} is given twice", expected="each key once", found=found)
            self.take(":")
            keys[key], items[key] = where, self.value(depth + 1)
            if self.peek() == "}":
                break
            self.take(",")
        self.at += 1
        return Node(items, position, keys)

    def sequence(self, position: Position, depth: int) -> Node:
        items: list[Node] = []
        self.at += 1
        while self.peek() != "]" or items:
            items.append(self.value(depth + 1))
            if self.peek() == "]":
                break
            self.take(",")
        self.at += 1
        return Node(items, position)

    def take(self, char: str) -> None:
        if self.peek() != char:
            raise self.wrong("this is not JSON", expected=repr(char))
        self.at += 1
