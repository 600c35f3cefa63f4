"""Composer: from the events of PyYAML's parser to nodes, without recursion; depth and size are ours to bound."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Optional

import yaml

from k3env.documents import scalars
from k3env.documents.nodes import Literal, Node, Position, Vaulted, problem
from k3env.errors import DocumentError, nearest
from k3env.protocol.finding import WARN, Finding

MAX_DEPTH = 64
MAX_ALIASED = 100_000
"""Values that all aliases of a document may stand for, together."""

# libyaml's parser where PyYAML was built with it: the same events, twenty times as fast.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_TEXTS: dict[Optional[str], type[str]] = {"!unsafe": Literal, "!vault": Vaulted}
"""Ansible's tags of text."""
_KINDS: dict[str, Any] = {"int": int, "float": (int, float), "bool": bool, "null": type(None)}


@dataclass
class _Open:
    """A mapping or list that has begun and not ended."""

    position: Position
    anchor: Optional[str]
    items: Any
    keys: dict[str, Position] = field(default_factory=dict)
    key: Optional[str] = None
    """The key whose value comes next; "" for `<<`."""
    merge: Optional[Position] = None
    """Where `<<` stands."""
    merged: list[Node] = field(default_factory=list)
    weight: int = 1
    height: int = 1

    @property
    def wants_key(self) -> bool:
        return self.key is None and isinstance(self.items, dict)

    def take(self, node: Node) -> None:
        """Add a value."""
        if isinstance(self.items, list):
            self.items.append(node)
        elif self.key:
            self.items[self.key] = node
        else:
            self.merged += _mergeable(node)
        self.key = None

    def node(self) -> Node:
        """Return what was read; a mapping's own keys win over merged ones, earlier merges over later ones."""
        items, keys = self.items, self.keys
        if self.merged:
            items, keys = {}, {}
            for part in (*reversed(self.merged), Node(self.items, self.position, self.keys)):
                items.update(part.content)
                keys.update(part.keys)
        return Node(items, self.position, keys)


class Composer:
    """Make the node tree of one document."""

    def __init__(self, source: str, strict: bool) -> None:
        self.warnings: list[Finding] = []
        self.multiline: list[tuple[int, int]] = []
        """First and last line of each scalar of several lines, in which a tab is content."""
        self._source = source
        self._strict = strict
        self._open: list[_Open] = []
        self._anchors: dict[str, tuple[Node, int, int]] = {}
        self._aliased = 0
        self._root: Optional[Node] = None

    def compose(self, text: str) -> Optional[Node]:
        """Return the root of the one document, or None where there is none.

        Raises DocumentError, and yaml.MarkedYAMLError for what the parser refuses.
        """
        for event in _events(text):
            if isinstance(event, yaml.ScalarEvent):
                self._scalar(event)
            elif isinstance(event, yaml.CollectionStartEvent):
                self._start(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                opened = self._open.pop()
                self._done(opened.node(), opened.anchor, opened.weight, opened.height)
            elif isinstance(event, yaml.AliasEvent):
                self._alias(event)
            elif isinstance(event, yaml.DocumentStartEvent) and self._root is not None:
                raise problem(self._at(event), "a second document begins here", expected="one document in a file")
        return self._root

    def _at(self, event: Any) -> Position:
        return Position(self._source, event.start_mark.line + 1, event.start_mark.column + 1)

    def _wants_key(self) -> bool:
        return bool(self._open) and self._open[-1].wants_key

    def _scalar(self, event: Any) -> None:
        position = self._at(event)
        if event.end_mark.line > event.start_mark.line:
            self.multiline.append((event.start_mark.line + 1, event.end_mark.line + 1))
        if "\0" in event.value or any("\ud800" <= char <= "\udfff" for char in event.value):
            raise problem(position, "text with a NUL or half a character can't be passed on", expected="other text")
        if self._wants_key():
            self._key(event.value, event.implicit[0], position)
        else:
            self._done(Node(self._value(event, position), position), event.anchor, 1, 0)

    def _key(self, key: str, plain: bool, position: Position) -> None:
        """Take a key, which is always text as it is written."""
        opened = self._open[-1]
        if plain and key == "<<":
            if opened.merge:
                raise _twice(key, position, opened.merge, "merge several with <<: [*a, *b]")
            opened.key, opened.merge = "", position
            return
        if not key:
            raise problem(position, "an empty key", expected="a name before the colon")
        if key in opened.keys:
            raise _twice(key, position, opened.keys[key], "remove one of them")
        opened.keys[key], opened.key = position, key

    def _value(self, event: Any, position: Position) -> Any:
        plain, tag = event.implicit[0], event.tag
        if not plain and tag in (None, "!", _TAG + "str"):
            return event.value
        if not self._strict and tag in _TEXTS:
            return _TEXTS[tag](event.value)
        if not plain and tag.removeprefix(_TAG) not in _KINDS:
            raise _foreign_tag(position, tag)
        try:
            value, surprise = scalars.read(event.value)
        except ValueError:
            raise problem(position, f"the number {event.value[:40]} can't be read", remedy="put it in quotes") from None
        if not plain:
            return _tagged(tag.removeprefix(_TAG), value, event.value, position)
        if surprise is not None:
            self._surprise(event.value, surprise, position)
        return value

    def _surprise(self, word: str, surprise: scalars.Surprise, position: Position) -> None:
        if self._strict:
            raise problem(
                position,
                f"{word} means different things to different readers of YAML",
                expected="a value with one meaning",
                found=f"{word}: {surprise.why}",
                remedy=f"write {surprise.write}",
            )
        self.warnings.append(
            Finding(
                id="document.surprise",
                status=WARN,
                severity="warn",
                scope="static",
                subject=str(position),
                message=f"{word} is {surprise.why}",
                remedy=f"write {surprise.write}",
            )
        )

    def _start(self, event: Any) -> None:
        position = self._at(event)
        mapping = isinstance(event, yaml.MappingStartEvent)
        if self._wants_key():
            raise _complex_key(position, mapping)
        if event.tag not in (None, "!", _TAG + ("map" if mapping else "seq")):
            raise _foreign_tag(position, event.tag)
        if len(self._open) >= MAX_DEPTH:
            raise problem(position, "too deeply nested", expected=f"at most {MAX_DEPTH} levels")
        self._open.append(_Open(position, event.anchor, {} if mapping else []))

    def _alias(self, event: Any) -> None:
        position, name = self._at(event), event.anchor
        if any(opened.anchor == name for opened in self._open):
            raise problem(position, f"*{name} stands for something that contains it")
        if name not in self._anchors:
            meant = nearest(name, list(self._anchors))
            remedy = f"did you mean *{meant}?" if meant else f'text that begins with * needs quotes: "*{name}"'
            raise problem(position, f"there is no anchor &{name} before this", remedy=remedy)
        if self._wants_key():
            raise problem(position, "an alias can't be a key", expected="text before the colon")
        node, weight, height = self._anchors[name]
        self._aliased += weight
        if self._aliased > MAX_ALIASED or len(self._open) + height > MAX_DEPTH:
            expected = f"at most {MAX_ALIASED} values in all, {MAX_DEPTH} levels deep"
            raise problem(position, "the aliases up to here stand for too much", expected=expected)
        self._done(node, None, weight, height)

    def _done(self, node: Node, anchor: Optional[str], weight: int, height: int) -> None:
        if anchor is not None:
            self._anchors[anchor] = (node, weight, height)
        if not self._open:
            self._root = node
            return
        opened = self._open[-1]
        opened.weight += weight
        opened.height = max(opened.height, height + 1)
        opened.take(node)


def _events(text: str) -> Iterator[Any]:
    parser = LOADER(text)
    try:
        while parser.check_event():
            yield parser.get_event()
    finally:
        parser.dispose()


def _mergeable(node: Node) -> list[Node]:
    nodes = node.content if isinstance(node.content, list) else [node]
    for item in nodes:
        if not isinstance(item.content, dict):
            raise problem(item, "<< merges mappings", expected="a mapping or a list of mappings", found=item.found)
    return list(nodes)


def _tagged(kind: str, value: Any, word: str, position: Position) -> Any:
    if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "bool"):
        raise problem(position, f"{word} is no !!{kind}", remedy="remove the tag")
    return float(value) if kind == "float" else value


def _twice(key: str, position: Position, first: Position, remedy: str) -> DocumentError:
    return problem(
        position,
        f"the key {key} is given twice",
        expected="each key once in a mapping",
        found=f"it stands at {first} too",
        remedy=remedy,
    )


def _foreign_tag(position: Position, tag: str) -> DocumentError:
    name = tag.replace(_TAG, "!!")
    remedies = {
        "!vault": "encrypted values are not read: refer to the secret, {secret: file:PATH} or {secret: env:NAME}",
        "!unsafe": "write text that looks like a template as {% raw %}…{% endraw %}",
    }
    return problem(
        position,
        f"the tag {name} is not read",
        expected="a plain value",
        found=name,
        remedy=remedies.get(tag, "remove the tag; values have the types of JSON"),
    )


def _complex_key(position: Position, mapping: bool) -> DocumentError:
    return problem(
        position,
        f"a {'mapping' if mapping else 'list'} can't be a key",
        expected="text before the colon",
        remedy='a value that begins with {{ needs quotes: "{{ name }}"' if mapping else None,
    )
