"""Secrets: where a document may refer to one. What becomes a word of a command, `ps` shows to everybody."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional

from k3env.documents.nodes import Node, problem
from k3env.errors import DocumentError
from k3env.protocol import codec
from k3env.protocol.secret import Secret


def misplaced(kind: type[Any], values: Mapping[str, Any], node: Node, what: str) -> list[DocumentError]:
    """Return an error for each field that holds a secret and must not; a dataclass names those that may in SECRETS."""
    allowed: tuple[str, ...] = getattr(kind, "SECRETS", ())
    errors = []
    for name in (name for name in values if name in codec.hints(kind) and name not in allowed):
        found = _first(values[name], (name,))
        if found is not None:
            errors.append(_refused(name, *found, node, what, allowed))
    return errors


def _refused(
    name: str, path: tuple[Any, ...], secret: Secret, node: Node, what: str, allowed: tuple[str, ...]
) -> DocumentError:
    reference = f"{{secret: {secret.reference}}}"
    return problem(
        node.at(path),
        f"{name} of {what} can't be a secret: others would see it",
        expected=f"a secret in {' or '.join(allowed or ('environment',))} alone",
        found=reference,
        remedy=f"use environment: {{NAME: {reference}}}, and let the program read $NAME",
    )


def _first(value: Any, path: tuple[Any, ...]) -> Optional[tuple[tuple[Any, ...], Secret]]:
    """Return the first secret within a value, and the path to it."""
    if isinstance(value, Secret):
        return path, value
    if isinstance(value, Mapping):
        items = list(value.items())
    else:
        items = list(enumerate(value)) if isinstance(value, (list, tuple)) else []
    return next((found for step, item in items if (found := _first(item, (*path, step))) is not None), None)
