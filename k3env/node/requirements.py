"""Requirements: what pip is asked for, and whether what is installed meets it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Callable, Optional

from k3env.k3.pins import normalised

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from k3env.node.facts.packages import Distribution
    from k3env.node.facts.venv import Venv
    from k3env.node.machine import Machine

_VCS = re.compile(r"(git|hg|svn|bzr)\+")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_EGG = re.compile(r"#(?:.*&)?egg=([A-Za-z0-9][A-Za-z0-9._-]*)")
_PINNED = re.compile(r"git\+.+@([0-9a-f]{40})(?:#.*)?")


def parse(text: str) -> Requirement:
    """Read a requirement.

    Raises ValueError for what pip does not take, and for a repository that is not pinned by a full commit.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        needed = Requirement(text)
    except InvalidRequirement as error:
        raise ValueError(f"{text!r} is no requirement: {str(error).splitlines()[0]}") from None
    if _VCS.match(needed.url or "") and commit_of(needed) is None:
        raise ValueError(
            f"{needed.name}: pin the repository by all 40 hexadecimal digits of a commit, git+URL@COMMIT; "
            f"found {needed.url!r}"
        )
    return needed


def lines(text: str) -> tuple[str, ...]:
    """Return the requirements that a requirements file lists: no comments, no options, continued lines joined.

    Source: pip, requirements file format.
    """
    found = []
    for line in re.sub(r"\\\r?\n", "", text).splitlines():
        plain = re.sub(r"(?:^|\s)#.*", "", line).strip()
        # Options of one requirement, such as --hash, stand after it.
        plain = re.split(r"\s+-{1,2}[A-Za-z]", plain)[0]
        if plain and not plain.startswith("-"):
            found.append(plain)
    return tuple(found)


def named(text: str) -> tuple[tuple[str, str], ...]:
    """Return the files that a requirements file names, each as "requirement" or "constraint" with its path there."""
    kinds = {"-r": "requirement", "--requirement": "requirement", "-c": "constraint", "--constraint": "constraint"}
    found = re.findall(r"(?m)^[ \t]*(-r|-c|--requirement|--constraint)[ \t=]+(\S+)", re.sub(r"\\\r?\n", "", text))
    return tuple((kinds[option], path) for option, path in found)


def name_of(line: str) -> Optional[str]:
    """Return the name that a line of a requirements file requires, as indexes compare it; None: it says none."""
    match = _EGG.search(line) if "://" in line.partition("@")[0] else _NAME.match(line)
    return normalised(match[1] if match.re is _EGG else match[0]) if match else None


def line_of(machine: Machine, text: str, name: str, python: Optional[str] = None) -> Optional[str]:
    """Return the line of a requirements file that requires a package here; None where none does.

    One and the same package may stand there several times, each with a marker. `python`: the version it is for.
    """
    here = (line for line in lines(text) if name_of(line) == name and _holds(machine, line, python))
    return next(here, None)


def _holds(machine: Machine, line: str, python: Optional[str]) -> bool:
    if ";" not in line:
        return True
    from packaging.requirements import InvalidRequirement, Requirement

    try:
        marker = Requirement(line).marker
    except InvalidRequirement:
        return True  # Told where it is judged.
    around = {"sys_platform": "linux", "platform_system": "Linux", "os_name": "posix", "extra": ""}
    around["platform_machine"] = machine.architecture()
    if python is not None:
        around.update(python_version=python, python_full_version=f"{python}.0")
    return marker is None or marker.evaluate(around)


def commit_of(needed: Requirement) -> Optional[str]:
    """Return the commit that a requirement pins, or None for one that is no repository."""
    match = _PINNED.fullmatch(needed.url or "")
    return match[1] if match else None


def described(needed: Requirement) -> str:
    """Return what a requirement asks for, for people."""
    commit = commit_of(needed)
    return f"commit {commit}" if commit else needed.url or str(needed.specifier) or "any version"


def for_pip(needed: Requirement) -> str:
    """Return a requirement as every pip takes it: those before 24.1 refuse git+file:///PATH, which has no host."""
    return str(needed).replace("@ git+file:///", "@ git+file://localhost/", 1)


def applies(needed: Requirement, venv: Venv) -> bool:
    """Return whether a requirement's marker holds in an environment; no marker always does."""
    return needed.marker is None or needed.marker.evaluate(dict(_surroundings(venv)))


def shortcoming(needed: Requirement, found: Optional[Distribution]) -> Optional[str]:
    """Return how an installed distribution falls short of a requirement, or None.

    A commit is proven by direct_url.json, else by the build metadata, never by a version number.
    """
    if found is None:
        return "absent"
    if found.lost:
        return f"{found.origin}, without {', '.join(found.lost[:3])}"
    if needed.url is not None:
        commit = commit_of(needed)
        proven = found.url == needed.url if commit is None else commit == (found.commit or found.built_commit)
        return None if proven else found.origin
    return None if _fits(needed, found.version) else found.origin


def unmet(
    declared: tuple[str, ...], extras: frozenset[str], version_of: Callable[[str], Optional[str]], venv: Venv
) -> tuple[str, ...]:
    """Return those declared requirements, with these extras, that installed versions don't meet, without markers."""
    from packaging.requirements import Requirement

    around = _surroundings(venv)
    missing = []
    for text in declared:
        needed = Requirement(text)
        marker, needed.marker = needed.marker, None
        if marker is not None and not any(marker.evaluate({**around, "extra": extra}) for extra in extras or {""}):
            continue
        version = version_of(normalised(needed.name))
        if version is None or not _fits(needed, version):
            missing.append(str(needed))
    return tuple(missing)


def _fits(needed: Requirement, version: str) -> bool:
    """Return whether a version meets a requirement; images bring alphas and local versions, which must count."""
    from packaging.version import InvalidVersion

    try:
        return needed.specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _surroundings(venv: Venv) -> dict[str, str]:
    """Return what markers are compared with in an environment, where that differs from this process."""
    full = venv.full_version or f"{venv.version}.0"
    return {"python_version": venv.version or "", "python_full_version": full, "implementation_version": full}
