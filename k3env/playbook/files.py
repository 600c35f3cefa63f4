"""Files: what a playbook names beside itself, read when it is loaded, before any host is contacted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from k3env.documents import yaml
from k3env.documents.nodes import Node, Position, problem
from k3env.errors import DocumentError, nearest
from k3env.playbook import reader

MAX_DEPTH = 16
MAX_IMPORTS, MAX_TASKS = 1000, 10_000


@dataclass(frozen=True)
class Source:
    """A file that plays or tasks stand in."""

    path: Path
    shown: str
    """Its name in positions."""
    above: tuple[Path, ...] = ()
    """The files that import it, the outermost first."""

    def beside(self, name: str) -> Source:
        """Return a file named in this one, whose directory a relative path begins in."""
        shown = name if os.path.isabs(name) else os.path.normpath(os.path.join(os.path.dirname(self.shown), name))
        return Source(self.path.parent / name, shown, (*self.above, self.path.resolve()))


@dataclass
class Reading:
    """What reading one playbook has come to so far."""

    problems: list[DocumentError] = field(default_factory=list)
    imports: int = 0
    tasks: int = 0

    def imported(self, node: Node, key: str, source: Source) -> tuple[Node, Source]:
        """Return the root of a file that a key imports.

        Raises DocumentError where the file is named when it can't be read or imports itself.
        """
        found = source.beside(reader.constant(node, key))
        self.imports += 1
        if found.path.resolve() in found.above:
            circle = " -> ".join([*(path.name for path in found.above), found.path.name])
            raise problem(node, f"{found.shown} imports itself", expected="no circle", found=circle)
        if len(found.above) > MAX_DEPTH or self.imports > MAX_IMPORTS:
            expected = f"at most {MAX_DEPTH} files deep and {MAX_IMPORTS} imports in all"
            raise problem(node, "too many files are imported", expected=expected)
        return loaded(node, found), found

    def count(self, node: Node) -> None:
        """Take note of one more task.

        Raises DocumentError when there are too many to be meant.
        """
        self.tasks += 1
        if self.tasks > MAX_TASKS:
            raise problem(node, "the playbook has too many tasks", expected=f"at most {MAX_TASKS} tasks")


def loaded(node: Node, source: Source) -> Node:
    """Return the root of a YAML file; one that can't be read at all is an error where it is named."""
    try:
        data = yaml.read(source.path, source.shown)
        if data.startswith(b"$ANSIBLE_VAULT;"):
            remedy = "refer to what is secret, {secret: file:PATH} or {secret: env:NAME}"
            raise problem(Position(source.shown, 1, 1), "the file is encrypted by ansible-vault", remedy=remedy)
        return yaml.loads(data, source.shown).root
    except DocumentError as error:
        found = error.finding
        if found.subject != source.shown:
            raise
        raise problem(node, found.message, expected=found.expected, found=found.found, remedy=found.remedy) from None


def variables(node: Node, key: str, source: Source) -> Mapping[str, Node]:
    """Read files of variables, later ones winning.

    Raises DocumentError.
    """
    merged: dict[str, Node] = {}
    for item in _names(node, key):
        found = source.beside(reader.constant(item, key))
        merged.update(reader.variables(loaded(item, found), f"the file {found.shown}"))
    return merged


def _names(node: Node, key: str) -> Iterator[Node]:
    for item in node.entries(key):
        if isinstance(item.content, list):
            raise problem(
                item, f"{key} names files one by one", expected="a path", found="a list", remedy="name the one file"
            )
        yield item


def text(node: Node, names: tuple[str, ...], above: Source, limit: int) -> tuple[str, str]:
    """Return the text of the first of some files beside another that exists, and its name in positions.

    Raises DocumentError where it is named: there is none, it is no UTF-8 text, or longer than `limit` bytes.
    """
    tried = [above.beside(name) for name in names]
    file = next((file for file in tried if file.path.exists() and not file.path.is_dir()), tried[-1])
    path, source = file.path, file.shown
    if not path.exists():
        sought = " or ".join(dict.fromkeys(str(file.path) for file in tried))
        known = [name for file in tried if file.path.parent.is_dir() for name in os.listdir(file.path.parent)]
        meant = nearest(path.name, known)
        remedy = f"did you mean {meant}?" if meant else "put it beside the playbook, or name it by its whole path"
        message = f"there is no file {source}"
        raise problem(node, message, expected="an existing file", found=f"nothing at {sought}", remedy=remedy)
    found = Node(None, Position(source))
    try:
        data = yaml.read(path, source)
        if len(data) > limit:
            raise problem(
                found,
                f"{source} is too large to travel in a plan",
                expected=f"at most {limit >> 10} KiB",
                found=f"{-(-len(data) >> 10)} KiB",
                remedy="put it on a shared filesystem, and copy it with command and creates:",
            )
        return data.decode("utf-8"), source
    except UnicodeDecodeError as error:
        bad = f"the byte 0x{data[error.start]:02x} at {error.start}"
        raise problem(node, f"{source} is no UTF-8 text", expected="text", found=bad) from None
    except DocumentError as error:
        told = error.finding
        raise problem(node, told.message, expected=told.expected, found=told.found, remedy=told.remedy) from None
