"""Coercion: text without a type becomes what a field wants, by the field's type hint."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Optional, Union

from k3env.documents.nodes import Text
from k3env.protocol.codec import hints


def coerced(kind: type[Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dataclass's values without nulls, Text read as JSON where a field does not take text."""
    wanted = hints(kind)
    return {key: _coerce(wanted.get(key, Any), value) for key, value in values.items() if value is not None}


def dataclass_in(hint: Any) -> Optional[type[Any]]:
    """Return the dataclass that a hint allows, or None."""
    return next((arm for arm in _arms(hint) if dataclasses.is_dataclass(arm) and isinstance(arm, type)), None)


def _coerce(hint: Any, value: Any) -> Any:
    if isinstance(value, Text):
        return value if _takes_text(hint, value) else value.parsed()
    if isinstance(value, Mapping):
        kind = dataclass_in(hint)
        if kind is not None:
            return coerced(kind, value)
        inner = _inner(hint, dict, 1)
        return {key: _coerce(inner, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        inner = _inner(hint, (tuple, list), 0)
        return [_coerce(inner, item) for item in value]
    return value


def _inner(hint: Any, container: Any, at: int) -> Any:
    """Return what a hint's container holds."""
    for arm in _arms(hint):
        origin = typing.get_origin(arm)
        if isinstance(origin, type) and issubclass(origin, container):
            return typing.get_args(arm)[at]
    return Any


def _arms(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint) if typing.get_origin(hint) in (Union, types.UnionType) else (hint,)


def _takes_text(hint: Any, value: str) -> bool:
    for arm in _arms(hint):
        if arm in (str, Any) or (typing.get_origin(arm) is typing.Literal and str(value) in typing.get_args(arm)):
            return True
    return False
