"""Reader: the keys of a play or a task, taken one by one, all that is wrong with them collected."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Optional, TypeVar

from k3env.documents.complaints import unknown_key
from k3env.documents.nodes import Node, problem
from k3env.documents.templates import Scope, is_template
from k3env.errors import DocumentError
from k3env.inventory.variables import valid_name
from k3env.protocol.secret import Secret

T = TypeVar("T")

NO_WORDS: tuple[str, ...] = ()
NO_NODES: Mapping[str, Node] = {}


class Reader:
    """A mapping of keys, each with its own kind of value."""

    def __init__(self, node: Node, what: str, problems: list[DocumentError]) -> None:
        """`what` is the mapping's name in messages; `problems` is what errors are added to."""
        self.node = node
        self.what = what
        self.problems = problems
        before = len(problems)
        self.keys: dict[str, Node] = self.guarded(lambda: dict(node.items(what)), {})
        self.readable = len(problems) == before
        """Whether there is a mapping at all; if not, that has been noted."""

    def take(self, key: str, convert: Callable[[Node, str], T], default: T) -> T:
        """Return a key's value as `convert` reads it; the default where it is absent or null."""
        node = self.keys.get(key)
        if node is None or node.content is None:
            return default
        return self.guarded(lambda: convert(node, key), default)

    def guarded(self, work: Callable[[], T], default: T) -> T:
        """Return the result of some work, or the default after noting its error."""
        try:
            return work()
        except DocumentError as error:
            self.problems.append(error)
            return default

    def refuse(self, key: str, instead: Optional[str], known: tuple[str, ...]) -> None:
        """Note that a key is none of the known ones, and what serves instead."""
        if instead is None:
            self.problems.append(unknown_key(key, known, self.node, f"{self.what} has no key {key}"))
            return
        message = f"{self.what} has no key {key}"
        self.problems.append(problem(self.node.keys[key], message, found=key, remedy=instead))


# What values may be: each takes a node and the name of its key, and raises DocumentError.


def constant(node: Node, key: str) -> str:
    """Read text that no variable changes."""
    if is_template(node):
        raise problem(node, f"{key} can't be a template", expected="plain text", found=node.found)
    return node.text(key)


def flag(node: Node, key: str) -> bool:
    """Read true or false."""
    if not isinstance(node.content, bool):
        raise problem(node, f"{key} must be true or false", expected="true or false", found=node.found)
    return node.content


def whole(node: Node, key: str) -> int:
    """Read a whole number of at least 0."""
    if isinstance(node.content, bool) or not isinstance(node.content, int) or node.content < 0:
        raise problem(node, f"{key} must be a whole number", expected="a whole number of at least 0", found=node.found)
    return node.content


def seconds(node: Node, key: str) -> float:
    """Read a number of seconds."""
    value = node.content
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise problem(node, f"{key} must be a number of seconds", expected="a number of seconds", found=node.found)
    return float(value)


def percentage(node: Node, key: str) -> float:
    """Read a number from 0 to 100."""
    value = node.content
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 100:
        raise problem(node, f"{key} must be a percentage", expected="a number from 0 to 100", found=node.found)
    return float(value)


def words(node: Node, key: str) -> tuple[str, ...]:
    """Read a list of words, or words with commas between them."""
    found: list[str] = []
    for item in node.entries(key):
        found += [word.strip() for word in constant(item, key).split(",")]
    if not all(found):
        raise problem(node, f"{key} holds an empty word", expected="words", remedy="remove a comma")
    return tuple(dict.fromkeys(found))


def variables(node: Node, key: str) -> Mapping[str, Node]:
    """Read variables with names that templates can use."""
    found = dict(node.items(key))
    for name in found:
        if not valid_name(name):
            raise problem(
                node.keys[name],
                f"{name} can't name a variable",
                expected="letters, digits and underscore, no digit in front",
                found=name,
            )
    return found


def environment(node: Node, key: str) -> Mapping[str, Node]:
    """Read environment variables, whose values are text or secrets."""
    found = dict(node.items(key))
    for name, value in found.items():
        if not name or "=" in name:
            raise problem(node.keys[name], f"{name} can't name an environment variable", expected="a name without =")
        plain = value.content if is_template(value) else Scope({}).render(value)
        if not isinstance(plain, (str, Secret)):
            value.text(f"{name} in {key}")
    return found
