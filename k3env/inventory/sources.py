"""Sources: what `--inventory` may name: a YAML file, a program, a directory of both."""

from __future__ import annotations

import os
from pathlib import Path

from k3env.documents import yaml
from k3env.documents.nodes import Position, problem
from k3env.inventory import program, yamlsource
from k3env.inventory.tree import Tree
from k3env.protocol.finding import Finding

MAX_BYTES = 16 << 20
SITE_FILE = "k3env-site.yml"
"""It may lie in an inventory's directory, and is none."""
MAX_DEPTH = 16

# Ansible's own lists, its defaults.
_NO_SOURCES = ("group_vars", "host_vars", "vars_plugins", SITE_FILE)
_IGNORED = (".pyc", ".pyo", ".swp", ".bak", "~", ".rpm", ".md", ".txt", ".rst", ".orig", ".cfg", ".retry")


def read(path: Path, tree: Tree, depth: int = 0) -> tuple[Finding, ...]:
    """Add what a source says to a tree; return the warnings about it.

    Raises DocumentError for a file that is no inventory, at the place that shows it; InventoryError for a program.
    """
    source = str(path)
    if path.is_dir():
        if depth > MAX_DEPTH:
            raise problem(Position(source), "the directories are too deeply nested", expected=f"{MAX_DEPTH} levels")
        return tuple(finding for entry in _entries(path) for finding in read(entry, tree, depth + 1))
    if program.is_program(path):
        return program.read(path, tree)
    return yamlsource.read(yaml.read(path, source, MAX_BYTES), source, tree)


def _entries(path: Path) -> list[Path]:
    """Return what is read of a directory, in order."""
    try:
        names = sorted(os.listdir(path), key=os.fsencode)
    except OSError as error:
        message = f"{path} can't be read: {error.strerror}"
        raise problem(Position(str(path)), message, expected="a directory of inventories") from None
    return [path / name for name in names if not _ignored(name)]


def _ignored(name: str) -> bool:
    return name.startswith(".") or name in _NO_SOURCES or name.endswith(_IGNORED)
