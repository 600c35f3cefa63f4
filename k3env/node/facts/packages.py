"""Installed distributions, read from their .dist-info directories: no interpreter is started."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Optional

from k3env.k3.pins import RECORDED, normalised
from k3env.node.facts import venv as venvs
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.container import Container
from k3env.protocol.finding import Evidence
from k3env.protocol.profile import Profile

if TYPE_CHECKING:
    from k3env.node.facts.venv import Venv

RECORD_BYTES = 1 << 26
_INFO = re.compile(r"(?P<name>[^~].*?)-(?P<version>[^-]+?)(?:-py\d[\d.]*)?\.(?:dist-info|egg-info)\Z")
_COMMIT = re.compile(r"[0-9a-f]{40}\Z")
WATCHED = ("tensorrt-llm", *RECORDED)


@dataclass(frozen=True)
class Distribution:
    """An installed distribution."""

    name: str
    """As indexes compare it."""
    version: str
    info: str
    """Its .dist-info directory."""
    url: Optional[str] = None
    """Where it came from, if not from an index. Source: direct_url.json, PEP 610."""
    commit: Optional[str] = None
    """The commit of a version control URL."""
    editable: bool = False
    built_commit: Optional[str] = None
    """The commit that its own build metadata names; a wheel built from a checkout has no other."""
    requires: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    """What should be there of it, and is not."""

    @property
    def origin(self) -> str:
        """Where it came from, for people."""
        if self.commit:
            return f"{self.version} from commit {self.commit}"
        if self.editable:
            return f"{self.version}, editable from {self.url}"
        built = f", built from commit {self.built_commit}" if self.built_commit else ""
        return f"{self.version} from {self.url or 'an index'}{built}"

    def editable_from(self, root: str) -> bool:
        """Return whether it is imported from a directory."""
        from urllib.parse import unquote

        if not self.editable or not (self.url or "").startswith("file://"):
            return False
        path = unquote((self.url or "")[len("file://") :])
        return path == root or os.path.realpath(path) == os.path.realpath(root)


@dataclass(frozen=True)
class Packages:
    """The distributions that matter to Kimi K3, by name: the environment's own before its base's."""

    venv: str
    found: dict[str, Distribution] = field(default_factory=dict)
    several: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Names with several .dist-info directories in the environment: an installation was cut off."""
    base_unseen: bool = False
    """The environment sees the packages of an image, and what those are isn't known."""
    source: Evidence = Evidence("")


class Sites:
    """The places where an environment's packages are, each listed once."""

    def __init__(
        self, machine: Machine, venv: Venv, with_base: bool = True, image: Optional[Mapping[str, str]] = None
    ) -> None:
        """`with_base`: also those of the base interpreter, where the environment sees them.

        `image`: what the image has installed that this interpreter lies in, name to version.
        """
        self._machine = machine
        self.venv = venv
        self._image = image or {} if venv.system_site_packages else {}
        self.base_unseen = venv.system_site_packages and not with_base and image is None
        """Whether the environment sees packages that can't be seen from here: those of an image."""
        base = base_sites(machine, venv) if with_base and venv.system_site_packages else ()
        self._listed = [(place, listed(machine, place)) for place in (venv.site, *base)]

    def several(self, name: str) -> tuple[str, ...]:
        """Return the .dist-info directories of a name in the environment, if there are several."""
        infos = self._listed[0][1].get(normalised(name), ())
        return infos if len(infos) > 1 else ()

    def version(self, name: str) -> Optional[str]:
        """Return the version of a distribution, the environment's own before its base's."""
        found = self._info(name)
        return self._image.get(normalised(name)) if found is None else version_of(self._machine, *found)

    def distribution(self, name: str) -> Optional[Distribution]:
        """Read a distribution, the environment's own before its base's."""
        found = self._info(name)
        if found is None:
            brought = self._image.get(normalised(name))
            return None if brought is None else Distribution(normalised(name), brought, "")
        return read(self._machine, *found, is_own=found[0] == self.venv.site)

    def versions(self, names: tuple[str, ...]) -> dict[str, str]:
        """Return the versions of those of these distributions that are there, "0.6.16 @ COMMIT" where one is known."""
        found = {}
        for name in names:
            place = self._info(name)
            if place is not None:
                vcs = _direct_url(self._machine, os.path.join(*place)).get("vcs_info")
                commit = vcs.get("commit_id") if isinstance(vcs, dict) else None
                found[name] = version_of(self._machine, *place) + (f" @ {commit}" if commit else "")
            elif normalised(name) in self._image:
                found[name] = self._image[normalised(name)]
        return found

    def _info(self, name: str) -> Optional[tuple[str, str]]:
        for place, table in self._listed:
            infos = table.get(normalised(name))
            if infos:
                return place, infos[0]
        return None


def packages(machine: Machine, profile: Profile) -> Optional[Packages]:
    """Read the distributions that matter in the profile's environment; None where there is no whole environment."""
    found = venvs.venv(machine, profile)
    if found is None or found.unfinished:
        return None
    seen = sites(machine, found, profile.paths.repo or venvs.root_of(found.path), profile.container)
    read_ones = ((name, seen.distribution(name)) for name in WATCHED)
    several = ((name, seen.several(name)) for name in WATCHED)
    return Packages(
        found.path,
        {name: item for name, item in read_ones if item is not None},
        {name: infos for name, infos in several if infos},
        seen.base_unseen,
        Evidence(found.site),
    )


def sites(machine: Machine, venv: Venv, root: str, container: Container) -> Sites:
    """Return where an environment's packages are; those of an image, as it was asked for them once.

    `root` is the checkout, or the environment of its own, where that was written down.
    """
    if container.engine == "none":
        return Sites(machine, venv)
    from k3env.node.facts.image_packages import recorded

    brought = recorded(machine, root, container) if venv.system_site_packages else None
    fits = brought is not None and brought.python == venv.version
    return Sites(machine, venv, with_base=False, image=brought.versions if brought is not None and fits else None)


def listed(machine: Machine, site: str) -> dict[str, tuple[str, ...]]:
    """Return the metadata directories in a directory of packages, by name."""
    return machine.recall(("packages in", site), lambda: _listed(machine, site))


def _listed(machine: Machine, site: str) -> dict[str, tuple[str, ...]]:
    table: dict[str, tuple[str, ...]] = {}
    for entry in machine.list(site) if machine.is_dir(site) else ():
        match = _INFO.match(entry)
        stem = match["name"] if match else entry[: -len(".egg-info")] if entry.endswith(".egg-info") else None
        if stem:
            name = normalised(stem)
            table[name] = (*table.get(name, ()), entry)
    return table


def base_sites(machine: Machine, venv: Venv) -> tuple[str, ...]:
    """Return the directories of the base interpreter's packages.

    Source: CPython's and Debian's site.py: under the prefix and under /usr/local, site-packages or dist-packages.
    """
    if venv.home is None or venv.version is None:
        return ()
    prefix = os.path.dirname(machine.realpath(venv.home))
    bases = ["/usr/local", prefix] if prefix == "/usr" else [prefix]
    places = [
        os.path.join(base, lib, python, kind)
        for base in bases
        for lib in ("lib", "lib64")
        for python in (f"python{venv.version}", "python3")
        for kind in ("site-packages", "dist-packages")
    ]
    real = (machine.realpath(place) for place in places if machine.is_dir(place))
    return tuple(dict.fromkeys(real))


def read(machine: Machine, site: str, info: str, is_own: bool = True) -> Distribution:
    """Read one distribution from its metadata directory in a directory of packages.

    Distributions of the system may lack the list of their files; the environment's own may not.
    """
    return machine.recall(("distribution", site, info, is_own), lambda: _read(machine, site, info, is_own))


def _read(machine: Machine, site: str, info: str, is_own: bool) -> Distribution:
    directory = os.path.join(site, info)
    names = machine.list(directory) if machine.is_dir(directory) else ()
    direct = _direct_url(machine, directory)
    files = _record(machine, directory) if "RECORD" in names else ()
    lost = [f"{info}/{name}" for name in ("METADATA", "RECORD") if is_own and name not in names]
    tops = dict.fromkeys(path.split("/", 1)[0] for path in files)
    lost += [top for top in tops if top not in ("..", "__pycache__") and not machine.exists(os.path.join(site, top))]
    vcs, kind = direct.get("vcs_info"), direct.get("dir_info")
    match = _INFO.match(info)
    return Distribution(
        normalised(match["name"] if match else info.rpartition(".")[0]),
        version_of(machine, site, info),
        directory,
        direct.get("url"),
        vcs.get("commit_id") if isinstance(vcs, dict) else None,
        bool(isinstance(kind, dict) and kind.get("editable")),
        _built_commit(machine, site, files),
        _requires(machine, directory) if "METADATA" in names else (),
        tuple(lost),
    )


def version_of(machine: Machine, site: str, info: str) -> str:
    """Return the version of a distribution by the name of its metadata directory, or by what lies in it."""
    match = _INFO.match(info)
    if match:
        return match["version"]
    path = os.path.join(site, info, "PKG-INFO")
    found = re.search(r"(?m)^Version: (\S+)", machine.text(path)) if machine.is_file(path) else None
    return found[1] if found else "0"


def _direct_url(machine: Machine, directory: str) -> dict[str, Any]:
    try:
        value = codec.plain(machine.text(os.path.join(directory, "direct_url.json")))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _record(machine: Machine, directory: str) -> tuple[str, ...]:
    import csv

    lines = machine.text(os.path.join(directory, "RECORD"), RECORD_BYTES).splitlines()
    return tuple(row[0] for row in csv.reader(lines) if row)


def _requires(machine: Machine, directory: str) -> tuple[str, ...]:
    head = machine.text(os.path.join(directory, "METADATA")).partition("\n\n")[0]
    return tuple(line.partition(":")[2].strip() for line in head.splitlines() if line.startswith("Requires-Dist:"))


def _built_commit(machine: Machine, site: str, files: tuple[str, ...]) -> Optional[str]:
    """Return the commit in a package's _build_meta.py, which is parsed, not run.

    Source: FlashInfer, build_backend.py; `__git_version__` in older ones.
    """
    for path in files:
        if re.fullmatch(r"[^/]+/_build_meta\.py", path) and machine.is_file(os.path.join(site, path)):
            names = _constants(machine.text(os.path.join(site, path)))
            commit = names.get("__git_commit__", names.get("__git_version__"))
            return commit if commit and _COMMIT.match(commit) else None
    return None


def _constants(source: str) -> dict[str, str]:
    try:
        body = ast.parse(source).body
    except SyntaxError:
        return {}
    return {
        target.id: node.value.value
        for node in body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
