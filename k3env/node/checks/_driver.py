"""What the driver must be for Kimi K3. The checks are gpu.py's."""

from __future__ import annotations

import re

from k3env.k3 import platforms
from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts import smi
from k3env.node.facts.gpu import Driver, Gpu, Gpus, driver, gpus
from k3env.protocol.context import CONTEXTS
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Profile

NOT_LOADED = "no driver loaded"
_OTHER_LIBRARY = 18
"""What NVML, and nvidia-smi with it, ends with where library and kernel module differ in version."""


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


@check("gpu.driver.pin", driver, scope="node", severity="warn")
def driver_pin(driver: Driver, profile: Profile) -> Finding:
    """The driver is the site's own."""
    wanted = profile.gpu.driver
    if wanted is None:
        return skip("the site names no driver")
    if driver.version is None:
        return skip(NOT_LOADED)
    if number(driver.version) != number(wanted):
        return fail(
            expected=wanted, found=driver.version, remedy=f"install driver {wanted}, as the other nodes have it"
        )
    return passed(driver.version)


@check("gpu.driver.mismatch", driver, gpus, scope="node", severity="fail")
def driver_mismatch(driver: Driver, gpus: Gpus, profile: Profile) -> Finding:
    """The loaded driver and its libraries are of one version."""
    if driver.version is None:
        return skip(NOT_LOADED)
    if not isinstance(gpus.nvml, Unreadable):
        return passed(driver.version)
    evidence = gpus.nvml.evidence
    if evidence is None or evidence.exit_code != _OTHER_LIBRARY:
        return unknown(f"NVML can't be asked: {gpus.nvml.reason}")
    library = re.search(r"NVML library version:\s*(\d[\d.]*)", evidence.excerpt)
    return fail(
        expected=f"libraries of the loaded driver, {driver.version}",
        found=f"libraries of {library.group(1)}" if library else "libraries of another version",
        remedy="reboot, or reload the kernel modules: the driver was upgraded while it ran; start containers anew",
    )


@check("gpu.nvml.responsive", driver, gpus, scope="node", severity="fail")
def responsive(driver: Driver, gpus: Gpus, profile: Profile) -> Finding:
    """The driver answers in time. Where we fail open, a slow driver drains no node: silence is unknown there."""
    if driver.version is None:
        return skip(NOT_LOADED)
    if not isinstance(gpus.nvml, Unreadable):
        return passed(f"{gpus.reader} answers")
    reason, evidence = gpus.nvml.reason, gpus.nvml.evidence
    if reason.startswith(smi.UNRESPONSIVE):
        if CONTEXTS[profile.context].fail_open:
            return unknown(reason)
        remedy = "drain the node and reboot it; before that, have nvidia-bug-report.sh and the kernel's log kept"
        return fail(expected="an answer", found=reason, remedy=remedy)
    if evidence is None or not evidence.exit_code:
        return unknown(reason)
    if evidence.exit_code == _OTHER_LIBRARY:
        return skip("driver and library differ: see gpu.driver.mismatch")
    return fail(expected="an answer", found=reason, remedy=_refused(evidence.exit_code))


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
            found=f"the closed one of {driver.version}, with {names_of(demanding)}",
            remedy="install the driver's open kernel modules (nvidia-open) and reboot",
        )
    if any(gpu.capability is None for gpu in gpus.nvml) or not gpus.nvml:
        return unknown("the closed kernel module is loaded, and no compute capability is known")
    return passed("closed kernel module", "GPUs before Blackwell run with it")


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


def shown(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"


def names_of(gpus: list[Gpu]) -> str:
    """Return "10.3 (NVIDIA GB300: 00000008:06:00.0 00000009:06:00.0)"."""
    first = gpus[0]
    capability = shown(first.capability) if first.capability else "no compute capability"
    return f"{capability} ({first.name or 'nameless'}: {' '.join(gpu.bus_id for gpu in gpus)})"


def _refused(exit_code: int) -> str:
    """Say what to do about NVML's refusal to be initialised, by nvmlReturn_t."""
    return {
        9: "the driver's device nodes are missing here: nvidia-modprobe on the node, --gpus or CDI for a container",
        12: "install the driver's libraries, or let the container's runtime mount them",
        15: "a GPU is lost: drain the node and reboot it",
        127: "install nvidia-smi and the driver's libraries, or let the container's runtime mount them",
    }.get(exit_code, "run nvidia-smi by hand; drain the node and reboot it if that fails too")
