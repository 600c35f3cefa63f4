"""The wheels of a directory that serves instead of the network: what pip would look for there and not find."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Callable, Optional

from k3env.errors import Refused
from k3env.k3.pins import normalised

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from k3env.node.machine import Machine
    from k3env.node.offline import Offline, Wheel, Wheelhouse

SHOWN = 6


def refuse_unfetched(offline: Offline, needed: Iterable[Requirement], python: Optional[str]) -> None:
    """Raise Refused for requirements that no wheel there meets, and for commits that no mirror there holds.

    `python` is the version that is installed for; None: it is not known yet.
    """
    from k3env.node.requirements import commit_of

    plain = []
    for item in needed:
        commit = commit_of(item)
        if commit is not None and item.url is not None:
            offline.require(item.url[len("git+") :].rpartition("@")[0], commit)
        elif item.url is None:
            plain.append(item)
    told = unfetched(offline, plain, python)
    if told:
        raise lacking(offline, told, python)


def lacking(offline: Offline, told: tuple[str, ...], python: Optional[str]) -> Refused:
    """Return the error of requirements that the directory does not meet."""
    what = shown(told)
    version = f" and Python {python}" if python else ""
    return Refused(
        f"{offline.directory} holds no wheel of {what}, and offline_dir lets nothing else be used",
        expected=f"all that is to be installed, for {offline.arch}{version}", found=f"nothing for {what}",
        remedy=offline.remedy(python), id="offline.missing",
    )  # fmt: skip


def shown(told: tuple[str, ...]) -> str:
    """Return requirements as a person reads them."""
    more = f" and {len(told) - SHOWN} more" if len(told) > SHOWN else ""
    return f"{', '.join(told[:SHOWN])}{more}"


def unfetched(
    offline: Offline,
    needed: Iterable[Requirement],
    python: Optional[str],
    installed: Optional[Mapping[str, str]] = None,
) -> tuple[str, ...]:
    """Return the requirements that no wheel for this node meets, with what is there of them.

    `installed` is what the environment sees without installing; None: that is not known, and then what only an image
    brings counts as brought. Repositories are git's.
    """
    houses = [house for name, house in offline.fetched.wheelhouses.items() if offline.serves(name)]
    wheels: dict[str, list[Wheel]] = {}
    for house in houses:
        for wheel in house.wheels:
            if python is None or _is_for(wheel.file, python):
                wheels.setdefault(normalised(wheel.name), []).append(wheel)
    found = []
    for item in needed:
        name = normalised(item.name)
        if item.url is not None or not _applies(item, offline.arch, python) or _is_brought(item, houses, installed):
            continue
        there = wheels.get(name, [])
        if not any(meets(item, wheel.version) for wheel in there):
            versions = ", ".join(sorted({wheel.version for wheel in there}))
            found.append(f"{item.name}{item.specifier}{f' (there: {versions})' if versions else ''}")
    return tuple(dict.fromkeys(found))


def required(read: Callable[[str], Optional[str]], files: Iterable[str]) -> tuple[Requirement, ...]:
    """Return what the first of these requirement files that is there asks for, with those that it names.

    Lines that are no requirement are pip's to complain of.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    from k3env.node import requirements

    todo, seen, found = [next((name for name in files if read(name) is not None), "")], set(), []
    while todo:
        name = todo.pop()
        text = read(name) if name and name not in seen else None
        seen.add(name)
        if text is None:
            continue
        for line in requirements.lines(text):
            try:
                found.append(Requirement(line))
            except InvalidRequirement:
                continue
        more = (other for kind, other in requirements.named(text) if kind == "requirement")
        todo += [posixpath.normpath(posixpath.join(posixpath.dirname(name), other)) for other in more]
    return tuple(found)


def read_in(machine: Machine, root: str) -> Callable[[str], Optional[str]]:
    """Return what reads files of a checkout; None for one that is not there."""

    def read(name: str) -> Optional[str]:
        path = os.path.join(root, name)
        return machine.text(path) if machine.is_file(path) else None

    return read


def meets(item: Requirement, version: Optional[str]) -> bool:
    """Return whether a version, if there is one, is what a requirement asks for; alphas and local ones count."""
    from packaging.version import InvalidVersion

    try:
        return version is not None and item.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _is_brought(item: Requirement, houses: list[Wheelhouse], installed: Optional[Mapping[str, str]]) -> bool:
    name = normalised(item.name)
    if installed is not None:
        return meets(item, installed.get(name))
    return any(name in house.image or name in house.missing for house in houses)


def _applies(item: Requirement, arch: str, python: Optional[str]) -> bool:
    if item.marker is None:
        return True
    around = {"platform_machine": arch, "sys_platform": "linux", "platform_system": "Linux", "extra": ""}
    if python is not None:
        around.update(python_version=python, python_full_version=f"{python}.0", implementation_version=f"{python}.0")
    return item.marker.evaluate(around)


def _is_for(file: str, python: str) -> bool:
    """Return whether a wheel is for a Python; a source is for every one. Source: PEP 425, PEP 427."""
    if not file.endswith(".whl"):
        return True
    number = python.replace(".", "")
    tags, abi = file[: -len(".whl")].split("-")[-3:-1]
    for tag in tags.split("."):
        if tag in ("py3", f"cp{number}", f"py{number}"):
            return True
        if "abi3" in abi.split(".") and tag.startswith("cp3") and tag[2:].isdigit() and int(tag[3:]) <= int(number[1:]):
            return True
    return False
