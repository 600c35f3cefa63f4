"""Nodes: values that a person wrote, each with the place where it stands."""

from __future__ import annotations

import json
import typing
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional

from k3env.errors import DocumentError
from k3env.protocol.finding import printable
from k3env.protocol.masking import bare


@dataclass(frozen=True, slots=True)
class Position:
    """A place in a file, or a source that has no lines, such as "--extra-vars"."""

    source: str
    line: int = 0
    """Counted from 1; 0: the source has no lines."""
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


class Text(str):
    """Text from a source that has no types: `--extra-vars k=v`, the environment.

    Where something else is wanted it is read as JSON: in conditions here, in parameters by schema.validate.
    """

    __slots__ = ()

    def parsed(self) -> Any:
        """Return the JSON value that the text spells, or the text itself."""
        try:
            value = json.loads(self)
        except ValueError:
            return self
        return self if isinstance(value, str) else value

    def __bool__(self) -> bool:
        value = self.parsed()
        return value if isinstance(value, bool) else len(self) > 0

    def __eq__(self, other: object) -> bool:
        if isinstance(other, (bool, int, float)):
            return type(self.parsed()) is not Text and bool(self.parsed() == other)
        return str.__eq__(self, other) if isinstance(other, str) else False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__


class Literal(str):
    """Text that is no template, whatever stands in it: Ansible's !unsafe."""

    __slots__ = ()


class Vaulted(str):
    """Text that ansible-vault encrypted; it can be passed on, and not be used."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A scalar, a mapping of text to nodes, or a list of nodes; never changed after it was made."""

    content: Any
    position: Position
    keys: Mapping[str, Position] = field(default_factory=dict)
    """Where each key of a mapping stands."""

    @staticmethod
    def of(value: Any, position: Position) -> Node:
        """Return the node of a plain value, all of which stands at one position."""
        if isinstance(value, Mapping):
            content = {str(key): Node.of(item, position) for key, item in value.items()}
            return Node(content, position, dict.fromkeys(content, position))
        if isinstance(value, (list, tuple)):
            return Node([Node.of(item, position) for item in value], position)
        return Node(value, position)

    @property
    def plain(self) -> Any:
        """The value without positions."""
        if isinstance(self.content, dict):
            return {key: item.plain for key, item in self.content.items()}
        if isinstance(self.content, list):
            return [item.plain for item in self.content]
        return self.content

    def spelling(self) -> Hashable:
        """Return what two nodes share if they have the same value, of the same types in the same order."""
        return _typed(self.plain)

    def child(self, step: object) -> Optional[Node]:
        """Return what stands under a key or an index, or None."""
        if isinstance(self.content, dict):
            return self.content.get(step)
        if isinstance(self.content, list) and isinstance(step, int) and step < len(self.content):
            return typing.cast(Node, self.content[step])
        return None

    def at(self, path: Iterable[object]) -> Position:
        """Return the position of what a path of keys and indexes leads to, as far as it leads."""
        node = self
        for step in path:
            node = node.child(step) or node
        return node.position

    def items(self, what: str) -> Iterator[tuple[str, Node]]:
        """Iterate over a mapping; null is an empty one.

        Raises DocumentError, saying that `what` must be a mapping.
        """
        if self.content is None:
            return iter(())
        if not isinstance(self.content, dict):
            raise problem(self, f"{what} must be a mapping", expected="a mapping", found=self.found)
        return iter(self.content.items())

    def entries(self, what: str) -> list[Node]:
        """Return the items of a list; null is an empty one, a scalar a list of itself.

        Raises DocumentError, saying that `what` must be a list.
        """
        if self.content is None:
            return []
        if isinstance(self.content, dict):
            raise problem(self, f"{what} must be a list", expected="a list", found=self.found)
        return self.content if isinstance(self.content, list) else [self]

    def text(self, what: str) -> str:
        """Return a scalar that must be text.

        Raises DocumentError, saying that `what` must be text.
        """
        if isinstance(self.content, str) and self.content:
            return self.content
        remedy = None
        if isinstance(self.content, (bool, int, float)):
            remedy = f'put it in quotes: "{spelt(self.content)}"'
        raise problem(self, f"{what} must be text", expected="text", found=self.found, remedy=remedy)

    @property
    def found(self) -> str:
        """What stands here, for a message: "a list", "the number 5"."""
        return described(self.content)


def _typed(value: Any) -> Hashable:
    """Return a value that equals another one of the same types alone: 1, 1.0 and true differ."""
    if isinstance(value, dict):
        return (dict, tuple((key, _typed(item)) for key, item in value.items()))
    if isinstance(value, list):
        return (list, tuple(_typed(item) for item in value))
    return (type(value), str(value))


def described(value: Any) -> str:
    """Say what a plain value is, for a message: "a list", "the number 5"."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, (list, tuple)):
        return "a list"
    if isinstance(value, bool):
        return spelt(value)
    if isinstance(value, (int, float)):
        return f"the number {spelt(value)}"
    # Before it is cut: half a password is not recognised.
    shown = bare(printable(str(value))).replace("\n", "\\n")
    if not shown:
        return "empty text"
    return f'the text "{shown[:57]}…"' if len(shown) > 60 else f'the text "{shown}"'


def spelt(value: Any) -> str:
    """Return a scalar as YAML spells it."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and value.bit_length() > 256:
        return "of more than 256 bits"
    return str(value)


def problem(
    where: Node | Position,
    message: str,
    *,
    expected: Optional[str] = None,
    found: Optional[str] = None,
    remedy: Optional[str] = None,
) -> DocumentError:
    """Return the error that says what is wrong at a place."""
    position = where.position if isinstance(where, Node) else where
    return DocumentError(message, subject=str(position), expected=expected, found=found, remedy=remedy)
