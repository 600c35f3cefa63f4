"""Dataclasses to JSON and back, by their type hints."""

from __future__ import annotations

import dataclasses
import json
import typing
from typing import Any, Callable, Optional

_Decoder = Callable[[Any, str], Any]
_hints: dict[Any, dict[str, Any]] = {}
_decoders: dict[Any, _Decoder] = {}
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
    return _decoder(kind)(value, where)


def loads(kind: Any, text: str | bytes) -> Any:
    """Build a value of the given type from JSON text.

    Raises ValueError for what is no JSON, DecodeError as `decode`.
    """
    return decode(kind, plain(text))


def plain(text: str | bytes) -> Any:
    """Return the value that a text of JSON spells, whoever wrote it.

    Raises ValueError for what is none, also for one that is nested more deeply than Python follows.
    """
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("too deeply nested") from None


def hints(kind: Any) -> dict[str, Any]:
    """Return the resolved annotations of a class or function, computed once."""
    found = _hints.get(kind)
    if found is None:
        found = _hints[kind] = typing.get_type_hints(kind)
    return found


def _decoder(kind: Any) -> _Decoder:
    """Return what decodes a type; made once for each, since a report of many nodes holds the same again and again."""
    found = _decoders.get(kind)
    if found is None:
        found = _decoders[kind] = _made(kind)
    return found


def _made(kind: Any) -> _Decoder:
    if kind is Any:
        return lambda value, where: value
    if kind in _BARE:
        return _bare(kind)
    if kind is float:
        return _number
    if dataclasses.is_dataclass(kind):
        return _dataclass(kind)
    make = _CONTAINERS.get(typing.get_origin(kind))
    if make is None:
        return lambda value, where: _refuse(where, f"no JSON form for {kind}")
    return make(typing.get_args(kind))


def _refuse(where: str, why: str) -> Any:
    raise DecodeError(f"{where}: {why}")


def _bare(kind: Any) -> _Decoder:
    def decode_bare(value: Any, where: str) -> Any:
        # bool is an int to Python, not to JSON.
        if type(value) is not kind:
            raise DecodeError(f"{where}: expected {kind.__name__}, found {type(value).__name__}")
        return value

    return decode_bare


def _number(value: Any, where: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise DecodeError(f"{where}: expected a number, found {type(value).__name__}")
    return value


def _dataclass(kind: Any) -> _Decoder:
    names = {field.name for field in dataclasses.fields(kind)}
    fields: dict[str, _Decoder] = {}  # filled when it is first needed: a type may hold itself

    def decode_dataclass(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise DecodeError(f"{where}: expected an object, found {type(value).__name__}")
        if not fields:
            types = hints(kind)
            fields.update((name, _decoder(types[name])) for name in names)
        if not value.keys() <= names:
            raise DecodeError(f"{where}: unknown field {min(value.keys() - names)!r} for {kind.__name__}")
        try:
            return kind(**{name: fields[name](item, f"{where}.{name}") for name, item in value.items()})
        except TypeError as error:
            raise DecodeError(f"{where}: {error}") from None

    return decode_dataclass


def _union(args: tuple[Any, ...]) -> _Decoder:
    has_none = type(None) in args
    tried = [_decoder(arg) for arg in args if arg is not type(None)]

    def decode_union(value: Any, where: str) -> Any:
        if value is None and has_none:
            return None
        problem: Optional[DecodeError] = None
        for decoder in tried:
            try:
                return decoder(value, where)
            except DecodeError as error:
                problem = problem or error
        raise problem or DecodeError(f"{where}: unexpected null")

    return decode_union


def _sequence(make: Callable[[Any], Any]) -> Callable[[tuple[Any, ...]], _Decoder]:
    def made(args: tuple[Any, ...]) -> _Decoder:
        each = [_decoder(arg) for arg in args if arg is not Ellipsis]
        fixed = (len(args) == 2 and args[1] is not Ellipsis) or len(args) > 2

        def decode_items(value: Any, where: str) -> Any:
            if not isinstance(value, (list, tuple)):
                raise DecodeError(f"{where}: expected a list, found {type(value).__name__}")
            if fixed:
                if len(each) != len(value):
                    raise DecodeError(f"{where}: expected {len(each)} items, found {len(value)}")
                return make(one(item, f"{where}[{at}]") for at, (one, item) in enumerate(zip(each, value)))
            return make(each[0](item, f"{where}[{at}]") for at, item in enumerate(value))

        return decode_items

    return made


def _mapping(args: tuple[Any, ...]) -> _Decoder:
    of_key, of_item = _decoder(args[0]), _decoder(args[1])

    def decode_mapping(value: Any, where: str) -> Any:
        if not isinstance(value, dict):
            raise DecodeError(f"{where}: expected an object, found {type(value).__name__}")
        return {of_key(key, where): of_item(item, f"{where}.{key}") for key, item in value.items()}

    return decode_mapping


def _literal(args: tuple[Any, ...]) -> _Decoder:
    def decode_literal(value: Any, where: str) -> Any:
        if value not in args:
            raise DecodeError(f"{where}: expected one of {', '.join(map(str, args))}, found {value!r}")
        return value

    return decode_literal


_CONTAINERS: dict[Any, Callable[[tuple[Any, ...]], _Decoder]] = {
    typing.Union: _union,
    tuple: _sequence(tuple),
    list: _sequence(list),
    dict: _mapping,
    typing.Literal: _literal,
}
