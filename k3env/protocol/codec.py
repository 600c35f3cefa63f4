"""Dataclasses to JSON and back, by their type hints."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any, Callable, Optional

_hints: dict[Any, dict[str, Any]] = {}
_BARE = (str, int, bool, type(None))


class DecodeError(ValueError):
    """A JSON value does not have the shape of the type that was asked for."""


def encode(value: Any) -> Any:
    """Return the JSON value of a dataclass, leaving out fields that hold their default."""
    if isinstance(value, (str, int, float, bool)) or value is None:
        return value
    if isinstance(value, (list, tuple)):
        return [encode(item) for item in value]
    if isinstance(value, dict):
        return {key: encode(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value):
        return {
            field.name: encode(item)
            for field in dataclasses.fields(value)
            if (item := getattr(value, field.name)) != field.default or field.default is dataclasses.MISSING
        }
    raise TypeError(f"{type(value).__name__} has no JSON form")


def dumps(value: Any) -> str:
    """Return compact JSON with sorted keys: equal values give equal text."""
    return json.dumps(encode(value), sort_keys=True, separators=(",", ":"))


def decode(kind: Any, value: Any, where: str = "$") -> Any:
    """Build a value of the given type from its JSON form.

    Raises DecodeError naming the place in the JSON value.
    """
    if kind is Any:
        return value
    if kind in _BARE:
        # bool is an int to Python, not to JSON.
        if type(value) is not kind:
            raise DecodeError(f"{where}: expected {kind.__name__}, found {type(value).__name__}")
        return value
    if kind is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise DecodeError(f"{where}: expected a number, found {type(value).__name__}")
        return value
    if dataclasses.is_dataclass(kind):
        return _decode_dataclass(kind, value, where)
    origin = typing.get_origin(kind)
    decoder = _DECODERS.get(origin)
    if decoder is None:
        raise DecodeError(f"{where}: no JSON form for {kind}")
    return decoder(typing.get_args(kind), value, where)


def loads(kind: Any, text: str | bytes) -> Any:
    """Build a value of the given type from JSON text."""
    return decode(kind, json.loads(text))


def hints(kind: Any) -> dict[str, Any]:
    """Return the resolved annotations of a class or function, computed once."""
    found = _hints.get(kind)
    if found is None:
        found = _hints[kind] = typing.get_type_hints(kind)
    return found


def _decode_dataclass(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise DecodeError(f"{where}: expected an object, found {type(value).__name__}")
    types = hints(kind)
    names = {field.name for field in dataclasses.fields(kind)}
    unknown = sorted(set(value) - names)
    if unknown:
        raise DecodeError(f"{where}: unknown field {unknown[0]!r} for {kind.__name__}")
    try:
        return kind(**{name: decode(types[name], item, f"{where}.{name}") for name, item in value.items()})
    except TypeError as error:
        raise DecodeError(f"{where}: {error}") from None


def _decode_union(args: tuple[Any, ...], value: Any, where: str) -> Any:
    if value is None and type(None) in args:
        return None
    problem: Optional[DecodeError] = None
    for arg in args:
        if arg is type(None):
            continue
        try:
            return decode(arg, value, where)
        except DecodeError as error:
            problem = problem or error
    raise problem or DecodeError(f"{where}: unexpected null")


def _decode_sequence(make: Callable[[Any], Any]) -> Callable[[tuple[Any, ...], Any, str], Any]:
    def decode_items(args: tuple[Any, ...], value: Any, where: str) -> Any:
        if not isinstance(value, (list, tuple)):
            raise DecodeError(f"{where}: expected a list, found {type(value).__name__}")
        if (len(args) == 2 and args[1] is not Ellipsis) or len(args) > 2:
            if len(args) != len(value):
                raise DecodeError(f"{where}: expected {len(args)} items, found {len(value)}")
            return make(decode(arg, item, f"{where}[{at}]") for at, (arg, item) in enumerate(zip(args, value)))
        return make(decode(args[0], item, f"{where}[{at}]") for at, item in enumerate(value))

    return decode_items


def _decode_mapping(args: tuple[Any, ...], value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise DecodeError(f"{where}: expected an object, found {type(value).__name__}")
    return {decode(args[0], key, where): decode(args[1], item, f"{where}.{key}") for key, item in value.items()}


def _decode_literal(args: tuple[Any, ...], value: Any, where: str) -> Any:
    if value not in args:
        raise DecodeError(f"{where}: expected one of {', '.join(map(str, args))}, found {value!r}")
    return value


_DECODERS: dict[Any, Callable[[tuple[Any, ...], Any, str], Any]] = {
    typing.Union: _decode_union,
    tuple: _decode_sequence(tuple),
    list: _decode_sequence(list),
    dict: _decode_mapping,
    typing.Literal: _decode_literal,
}
