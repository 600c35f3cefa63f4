"""What driver and GPUs must be for Kimi K3."""

from __future__ import annotations

import re
from typing import Optional, Union

from k3env.k3 import platforms
from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts.gpu import PCI_DEVICES, PROC_GPUS, Driver, Gpu, Gpus, driver, gpus
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Profile

NOT_LOADED = "no driver loaded"


@check("gpu.driver.loaded", driver, scope="node", severity="fail")
def driver_loaded(driver: Driver, profile: Profile) -> Finding:
    """The kernel has an NVIDIA driver loaded."""
    if driver.version is None:
        return fail(
            expected="a loaded NVIDIA driver",
            found=NOT_LOADED,
            remedy=f"install the NVIDIA driver {profile.gpu.driver_min} or later, or load it: modprobe nvidia",
        )
    return passed(driver.version)


@check("gpu.driver.version", driver, scope="node", severity="fail")
def driver_version(driver: Driver, profile: Profile) -> Finding:
    """CUDA 13 needs a driver of branch 580 or later."""
    wanted = profile.gpu.driver_min
    if driver.version is None:
        return fail(expected=f">= {wanted}", found=NOT_LOADED, remedy="install and load the NVIDIA driver")
    if number(driver.version) < number(wanted):
        return fail(expected=f">= {wanted}", found=driver.version, remedy=f"upgrade the driver to {wanted} or later")
    return passed(driver.version)


@check("gpu.driver.open_module", driver, gpus, scope="node", severity="fail")
def open_module(driver: Driver, gpus: Gpus, profile: Profile) -> Finding:
    """Blackwell GPUs need the open kernel module."""
    if driver.version is None:
        return skip(NOT_LOADED)
    if driver.open_module:
        return passed("open kernel module")
    if isinstance(gpus.nvml, Unreadable):
        return unknown(f"the closed kernel module is loaded, and GPUs can't be asked: {gpus.nvml.reason}")
    demanding = [gpu for gpu in gpus.nvml if gpu.capability and gpu.capability >= platforms.OPEN_MODULE_SINCE]
    if demanding:
        return fail(
            expected="the open kernel module",
            found=f"the closed one of {driver.version}, with {_names(demanding)}",
            remedy="install the driver's open kernel modules (nvidia-open) and reboot",
        )
    if any(gpu.capability is None for gpu in gpus.nvml) or not gpus.nvml:
        return unknown("the closed kernel module is loaded, and no compute capability is known")
    return passed("closed kernel module", "GPUs before Blackwell run with it")


@check("gpu.count", gpus, scope="node", severity="fail")
def count(gpus: Gpus, profile: Profile) -> Finding:
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
            remedy="have the missing GPUs looked at, or set gpus_per_node to what this node has",
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
    wanted = " or ".join(_shown(item.capability) for item in platforms.supported() if _fits(item, built))
    expected = f"{wanted or 'a supported compute capability'}, for a build of {profile.gpu.arch}"
    if not gpus.nvml:
        return fail(expected=expected, found="no GPU", remedy="see gpu.count")
    for gpu in gpus.nvml:
        remedy = _misfit(gpu, built)
        if remedy is not None:
            alike = [item for item in gpus.nvml if item.capability == gpu.capability]
            return fail(expected=expected, found=_names(alike), remedy=remedy)
    if any(gpu.capability is None for gpu in gpus.nvml):
        nameless = [gpu for gpu in gpus.nvml if gpu.capability is None]
        return unknown(f"no compute capability of {_names(nameless)}")
    return passed(", ".join(sorted({_shown(gpu.capability) for gpu in gpus.nvml if gpu.capability})))


def number(version: str) -> tuple[int, ...]:
    """Return a driver's version as numbers: 580.105.08 is later than 580.82.07.

    A distribution's suffix does not count, nor do zeros at the end. Raises ValueError for a text without a number.
    """
    found = re.match(r"\d+(?:\.\d+)*", version)
    if found is None:
        raise ValueError(f"{version!r} is no driver version")
    parts = [int(part) for part in found.group().split(".")]
    while len(parts) > 1 and parts[-1] == 0:
        parts.pop()
    return tuple(parts)


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


def _misfit(gpu: Gpu, built: frozenset[str]) -> Optional[str]:
    """Return what to do about a GPU that does not fit, or None; one of unknown capability does not speak."""
    if gpu.capability is None:
        return None
    platform = platforms.platform(gpu.capability)
    if platform is None or not platform.supported:
        return f"use B200, GB200, B300 or GB300: {_shown(gpu.capability)} is not supported by this recipe"
    if _fits(platform, built):
        return None
    why = [platforms.MISMATCHES.get((gpu.capability, arch)) for arch in sorted(built)]
    told = "; ".join(reason for reason in why if reason)
    return f"set trtllm_arch to {platform.arch} and build again" + (f": {told}" if told else "")


def _fits(platform: platforms.Platform, built: frozenset[str]) -> bool:
    return platforms.digits(platform.arch) in built


def _shown(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def _names(gpus: list[Gpu]) -> str:
    """Return "10.3 (NVIDIA GB300: 00000008:06:00.0 00000009:06:00.0)"."""
    first = gpus[0]
    capability = _shown(first.capability) if first.capability else "no compute capability"
    return f"{capability} ({first.name or 'nameless'}: {' '.join(gpu.bus_id for gpu in gpus)})"


def _gpus(count: int) -> str:
    return f"{count} GPU" if count == 1 else f"{count} GPUs"
