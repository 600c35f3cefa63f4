"""pip in an environment: one road for every module that installs."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Callable, Optional

from k3env.errors import Refused, TaskFailed
from k3env.k3.pins import CUBIN, JIT_CACHE, is_protected, normalised, unlike_flashinfer
from k3env.node import manifest
from k3env.node.container import wrap
from k3env.node.modules import _steps
from k3env.node.modules._parameters import NETRC, has_credentials
from k3env.protocol.container import Container

if TYPE_CHECKING:
    from k3env.node.facts.packages import Sites
    from k3env.node.facts.venv import Venv
    from k3env.node.machine import Machine

ENVIRONMENT = {
    "LC_ALL": "C.UTF-8",
    "PYTHONNOUSERSITE": "1",
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PIP_NO_INPUT": "1",
    "PIP_PROGRESS_BAR": "off",
    "GIT_TERMINAL_PROMPT": "0",
}
"""English messages, no question, and nothing of ~/.local, which a mounted home would leak into an image."""
INDEXES = ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS")
REPORTS_SINCE = (22, 2)
"""The pip that can say what it would do. Source: pip's changelog, 22.2."""
_ASK_S = 300.0
_ASK = (
    "import json; from importlib.metadata import distributions as d;"
    "print(json.dumps({str(i.metadata['Name']): i.version for i in reversed(list(d()))}))"
)


@dataclass(frozen=True)
class Pip:
    """pip of one environment."""

    machine: Machine
    venv: Venv
    root: str
    """The checkout, or the environment itself: where logs go, and what a container sees."""
    container: Container
    environment: Mapping[str, str]
    inactivity_s: float
    find_links: tuple[str, ...] = ()
    """More places with wheels, which came beforehand."""

    def install(self, title: str, *arguments: str, cwd: Optional[str] = None) -> None:
        """Install.

        Raises TaskFailed with the log's path, its tail, and what it means.
        """
        _steps.take(self.machine, self._step(title, ("install", *self._places(), *arguments), cwd))

    def resolution(self, title: str, *arguments: str, cwd: Optional[str] = None) -> dict[str, str]:
        """Return what an installation would install, name to version, without doing it.

        Raises TaskFailed as an installation does.
        """
        report = os.path.join(self.root, manifest.DIRECTORY, f"resolution-{os.getpid()}.json")
        self.machine.make(os.path.dirname(report))
        try:
            words = ("install", "--dry-run", "--report", report, *self._places(), *arguments)
            _steps.take(self.machine, self._step(title, words, cwd))
            installs = json.loads(self.machine.read(report, 1 << 28))["install"]
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(report)
        return {normalised(item["metadata"]["name"]): str(item["metadata"]["version"]) for item in installs}

    def can_resolve(self, sites: Sites) -> bool:
        """Return whether this pip can say what it would do."""
        numbers = (sites.version("pip") or "0").split(".")[:2]
        return tuple(int(number) for number in numbers if number.isdigit()) >= REPORTS_SINCE

    def versions_in_image(self) -> dict[str, str]:
        """Return the versions that the environment sees inside the image.

        Raises TaskFailed if that can't be had.
        """
        argv = self._argv(("-I", "-c", _ASK))
        done = self.machine.run(argv, timeout_s=_ASK_S, environment=self._all())
        lines = done.text.splitlines()
        if not done.ok or not lines:
            step = _steps.Step("ask the image for its packages", argv, "build")
            raise _steps.failed(self.machine, step, done)
        return {normalised(name): version for name, version in json.loads(lines[-1]).items()}

    def see_image(self) -> None:
        """Make known what the image has installed, if anything depends on that.

        Raises TaskFailed if that can't be had.
        """
        if self.container.engine != "none" and self.venv.system_site_packages:
            see_image(self.machine, self.root, self.container, self._all())

    def _places(self) -> tuple[str, ...]:
        return tuple(word for path in self.find_links for word in ("--find-links", path))

    def _step(self, title: str, arguments: tuple[str, ...], cwd: Optional[str]) -> _steps.Step:
        return _steps.Step(
            title=title,
            argv=self._argv(("-u", "-m", "pip", *arguments)),
            tool="pip",
            cwd=cwd or self.root,
            environment=self._all(),
            inactivity_s=self.inactivity_s,
            logs=manifest.logs(self.root),
        )

    def _argv(self, arguments: tuple[str, ...]) -> tuple[str, ...]:
        return wrap(
            self.container,
            (self.venv.python, *arguments),
            repo=self.root,
            environment=self._all(),
            name=self.machine.name,
        )

    def _all(self) -> dict[str, str]:
        """Return what is added to pip's environment.

        Raises Refused for a password in it that pip would show to everybody.
        """
        refuse_credentials(self.machine, self.environment)
        return {**ENVIRONMENT, **self.environment}


def refuse_credentials(machine: Machine, environment: Mapping[str, str]) -> None:
    """Raise Refused for a password in pip's environment that pip would show to everybody."""
    merged = {**machine.environment, **environment}
    shown = next((name for name in INDEXES if has_credentials(merged.get(name, ""))), None)
    if shown is not None:
        raise Refused(
            f"{shown} holds a name and password: {NETRC}", expected="a URL without them", found=f"one in {shown}",
            remedy="put them into ~/.netrc, or let $NETRC name such a file", id="pip.credentials",
        )  # fmt: skip


def see_image(machine: Machine, root: str, container: Container, environment: Mapping[str, str]) -> None:
    """Ask an image for its packages, unless that was done before.

    Raises TaskFailed if that can't be had.
    """
    from k3env.node.facts import image_packages

    try:
        image_packages.ensure(machine, root, container, environment)
    except image_packages.NoAnswer as error:
        step = _steps.Step("ask the image for its packages", error.done.argv, "build")
        raise _steps.failed(machine, step, error.done) from None


def refuse_moves(moves: Mapping[str, str], version_of: Callable[[str], Optional[str]]) -> None:
    """Raise Refused if an installation would move a protected package that is there in another version."""
    moved = [
        f"{name} {before} → {after}"
        for name, after in sorted(moves.items())
        if is_protected(name) and (before := version_of(name)) is not None and before != after
    ]
    if moved:
        raise Refused(
            f"installing would move what the image brings: {'; '.join(moved)}",
            expected="torch, triton, CUDA, CuTeDSL and TensorRT packages stay as they are",
            found="; ".join(moved),
            remedy="set no_deps: true, or ask for a version that goes with what is installed; or use an image that "
            "brings the other version",
            id="pip.protected",
        )


def refuse_unlike(
    venv: Venv, flashinfer: str, moves: Mapping[str, str], version_of: Callable[[str], Optional[str]]
) -> None:
    """Raise Refused if FlashInfer would stand beside companions of another version: its import would raise."""
    there = {name: moves.get(name) or version_of(name) for name in (CUBIN, JIT_CACHE)}
    versions = {name: version for name, version in there.items() if version}
    wrong = unlike_flashinfer(flashinfer, versions)
    if wrong:
        found = ", ".join(f"{name} {versions[name]}" for name in wrong)
        raise Refused(
            f"FlashInfer {flashinfer} would not be imported beside {found}",
            expected=f"{' and '.join(wrong)} {flashinfer}, or none", found=found,
            remedy=f"{venv.python} -m pip install --no-deps {' '.join(f'{name}=={flashinfer}' for name in wrong)}; "
            f"or, where no image brings them: {venv.python} -m pip uninstall {' '.join(wrong)}",
            id="pip.flashinfer_trio",
        )  # fmt: skip


def refuse_several(sites: Sites, name: str) -> None:
    """Raise Refused if a distribution has several metadata directories: which one is true, nobody can say."""
    several = sites.several(name)
    if several:
        places = " ".join(os.path.join(sites.venv.site, info) for info in several)
        raise Refused(
            f"{name} is installed {len(several)} times over: an installation was cut off",
            expected="one metadata directory",
            found=", ".join(several),
            remedy=f"rm -r {places}, and run this again",
            id="pip.several",
        )


def usable(venv: Optional[Venv], where: str) -> Venv:
    """Return an environment that pip can run in.

    Raises Refused, naming what is wrong with it.
    """
    problem = "absent" if venv is None else venv.unfinished or venv.dangling
    if venv is None or problem:
        raise Refused(
            f"the environment {where} can't be installed into: {problem}",
            expected="a virtual environment whose Python starts", found=str(problem),
            remedy="let trtllm_build mend or make it: run the tag `build` first", id="venv.present",
        )  # fmt: skip
    return venv


def record_versions(machine: Machine, repo: str, sites: Sites) -> None:
    """Bring a checkout's manifest up to date with the versions that are installed now, if there is one."""
    import dataclasses

    from k3env.k3.pins import RECORDED

    made = manifest.read(machine, repo)
    if made is not None:
        versions = sites.versions(RECORDED)
        if versions != made.versions:
            manifest.write(machine, repo, dataclasses.replace(made, versions=versions))


def cannot_find_python(error: OSError) -> TaskFailed:
    """Return the error of a node without a base interpreter."""
    return TaskFailed(
        f"there is no Python to build with: {error}",
        expected="python3 in PATH, outside of any virtual environment", found=str(error),
        remedy="install python3, or name an image in `container`", id="venv.no_python",
    )  # fmt: skip
