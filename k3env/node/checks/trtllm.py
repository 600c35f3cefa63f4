"""What TensorRT LLM's build must be."""

from __future__ import annotations

from typing import Optional

from k3env.k3 import platforms
from k3env.node.checks import check, fail, passed, skip
from k3env.node.facts import build as builds
from k3env.node.facts.build import Build
from k3env.node.facts.compiled import Bindings, Kernels, bindings, kernels
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile


@check("trtllm.built", builds.build, scope="node", severity="fail", contexts=("job", "image"))
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


@check("trtllm.kernels", kernels, scope="node", severity="fail", contexts=("job", "image"))
def holds_kernels(kernels: Optional[Kernels], profile: Profile) -> Finding:
    """The built library holds kernels of the architecture that it was asked for, by the library's own word."""
    if kernels is None:
        return skip("no build in this play, or no cuobjdump here")
    try:
        wanted = platforms.architectures(profile.gpu.arch)
    except ValueError as error:
        return fail(expected="a CUDA architecture", found=str(error), remedy="set trtllm_arch to 103-real or 100-real")
    # 100 and 103 are compiled for their family: a kernel of 100f runs on both.
    family = {"100", "103"} if wanted & {"100", "103"} else wanted
    if not set(kernels.architectures) & (wanted | family):
        return fail(
            expected=f"kernels of sm_{'/'.join(sorted(wanted))}",
            found=" ".join(f"sm_{arch}" for arch in kernels.architectures) or "none",
            remedy="build again with --clean: run the tag `build` after removing cpp/build",
            subject=kernels.library,
        )
    return passed(" ".join(f"sm_{arch}" for arch in kernels.architectures))


@check("trtllm.bindings", bindings, scope="node", severity="fail", contexts=("job", "image"))
def one_module(bindings: Optional[Bindings], profile: Profile) -> Finding:
    """There is one compiled module of TensorRT LLM, not one more of an earlier Python."""
    if bindings is None:
        return skip("no checkout in this play")
    if len(bindings.names) != 1:
        first, *_ = (*bindings.names, "")
        return fail(
            expected="one tensorrt_llm/bindings.*.so",
            found=", ".join(bindings.names) or "none",
            remedy=f"remove those of another Python, such as {first}" if bindings.names else "run the tag `build`",
            subject=profile.paths.repo or "",
        )
    return passed(bindings.names[0])
