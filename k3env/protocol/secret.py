"""Secret: a value that is referred to, sent apart, and never shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

MASK = "********"
_KEY = "$secret"


@dataclass(frozen=True)
class Secret:
    """A reference: "env:NAME", "file:PATH" or "prompt". It holds no value."""

    reference: str


def placeholder(secret: Secret) -> dict[str, str]:
    """Return what stands in a plan for a secret."""
    return {_KEY: secret.reference}


def references(value: Any) -> set[str]:
    """Return the references of all placeholders within a JSON value."""
    if isinstance(value, dict):
        if set(value) == {_KEY}:
            return {str(value[_KEY])}
        return set().union(*(references(item) for item in value.values()))
    if isinstance(value, (list, tuple)):
        return set().union(*(references(item) for item in value))
    return set()


def reveal(value: Any, secrets: dict[str, str]) -> Any:
    """Return the JSON value with its placeholders replaced.

    Raises KeyError naming a reference that has no value.
    """
    if isinstance(value, dict):
        if set(value) == {_KEY}:
            return secrets[value[_KEY]]
        return {key: reveal(item, secrets) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [reveal(item, secrets) for item in value]
    return value


def mask(text: str, secrets: tuple[str, ...]) -> str:
    """Return the text with each secret's value replaced, the longest first."""
    for value in sorted(secrets, key=len, reverse=True):
        if value:
            text = text.replace(value, MASK)
    return text


def masked(value: Any, secrets: tuple[str, ...]) -> Any:
    """Return a JSON value with each secret's value replaced wherever it stands."""
    if isinstance(value, str):
        return mask(value, secrets)
    if isinstance(value, (list, tuple)):
        return [masked(item, secrets) for item in value]
    if isinstance(value, dict):
        return {key: masked(item, secrets) for key, item in value.items()}
    return value
