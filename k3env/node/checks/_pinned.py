"""venv.requirements: torch, triton and their kin are those that the checkout was written for."""

from __future__ import annotations

from typing import Optional

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts.pinned import Pinned, pinned
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile


@check("venv.requirements", pinned, scope="node", severity="fail", contexts=("job", "image"))
def as_required(pinned: Optional[Pinned], profile: Profile) -> Finding:
    """torch, triton, transformers and the CuTe DSL are of the versions that requirements.txt names."""
    from packaging.requirements import InvalidRequirement, Requirement

    if pinned is None:
        return skip("no checkout, or no whole environment, in this play")
    if not pinned.requirements:
        return skip("requirements.txt names none of them")
    wrong, unseen, odd = [], [], []
    for name, line in pinned.requirements.items():
        try:
            needed = Requirement(line)
        except InvalidRequirement:
            odd.append(line)
            continue
        version = pinned.versions.get(name)
        if version is None and pinned.base_unseen:
            unseen.append(name)
        # An image brings alphas and local versions, which count.
        elif version is None or not needed.specifier.contains(version, prereleases=True):
            wrong.append((line, f"{name} {version or 'absent'}"))
    if wrong:
        return fail(
            expected=", ".join(line for line, _ in wrong),
            found=", ".join(found for _, found in wrong),
            remedy="use the image that jenkins/current_image_tags.properties names, or run the tag `build`",
            subject=pinned.venv,
        )
    if odd:
        return unknown(f"lines that are no requirements: {', '.join(odd)}")
    if unseen:
        return unknown(f"{', '.join(unseen)}: the image's packages are not seen from outside")
    return passed(", ".join(f"{name} {pinned.versions[name]}" for name in pinned.requirements))
