"""conan: the packages that a checkout's C++ build loads, for the nodes' processor, in what a home of conan holds.

Resolved and downloaded by the conan that the build itself installs, in an environment of its own; nothing is compiled.
Source: conan's documentation: graph info, list --graph, download; a home without version.txt is made whole by conan
itself, and its cache is `p/`.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import sys
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from k3env.errors import TaskFailed
from k3env.fetching.commands import Commands
from k3env.fetching.target import Target
from k3env.fetching.wheels import digest
from k3env.k3 import build
from k3env.node.offline import CONANS, Archive, Conan

SPEC = "conan>=2.14,<3"
"""Where the script names no version."""
CACHE = "p"
"""conan's cache in its home. The other files are made anew by the conan that finds none."""
_FILES = ("conanfile.py", "conanfile.txt", "conandata.yml", "conan.lock")
_ARCH = {"aarch64": "armv8", "x86_64": "x86_64"}
_DOWNLOADED = ("Download", "Cache")
_NEEDLESS = ("Skip", "Platform", "System tool")


@dataclass(frozen=True)
class Wanted:
    """What one checkout asks conan for."""

    remote: str
    url: str
    spec: str
    """conan itself, as the build installs it."""
    files: tuple[tuple[str, str], ...]
    """Name and text of the conanfile, and of what lies beside it."""


@dataclass(frozen=True)
class Packages:
    """Fills the archive of one target."""

    commands: Commands
    target: Target
    work: Path

    @property
    def place(self) -> str:
        """Where the archive lies in the directory."""
        return os.path.join(CONANS, f"{self.target.arch}.tar.gz")

    def fetch(self, wanted: Sequence[Wanted], known: Conan | None) -> Conan:
        """Return what was fetched, or why nothing was; `known` is kept where it is the same and whole."""
        asked = hashlib.sha256(repr((profile(self.target), wanted)).encode()).hexdigest()
        path = Path(self.commands.directory, self.place)
        if known is not None and known.asked == asked and known.archive is not None and self._sound(known.archive):
            return known
        try:
            names = self._fill(wanted, path)
        except TaskFailed as error:
            return Conan(asked, self.target.gcc, missing=str(error), remedy=by_hand(wanted[0], self.target))
        archive = Archive(wanted[0].url, self.place, path.stat().st_size, digest(path))
        return Conan(asked, self.target.gcc, archive, names)

    def _sound(self, archive: Archive) -> bool:
        path = Path(self.commands.directory, archive.path)
        return path.is_file() and path.stat().st_size == archive.size and digest(path) == archive.sha256

    def _fill(self, wanted: Sequence[Wanted], path: Path) -> tuple[str, ...]:
        home, names = self.work / "conan-home", set()
        for number, item in enumerate(wanted):
            names |= self._one(item, self.work / f"conan-{number}", home)
        shutil.rmtree(home / CACHE / "t", ignore_errors=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        fresh = self.work / "conan.tar.gz"
        with tarfile.open(fresh, "w:gz") as archive:
            archive.add(home / CACHE, CACHE)
        os.replace(fresh, path)
        return tuple(sorted(names))

    def _one(self, wanted: Wanted, place: Path, home: Path) -> set[str]:
        """Have what one checkout asks for in the home, and return its names.

        Raises TaskFailed where the remote does not have all of it for this target.
        """
        source = place / "source"
        source.mkdir(parents=True)
        for name, text in wanted.files:
            (source / name).write_text(text, encoding="utf-8")
        (place / "profile").write_text(profile(self.target), encoding="utf-8")
        run = _Run(self.commands, self._program(wanted.spec), {"CONAN_HOME": str(home), "CONAN_NON_INTERACTIVE": "1"})
        run.take("add conan's remote", "remote", "add", "--force", wanted.remote, wanted.url)
        graph, listed = place / "graph.json", place / "list.json"
        words = ("graph", "info", str(source), "--profile:all", str(place / "profile"), "--remote", wanted.remote)
        run.take("resolve conan's packages", *words, "--build=missing", "--format=json", f"--out-file={graph}")
        nodes = list(json.loads(graph.read_text(encoding="utf-8"))["graph"]["nodes"].values())
        needed = [node for node in nodes if node.get("recipe") not in ("Consumer", "Cli")]
        absent = sorted(_name(node) for node in needed if node["binary"] not in (*_DOWNLOADED, *_NEEDLESS))
        if absent:
            raise TaskFailed(
                f"{wanted.remote} has no {', '.join(absent)} for {self.target.arch} and gcc {self.target.gcc}, which"
                " is the nodes' compiler if --gcc says no other",
                expected="packages that need not be compiled", found=f"none of {', '.join(absent)}", id="fetch.conan",
            )  # fmt: skip
        if any(node["binary"] == "Download" for node in needed):
            only = ("--graph-binaries=Download", "--format=json", f"--out-file={listed}")
            run.take("list conan's packages", "list", f"--graph={graph}", *only)
            run.take("fetch conan's packages", "download", f"--list={listed}", "--remote", wanted.remote)
        return {_name(node) for node in needed}

    def _program(self, spec: str) -> Path:
        """Return conan, installed where nothing else is."""
        place = self.work / f"tool-{hashlib.sha256(spec.encode()).hexdigest()[:8]}"
        program = place / "bin" / "conan"
        if not program.exists():
            self.commands.run("make an environment for conan", (sys.executable, "-m", "venv", str(place)))
            words = (str(place / "bin" / "python"), "-m", "pip", "install", "--quiet", spec)
            self.commands.run(f"install {spec}", words, tool="pip")
        return program


@dataclass(frozen=True)
class _Run:
    commands: Commands
    program: Path
    environment: Mapping[str, str]

    def take(self, title: str, *words: str) -> None:
        self.commands.run(title, (str(self.program), *words), environment=self.environment)


def wanted(read: Any) -> Wanted | None:
    """Return what a checkout's build loads by conan; newer ages load nothing (`conan install --no-remote`).

    Source: scripts/build_wheel.py, `conan install --remote=TensorRT-LLM`, `conan remote add --force NAME URL`.
    """
    script = read(build.SCRIPT) or ""
    named = re.search(r"--remote[= ]([\w.-]+)", script)
    if named is None or "--no-remote" in script:
        return None
    added = re.search(rf"remote\s+add\s+(?:--force\s+|-f\s+)?{re.escape(named[1])}\s+(https?://[^\s\"'\\]+)", script)
    spec = re.search(r"\bconan\s?==\s?[\d.]+", script)
    files = tuple(
        (name, text) for name in _FILES if (text := read(f"{build.CMAKE_HOME}/{name}") or read(name)) is not None
    )
    return Wanted(named[1], added[1] if added else "", spec[0].replace(" ", "") if spec else SPEC, files)


def by_hand(item: Wanted, target: Target) -> str:
    """Return how to fill a home where the nodes' processor and compiler are, for people."""
    return (
        f"where an image like the nodes' runs with egress ({target.arch}, gcc {target.gcc}), in the checkout: "
        f"pip install '{item.spec}' && export CONAN_HOME=/a/local/directory && conan profile detect && "
        f"conan remote add {item.remote} {item.url or 'URL'} && "
        f"conan install {build.CMAKE_HOME} --build=missing --remote={item.remote} -s build_type=Release; "
        "then bring that directory to the node that builds, and let CONAN_HOME there name it"
    )


def profile(target: Target) -> str:
    """Return conan's profile of a target, as `conan profile detect` finds it in the nodes' image."""
    rows = {
        "os": "Linux", "arch": _ARCH[target.arch], "build_type": "Release", "compiler": "gcc",
        "compiler.version": target.gcc, "compiler.libcxx": "libstdc++11", "compiler.cppstd": "gnu17",
    }  # fmt: skip
    return "\n".join(("[settings]", *(f"{key}={value}" for key, value in rows.items()), ""))


def _name(node: Any) -> str:
    return str(node["ref"]).partition("#")[0]
