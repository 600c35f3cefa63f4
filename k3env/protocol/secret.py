"""Secret: a value that is referred to, sent apart, and never shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from k3env.protocol.masking import MASK as MASK
from k3env.protocol.masking import SHORTEST, mask_of

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


def masked(value: Any, secrets: tuple[str, ...]) -> Any:
    """Return a JSON value with each secret's value replaced wherever it stands."""
    return mask_of(secrets).value(value)


def too_short(value: Any, secrets: dict[str, str]) -> tuple[str, ...]:
    """Return the references within a JSON value whose secrets can't be masked, and so must not be used."""
    return tuple(sorted(name for name in references(value) if 0 < len(secrets.get(name, "")) < SHORTEST))
