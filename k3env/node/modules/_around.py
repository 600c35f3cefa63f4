"""What is around a module's commands: how the site reaches out, or the directory that serves instead of the network."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Callable, Optional, TypeVar

from k3env.errors import TaskFailed
from k3env.k3.pins import is_protected
from k3env.protocol import egress

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.node.offline import Offline
    from k3env.protocol.container import Container
    from k3env.protocol.finding import Finding

M = TypeVar("M", bound=Any)
_LACKING = ("pip.no_match", "pip.network", "git.transport", "git.network", "git.not_a_repository", "git.lfs_object")
"""What failures mean that are the directory's, where nothing else is used."""
_REPOSITORY = re.compile(r"clone of '([^']+)'|unable to access '([^']+)'")
_PACKAGE = re.compile(r"(?:found for|requirement) ((\w[\w.-]*)\S*)")


def around(machine: Machine, module: M) -> M:
    """Return a module whose commands have what they need around them, in its `environment` and its `container`.

    Raises Refused where its `offline` can't serve.
    """
    within = inside(machine, module.container, module.environment)
    if module.offline is None:
        return replace(module, container=within[0], environment=within[1])
    offline = opened(machine, module.offline)
    container = mounted(within[0], module.offline)
    return replace(module, container=container, environment={**offline.environment(), **within[1]})


def opened(machine: Machine, directory: str) -> Offline:
    """Return the directory that is used instead of the network.

    Raises Refused where it can't serve.
    """
    from k3env.node import offline

    return offline.use(machine, directory)


def inside(machine: Machine, container: Container, environment: Mapping[str, str]) -> tuple[Container, dict[str, str]]:
    """Return a container that sees the site's certificates, and an environment that tells it how to reach out."""
    if container.engine == "none":
        return container, dict(environment)
    told = {**egress.present(machine.environment), **environment}
    files = {told[name] for name in egress.FILES if told.get(name, "").startswith("/")}
    return mounted(container, *sorted(path for path in files if machine.is_file(path))), told


def mounted(container: Container, *paths: str) -> Container:
    """Return a container that sees these paths where they are outside, unless it has them mounted already."""
    targets = {mount.split(":")[1] for mount in container.mounts}
    more = tuple(f"{path}:{path}:ro" for path in dict.fromkeys(paths) if path not in targets)
    return container if container.engine == "none" else replace(container, mounts=(*container.mounts, *more))


@contextlib.contextmanager
def explained(
    machine: Machine, directory: Optional[str], python: Callable[[], Optional[str]] = lambda: None
) -> Iterator[None]:
    """Say of what fails because the directory does not hold it what that is, and which command fetches it."""
    try:
        yield
    except TaskFailed as error:
        found = error.finding
        if directory is not None and found.id == "git.ownership" and f"'{directory}/" in _said(found):
            raise _owned(machine, directory, found) from None
        if directory is None or not _lacks(found):
            raise
        advice = opened(machine, directory).remedy(python())
        package = _PACKAGE.search(found.found or "")
        if package and is_protected(package[2]):
            advice = f"use an image that brings it; or, {advice} --image-packages"
        what = package[1] if package else _named(found)
        raise TaskFailed(
            f"{what} is not in {directory}, and offline_dir lets nothing else be used",
            expected=f"{what} in {directory}", found=found.found, remedy=advice, id="offline.missing",
            evidence=found.evidence,
        ) from None  # fmt: skip


def _named(found: Finding) -> str:
    """Return what git looked for."""
    if found.id == "git.lfs_object":
        return "a file of Git LFS that the commit has"
    match = _REPOSITORY.search(_said(found))
    return f"the repository {match[1] or match[2]}" if match else "a repository that the checkout asks for"


def _lacks(found: Finding) -> bool:
    """Return whether a failure means that something is not there; a .gitmodules that is wrong is wrong anywhere."""
    if found.id == "git.submodule_url":
        return not any(words in (found.found or "") for words in ("No url found", "No submodule mapping"))
    return found.id in _LACKING


def _said(found: Finding) -> str:
    return "\n".join((found.found or "", *(item.excerpt for item in found.evidence)))


def _owned(machine: Machine, directory: str, found: Finding) -> TaskFailed:
    """Say once of all mirrors what git says of one after the other: they are not this user's."""
    import os
    import shlex

    mirrors = os.path.join(directory, "git")
    status = machine.stat(mirrors)
    owner = f"uid {status.st_uid}" if status is not None else "another user"
    trust = 'git config --global --add safe.directory "$m"'
    place = shlex.quote(mirrors)
    return TaskFailed(
        f"the mirrors in {directory} are {owner}'s, and git lets uid {os.geteuid()} read none of another user's",
        expected=f"mirrors of uid {os.geteuid()}, who builds", found=f"mirrors of {owner}",
        remedy=f"copy the directory as the user who builds, or chown -R {os.geteuid()} {place}; or, as that user: "
        f"find {place} -name '*.git' -prune | while read -r m; do {trust}; done",
        id="offline.owner", evidence=found.evidence,
    )  # fmt: skip
