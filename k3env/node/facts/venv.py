"""Virtual environments and interpreters, read as files: nothing is started that need not be."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from typing import Optional

from k3env.node import manifest
from k3env.node.machine import Machine
from k3env.protocol.container import Container
from k3env.protocol.finding import Evidence
from k3env.protocol.profile import Profile

NAMED = re.compile(r"\.venv-(\d+\.\d+)\Z")
_VERSIONED = re.compile(r"python(\d+\.\d+)\Z")
_ASK = "import os,sys;print('%d.%d' % sys.version_info[:2], os.path.realpath(sys.executable))"
_ASK_S = 20.0
_START_S = 5.0


@dataclass(frozen=True)
class Interpreter:
    """A Python that is no virtual environment's."""

    path: str
    version: str
    """"3.12"."""


@dataclass(frozen=True)
class Venv:
    """A virtual environment."""

    path: str
    version: Optional[str]
    """"3.12"; None where pyvenv.cfg does not say."""
    full_version: Optional[str] = None
    """"3.12.3", as pyvenv.cfg has it."""
    home: Optional[str] = None
    """Directory of the interpreter that it was made from."""
    system_site_packages: bool = False
    unfinished: Optional[str] = None
    """Why it must be made anew; None: it is whole."""
    dangling: Optional[str] = None
    """Why its interpreter does not start; None: it does, or lies in an image."""
    source: Evidence = Evidence("")

    @property
    def python(self) -> str:
        """Its interpreter."""
        return os.path.join(self.path, "bin", "python")

    @property
    def site(self) -> str:
        """Where its packages are."""
        return os.path.join(self.path, "lib", f"python{self.version}", "site-packages")


def venv(machine: Machine, profile: Profile) -> Optional[Venv]:
    """Read the environment of the checkout that the profile names; None where there is none."""
    path = profile.paths.venv
    if path is None and profile.paths.repo is not None:
        path = find(machine, profile.paths.repo, profile.container)
    return None if path is None else read(machine, path, in_image=profile.container.engine != "none")


@dataclass(frozen=True)
class Start:
    """What became of starting an environment's interpreter."""

    version: Optional[str]
    """"3.12.3"; None: it does not start."""
    problem: Optional[str] = None
    source: Evidence = Evidence("")


def start(machine: Machine, profile: Profile) -> Optional[Start]:
    """Start the interpreter of the profile's environment; None where there is none, or where an image brings it."""
    found = venv(machine, profile)
    if found is None or found.unfinished or profile.container.engine != "none":
        return None
    asked = "import sys; print('%d.%d.%d' % sys.version_info[:3], sys.prefix)"
    done = machine.run([found.python, "-I", "-c", asked], timeout_s=_START_S)
    version, _, prefix = done.text.partition(" ")
    if not done.ok:
        problem = f"no answer after {_START_S:g} s" if done.timed_out else f"exit code {done.exit_code}"
        return Start(None, problem, done.evidence())
    if os.path.realpath(prefix) != os.path.realpath(found.path):
        return Start(None, f"it takes {prefix} for its environment", done.evidence())
    return Start(version, None, done.evidence())


def read(machine: Machine, path: str, in_image: bool = False) -> Optional[Venv]:
    """Read an environment from its files; None where nothing is there.

    Where its interpreter lies in an image, whether that starts can't be seen from outside.
    """
    if machine.stat(path, follow=False) is None:
        return None
    config = os.path.join(path, "pyvenv.cfg")
    if not machine.is_file(config):
        return Venv(path, None, unfinished="it has no pyvenv.cfg", source=Evidence(config))
    text = machine.text(config)
    pairs = (line.partition("=") for line in text.splitlines())
    values = {key.strip().lower(): value.strip() for key, _, value in pairs}
    full = values.get("version_info") or values.get("version") or ""
    parts = re.match(r"\d+\.\d+(\.\d+)?", full)
    version = ".".join(parts[0].split(".")[:2]) if parts else None
    home = values.get("home")
    unfinished = _unfinished(machine, path, version)
    return Venv(
        path,
        version,
        parts[0] if parts else None,
        home,
        values.get("include-system-site-packages", "").lower() == "true",
        unfinished,
        None if in_image or unfinished or version is None else _dangling(machine, path, version, home),
        Evidence(config, None, text.strip()[:500]),
    )


def find(machine: Machine, repo: str, container: Container) -> Optional[str]:
    """Return where a checkout's environment is: where it should be, else the only one that is there."""
    named = expected(machine, repo, container)
    there = existing(machine, repo)
    if named is not None and (os.path.basename(named) in there or len(there) != 1):
        return named
    return os.path.join(repo, there[0]) if len(there) == 1 else named


def expected(machine: Machine, repo: str, container: Container) -> Optional[str]:
    """Return where a build makes the environment: `.venv-X.Y`, by the base interpreter's version.

    The interpreter of an image is not seen from outside: then the manifest of a build in that image says it, or the
    one environment that is there; None where neither does.

    Raises FileNotFoundError if there is no interpreter. Source: scripts/build_wheel.py, create_venv.
    """
    if container.engine == "none":
        return os.path.join(repo, f".venv-{base_python(machine).version}")
    made = manifest.read(machine, repo)
    if made is not None and made.image == container.image and made.python:
        return os.path.join(repo, f".venv-{made.python}")
    there = existing(machine, repo)
    return os.path.join(repo, there[0]) if len(there) == 1 else None


def existing(machine: Machine, repo: str) -> tuple[str, ...]:
    """Return the names of a checkout's environments."""
    return tuple(name for name in machine.list(repo) if NAMED.match(name)) if machine.is_dir(repo) else ()


def base_python(machine: Machine) -> Interpreter:
    """Return the first python3 of the PATH that is no virtual environment's, else the one behind the first that is.

    Raises FileNotFoundError if there is none.
    """
    homes = []
    for directory in machine.environment.get("PATH", os.defpath).split(os.pathsep):
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
    """Return a base interpreter of a minor version, by its real path, or None. Candidates are started."""
    places = [*machine.environment.get("PATH", os.defpath).split(os.pathsep), "/usr/local/bin", "/usr/bin"]
    for path in (os.path.join(place, name) for name in (f"python{version}", "python3") for place in places):
        if _is_program(machine, path) and _config_beside(machine, path) is None:
            done = machine.run([path, "-I", "-S", "-c", _ASK], timeout_s=_ASK_S)
            found, _, real = done.text.partition(" ")
            if done.ok and found == version:
                return Interpreter(real, version)
    return None


def _unfinished(machine: Machine, path: str, version: Optional[str]) -> Optional[str]:
    named = NAMED.search(os.path.basename(path))
    if version is None:
        return "its pyvenv.cfg names no version"
    if named is not None and named[1] != version:
        return f"it is of Python {version}"
    site = os.path.join(path, "lib", f"python{version}", "site-packages")
    names = machine.list(site) if machine.is_dir(site) else ()
    if "pip" not in names or not any(re.match(r"pip-[^-]+\.dist-info\Z", name) for name in names):
        return "it has no pip"
    return None


def _dangling(machine: Machine, path: str, version: str, home: Optional[str]) -> Optional[str]:
    for name in interpreter_names(version):
        link = os.path.join(path, "bin", name)
        if not machine.exists(link):
            target = os.readlink(link) if os.path.islink(link) else None
            return f"{link} leads to {target}, which is gone" if target else f"{link} is gone"
        behind = _VERSIONED.search(os.path.basename(os.path.realpath(link)))
        if behind and behind[1] != version:
            return f"{link} leads to Python {behind[1]}"
    if home is None or not any(machine.exists(os.path.join(home, name)) for name in interpreter_names(version)):
        return f"its home {home} has no Python {version}"
    return None


def interpreter_names(version: str) -> tuple[str, ...]:
    """Return what an environment's interpreter is called in its bin."""
    return "python", "python3", f"python{version}"


def _config_beside(machine: Machine, path: str) -> Optional[str]:
    """Return the pyvenv.cfg that makes an interpreter a virtual environment's. Source: PEP 405."""
    directory = os.path.dirname(path)
    places = (os.path.join(place, "pyvenv.cfg") for place in (directory, os.path.dirname(directory)))
    return next((place for place in places if machine.is_file(place)), None)


def _version(machine: Machine, path: str) -> str:
    """Return an interpreter's minor version: by its real name, as ours, by its library, and only then by asking it."""
    real = _unwrapped(machine, os.path.realpath(path))
    named = _VERSIONED.search(os.path.basename(real))
    if named:
        return named[1]
    if real == os.path.realpath(sys.executable):
        return "{}.{}".format(*sys.version_info)
    library = os.path.join(os.path.dirname(os.path.dirname(real)), "lib")
    there = [name for name in (machine.list(library) if machine.is_dir(library) else ()) if _VERSIONED.match(name)]
    if len(there) == 1 and machine.exists(os.path.join(library, there[0], "os.py")):
        return there[0][len("python") :]
    done = machine.run([path, "-I", "-S", "-c", _ASK], timeout_s=_ASK_S)
    if not done.ok:
        raise FileNotFoundError(f"{path} does not start: {done.evidence().excerpt}")
    return done.text.split()[0]


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
        return os.path.realpath(words[1])
    return path


def _is_program(machine: Machine, path: str) -> bool:
    found = machine.stat(path)
    return found is not None and machine.is_file(path) and bool(found.st_mode & 0o111)
