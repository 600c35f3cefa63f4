"""The environment that the jobs run in: it starts, and holds exactly what is pinned."""

from __future__ import annotations

from typing import Optional

from k3env.k3 import build as k3
from k3env.k3.pins import EXTRAS, FLASHINFER, FLASHINFER_ENVIRONMENT, flashinfer_requirement
from k3env.node import requirements
from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.checks._conflicts import UNSEEN, consistent, entry_points, fla_owner, shadowed, trio
from k3env.node.checks._imports import loads
from k3env.node.checks._pinned import as_required
from k3env.node.facts import checkout as checkouts
from k3env.node.facts import packages as installed
from k3env.node.facts import venv as venvs
from k3env.node.facts.checkout import Checkout
from k3env.node.facts.packages import Packages
from k3env.node.facts.venv import Start, Venv
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile

__all__ = ("as_required", "consistent", "entry_points", "fla_owner", "loads", "shadowed", "trio")

NO_CHECKOUT = "no checkout in this play"
_BUILD = "run the tag `build`: it makes or mends the environment"
_PIP = "{venv}/bin/python -m pip install"
_FLASHINFER_PIP = (
    f"{' '.join(map('='.join, FLASHINFER_ENVIRONMENT.items()))} {{venv}}/bin/python -u -m pip install "
    "--force-reinstall --no-deps --no-build-isolation --no-cache-dir"
)


@check("venv.present", venvs.venv, venvs.start, scope="node", severity="fail", contexts=("job", "image"))
def present(venv: Optional[Venv], start: Optional[Start], profile: Profile) -> Finding:
    """The checkout's virtual environment is whole, and its Python starts."""
    if _is_elsewhere(profile):
        return skip(NO_CHECKOUT)
    expected = "a whole virtual environment whose Python starts"
    if venv is None:
        return fail(expected=expected, found=f"none in {profile.paths.venv or profile.paths.repo}", remedy=_BUILD)
    broken = venv.unfinished or venv.dangling
    if broken is None and start is not None and start.problem:
        broken = f"its Python does not start: {start.problem}"
    if broken:
        return fail(expected=expected, found=f"{venv.path}: {broken}", remedy=_BUILD, subject=venv.path)
    version = start.version if start is not None else f"{venv.version}, not started: it lies in an image"
    return passed(f"{venv.path}, Python {version}")


@check("venv.pins", installed.packages, scope="node", severity="fail", contexts=("job", "image"))
def pins(packages: Optional[Packages], profile: Profile) -> Finding:
    """TensorRT LLM is imported from its checkout; fla-core and einops are there, at the pinned versions."""
    if _is_elsewhere(profile):
        return skip(NO_CHECKOUT)
    wanted = dict(zip(EXTRAS, (profile.pins.fla_core_version, profile.pins.einops_version)))
    if packages is None:
        return fail(expected=_expected(wanted), found="no whole environment", remedy=_BUILD)
    wrong = [*_checkout_problem(packages, profile.paths.repo)]
    unseen = []
    for name, version in wanted.items():
        needed = requirements.parse(f"{name}=={version}" if version else name)
        problem = _several(packages, name) or requirements.shortcoming(needed, packages.found.get(name))
        if problem == "absent" and packages.base_unseen:
            unseen.append(name)
        elif problem:
            again = " --force-reinstall" if name in packages.found else ""
            wrong.append((str(needed), f"{name} {problem}", f"{_pip(packages)}{again} --no-deps '{needed}'"))
    if wrong:
        expected, found, remedy = ("; ".join(column) for column in zip(*wrong))
        return fail(expected=expected, found=found, remedy=remedy, subject=packages.venv)
    if unseen:
        return unknown(f"{', '.join(unseen)}: not in {packages.venv}; {UNSEEN}")
    return passed(
        ", ".join(f"{name} {packages.found[name].version}" for name in (k3.PACKAGE, *EXTRAS) if name in packages.found)
    )


@check(
    "venv.flashinfer", installed.packages, checkouts.checkout, scope="node", severity="fail", contexts=("job", "image")
)
def flashinfer(packages: Optional[Packages], checkout: Optional[Checkout], profile: Profile) -> Finding:
    """FlashInfer is the one that this checkout asks for: a commit by its proof, never by its version."""
    step = profile.pins.flashinfer_step
    if _is_elsewhere(profile):
        return skip(NO_CHECKOUT)
    if step == "none":
        return skip("flashinfer_step is none")
    if step == "auto" and (checkout is None or not checkout.asks_for_fork):
        return skip("the checkout asks for no FlashInfer of its own")
    if step == "pin":
        text = checkout.flashinfer_pin if checkout is not None else None
        if text is None:
            return skip("requirements.txt pins no FlashInfer")
        command = _PIP
    else:
        if profile.pins.flashinfer_commit is None:
            return unknown("flashinfer_commit is not set")
        text = flashinfer_requirement(commit=profile.pins.flashinfer_commit)
        command = _FLASHINFER_PIP
    needed = requirements.parse(text)
    expected = f"{FLASHINFER} {requirements.described(needed)}"
    if packages is None:
        return fail(expected=expected, found="no whole environment", remedy=_BUILD)
    problem = _several(packages, FLASHINFER) or requirements.shortcoming(needed, packages.found.get(FLASHINFER))
    if problem is None:
        return passed(packages.found[FLASHINFER].origin, _other_commit(checkout, profile))
    if problem == "absent" and packages.base_unseen:
        return unknown(f"{FLASHINFER}: not in {packages.venv}; {UNSEEN}")
    remedy = f"run the tag `deps`, or, with your mirror's URL: {command.format(venv=packages.venv)} '{text}'"
    return fail(expected=expected, found=f"{FLASHINFER} {problem}", remedy=remedy, subject=packages.venv)


def _other_commit(checkout: Optional[Checkout], profile: Profile) -> str:
    """Return a note where the checkout's guide names another commit than the pinned one."""
    named, pinned = checkout.fork_commit if checkout is not None else None, profile.pins.flashinfer_commit
    return f"the checkout's guide names {named}" if named and pinned and not pinned.startswith(named) else ""


def _is_elsewhere(profile: Profile) -> bool:
    return profile.paths.repo is None and profile.paths.venv is None


def _expected(wanted: dict[str, Optional[str]]) -> str:
    return ", ".join(f"{name} {version or ''}".strip() for name, version in ((k3.PACKAGE, None), *wanted.items()))


def _checkout_problem(packages: Packages, repo: Optional[str]) -> tuple[tuple[str, str, str], ...]:
    """Return what is expected, found and to be done where TensorRT LLM is not imported from its checkout."""
    if repo is None:
        return ()
    found = packages.found.get(k3.PACKAGE)
    problem = _several(packages, k3.PACKAGE) or ("absent" if found is None else None)
    if problem is None and found is not None:
        problem = f"without {', '.join(found.lost[:3])}" if found.lost else None
        problem = problem or (None if found.editable_from(repo) else found.origin)
    if problem is None:
        return ()
    return (
        (f"{k3.PACKAGE}, editable from {repo}", f"{k3.PACKAGE} {problem}", f"{_pip(packages)} --no-deps -e {repo}"),
    )


def _several(packages: Packages, name: str) -> Optional[str]:
    infos = packages.several.get(name)
    return f"twice over: {', '.join(infos)}" if infos else None


def _pip(packages: Packages) -> str:
    return _PIP.format(venv=packages.venv)
