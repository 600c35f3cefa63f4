"""Masking: the values of secrets, in the forms that they take on their way into logs and reports."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator
from typing import Any, AnyStr

MASK = "********"
SHORTEST = 3
"""Characters of the shortest value that can be masked: a shorter one stands in every other word."""
_CREDENTIALS = re.compile(r"(?<=://)[^/\s'\"]*:[^/\s'\"]*(?=@)|(?<=http://)[^/@\s]+(?=@)|(?<=https://)[^/@\s]+(?=@)")
_LINE = 6
"""Characters from which a line of a longer secret is one by itself."""
_ENCODED = 4
_TAIL = 8
_OURS = frozenset(("id", "scope", "severity", "status"))
"""Keys whose values are words of ours alone: a secret that happens to be one of them must not break the reports."""


def bare(text: str) -> str:
    """Return a text without the passwords in its URLs; ssh's user name stays.

    What a person wrote into a file or a command line is repeated to them, and read by others too.
    """
    return _CREDENTIALS.sub(MASK, text) if "@" in text else text


class Mask:
    """Hides values; it is false where there are none."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        found = {form for value in values for form in _forms(value)}
        self._texts = tuple(sorted(found, key=len, reverse=True))
        self._bytes = tuple(form.encode("utf-8", "surrogateescape") for form in self._texts)

    def __bool__(self) -> bool:
        return bool(self._texts)

    def text(self, text: str) -> str:
        """Return a text without the values."""
        return _hidden(text, self._texts, MASK)

    def data(self, data: bytes) -> bytes:
        """Return bytes without the values."""
        return _hidden(data, self._bytes, MASK.encode())

    def value(self, value: Any) -> Any:
        """Return a JSON value with the values hidden wherever they stand."""
        if not self:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, (list, tuple)):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {self.text(key): item if key in _OURS else self.value(item) for key, item in value.items()}
        return value

    def stream(self) -> Stream:
        """Return what hides the values in bytes that come in pieces."""
        return Stream(self._bytes)


class Stream:
    """Hides values in a stream, also one that is split over several pieces."""

    def __init__(self, forms: tuple[bytes, ...]) -> None:
        self._forms = forms
        self._held = bytearray()
        self._covered = 0
        """How many of the bytes that are held back belong to a value that is hidden already."""

    def feed(self, data: bytes) -> bytes:
        """Return what can be shown by now; what may be the beginning of a value is held back."""
        if not self._forms:
            return data
        self._held += data
        return self._pass(len(self._held) - max(_begun(self._held, form) for form in self._forms))

    def end(self) -> bytes:
        """Return what was held back: nothing comes any more."""
        return self._pass(len(self._held))

    def _pass(self, until: int) -> bytes:
        shown, at = bytearray(), self._covered
        for begin, end in _spans(self._held, self._forms):
            if begin >= until:
                break
            if begin >= at:
                shown += self._held[at:begin] + MASK.encode()
            at = max(at, end)
        shown += self._held[at:until]
        self._covered = max(0, at - until)
        del self._held[:until]
        return bytes(shown)


@functools.lru_cache(maxsize=8)
def mask_of(values: tuple[str, ...]) -> Mask:
    """Return the mask of some values."""
    return Mask(values)


def tail(text: AnyStr, length: int) -> AnyStr:
    """Return the end of a text that is masked already, not cut within a mask."""
    at = max(0, len(text) - length)
    star = MASK[:1] if isinstance(text, str) else MASK[:1].encode()
    if at and text[at - 1 : at] == star:
        while text[at : at + 1] == star:
            at += 1
    return text[at:]


def _hidden(text: AnyStr, forms: tuple[AnyStr, ...], mask: AnyStr) -> AnyStr:
    at = 0
    pieces: list[AnyStr] = []
    for begin, end in _spans(text, forms):
        if begin >= at:
            pieces.append(text[at:begin] + mask)
        at = max(at, end)
    pieces.append(text[at:])
    return text[:0].join(pieces)


def _spans(text: Any, forms: tuple[Any, ...]) -> list[tuple[int, int]]:
    """Return where values stand, in order; they may overlap."""
    return sorted((at, at + len(form)) for form in forms for at in _places(text, form))


def _places(text: Any, form: Any) -> Iterator[int]:
    at = text.find(form)
    while at >= 0:
        yield at
        at = text.find(form, at + 1)


def _begun(held: bytearray, form: bytes) -> int:
    """Return how many bytes at the end of `held` begin a form without being all of it."""
    end = bytes(held[-_TAIL:])
    if len(end) == _TAIL:
        at = form.rfind(end, 0, -1)
        while at >= 0:
            if held.endswith(form[: at + _TAIL]):
                return at + _TAIL
            at = form.rfind(end, 0, at + _TAIL - 1)
    shorter = range(min(_TAIL, len(form)) - 1, 0, -1)
    return next((length for length in shorter if held.endswith(form[:length])), 0)


def _forms(value: str) -> Iterator[str]:
    """Yield a value as it may be written: itself, its lines, and each of them quoted, escaped or encoded."""
    lines = [line.strip() for line in value.splitlines()]
    for part in {value, value.strip(), *(line for line in lines if len(line) >= _LINE)}:
        if len(part) >= SHORTEST:
            yield part
            yield from (form for form in _quoted(part) if len(form) >= SHORTEST)
            yield from (form for form in _encoded(part.encode("utf-8", "surrogateescape")) if len(form) >= _ENCODED)


def _quoted(value: str) -> Iterator[str]:
    """Yield a value as shells, JSON and Python quote it, without the quotes around it."""
    import json

    once = value.replace("'", "'\"'\"'")
    yield once
    yield once.replace("'", "'\"'\"'")  # within a script that is quoted itself
    yield value.replace("'", "'\\''")  # `set -x` of bash
    yield re.sub(r"([^\w@%+=:,./-])", r"\\\1", value)  # `printf %q`
    yield json.dumps(value)[1:-1]
    yield json.dumps(value, ensure_ascii=False)[1:-1]
    yield repr(value)[1:-1]
    # With both kinds of quotes before it, repr escapes the single ones.
    yield repr("\"'" + value)[4:-1]
    data = value.encode("utf-8", "surrogateescape")
    yield repr(data)[2:-1]
    yield repr(b"\"'" + data)[5:-1]


def _encoded(data: bytes) -> Iterator[str]:
    """Yield a value in URLs, in hexadecimal digits, and in base64 at each place that it may have in a longer text."""
    from base64 import b64encode, urlsafe_b64encode
    from urllib.parse import quote, quote_plus

    for url in (quote(data), quote(data, safe=""), quote(data, safe="!*'()"), quote_plus(data)):
        yield url
        yield re.sub("%[0-9A-F]{2}", lambda found: found[0].lower(), url)
    yield data.hex()
    yield data.hex().upper()
    for before in range(3):
        # The characters at both ends hold bits of what stands beside it.
        first, whole = (before * 8 + 5) // 6, (before + len(data)) * 8 // 6
        for encode in (b64encode, urlsafe_b64encode):
            text = encode(b"\0" * before + data).decode()
            yield text[first:whole]
            yield text[first:].rstrip("=")
            yield text[first:]
