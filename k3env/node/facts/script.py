"""build_wheel.py, read and not run: its flags, and what it does by itself."""

from __future__ import annotations

import ast
import os
import re
from dataclasses import dataclass
from typing import Optional

from k3env.k3 import ages, build
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence


@dataclass(frozen=True)
class Script:
    """A checkout's build script."""

    path: str
    flags: tuple[str, ...]
    """Those that its source adds to its parser, long and short, sorted."""
    age: str
    told: str
    """What this age does, for people."""
    fetches_submodules: bool
    """Whether it runs `git submodule update` where one is missing."""
    marks_fmha: bool
    """Whether it can tell a whole generation of attention kernels from one that was cut off."""
    fetches_content: bool
    """Whether its first configuration downloads sources."""
    makes_venv: bool = True
    """Whether it makes an environment of its own; else it installs into the Python that runs it."""
    source: Evidence = Evidence("")

    def has(self, flag: str) -> bool:
        """Return whether the script takes a flag."""
        return flag in self.flags


def script(machine: Machine, root: str) -> Optional[Script]:
    """Read the build script of a checkout; None where there is none.

    Raises ValueError for one that is no Python.
    """
    path = os.path.join(root, build.SCRIPT)
    if not machine.is_file(path):
        return None
    text = machine.text(path)
    flags = added(text)
    age = ages.recognised(frozenset(flags), text)
    return Script(
        path,
        flags,
        age.name,
        age.told,
        ages.SUBMODULES in text,
        ages.STAMP in text,
        _fetches(machine, root),
        ages.VENV in text,
        Evidence(path, excerpt=" ".join(flags)),
    )


def added(source: str) -> tuple[str, ...]:
    """Return the flags that a program adds to a parser of arguments, from its source; a loop over names is followed.

    A source in the words of a newer Python than this one is searched as text.

    Raises ValueError for a source that is no Python.
    """
    try:
        tree = ast.parse(source.removeprefix("\ufeff"))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        scanned = _scanned(source)
        if scanned:
            return scanned
        raise ValueError(f"it is no Python: {_place(error)}") from None
    found: set[str] = set()
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    adding = [call for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "add_argument"]
    # A parser that is filled by other means is told by what its flags look like.
    for node in adding or calls:
        words = [word.value for word in node.args if isinstance(word, ast.Constant)]
        flags = [word.partition("/")[0] for word in words if isinstance(word, str)]
        found.update(flag for flag in flags if _looks_like_one(flag, bool(adding)))
    for loop in ast.walk(tree):
        if isinstance(loop, ast.For):
            found.update(_looped(loop))
    return tuple(sorted(found))


def _looks_like_one(word: str, is_added: bool) -> bool:
    return word.startswith("-") if is_added else re.match(r"--?[A-Za-z][\w-]*\Z", word) is not None


def _scanned(source: str) -> tuple[str, ...]:
    calls = re.findall(r"\.add_argument\(\s*((?:[\"']-[^\"'\s]+[\"']\s*,?\s*)+)", source)
    return tuple(sorted({flag for call in calls for flag in re.findall(r"[\"'](-[^\"']+)[\"']", call)}))


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return error.msg if error.lineno is None else f"{error.msg}, line {error.lineno}"
    return str(error) or "too deeply nested"


def _looped(loop: ast.For) -> set[str]:
    """Return the flags of `for name in ("nccl", "nixl"): parser.add_argument(f"--{name}_root")`."""
    if not isinstance(loop.target, ast.Name) or not isinstance(loop.iter, (ast.Tuple, ast.List)):
        return set()
    names = [item.value for item in loop.iter.elts if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    found: set[str] = set()
    for node in ast.walk(loop):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "add_argument":
            for word in node.args:
                if isinstance(word, ast.JoinedStr):
                    found.update(text for name in names if (text := _filled(word, loop.target.id, name)))
    return found


def _filled(text: ast.JoinedStr, variable: str, value: str) -> str:
    parts = []
    for part in text.values:
        if isinstance(part, ast.Constant):
            parts.append(str(part.value))
        elif isinstance(part, ast.FormattedValue) and isinstance(part.value, ast.Name) and part.value.id == variable:
            parts.append(value)
        else:
            return ""
    joined = "".join(parts)
    return joined if joined.startswith("-") else ""


def _fetches(machine: Machine, root: str) -> bool:
    """Return whether CMake downloads sources: FetchContent in the files that are read first."""
    for name in (*build.FETCHED, build.CMAKE_LISTS):
        path = os.path.join(root, name)
        if machine.is_file(path) and (name.endswith(".json") or "FetchContent" in machine.text(path)):
            return True
    return False
