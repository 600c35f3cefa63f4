"""Blame: an error about a parameter, said of the variable that brought the value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from k3env.documents.nodes import Node, Position
from k3env.documents.templates import MISSING, Scope, is_alone, names_in
from k3env.errors import DocumentError
from k3env.k3 import variables as shipped
from k3env.protocol.finding import Evidence


def blamed(error: DocumentError, parameters: Node, scope: Scope, default: Position) -> DocumentError:
    """Return the error with the variables whose values it is about; as it is where that can't be told.

    The value is what one variable alone gives, or what the error quotes. One of the shipped variables is told where it
    was set, since its use is right; of others the play may make the wrong use, and they are named beside it.
    """
    found = error.finding
    nodes = [node for node in _nodes(parameters) if str(node.position) == found.subject]
    said = f"{found.message} {found.found or ''}"
    guilty: dict[str, Node] = {}
    for node in nodes:
        for name, variable in _variables(node, scope, default):
            if is_alone(node) or _quoted(said, scope.get(name)):
                guilty[name] = variable
    if not guilty:
        return error
    if len(guilty) > 1 or not guilty.keys() <= set(shipped.names()):
        more = tuple(Evidence(str(node.position), excerpt=f"{name} is set here") for name, node in guilty.items())
        return _again(error, found.message, found.subject, more)
    name, variable = next(iter(guilty.items()))
    where = (Evidence(found.subject, excerpt=f"{name} is used here"),)
    return _again(error, f"{name}: {found.message}", str(variable.position), where)


def _again(error: DocumentError, message: str, subject: str, more: tuple[Evidence, ...]) -> DocumentError:
    found = error.finding
    return DocumentError(
        message,
        subject=subject,
        expected=found.expected,
        found=found.found,
        remedy=found.remedy,
        evidence=(*found.evidence, *more),
    )


def _nodes(node: Node) -> Iterator[Node]:
    yield node
    content = node.content
    for child in content.values() if isinstance(content, dict) else content if isinstance(content, list) else ():
        yield from _nodes(child)


def _variables(node: Node, scope: Scope, default: Position) -> Iterator[tuple[str, Node]]:
    """Iterate over the variables that people set and a value is made of; a default may be made of others."""
    for name in names_in(node):
        variable = scope.raw(name)
        if not isinstance(variable, Node):
            continue
        if variable.position == default:
            yield from _variables(variable, scope, default)
        else:
            yield name, variable


def _quoted(said: str, value: object) -> bool:
    """Return whether an error repeats a value, as it is or as Python writes it."""
    if value is MISSING or value is None or isinstance(value, (bool, Mapping, list)):
        return False
    text = str(value)
    return len(text) > 1 and (text in said or repr(text)[1:-1] in said)
