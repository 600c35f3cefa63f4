"""Completion: what may come next on a command line, values included. It is quick, and says nothing rather than fail."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from k3env.cli.options import ALL, DEFAULT_PLAYBOOK, OUTPUTS, REPORTS
from k3env.protocol.context import CONTEXTS

if TYPE_CHECKING:
    from invoke.collection import Collection
    from invoke.parser.argument import Argument

PATIENCE_S = 2.0
"""How long a look at inventories and playbooks may take."""
_MOST = 2000


class _TooLong(BaseException):
    """Nobody waits that long for a word; no handler of other errors may catch it."""


def candidates(line: str, tasks: Collection) -> list[str]:
    """Return what can follow a command line, which begins with the program; the shell picks what fits the word."""
    words = _words(line)[1:]
    names = sorted(tasks.task_names)
    task, at, flags = "", 0, dict[str, "Argument"]()
    for number, word in enumerate(words):
        before = flags.get(words[number - 1]) if number else None
        if word in names and not (before is not None and before.takes_value):
            task, at = word, number + 1
            flags = {flag: argument for argument in tasks[task].get_arguments() for flag in _flags(argument)}
    if not task:
        return names if not words or not words[-1].startswith("-") else []
    return _of_task(task, words[at:], flags, names)


def _of_task(task: str, words: list[str], flags: Mapping[str, Argument], tasks: list[str]) -> list[str]:
    # A shell may give --tags=a as one word or as three.
    joined = [
        part for word in words for part in (word.split("=", 1) if word.startswith("--") else [word]) if part != "="
    ]
    last = joined[-1] if joined else ""
    before = joined[-2] if len(joined) > 1 else ""
    if last in flags and flags[last].takes_value:
        return _values(task, last[2:], "", joined, flags)
    if last.startswith("-"):
        return list(flags)
    if before in flags and flags[before].takes_value:
        found = _values(task, before[2:], last, joined, flags)
        return [*found, *flags, *tasks] if last in found else found
    positional = next((argument.name for argument in flags.values() if argument.positional), None)
    if positional is not None:
        return [*_values(task, str(positional), last, joined, flags), *flags]
    return [*flags, *tasks]


def _flags(argument: Argument) -> list[str]:
    return [f"--{name.replace('_', '-')}" for name in argument.names if len(name) > 1] or [
        f"-{name}" for name in argument.names
    ]


def _values(task: str, option: str, word: str, words: list[str], flags: Mapping[str, Argument]) -> list[str]:
    """Return the values that an option can have; those of a list go on behind its last comma."""
    given = {flag[2:]: value for flag, value in zip(words, words[1:]) if flag in flags}
    source = _SOURCES.get(f"{task} {option}") or _SOURCES.get(option)
    if source is None:
        return []
    found = _patiently(source, given)
    head, comma, _ = word.rpartition(",")
    return [f"{head}{comma}{name}" for name in found][:_MOST]


def _patiently(source: Callable[[Mapping[str, str]], Iterable[str]], given: Mapping[str, str]) -> list[str]:
    def stop(number: int, frame: object) -> None:
        raise _TooLong

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, PATIENCE_S)
    try:
        return sorted(dict.fromkeys(source(given)))
    except (Exception, _TooLong):  # a broken inventory must not write into somebody's prompt
        return []
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _hosts(given: Mapping[str, str]) -> Iterable[str]:
    from k3env.documents import shipped
    from k3env.inventory import Inventory

    named = [given["inventory"]] if "inventory" in given else os.environ.get("K3ENV_INVENTORY", "").split(",")
    paths = [Path(name) for name in named if name] or [shipped.find(shipped.INVENTORIES, "sandbox")]
    # A program is not started for a completion.
    if any(os.access(file, os.X_OK) for path in paths for file in _files(path)):
        return []
    inventory = Inventory.load(paths, adhoc_allowed=True)
    return [*inventory.groups, *inventory.hosts]


def _files(path: Path) -> list[Path]:
    return [file for file in path.iterdir() if file.is_file()] if path.is_dir() else [path]


def _tags(given: Mapping[str, str]) -> Iterable[str]:
    from k3env.playbook import load
    from k3env.playbook.selection import ALWAYS, NEVER

    book = load(given.get("playbook", DEFAULT_PLAYBOOK))
    return {tag for play in book.plays for task in play.tasks for tag in task.tags} | {ALWAYS, NEVER}


def _playbooks(given: Mapping[str, str]) -> Iterable[str]:
    from k3env.documents import shipped

    here = [path.stem for path in Path(shipped.PLAYBOOKS).glob("*.yml")]
    return [*shipped.names(shipped.PLAYBOOKS), *here, *map(str, Path().glob("*.yml"))]


def _inventories(given: Mapping[str, str]) -> Iterable[str]:
    from k3env.documents import shipped

    own = [f"{shipped.INVENTORIES}/{name}.yml" for name in shipped.names(shipped.INVENTORIES)]
    return [*own, *map(str, Path().glob("*.yml")), *(f"{path}/" for path in Path().glob("[!.]*/"))]


def _variables(given: Mapping[str, str]) -> Iterable[str]:
    from k3env.k3 import variables

    return [f"{name}=" for name in variables.names()]


def _explained(given: Mapping[str, str]) -> Iterable[str]:
    from k3env.k3 import variables
    from k3env.node import checks, modules

    ids = [rule.id for rule in checks.select(("*",))]
    return [*modules.names(), *ids, *variables.names(), *(option.name for option in ALL)]


def _schemas(given: Mapping[str, str]) -> Iterable[str]:
    from k3env.playbook import schemas

    return schemas.ALL


def _connections(given: Mapping[str, str]) -> Iterable[str]:
    from k3env.inventory.hosts import CONNECTIONS

    return CONNECTIONS.values()


def _runs(given: Mapping[str, str]) -> Iterable[str]:
    from k3env.runner.record import records

    return [record.directory.name for record in records()]


_SOURCES: dict[str, Callable[[Mapping[str, str]], Iterable[str]]] = {
    "hosts": _hosts,
    "limit": lambda given: [*_hosts(given), "run:last", *(f"run:{name}" for name in _runs(given))],
    "host": _hosts,
    "tags": _tags,
    "skip-tags": _tags,
    "playbook": _playbooks,
    "inventory": _inventories,
    "extra-vars": _variables,
    "explain name": _explained,
    "schema only": _schemas,
    "run": _runs,
    "output": lambda given: OUTPUTS,
    "preflight output": lambda given: REPORTS,
    "context": lambda given: CONTEXTS,
    "fail-on": lambda given: ("warn", "fail"),
    "connection": _connections,
}


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError:  # a quote that is still open
        return line.replace("'", "").replace('"', "").split()
