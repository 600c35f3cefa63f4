"""Plays: a playbook, read and checked as a whole before any host is contacted."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, TypeVar

from k3env.documents import shipped, yaml
from k3env.documents.complaints import collected
from k3env.documents.nodes import Node, Position, problem
from k3env.errors import DocumentError, InventoryError, UsageError, nearest
from k3env.inventory import Host, Inventory
from k3env.playbook import files, keywords, reader
from k3env.playbook.around import Around, refuse_idle_user
from k3env.playbook.blocks import read_tasks
from k3env.playbook.files import Reading, Source
from k3env.playbook.reader import Reader
from k3env.playbook.tasks import Task

T = TypeVar("T")
_IMPORT = "import_playbook"


@dataclass(frozen=True)
class Play:
    """Tasks, and the hosts they are for."""

    name: str
    hosts: str
    """A pattern that narrows `--hosts`."""
    hosts_position: Position
    variables: Mapping[str, Node]
    tasks: tuple[Task, ...]
    position: Position
    any_errors_fatal: bool = False
    """End the run for all hosts when one of them fails."""
    serial: tuple[int | float, ...] = ()
    """Sizes of the batches: numbers of hosts, or parts of all hosts as floats; empty: all at once."""
    max_fail_percentage: Optional[float] = None
    """End the run when more than this part of a batch fails."""

    def batches(self, hosts: Sequence[T]) -> list[list[T]]:
        """Split hosts as `serial` says; its last size goes on to the end, and no batch is empty."""
        sizes = [_size(size, len(hosts)) for size in self.serial] or [max(1, len(hosts))]
        batches: list[list[T]] = []
        left = list(hosts)
        while left:
            size = sizes[min(len(batches), len(sizes) - 1)]
            batches.append(left[:size])
            left = left[size:]
        return batches


@dataclass(frozen=True)
class Playbook:
    """The plays of a file."""

    name: str
    """As positions show it: "playbooks/trtllm.yml"."""
    plays: tuple[Play, ...]

    def targets(self, inventory: Inventory, hosts: Sequence[Host]) -> list[list[Host]]:
        """Return, for each play, those of some hosts that it is for.

        Raises InventoryError for a play whose pattern names nothing, and when no play has a host.
        """
        targets = [inventory.narrow(hosts, play.hosts, str(play.hosts_position)) for play in self.plays]
        if not any(targets):
            raise InventoryError(
                f"no play of {self.name} is for these hosts",
                subject=str(self.plays[0].hosts_position),
                expected=" or ".join(dict.fromkeys(play.hosts for play in self.plays)),
                found=", ".join(host.name for host in hosts[:5]),
                remedy="look at --hosts and at the plays' hosts",
            )
        return targets


def find_playbook(name: str) -> tuple[Path, str]:
    """Return the file that a name means, and what to call it: a path, playbooks/NAME.yml here, or a shipped NAME.

    Raises UsageError with the nearest name.
    """
    path = Path(name)
    if path.suffix in (".yml", ".yaml") or "/" in name:
        # A shipped playbook is named by the path that it has in a checkout, from wherever k3env was started.
        known_here = path.exists() or str(path.parent) != shipped.PLAYBOOKS
        if not known_here and path.stem in shipped.names(shipped.PLAYBOOKS):
            return shipped.find(shipped.PLAYBOOKS, path.stem), name
        return path, name
    here = Path(shipped.PLAYBOOKS) / f"{name}.yml"
    if here.is_file():
        return here, str(here)
    if name in shipped.names(shipped.PLAYBOOKS):
        return shipped.find(shipped.PLAYBOOKS, name), str(here)
    known = sorted({*shipped.names(shipped.PLAYBOOKS), *(file.stem for file in here.parent.glob("*.yml"))})
    meant = nearest(name, known)
    raise UsageError(
        f"there is no playbook {name}",
        expected="a path, or one of " + ", ".join(known),
        found=name,
        remedy=f"did you mean {meant}?" if meant else "give its path: --playbook ./FILE.yml",
    )


def load(name: str) -> Playbook:
    """Read a playbook by its name or path.

    Raises UsageError when there is none; DocumentError with all that is wrong with it, the first one in front.
    """
    path, shown = find_playbook(name)
    return read(yaml.load(path, shown=shown).root, shown, path)


def read(root: Node, name: str, path: Optional[Path] = None) -> Playbook:
    """Read the plays of a document, and all files that it names; they are looked for beside `path`.

    Raises DocumentError with all that is wrong.
    """
    reading = Reading()
    try:
        plays = tuple(_plays(root, Around(), {}, Source(path or Path(name), name), reading))
    except DocumentError as error:
        raise collected([*reading.problems, error]) from None
    if reading.problems:
        raise collected(reading.problems)
    return Playbook(name, plays)


def _plays(
    root: Node, around: Around, variables: Mapping[str, Node], source: Source, reading: Reading
) -> Iterator[Play]:
    """Yield the plays of a file; `variables` are those of the import that names it."""
    if not isinstance(root.content, list) or not root.content:
        remedy = 'begin with "- hosts: all"'
        raise problem(root, "a playbook is a list of plays", expected="a list", found=root.found, remedy=remedy)
    for node in root.content:
        if isinstance(node.content, dict) and _IMPORT in node.content and "hosts" not in node.content:
            yield from _imported(node, around, variables, source, reading)
        else:
            yield _play(node, around, variables, source, reading)


def _imported(
    node: Node, around: Around, variables: Mapping[str, Node], source: Source, reading: Reading
) -> Iterator[Play]:
    keys = Reader(node, "an import", reading.problems)
    for key in keys.keys:
        if key not in keywords.IMPORT:
            keys.refuse(key, keywords.IMPORT_INSTEAD.get(key), keywords.IMPORT)
    keys.take("name", reader.constant, "")
    own = keys.take("vars", reader.variables, reader.NO_NODES)
    inner = around.with_keys(keys, play=True)
    try:
        root, file = reading.imported(node.content[_IMPORT], _IMPORT, source)
        yield from _plays(root, inner, {**own, **variables}, file, reading)
    except DocumentError as error:
        reading.problems.append(error)


def _play(node: Node, around: Around, variables: Mapping[str, Node], source: Source, reading: Reading) -> Play:
    keys = Reader(node, "a play", reading.problems)
    for key in keys.keys:
        if key not in keywords.PLAY:
            keys.refuse(key, keywords.PLAY_INSTEAD.get(key), keywords.PLAY)
    hosts = keys.take("hosts", _hosts, "")
    named = keys.keys.get("hosts")
    if keys.readable and (named is None or named.content is None):
        reading.problems.append(
            problem(named or node, "a play needs hosts", expected="hosts: a pattern", remedy="write hosts: all")
        )
    inner = around.with_keys(keys, play=True)
    tasks: list[Task] = []
    before = len(reading.problems)
    for key in ("pre_tasks", "tasks", "post_tasks"):
        tasks += keys.take(key, lambda item, key: read_tasks(item, key, inner, source, reading), [])
    if keys.readable and not tasks and len(reading.problems) == before:
        reading.problems.append(problem(node.at(("tasks",)), "a play needs tasks", expected="tasks: a list of tasks"))
    if not reading.problems:
        refuse_idle_user(keys, [task.become_user for task in tasks])
    own = keys.take("vars", reader.variables, reader.NO_NODES)
    from_files = keys.take("vars_files", lambda item, key: files.variables(item, key, source), reader.NO_NODES)
    return Play(
        name=keys.take("name", reader.constant, hosts),
        hosts=hosts,
        hosts_position=node.at(("hosts",)),
        variables={**own, **variables, **from_files},
        tasks=tuple(tasks),
        position=node.position,
        any_errors_fatal=keys.take("any_errors_fatal", reader.flag, False),
        serial=keys.take("serial", _serial, ()),
        max_fail_percentage=keys.take("max_fail_percentage", reader.percentage, None),
    )


def _hosts(node: Node, key: str) -> str:
    patterns = [reader.constant(item, key) for item in node.entries(key)]
    if not patterns:
        raise problem(node, f"{key} names no host", expected="a pattern", remedy="write hosts: all")
    return ",".join(patterns)


def _serial(node: Node, key: str) -> tuple[int | float, ...]:
    sizes: list[int | float] = []
    for item in node.entries(key):
        value, part = item.content, None
        if isinstance(value, str) and value.endswith("%") and value[:-1].isdecimal():
            part = int(value[:-1]) / 100
        if part is not None and 0 < part <= 1:
            sizes.append(part)
        elif isinstance(value, int) and not isinstance(value, bool) and value > 0:
            sizes.append(value)
        else:
            expected = 'numbers of hosts above 0, or percentages such as "25%"'
            raise problem(item, f"{key} must be the size of a batch", expected=expected, found=item.found)
    return tuple(sizes)


def _size(size: int | float, hosts: int) -> int:
    return size if isinstance(size, int) else max(1, math.floor(size * hosts))
