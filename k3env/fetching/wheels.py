"""Wheels: what requirements come to on another machine, resolved and fetched here."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from k3env.errors import TaskFailed
from k3env.fetching.commands import Commands, said
from k3env.fetching.sources import build_requires
from k3env.fetching.target import Target
from k3env.k3.pins import normalised
from k3env.node.offline import WHEELS, Wheel

BATCH = 8
"""Wheels that one pip fetches: what is lost when it is cut off."""
IMAGE = ("torch", "torchvision", "torchaudio", "pytorch-triton", "triton")
"""What only the image brings, with all that it alone needs: NVIDIA's own builds, gigabytes of them."""
_NO_MATCH = re.compile(r"No matching distribution found for ([A-Za-z0-9][\w.-]*)")
_PURE = re.compile(r"-py[23][^-]*-none-any\.whl$")


@dataclass(frozen=True)
class Item:
    """A distribution that is needed."""

    name: str
    version: str
    url: str
    sha256: str
    requested: bool = True
    """Whether it was asked for by itself."""
    requires: frozenset[str] = frozenset()
    """Names of what it may need."""

    @property
    def pinned(self) -> str:
        """Its URL, with what it must come to."""
        return f"{self.url}#sha256={self.sha256}" if self.sha256 else self.url

    @property
    def file(self) -> str:
        """Its file's name."""
        return unquote(urlsplit(self.url).path.rpartition("/")[2])


@dataclass
class Wheels:
    """The wheels of a target."""

    commands: Commands
    target: Target
    work: Path
    image_too: bool = False
    """Fetch also what the image brings."""
    kept: dict[str, Wheel] = field(default_factory=dict)
    """By file."""
    image: set[str] = field(default_factory=set)
    missing: dict[str, str] = field(default_factory=dict)
    source: dict[str, str] = field(default_factory=dict)
    """Packages that are kept as source, and why."""
    placed: list[str] = field(default_factory=list)
    """Files that were put there, also in place of damaged ones."""

    @property
    def directory(self) -> Path:
        """Where they lie."""
        return Path(self.commands.directory, WHEELS, self.target.name)

    def add(self, what: str, wanted: Sequence[str], files: Sequence[Path] = (), *, deps: bool = True) -> None:
        """Resolve requirements, and fetch what they come to; what can't be had is noted by its name.

        Raises TaskFailed where nothing can be resolved.
        """
        items = self._resolved(what, list(wanted), list(files), deps)
        needed = items if self.image_too else besides_image(items)
        self.image |= {item.name for item in items} - {item.name for item in needed}
        more = self._fetched(needed)
        if more:
            self.add(f"what {', '.join(sorted(self.source))} need to be built", sorted(more))

    def _resolved(self, what: str, wanted: list[str], files: list[Path], deps: bool) -> list[Item]:
        """Return what requirements come to; a package that is nowhere is left out, and the rest resolved again."""
        while wanted or files:
            try:
                return self._report(what, wanted, files, deps)
            except TaskFailed as error:
                absent = _NO_MATCH.search(said(error))
                if absent is None or not self._drop(absent[1], wanted, files):
                    raise
        return []

    def _drop(self, name: str, wanted: list[str], files: list[Path]) -> bool:
        """Leave a requirement out; return whether it was there to be left out."""
        self.missing[normalised(name)] = f"no index has it for {self.target.name}"
        kept = [text for text in wanted if _name(text) != normalised(name)]
        found = len(kept) < len(wanted)
        wanted[:] = kept
        for file in _all_files(files):
            lines = file.read_text(encoding="utf-8").splitlines()
            rest = [line for line in lines if _name(line) != normalised(name)]
            found = found or len(rest) < len(lines)
            file.write_text("\n".join(rest) + "\n", encoding="utf-8")
        return found

    def _report(self, what: str, wanted: list[str], files: list[Path], deps: bool) -> list[Item]:
        report, nowhere = self.work / "report.json", self.work / "nowhere"
        words = ["install", "--dry-run", "--quiet", "--prefer-binary", "--report", str(report)]
        words += ["--target", str(nowhere), "--ignore-installed"]
        words += [] if deps else ["--no-deps"]
        for file in files:
            words += ["--requirement", str(file)]
        self.commands.pip(f"resolve {what} for {self.target.name}", *words, *wanted, target=self.target)
        return [_item(entry) for entry in json.loads(report.read_text(encoding="utf-8"))["install"]]

    def _fetched(self, items: list[Item]) -> set[str]:
        """Fetch what is not there yet; return what sources that were kept need to be built."""
        absent = [item for item in items if not self._is_there(item)]
        wheels = [item for item in absent if item.file.endswith(".whl")]
        for at in range(0, len(wheels), BATCH):
            batch = wheels[at : at + BATCH]
            place = self._download(batch, f" ({at + len(batch)} of {len(wheels)})")
            for item in batch:
                self._keep(item, place / item.file)
        more: set[str] = set()
        for item in (item for item in absent if item not in wheels):
            more |= self._source(item)
        return more

    def _download(self, items: list[Item], count: str = "") -> Path:
        place = self.work / "batch"
        shutil.rmtree(place, ignore_errors=True)
        title = f"fetch {', '.join(item.name for item in items)}{count}"
        words = ("download", "--quiet", "--no-deps", "--dest", str(place), *(item.pinned for item in items))
        self.commands.pip(title, *words, target=self.target)
        return place

    def _is_there(self, item: Item) -> bool:
        """Return whether an earlier fetch has kept an item, also as a wheel built of it."""
        for wheel in self.kept.values():
            same = wheel.name == item.name and wheel.version == item.version
            if same and wheel.url == item.url and sound(self.directory / wheel.file, wheel):
                return True
        # One that was cut off before it wrote down what it had.
        path = self.directory / item.file
        if not item.file.endswith(".whl") or not item.sha256 or not path.is_file() or digest(path) != item.sha256:
            return False
        self.kept[item.file] = Wheel(item.file, item.name, item.version, path.stat().st_size, item.sha256, item.url)
        return True

    def _source(self, item: Item) -> set[str]:
        """Keep the pure wheel that a source becomes, or else the source; return what that needs to be built."""
        place, why = self.work / "built", "it has parts that are compiled"
        shutil.rmtree(place, ignore_errors=True)
        try:
            words = ("wheel", "--quiet", "--no-deps", "--wheel-dir", str(place), item.pinned)
            self.commands.pip(f"build {item.name} {item.version} from its source", *words)
        except TaskFailed as error:
            why = f"it can't be built here: {error}"
        built = next(place.glob("*.whl"), None)
        if built is not None and _PURE.search(built.name):
            self._keep(item, built)
            return set()
        self.source[item.name] = why
        path = self._download([item]) / item.file
        needs = set(build_requires(_pyproject(path)))
        self._keep(item, path)
        return needs

    def _keep(self, item: Item, path: Path) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        size, sha256 = path.stat().st_size, digest(path)
        target = self.directory / path.name
        fresh = target.with_name(f".{path.name}.part")
        shutil.move(str(path), fresh)
        os.replace(fresh, target)
        self.placed.append(path.name)
        self.kept[path.name] = Wheel(path.name, item.name, item.version, size, sha256, item.url)


def besides_image(items: Sequence[Item]) -> list[Item]:
    """Return what is needed beside what the image brings: all that a way leads to which passes none of that."""
    known = {item.name: item for item in items if item.name not in IMAGE}
    todo = [item.name for item in known.values() if item.requested]
    found: set[str] = set()
    while todo:
        name = todo.pop()
        if name in known and name not in found:
            found.add(name)
            todo += known[name].requires
    return [item for item in items if item.name in found]


def sound(path: Path, wheel: Wheel) -> bool:
    """Return whether a file is there as it was fetched."""
    with contextlib.suppress(OSError):
        return path.stat().st_size == wheel.size and digest(path) == wheel.sha256
    return False


def digest(path: Path) -> str:
    """Return a file's SHA-256."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            found.update(block)
    return found.hexdigest()


def _item(entry: Any) -> Item:
    where = entry["download_info"]
    hashes = where.get("archive_info", {}).get("hashes", {})
    return Item(
        normalised(entry["metadata"]["name"]),
        str(entry["metadata"]["version"]),
        str(where["url"]),
        str(hashes.get("sha256", "")),
        bool(entry.get("requested", True)),
        frozenset(filter(None, map(_name, entry["metadata"].get("requires_dist", ())))),
    )


def _name(line: str) -> str | None:
    match = re.match(r"\s*([A-Za-z0-9][\w.-]*)", line)
    return normalised(match[1]) if match else None


def _all_files(files: Sequence[Path]) -> Iterator[Path]:
    """Yield requirement files, with those that lie beside them."""
    for file in files:
        yield from (path for path in file.parent.rglob("*") if path.is_file())


def _pyproject(path: Path) -> str | None:
    """Return the pyproject.toml of a source distribution, or None."""
    with contextlib.suppress(OSError, KeyError, tarfile.TarError, zipfile.BadZipFile):
        if path.suffix == ".zip":
            with zipfile.ZipFile(path) as archive:
                name = next((name for name in archive.namelist() if name.count("/") == 1 and _is_project(name)), None)
                return archive.read(name).decode() if name else None
        with tarfile.open(path) as archive:
            names = archive.getnames()
            name = next((name for name in names if name.count("/") == 1 and _is_project(name)), None)
            member = archive.extractfile(name) if name else None
            return member.read().decode() if member else None
    return None


def _is_project(name: str) -> bool:
    return name.endswith("/pyproject.toml")
