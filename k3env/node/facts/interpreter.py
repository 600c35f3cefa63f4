"""Base interpreters, read as files: one is started only where no file tells its version."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from typing import Optional

from k3env.node.machine import Machine

VERSIONED = re.compile(r"python(\d+\.\d+)\Z")
_ASK = "import os,sys;print('%d.%d' % sys.version_info[:2], os.path.realpath(sys.executable))"
_ASK_S = 20.0
_USUAL = ("/usr/local/bin", "/usr/bin")


@dataclass(frozen=True)
class Interpreter:
    """A Python that is no virtual environment's."""

    path: str
    version: str
    """"3.12"."""


def base_python(machine: Machine) -> Interpreter:
    """Return the first python3 of the PATH that is no virtual environment's, else the one behind the first that is.

    Raises FileNotFoundError if there is none.
    """
    path = machine.environment.get("PATH", os.defpath)
    return machine.recall(("base python", path), lambda: _base_python(machine, path))


def _base_python(machine: Machine, search_path: str) -> Interpreter:
    homes = []
    for directory in search_path.split(os.pathsep):
        path = os.path.join(directory, "python3")
        if not os.path.isabs(path) or not _is_program(machine, path):
            continue
        config = _config_beside(machine, path)
        if config is None:
            return Interpreter(path, _version(machine, path))
        homes += re.findall(r"(?m)^home\s*=\s*(.+?)\s*$", machine.text(config))
    for home in homes:
        path = os.path.join(home, "python3")
        if _is_program(machine, path) and _config_beside(machine, path) is None:
            return Interpreter(path, _version(machine, path))
    raise FileNotFoundError("no python3 in PATH but those of virtual environments")


def base_path(machine: Machine) -> str:
    """Return the PATH without the directories of virtual environments."""
    parts = machine.environment.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(part for part in parts if _config_beside(machine, os.path.join(part, "python3")) is None)


def of_version(machine: Machine, version: str) -> Optional[Interpreter]:
    """Return a base interpreter of a minor version, by its real path, or None. Candidates are started.

    The python3 that a build would use comes first.
    """
    path = machine.environment.get("PATH", os.defpath).split(os.pathsep)
    places = [*(("python3", place) for place in path), *((f"python{version}", place) for place in (*path, *_USUAL))]
    for candidate in (os.path.join(place, name) for name, place in places):
        if _is_program(machine, candidate) and _config_beside(machine, candidate) is None:
            found, _, real = _ask(machine, candidate).partition(" ")
            if found == version:
                return Interpreter(real, version)
    return None


def _config_beside(machine: Machine, path: str) -> Optional[str]:
    """Return the pyvenv.cfg that makes an interpreter a virtual environment's. Source: PEP 405."""
    directory = os.path.dirname(path)
    places = (os.path.join(place, "pyvenv.cfg") for place in (directory, os.path.dirname(directory)))
    return next((place for place in places if machine.is_file(place)), None)


def _version(machine: Machine, path: str) -> str:
    """Return an interpreter's minor version: by its real name, as ours, by its library, and only then by asking it."""
    real = _unwrapped(machine, machine.realpath(path))
    named = VERSIONED.search(os.path.basename(real))
    if named:
        return named[1]
    if real == os.path.realpath(sys.executable):
        return "{}.{}".format(*sys.version_info)
    library = os.path.join(os.path.dirname(os.path.dirname(real)), "lib")
    there = [name for name in (machine.list(library) if machine.is_dir(library) else ()) if VERSIONED.match(name)]
    if len(there) == 1 and machine.exists(os.path.join(library, there[0], "os.py")):
        return there[0][len("python") :]
    found = _ask(machine, path).partition(" ")[0]
    if not found:
        raise FileNotFoundError(f"{path} does not start")
    return found


def _ask(machine: Machine, path: str) -> str:
    """Return an interpreter's minor version and real path, "" if it does not say."""
    done = machine.run([path, "-I", "-S", "-c", _ASK], timeout_s=_ASK_S)
    return done.text if done.ok and re.match(r"\d+\.\d+ /", done.text) else ""


def _unwrapped(machine: Machine, path: str) -> str:
    """Return the program behind a script that does nothing but start it."""
    head = machine.read(path, 4096)
    if not head.startswith(b"#!"):
        return path
    last = head.decode("utf-8", "replace").strip().splitlines()[-1]
    try:
        words = shlex.split(last)
    except ValueError:
        return path
    if len(words) == 3 and words[0] == "exec" and words[2] == "$@" and os.path.isabs(words[1]):
        return machine.realpath(words[1])
    return path


def _is_program(machine: Machine, path: str) -> bool:
    found = machine.stat(path)
    return found is not None and machine.is_file(path) and bool(found.st_mode & 0o111)
