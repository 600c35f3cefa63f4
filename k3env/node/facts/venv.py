"""Virtual environments, read as files: nothing is started that need not be."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Optional

from k3env.k3 import ages
from k3env.node import manifest
from k3env.node.facts.interpreter import VERSIONED, base_python
from k3env.node.machine import Machine
from k3env.protocol.container import Container
from k3env.protocol.finding import Evidence
from k3env.protocol.profile import Profile

NAMED = re.compile(r"\.venv-(\d+\.\d+)\Z")
_ROOTED = re.compile(r"\.?venv-(\d+\.\d+)\Z")
"""Also in a build root."""
_START_S = 5.0


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
    if machine.realpath(prefix) != machine.realpath(found.path):
        return Start(None, f"it takes {prefix} for its environment", done.evidence())
    return Start(version, None, done.evidence())


def read(machine: Machine, path: str, in_image: bool = False) -> Optional[Venv]:
    """Read an environment from its files; None where nothing is there.

    Where its interpreter lies in an image, whether that starts can't be seen from outside.
    """
    return machine.recall(("venv", path, in_image), lambda: _read(machine, path, in_image))


def _read(machine: Machine, path: str, in_image: bool) -> Optional[Venv]:
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
    path = machine.environment.get("PATH")
    return machine.recall(("venv of", repo, container, path), lambda: _find(machine, repo, container))


def _find(machine: Machine, repo: str, container: Container) -> Optional[str]:
    named = expected(machine, repo, container)
    there = existing(machine, repo)
    if named is not None and (os.path.basename(named) in there or len(there) != 1):
        return named
    return os.path.join(repo, there[0]) if len(there) == 1 else named


def root_of(path: str) -> str:
    """Return where what is known of an environment is kept: its checkout if it is one's, else itself."""
    parent, name = os.path.split(path)
    return parent if NAMED.match(name) else path


def expected(machine: Machine, repo: str, container: Container) -> Optional[str]:
    """Return where a build makes the environment: `.venv-X.Y`, by the base interpreter's version.

    The interpreter of an image is not seen from outside: then the manifest of a build in that image says it, or the
    one environment that is there; None where neither does.

    Raises FileNotFoundError if there is no interpreter. Source: scripts/build_wheel.py, create_venv.
    """
    if container.engine == "none":
        return ages.environment(base_python(machine).version, repo)
    made = manifest.read(machine, repo)
    if made is not None and made.image == container.image and made.python:
        return ages.environment(made.python, repo)
    there = existing(machine, repo)
    return os.path.join(repo, there[0]) if len(there) == 1 else None


def existing(machine: Machine, repo: str) -> tuple[str, ...]:
    """Return the names of a checkout's environments: of directories, not of files and links to nothing."""
    names = machine.list(repo) if machine.is_dir(repo) else ()
    return tuple(name for name in names if NAMED.match(name) and machine.is_dir(os.path.join(repo, name)))


def _unfinished(machine: Machine, path: str, version: Optional[str]) -> Optional[str]:
    named = _ROOTED.match(os.path.basename(path))
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
            target = machine.readlink(link)
            return f"{link} leads to {target}, which is gone" if target else f"{link} is gone"
        behind = VERSIONED.search(os.path.basename(machine.realpath(link)))
        if behind and behind[1] != version:
            return f"{link} leads to Python {behind[1]}"
    return None if serves(machine, home, version) else f"its home {home} has no Python {version}"


def serves(machine: Machine, home: Optional[str], version: str) -> bool:
    """Return whether a directory has an interpreter of a version; one without a version in its real name may be it."""
    for name in reversed(interpreter_names(version)):
        path = os.path.join(home or "/", name)
        behind = VERSIONED.search(os.path.basename(machine.realpath(path)))
        if machine.exists(path) and (behind is None or behind[1] == version):
            return True
    return False


def interpreter_names(version: str) -> tuple[str, ...]:
    """Return what an environment's interpreter is called in its bin."""
    return "python", "python3", f"python{version}"
