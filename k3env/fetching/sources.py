"""Sources: what a checkout asks for beside itself: Python packages, and the sources that CMake fetches."""

from __future__ import annotations

import importlib
import json
import posixpath
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3env.k3 import build
from k3env.node.facts import checkout
from k3env.node.offline import GITHUB
from k3env.node.requirements import named

FETCHCONTENT = "3rdparty/fetch_content.json"
_BASE = "${github_base_url}"
_INSTALLED = re.compile(r"\b(virtualenv|conan|nanobind|pybind11-stubgen)((?:[<>=!~]=?\s?[\w.*]+,?)*)")
"""What build_wheel.py itself installs by pip, with the versions that stand there."""
TOOLS = ("pip", "setuptools", "wheel", "packaging")
"""What a build needs that is isolated from the environment, or that makes one."""

Read = Callable[[str], "str | None"]
"""Returns a file of the checkout, or None."""


@dataclass(frozen=True)
class Dependency:
    """A source that CMake fetches."""

    name: str
    url: str
    revision: str
    archive: bool
    """Whether it is fetched as an archive, else by git."""

    @property
    def path(self) -> str:
        """The path of its archive below the server's."""
        return f"{self.url[len(GITHUB) + 1 :]}/archive/{self.revision}.tar.gz"


def requirements(read: Read, into: Path) -> Path | None:
    """Write a checkout's requirement files, with those that they name; return the first."""
    first = next((name for name in build.INSTALLED if read(name) is not None), None)
    todo, seen = [first] if first else [], set()
    while todo:
        name = todo.pop()
        text = read(name)
        if name in seen or text is None:
            continue
        seen.add(name)
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_text(text, encoding="utf-8")
        for _, more in named(text):
            todo.append(posixpath.normpath(posixpath.join(posixpath.dirname(name), more)))
    return into / first if first else None


def tools(read: Read) -> tuple[str, ...]:
    """Return what builds the checkout: build_wheel.py's own, and what its pyproject.toml asks for."""
    script = read(build.SCRIPT) or ""
    found = {match[1]: match[1] + match[2].replace(" ", "").rstrip(",") for match in _INSTALLED.finditer(script)}
    for match in _INSTALLED.finditer(script):
        if match[2]:
            found[match[1]] = match[1] + match[2].replace(" ", "").rstrip(",")
    return tuple(dict.fromkeys((*found.values(), *build_requires(read("pyproject.toml")), *TOOLS)))


def build_requires(pyproject: str | None) -> tuple[str, ...]:
    """Return what a pyproject.toml asks for to build; setuptools where there is none. Source: PEP 518."""
    if pyproject is None:
        return ("setuptools", "wheel")
    system: Any = _toml().loads(pyproject).get("build-system", {})
    return tuple(map(str, system.get("requires", ("setuptools", "wheel"))))


def asks_for_fork(read: Read) -> bool:
    """Return whether a checkout's README or guide installs FlashInfer from a git repository."""
    return any(checkout.names_fork(read(guide) or "") for guide in build.GUIDES)


def dependencies(read: Read) -> tuple[tuple[Dependency, ...], dict[str, str]]:
    """Return what CMake fetches, and what of it can't be told, with the reason."""
    text = read(FETCHCONTENT)
    if text is None:
        is_fetched = "FetchContent" in (read("3rdparty/CMakeLists.txt") or "") + (read("cpp/CMakeLists.txt") or "")
        why = f"this checkout names what CMake fetches in its CMake files, not in {FETCHCONTENT}"
        return (), {"FetchContent": why} if is_fetched else {}
    found, untold = [], {}
    for item in json.loads(text).get("dependencies", []):
        name, url = str(item.get("name", "?")), str(item.get("git_repository", ""))
        url = url.replace(_BASE, GITHUB)
        revision = str(item.get("git_tag", ""))
        if "$" in url + revision or not url or not revision:
            untold[name] = f"{FETCHCONTENT} names it as {url or 'no repository'} at {revision or 'no revision'}"
            continue
        archive = bool(item.get("use_url"))
        if archive and not (url.startswith(f"{GITHUB}/") and _BASE in str(item["git_repository"])):
            untold[name] = f"{url} is fetched as an archive, and GITHUB_MIRROR does not lead it elsewhere"
            continue
        found.append(Dependency(name, url, revision, archive))
    return tuple(found), untold


def _toml() -> Any:
    try:
        return importlib.import_module("tomllib")
    except ImportError:  # before Python 3.11
        return importlib.import_module("pip._vendor.tomli")
