"""Validation: a mapping that a person wrote against a dataclass, each error at its own value.

The decoder that the node uses is asked first, for it is there and has the last word. What it refuses, pydantic
explains; it costs a tenth of a second to import, and nothing is to be explained in a run that goes well.
"""

from __future__ import annotations

import dataclasses
import json
import math
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from k3env.documents.coercion import coerced, dataclass_in
from k3env.documents.complaints import collected, complaints, unknown_key
from k3env.documents.nodes import Node, problem
from k3env.documents.secrets import misplaced
from k3env.documents.templates import Scope, is_template
from k3env.errors import DocumentError, K3Error
from k3env.protocol import codec
from k3env.protocol.secret import Secret

T = TypeVar("T")

CONFIG: dict[str, object] = {"extra": "forbid", "use_attribute_docstrings": True}
"""How pydantic reads a dataclass of ours: unknown keys are errors, docstrings are descriptions."""
_STAND_IN = "secret"
"""What validation sees in place of a secret, which is text by nature."""
_adapters: dict[type[Any], Any] = {}


def validate(kind: type[T], values: Mapping[str, Any], node: Node, what: str) -> T:
    """Build a dataclass from rendered values; `node` says where each stands, `what` names the whole.

    A value that is null counts as not given. Text without a type becomes what its field wants.

    Raises DocumentError: one for all that is wrong.
    """
    instance, errors = _decoded(kind, values, node, what)
    if errors:
        raise collected(errors)
    return typing.cast(T, instance)


def problems(kind: type[Any], node: Node, what: str) -> list[DocumentError]:
    """Return what is wrong with a mapping already before its templates are rendered."""
    templates = {key: None for key, item in node.items(what) if is_template(item)}
    try:
        given = {key: Scope({}).render(item) for key, item in node.items(what) if key not in templates}
    except DocumentError as error:
        return [error]
    if not templates:
        return _decoded(kind, given, node, what)[1]
    secret = misplaced(kind, given, node, what)
    if secret:
        return secret
    partial = _without_secrets(coerced(kind, given))
    return [*_unknown(kind, templates, node, what), *_partly(kind, partial, node, what, templates)]


def json_schema(kind: type[Any], references: str = "#/$defs/{model}") -> dict[str, Any]:
    """Return the JSON Schema of a dataclass, with its docstrings as descriptions; `references` is how it refers."""
    return typing.cast("dict[str, Any]", _adapter(kind).json_schema(ref_template=references))


def _decoded(kind: type[Any], values: Mapping[str, Any], node: Node, what: str) -> tuple[Any, list[DocumentError]]:
    secret = misplaced(kind, values, node, what)
    if secret:
        return None, secret
    given = _without_secrets(coerced(kind, values))
    endless = [problem(node.at(path), "this is no finite number") for path in _endless(given, ())]
    if endless:
        return None, endless
    try:
        return codec.decode(kind, given), []
    except K3Error as error:
        return None, [problem(node, error.finding.message, remedy=error.finding.remedy)]
    except ValueError as error:
        return None, _explained(kind, given, node, what) or [problem(node, f"{what}: {error}")]


def _partly(
    kind: type[Any], given: dict[str, Any], node: Node, what: str, elsewhere: Iterable[str]
) -> list[DocumentError]:
    """Check the fields that are given; those named in `elsewhere` are still to come."""
    hints = codec.hints(kind)
    needed = {
        item.name
        for item in dataclasses.fields(kind)
        if item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
    }
    try:
        for key, value in given.items():
            codec.decode(hints[key], value)
        if needed <= {*given, *elsewhere}:
            return []
    except (ValueError, KeyError):
        pass
    return _explained(kind, given, node, what, elsewhere)


def _adapter(kind: type[Any]) -> Any:
    if kind not in _adapters:
        from pydantic import TypeAdapter

        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def _explained(
    kind: type[Any], given: dict[str, Any], node: Node, what: str, elsewhere: Iterable[str] = ()
) -> list[DocumentError]:
    """Return what is wrong, value by value; fields named in `elsewhere` may be missing."""
    errors = _unknown(kind, given, node, what)
    if errors:
        return errors
    from pydantic import ValidationError

    try:
        _adapter(kind).validate_json(json.dumps(given), strict=True)
    except ValidationError as error:
        items = [item for item in error.errors(include_url=False) if not _excused(item, elsewhere)]
        return complaints(items, given, node, what)
    return []


def _unknown(kind: type[Any], values: Mapping[str, Any], node: Node, what: str) -> list[DocumentError]:
    """Return an error for each key that names no field, in nested dataclasses too."""
    known = {item.name for item in dataclasses.fields(kind)}
    errors = []
    for name, value in values.items():
        if name not in known:
            errors.append(unknown_key(name, known, node, f"{what} has no parameter {name}"))
            continue
        nested = dataclass_in(codec.hints(kind)[name])
        if nested is not None and isinstance(value, Mapping):
            errors += _unknown(nested, value, node.child(name) or node, f"{name} of {what}")
    return errors


def _without_secrets(value: Any) -> Any:
    if isinstance(value, Secret):
        return _STAND_IN
    if isinstance(value, str):
        return str(value)  # Text is no str to the decoder
    if isinstance(value, Mapping):
        return {key: _without_secrets(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_secrets(item) for item in value]
    return value


def _endless(value: Any, path: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Return the paths of numbers that JSON can't hold."""
    if isinstance(value, float) and not math.isfinite(value):
        return [path]
    if isinstance(value, Mapping):
        return [found for key, item in value.items() for found in _endless(item, (*path, key))]
    if isinstance(value, (list, tuple)):
        return [found for at, item in enumerate(value) for found in _endless(item, (*path, at))]
    return []


def _excused(item: Any, elsewhere: Iterable[str]) -> bool:
    return item["type"] == "missing" and len(item["loc"]) == 1 and item["loc"][0] in elsewhere
