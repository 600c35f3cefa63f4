"""venv.*: packages that must fit each other, and the image below."""

from __future__ import annotations

from typing import Optional

from k3env.k3.pins import CUBIN, FLASHINFER, JIT_CACHE, unlike_flashinfer
from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts.conflicts import (
    Companions,
    Scripts,
    Shadows,
    Unmet,
    companions,
    scripts,
    shadows,
    unmet,
)
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile

NO_VENV = "no whole environment; see venv.present"
NAMED = 5
UNSEEN = "what the image has installed is not known: the tag `build` asks it, once"
FLA, LARGE_FLA = "fla-core", "flash-linear-attention"


@check("venv.flashinfer_trio", companions, scope="node", severity="fail", contexts=("job", "image"))
def trio(companions: Optional[Companions], profile: Profile) -> Finding:
    """FlashInfer's cubins and its compiled kernels are of FlashInfer's own version: else its import raises."""
    if companions is None:
        return skip(NO_VENV)
    versions = companions.versions
    main = versions.get(FLASHINFER)
    if main is None:
        return skip(f"no {FLASHINFER} is seen from outside of the image")
    wrong = unlike_flashinfer(main, versions)
    if wrong:
        return fail(
            expected=f"{' and '.join(wrong)} {main}, as {FLASHINFER}",
            found=", ".join(f"{name} {versions[name]}" for name in wrong),
            remedy=f"{companions.venv}/bin/python -m pip uninstall {' '.join(wrong)}, or install {main} of them",
            subject=companions.venv,
        )
    others = [f"{name} {versions[name]}" for name in (CUBIN, JIT_CACHE) if name in versions]
    return passed(", ".join((f"{FLASHINFER} {main}", *others)))


@check("venv.fla_owner", companions, scope="node", severity="warn", contexts=("job", "image"))
def fla_owner(companions: Optional[Companions], profile: Profile) -> Finding:
    """The module `fla` belongs to one version: fla-core and flash-linear-attention share it."""
    if companions is None:
        return skip(NO_VENV)
    small, large = companions.versions.get(FLA), companions.versions.get(LARGE_FLA)
    if large is None:
        return passed(f"{FLA} {small}" if small else "nobody's")
    if small != large:
        return fail(
            expected=f"{FLA} and {LARGE_FLA} of one version, or {FLA} alone",
            found=f"{FLA} {small or 'absent'}, {LARGE_FLA} {large}",
            remedy=f"{companions.venv}/bin/python -m pip uninstall {LARGE_FLA}; then run the tag `deps`",
            subject=companions.venv,
        )
    return passed(f"{FLA} and {LARGE_FLA} {small}")


@check("venv.shadowed", shadows, scope="node", severity="fail", contexts=("job", "image"))
def shadowed(shadows: Optional[Shadows], profile: Profile) -> Finding:
    """Nothing in the environment hides what the image was built with: its torch is not PyPI's."""
    if shadows is None:
        return skip(NO_VENV)
    if not shadows.base_seen:
        return unknown(UNSEEN)
    other = {name: both for name, both in shadows.hidden.items() if both[0] != both[1]}
    if other:
        return fail(
            expected="torch, triton and their kin as the base has them",
            found=", ".join(f"{name} {here} over {below}" for name, (here, below) in sorted(other.items())[:NAMED]),
            remedy=f"{shadows.venv}/bin/python -m pip uninstall {' '.join(sorted(other))}",
            subject=shadows.venv,
        )
    return passed("nothing is hidden")


@check("venv.scripts", scripts, scope="node", severity="fail", contexts=("job", "image"))
def entry_points(scripts: Optional[Scripts], profile: Profile) -> Finding:
    """Entry points start the environment's own Python: those of a moved or copied one start another's."""
    if scripts is None:
        return skip(NO_VENV)
    if scripts.elsewhere:
        return fail(
            expected=f"entry points that start {scripts.venv}/bin/python",
            found=", ".join(f"{name} starts {path}" for name, path in scripts.elsewhere.items()),
            remedy="build at the path that jobs use: run the tag `build` after removing the environment",
            subject=scripts.venv,
        )
    return passed(" ".join(scripts.there) or "no entry points")


@check("venv.pip_check", unmet, scope="node", severity="warn", contexts=("job", "image"))
def consistent(unmet: Optional[Unmet], profile: Profile) -> Finding:
    """What the environment's packages require is there."""
    if unmet is None:
        return skip(NO_VENV)
    if unmet.unmet:
        told = [f"{name} requires {', '.join(lacking[:2])}" for name, lacking in sorted(unmet.unmet.items())]
        more = f" and {len(told) - NAMED} more" if len(told) > NAMED else ""
        if unmet.base_unseen:
            return skip(f"{UNSEEN}; of the environment's own {len(told)} need them")
        return fail(
            expected="what each package requires",
            found="; ".join(told[:NAMED]) + more,
            remedy=f"see {unmet.venv}/bin/python -m pip check; what --no-deps left out on purpose is no fault",
            subject=unmet.venv,
        )
    return passed(f"{unmet.packages} packages")
