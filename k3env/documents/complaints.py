"""Complaints: what pydantic found wrong, said about the value that a person wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from k3env.documents.nodes import Node, described, problem, spelt
from k3env.errors import DocumentError, nearest
from k3env.protocol.finding import Evidence

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a mapping",
    "dataclass_type": "a mapping",
    "none_required": "null",
}


def unknown_key(name: str, known: Iterable[str], node: Node, message: str) -> DocumentError:
    """Return the error for a key that is none of the known ones, with the nearest of them."""
    names = sorted(known)
    meant = nearest(name, names)
    return problem(
        node.keys.get(name, node.position),
        message,
        expected="one of " + ", ".join(names) if names else "no keys",
        found=name,
        remedy=f"did you mean {meant}?" if meant else None,
    )


def collected(errors: list[DocumentError]) -> DocumentError:
    """Return the first of several errors, with the others as its evidence."""
    first, *others = errors
    if not others:
        return first
    found = first.finding
    return DocumentError(
        found.message,
        subject=found.subject,
        expected=found.expected,
        found=found.found,
        remedy=found.remedy,
        evidence=(*found.evidence, *(_as_evidence(other) for other in others)),
    )


def complaints(items: Iterable[Any], values: Mapping[str, Any], node: Node, what: str) -> list[DocumentError]:
    """Return one error for each place that pydantic's error items are about."""
    by_place: dict[tuple[Any, ...], list[Any]] = {}
    for item in items:
        absent = item["loc"][-1] if item["type"] == "missing" else None
        by_place.setdefault(_written(item["loc"], values, absent), []).append(item)
    return [_complaint(path, found, node, what) for path, found in by_place.items()]


def _written(path: tuple[Any, ...], values: Any, absent: Any) -> tuple[Any, ...]:
    """Return a path without what pydantic adds to it: the names of a union's types. `absent`: a key that is missing."""
    steps: list[Any] = []
    for step in path:
        if isinstance(values, Mapping) and (step in values or step == absent):
            steps.append(step)
            values = values.get(step)
        elif isinstance(values, (list, tuple)) and isinstance(step, int) and step < len(values):
            steps.append(step)
            values = values[step]
    return tuple(steps)


def _complaint(path: tuple[Any, ...], items: list[Any], node: Node, what: str) -> DocumentError:
    first = items[0]
    name = ".".join(str(step) for step in path)
    if first["type"] == "missing":
        return problem(node.at(path), f"{what} needs the parameter {name}", expected=f"a value for {name}")
    if first["type"] == "value_error":
        message = str(first["ctx"]["error"])
        return problem(_blamed(message, _at(node, path)), f"{what}: {message}")
    expected = " or ".join(dict.fromkeys(_wanted(item) for item in items))
    return problem(
        node.at(path),
        f"{name} of {what} must be {expected}",
        expected=expected,
        found=described(first["input"]),
        remedy=_advice(items, str(path[-1]) if path else ""),
    )


def _at(node: Node, path: tuple[Any, ...]) -> Node:
    for step in path:
        node = node.child(step) or node
    return node


def _blamed(message: str, node: Node) -> Node:
    """Return the value that a rule complains about: the one it begins with by name, or the one it quotes."""
    named = node.child(message.split(" ", 1)[0].rstrip(":"))
    return named or next((leaf for leaf in _leaves(node) if repr(leaf.content) in message), node)


def _leaves(node: Node) -> Iterator[Node]:
    children = node.content.values() if isinstance(node.content, dict) else node.content
    if isinstance(node.content, (dict, list)):
        for child in children:
            yield from _leaves(child)
    elif isinstance(node.content, str) and node.content:
        yield node


def _wanted(item: Any) -> str:
    if item["type"] == "literal_error":
        choices = _choices(item)
        return choices[0] if len(choices) == 1 else "one of " + ", ".join(choices)
    return _EXPECTED.get(item["type"]) or str(item["msg"])


def _choices(item: Any) -> list[str]:
    return str(item["ctx"]["expected"]).replace(" or ", ", ").replace("'", "").split(", ")


def _advice(items: list[Any], name: str) -> str | None:
    value = items[0]["input"]
    choices = [choice for item in items if item["type"] == "literal_error" for choice in _choices(item)]
    meant = nearest(str(value), choices)
    if meant:
        return f"did you mean {meant}?"
    if name == "mode" and type(value) is int and 0 <= value < 10_000:
        return f'put it in quotes: "{value:04d}"; as a number it would be the mode {value:04o}'
    if isinstance(value, (bool, int, float)) and any(item["type"] == "string_type" for item in items):
        return f'put it in quotes: "{spelt(value)}"'
    return None


def _as_evidence(error: DocumentError) -> Evidence:
    finding = error.finding
    return Evidence(finding.subject, excerpt="; ".join(part for part in (finding.message, finding.remedy) if part))
