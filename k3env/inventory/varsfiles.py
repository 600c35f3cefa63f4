"""Vars files: `group_vars/` and `host_vars/` beside an inventory or a playbook, found as Ansible finds them.

NAME is a directory or a file without extension, else NAME.yml, NAME.yaml, NAME.json; the first of them is read. In a
directory all files with these extensions, or none, are read in order, those of directories in it too.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from k3env.documents import yaml
from k3env.documents.nodes import Node, Position, problem
from k3env.errors import DocumentError
from k3env.inventory.foreign import encrypted
from k3env.protocol.finding import WARN, Finding

GROUPS, HOSTS = "group_vars", "host_vars"
EXTENSIONS = ("", ".yml", ".yaml", ".json")
MAX_DEPTH = 16


class VarsDirectory:
    """The vars files of one directory; each is read once, when it is asked for."""

    def __init__(self, base: Path) -> None:
        self.warnings: list[Finding] = []
        self.read: dict[tuple[str, str], Mapping[str, Node]] = {}
        self._base = base
        self._names: dict[str, frozenset[str]] = {}

    def variables(self, kind: str, name: str) -> Mapping[str, Node]:
        """Return what the files say about a group or a host.

        Raises DocumentError for a file that can't be read or holds no mapping.
        """
        if (kind, name) not in self.read:
            merged: dict[str, Node] = {}
            for path in self._files(kind, name):
                merged.update(self._load(path))
            self.read[kind, name] = merged
        return self.read[kind, name]

    def _files(self, kind: str, name: str) -> list[Path]:
        there = [name + extension for extension in EXTENSIONS if name + extension in self._listed(kind)]
        if not there:
            return []
        path = self._base / kind / there[0]
        self.warnings += [_unread(self._base / kind / other, path) for other in there[1:]]
        return _within(path, 0) if path.is_dir() else [path]

    def _listed(self, kind: str) -> frozenset[str]:
        """Return the names in the directory; looked at once, for most hosts and groups have no file."""
        if kind not in self._names:
            path = self._base / kind
            names = _entries(path) if path.is_dir() else []
            self._names[kind] = frozenset(names)
            if path.exists() and not path.is_dir():
                raise problem(Position(str(path)), f"{path} is no directory", expected="a directory of vars files")
        return self._names[kind]

    def _load(self, path: Path) -> Mapping[str, Node]:
        source = str(path)
        data = yaml.read(path, source)
        if data.startswith(b"$ANSIBLE_VAULT"):
            raise encrypted(Position(source, 1, 1))
        root, warnings = yaml.parse(data, source, yaml.ANSIBLE)
        self.warnings += warnings
        return dict(root.items("a file of variables")) if root is not None and root.plain else {}


def _within(path: Path, depth: int) -> list[Path]:
    if depth > MAX_DEPTH:
        raise problem(Position(str(path)), "the directories are too deeply nested", expected=f"{MAX_DEPTH} levels")
    found: list[Path] = []
    for name in sorted(_entries(path)):
        entry, extension = path / name, os.path.splitext(name)[1]
        if name.startswith(".") or name.endswith("~"):
            continue
        if entry.is_dir() and not extension:
            found += _within(entry, depth + 1)
        elif entry.is_file() and extension in EXTENSIONS:
            found.append(entry)
    return found


def _entries(path: Path) -> list[str]:
    try:
        return os.listdir(path)
    except OSError as error:
        raise _unreadable(path, error) from None


def _unreadable(path: Path, error: OSError) -> DocumentError:
    return problem(Position(str(path)), f"{path} can't be read: {error.strerror}", expected="a directory")


def _unread(path: Path, instead: Path) -> Finding:
    return Finding(
        id="inventory.unread",
        status=WARN,
        severity="warn",
        scope="static",
        subject=str(path),
        message=f"{path} is not read, because {instead} is",
        remedy=f"move it into a directory {instead.with_suffix('')}/" if not instead.is_dir() else "move it in there",
    )
