"""How the GPUs must be for Kimi K3. The checks are gpu.py's."""

from __future__ import annotations

from typing import Any, Callable, Optional, Union

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts.gpu_health import (
    GpuHealth,
    GpuRepair,
    Health,
    Repairs,
    health,
    repairs,
)
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile

NO_GPU = "no GPU to ask: see gpu.count"
RESET = "drain the node and reset these GPUs: nvidia-smi --gpu-reset -i BUS_ID"

_RECOVERIES = {
    "reset": RESET,
    "gpu reset": RESET,
    "reboot": "drain the node and reboot it",
    "node reboot": "drain the node and reboot it",
    "system reboot": "drain the node and reboot it",
    "bus reset": "drain the node and reset the GPUs' bus, or power-cycle the node",
    "drain p2p": "drain the GPUs' peers: let the jobs that use NVLink end",
    "drain and reset": RESET,
    "recover imex domain": "have the IMEX domain recovered: end its jobs, then restart nvidia-imex on all its nodes",
}
# Bits of nvmlClocksEventReasons that speak of the node: the GPU slows itself down, is too hot, or lacks power.
_THROTTLES = {0x8: "HW slowdown", 0x40: "HW thermal slowdown", 0x80: "HW power brake"}


@check("gpu.recovery", health, scope="node", severity="fail")
def recovery(health: Health, profile: Profile) -> Finding:
    """The driver recommends no reset, reboot or other recovery for any GPU."""
    lost = [gpu for gpu in health.gpus if any(said.strip("[]") in _LOST for said in gpu.silent.values())]
    if lost:
        said = next(said for said in lost[0].silent.values() if said.strip("[]") in _LOST)
        return fail(
            expected="GPUs that answer", found=f"{said.strip('[]')}: {_ids(lost)}", remedy=_LOST[said.strip("[]")]
        )
    return each(
        health.gpus,
        "recovery",
        lambda action: str(action) != "None",
        expected="recovery action None",
        found=str,
        remedy=lambda action: _RECOVERIES.get(str(action).lower(), f"do what the driver recommends: {action}"),
    )


_LOST = {"GPU is lost": "drain the node and reboot it", "GPU requires reset": RESET}


@check("gpu.rowremap", health, scope="node", severity="fail")
def row_remap(health: Health, profile: Profile) -> Finding:
    """No memory row failed to be remapped, and none waits for a reset to be."""
    failed = each(
        health.gpus,
        "remap_failed",
        bool,
        expected="no failed remapping of memory rows",
        found=lambda _: "a remapping failed",
        remedy=lambda _: "drain the node, and have these GPUs replaced",
    )
    if failed.status != "pass":
        return failed
    return each(
        health.gpus,
        "remap_pending",
        bool,
        expected="no pending remapping of memory rows",
        found=lambda _: "a remapping is pending",
        remedy=lambda _: RESET,
        good="none pending, none failed",
    )


@check("gpu.repair", repairs, scope="node", severity="fail")
def repair(repairs: Repairs, profile: Profile) -> Finding:
    """No repair of a GPU's memory or processors waits for a reset, and no memory is beyond repair."""
    if not repairs.gpus:
        return skip(NO_GPU)
    for name, found, remedy in (
        ("unrepairable", "memory that can't be repaired", "drain the node, and have these GPUs replaced"),
        ("channel_pending", "a memory channel's repair is pending", RESET),
        ("tpc_pending", "a processor's (TPC) repair is pending", RESET),
    ):
        broken = [gpu for gpu in repairs.gpus if getattr(gpu, name)]
        if broken:
            return fail(expected="no pending repair", found=f"{found}: {_ids(broken)}", remedy=remedy)
    silent = [gpu for gpu in repairs.gpus if gpu.channel_pending is None or gpu.tpc_pending is None]
    if silent:
        return unknown(f"the driver does not say which repairs are pending: {_ids(silent)}")
    return passed("none pending")


@check("gpu.ecc", health, scope="node", severity="warn")
def ecc(health: Health, profile: Profile) -> Finding:
    """No GPU had an uncorrectable memory error since its driver was loaded."""
    return each(
        health.gpus,
        "ecc_uncorrected",
        lambda count: int(count) > 0,
        expected="no uncorrected ECC error",
        found=lambda count: f"{count} uncorrected",
        remedy=lambda _: f"see gpu.rowremap and gpu.xid; {RESET}",
        good="none",
    )


@check("gpu.throttle", health, scope="node", severity="warn")
def throttle(health: Health, profile: Profile) -> Finding:
    """No GPU slows itself down for heat, or for lack of power."""
    return each(
        health.gpus,
        "throttle",
        lambda bits: bool(int(bits) & sum(_THROTTLES)),
        expected="no hardware slowdown",
        found=lambda bits: ", ".join(name for bit, name in _THROTTLES.items() if int(bits) & bit),
        remedy=lambda _: "have cooling and power of the tray looked at",
        good="none",
    )


@check("gpu.power_cap", health, scope="node", severity="warn")
def power_cap(health: Health, profile: Profile) -> Finding:
    """No GPU may use less power than its default."""
    if not health.gpus:
        return skip(NO_GPU)
    known = [gpu for gpu in health.gpus if gpu.power_limit_w is not None and gpu.power_default_w is not None]
    capped = [gpu for gpu in known if (gpu.power_limit_w or 0) < (gpu.power_default_w or 0)]
    if capped:
        wanted = capped[0].power_default_w
        return fail(
            expected=f"{wanted:g} W",
            found=f"{capped[0].power_limit_w:g} W: {_ids(capped)}",
            remedy=f"lift the limit: nvidia-smi -pl {wanted:g}",
        )
    silent = [gpu for gpu in health.gpus if gpu not in known]
    if silent:
        return unknown(f"no power limit and default of {_ids(silent)}")
    return passed(", ".join(sorted({f"{gpu.power_limit_w:g} W" for gpu in known})))


def each(
    gpus: tuple[GpuHealth, ...],
    name: str,
    is_bad: Callable[[Any], bool],
    *,
    expected: str,
    found: Callable[[Any], str],
    remedy: Callable[[Any], str],
    good: Optional[str] = None,
) -> Finding:
    """Judge one value of each GPU: the first bad one fails for all that have it, one without a value is unknown."""
    if not gpus:
        return skip(NO_GPU)
    values = [(gpu, getattr(gpu, name)) for gpu in gpus]
    bad = [(gpu, value) for gpu, value in values if value is not None and is_bad(value)]
    if bad:
        first = bad[0][1]
        alike = [gpu for gpu, value in bad if value == first]
        return fail(expected=expected, found=f"{found(first)}: {_ids(alike)}", remedy=remedy(first))
    silent = [gpu for gpu, value in values if value is None]
    if silent:
        said = silent[0].silent.get(name) or "nothing"
        return unknown(f"no value of {_ids(silent)}: it says {said}")
    return passed(good or ", ".join(sorted({str(value) for _, value in values})))


def _ids(gpus: Union[list[GpuHealth], list[GpuRepair]]) -> str:
    return " ".join(gpu.bus_id for gpu in gpus)
