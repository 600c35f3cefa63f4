"""Shipped: the inventories and playbooks that come with k3env."""

from __future__ import annotations

from pathlib import Path

PLAYBOOKS, INVENTORIES = "playbooks", "inventories"

_PACKAGE = Path(__file__).resolve().parents[1]


def directory(kind: str) -> Path:
    """Return the directory of shipped playbooks or inventories: a checkout's, else that of the installed package."""
    checkout = _PACKAGE.parent
    if (checkout / "pyproject.toml").is_file() and (checkout / kind).is_dir():
        return checkout / kind
    return _PACKAGE / "_shipped" / kind


def names(kind: str) -> tuple[str, ...]:
    """Return the names of all shipped playbooks or inventories, without their suffix."""
    return tuple(sorted(path.stem for path in directory(kind).glob("*.yml")))


def find(kind: str, name: str) -> Path:
    """Return the path of a shipped file.

    Raises KeyError for a name that is not shipped.
    """
    if name not in names(kind):
        raise KeyError(name)
    return directory(kind) / f"{name}.yml"
