"""What TensorRT LLM's build must be."""

from __future__ import annotations

from typing import Optional

from k3env.node.checks import check, fail, passed, skip
from k3env.node.facts import build as builds
from k3env.node.facts.build import Build
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile


@check("trtllm.built", builds.build, scope="node", severity="fail", contexts=("job",))
def built(build: Optional[Build], profile: Profile) -> Finding:
    """The checkout holds a whole build of the pinned commit, for these GPUs."""
    if profile.paths.repo is None:
        return skip("no checkout in this play")
    commit, arch = profile.pins.trtllm_commit, profile.gpu.arch
    remedy = "run the tag `build`"
    if build is None:
        return fail(expected=f"a build for {arch}", found=f"no checkout at {profile.paths.repo}", remedy=remedy)
    image = profile.container.image if profile.container.engine != "none" else None
    changes = builds.differences(build, commit=commit, arch=arch, image=image)
    if changes:
        return fail(
            expected="; ".join(f"{change.what}: {change.after}" for change in changes),
            found="; ".join(f"{change.what}: {change.before}" for change in changes),
            remedy=remedy,
            subject=profile.paths.repo,
        )
    made = build.manifest
    return passed(f"commit {made.commit}, {made.arch}" if made is not None else None)
