"""Which GPUs, and how many, Kimi K3 needs. The checks are gpu.py's."""

from __future__ import annotations

from typing import Optional, Union

from k3env.k3 import platforms
from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.checks._driver import names_of, shown
from k3env.node.checks._platform import kind
from k3env.node.facts.build import Build, build
from k3env.node.facts.gpu import PCI_DEVICES, PROC_GPUS, Driver, Gpu, Gpus, driver, gpus
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Profile


@check("gpu.platform", driver, gpus, scope="node", severity="warn")
def known_platform(driver: Driver, gpus: Gpus, profile: Profile) -> Finding:
    """The machine is one that the recipes of Kimi K3 were seen to run on."""
    found = kind(driver, gpus)
    if isinstance(found, Unreadable):
        return unknown(found.reason)
    validated = ", ".join(item.name for item in platforms.KINDS if item.is_validated)
    if found is None:
        return fail(expected=validated, found="another machine", remedy="see gpu.cc and gpu.count")
    if not found.is_validated:
        remedy = "expect to find out for yourself, and set gpus_per_node to its number of GPUs"
        return fail(expected=validated, found=f"{found.name}, on which nobody has validated the recipes", remedy=remedy)
    return passed(found.name, f"recipes: {', '.join(found.recipes)}")


@check("gpu.count", driver, gpus, scope="node", severity="fail")
def count(driver: Driver, gpus: Gpus, profile: Profile) -> Finding:
    """NVML, the kernel driver and the PCI bus show the same GPUs, as many as the node must have."""
    wanted = profile.gpu.count
    answers = _by_source(gpus)
    seen = {source: ids for source, ids in answers.items() if not isinstance(ids, Unreadable)}
    found = ", ".join(f"{source} {len(ids)}" for source, ids in seen.items())
    everywhere = frozenset[str]().union(*seen.values())
    lacking = {source: sorted(everywhere - ids) for source, ids in seen.items() if everywhere - ids}
    if lacking:
        missing = "; ".join(f"{source} lacks {' '.join(ids)}" for source, ids in lacking.items())
        return fail(expected=_gpus(wanted), found=f"{found}: {missing}", remedy=_remedy(lacking, gpus.reader))
    if seen and len(everywhere) != wanted:
        return fail(
            expected=_gpus(wanted),
            found=f"{found}: {' '.join(sorted(everywhere)) or 'none'}",
            remedy=_count_remedy(kind(driver, gpus), len(everywhere)),
        )
    silent = [ids.reason for ids in answers.values() if isinstance(ids, Unreadable)]
    if silent:
        return unknown(f"not every source could be read: {'; '.join(silent)}")
    return passed(_gpus(wanted))


@check("gpu.cc", gpus, scope="node", severity="fail")
def compute_capability(gpus: Gpus, profile: Profile) -> Finding:
    """Every GPU is one that Kimi K3 runs on, and the one that TensorRT LLM is built for."""
    if isinstance(gpus.nvml, Unreadable):
        return unknown(f"GPUs can't be asked: {gpus.nvml.reason}")
    try:
        built = platforms.architectures(profile.gpu.arch)
    except ValueError as error:
        return fail(expected="a CUDA architecture", found=str(error), remedy="set trtllm_arch to 103-real or 100-real")
    wanted = " or ".join(shown(item.capability) for item in platforms.supported() if _fits(item, built))
    expected = f"{wanted or 'a supported compute capability'}, for a build of {profile.gpu.arch}"
    if not gpus.nvml:
        return fail(expected=expected, found="no GPU", remedy="see gpu.count")
    for gpu in gpus.nvml:
        remedy = _misfit(gpu, built)
        if remedy is not None:
            alike = [item for item in gpus.nvml if item.capability == gpu.capability]
            return fail(expected=expected, found=names_of(alike), remedy=remedy)
    if any(gpu.capability is None for gpu in gpus.nvml):
        nameless = [gpu for gpu in gpus.nvml if gpu.capability is None]
        return unknown(f"no compute capability of {names_of(nameless)}")
    return passed(", ".join(sorted({shown(gpu.capability) for gpu in gpus.nvml if gpu.capability})))


@check("gpu.arch_built", gpus, build, scope="node", severity="fail", contexts=("job",))
def built_for(gpus: Gpus, build: Optional[Build], profile: Profile) -> Finding:
    """TensorRT LLM in the checkout was built for these GPUs."""
    if profile.paths.repo is None:
        return skip("no checkout in this play")
    if build is None or (build.cmake_arch is None and build.manifest is None):
        return skip(f"no build in {profile.paths.repo}: see trtllm.built")
    told = build.cmake_arch or (build.manifest.arch if build.manifest else "")
    try:
        built = platforms.architectures(told)
    except ValueError:
        return unknown(f"what the build is for can't be told: {told!r}")
    if isinstance(gpus.nvml, Unreadable):
        return unknown(f"GPUs can't be asked: {gpus.nvml.reason}")
    if not gpus.nvml:
        return skip("no GPU to build for: see gpu.count")
    for gpu in gpus.nvml:
        arch = None if gpu.capability is None else _arch(gpu.capability)
        if arch is not None and platforms.digits(arch) not in built:
            return fail(
                expected=f"a build for {arch}",
                found=f"one for {told}",
                remedy=f"set trtllm_arch to {arch} and build again: run the tag `build`",
                subject=profile.paths.repo,
            )
    nameless = [gpu for gpu in gpus.nvml if gpu.capability is None]
    return unknown(f"no compute capability of {names_of(nameless)}") if nameless else passed(told)


def _by_source(gpus: Gpus) -> dict[str, Union[frozenset[str], Unreadable]]:
    """Return the bus ids by the name of who said so."""
    seen = gpus.nvml if isinstance(gpus.nvml, Unreadable) else tuple(gpu.bus_id for gpu in gpus.nvml)
    answers = {gpus.reader: seen, PROC_GPUS: gpus.proc, PCI_DEVICES: gpus.pci}
    return {name: ids if isinstance(ids, Unreadable) else frozenset(ids) for name, ids in answers.items()}


def _remedy(lacking: dict[str, list[str]], reader: str) -> str:
    """Say what it means that a source lacks a GPU, beginning at the bus."""
    if PCI_DEVICES in lacking:
        return "the GPU fell off the bus: look for Xid 79 in the kernel log, then power-cycle the node"
    if PROC_GPUS in lacking:
        return "the driver does not drive that GPU: look for NVRM in the kernel log, then reset it or reboot"
    return f"{reader} can't open that GPU: see whether a container or cgroup masks its /dev/nvidia* node"


def _count_remedy(found: Union[platforms.Kind, Unreadable, None], count: int) -> str:
    """Say what it means that all agree on another number of GPUs than the site wants."""
    if isinstance(found, platforms.Kind) and found.gpus == count:
        return f"{found.name} has {count}: set gpus_per_node to {count}, if the job is meant to use them all"
    return "have the missing GPUs looked at, or set gpus_per_node to what this node has"


def _arch(capability: tuple[int, int]) -> str:
    platform = platforms.platform(capability)
    return f"{capability[0]}{capability[1]}-real" if platform is None else platform.arch


def _misfit(gpu: Gpu, built: frozenset[str]) -> Optional[str]:
    """Return what to do about a GPU that does not fit, or None; one of unknown capability does not speak."""
    if gpu.capability is None:
        return None
    platform = platforms.platform(gpu.capability)
    if platform is None or not platform.supported:
        return f"use B200, GB200, B300 or GB300: {shown(gpu.capability)} is not supported by this recipe"
    if _fits(platform, built):
        return None
    why = [platforms.MISMATCHES.get((gpu.capability, arch)) for arch in sorted(built)]
    told = "; ".join(reason for reason in why if reason)
    return f"set trtllm_arch to {platform.arch} and build again" + (f": {told}" if told else "")


def _fits(platform: platforms.Platform, built: frozenset[str]) -> bool:
    return platforms.digits(platform.arch) in built


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
