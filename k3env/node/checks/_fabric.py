"""What NVLink must be for Kimi K3: one domain over all GPUs of a job. The checks are nvlink.py's."""

from __future__ import annotations

from typing import Optional

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.checks._platform import Known, by_kind, not_for
from k3env.node.facts.gpu import driver, gpus
from k3env.node.facts.nvlink import (
    FABRIC_MANAGER,
    PENDING,
    Fabric,
    GpuLinks,
    Links,
    Membership,
    fabric,
    fabric_manager,
    links,
)
from k3env.node.facts.services import Service
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Profile

ZERO = "00000000-0000-0000-0000-000000000000"
NO_PARTITION = 32766
"""The clique of GPUs that nobody put into a partition; racks have it alike, so that only the pair tells them apart."""
NO_GPU = "no GPU to ask: see gpu.count"

_COMPLETED, _SUCCESS = "Completed", "Success"
_ABSENT = ("N/A", "Not Supported")
_FINE = {
    "Bandwidth": ("Full", "N/A"),
    "Route Recovery in progress": ("False", "N/A"),
    "Route Unhealthy": ("False", "N/A"),
    "Access Timeout Recovery": ("False", "N/A"),
    "Incorrect Configuration": ("None", "N/A"),
}
_BAD = {
    "Bandwidth": ("Degraded",),
    "Route Recovery in progress": ("True",),
    "Route Unhealthy": ("True",),
    "Access Timeout Recovery": ("True",),
}
_SWITCHES = "ask who looks after the rack's switch trays: the NVLink fabric's manager (NMX) there must have set it up"
_MANAGER = f"see nvlink.fabric_manager: systemctl status {FABRIC_MANAGER}"


@check("nvlink.links", driver, gpus, links, scope="node", severity="fail")
@by_kind
def links_up(found: Known, links: Links, profile: Profile) -> Finding:
    """Every NVLink of every GPU is up."""
    wanted = None if found is None or isinstance(found, Unreadable) else found.links
    if not links.gpus:
        return skip(NO_GPU)
    expected = f"{wanted} links up on each GPU" if wanted else "all links up"
    down = [gpu for gpu in links.gpus if gpu.down]
    if down:
        told = "; ".join(f"GPU {gpu.gpu}: {', '.join(map(str, gpu.down))} down" for gpu in down)
        return fail(
            expected=expected, found=told, remedy="reset the GPU; have cables and switches looked at if that fails"
        )
    inactive = [gpu for gpu in links.gpus if any("inactive" in text for text in gpu.strange)]
    if inactive:
        return fail(expected=expected, found=f"no link up: {_indices(inactive)}", remedy=_SWITCHES)
    strange = [gpu for gpu in links.gpus if gpu.strange]
    if strange:
        return unknown(f"GPU {strange[0].gpu}: {strange[0].strange[0]}")
    few = [gpu for gpu in links.gpus if wanted is not None and len(gpu.up) < wanted]
    if few:
        told = "; ".join(f"GPU {gpu.gpu}: {len(gpu.up)}" for gpu in few)
        return fail(expected=expected, found=told, remedy="reset the GPU; have it looked at if that fails")
    if isinstance(found, Unreadable):
        return unknown(f"how many there must be is not known: {found.reason}")
    if not any(gpu.up for gpu in links.gpus):
        return skip("these GPUs have no NVLink")
    speeds = sorted({speed for gpu in links.gpus for speed in gpu.gb_s})
    return passed(f"{max(len(gpu.up) for gpu in links.gpus)} on each GPU", _speeds(speeds))


@check("nvlink.state", driver, gpus, fabric, scope="node", severity="fail")
@by_kind
def state(found: Known, fabric: Fabric, profile: Profile) -> Finding:
    """Every GPU is registered in its NVLink fabric, without a fault there."""
    expected = f"{_COMPLETED}, {_SUCCESS}"
    if not fabric.gpus:
        return skip(NO_GPU)
    remedy = _MANAGER if found is not None and not isinstance(found, Unreadable) and not found.has_domain else _SWITCHES
    for problem, gpu in ((_state_problem(gpu, fabric.waited_s), gpu) for gpu in fabric.gpus):
        if problem is None:
            continue
        if gpu.state in _ABSENT:
            return fail(expected=expected, found=_told(problem, gpu, fabric), remedy=_absent_remedy(fabric, remedy))
        return fail(expected=expected, found=_told(problem, gpu, fabric), remedy=remedy)
    odd = [gpu for gpu in fabric.gpus if (gpu.state, gpu.status) != (_COMPLETED, _SUCCESS)]
    if odd:
        return unknown(f"{odd[0].bus_id} says {odd[0].state or 'no state'}, {odd[0].status or 'no status'}")
    summaries = {gpu.health.get("Summary", "N/A") for gpu in fabric.gpus}
    if not summaries <= {"N/A", "Healthy", "Limited Capacity"}:
        return unknown(f"a health that is not known: {', '.join(sorted(summaries))}")
    return passed(", ".join((expected, *sorted(summaries - {"N/A"}))))


@check("nvlink.health", fabric, scope="node", severity="warn")
def health(fabric: Fabric, profile: Profile) -> Finding:
    """Every GPU has its whole bandwidth in the NVLink fabric."""
    told = [gpu for gpu in fabric.gpus if gpu.health]
    if not told:
        return skip("this driver tells nothing of the fabric's health" if fabric.gpus else NO_GPU)
    for gpu in told:
        limits = [f"{name} {text}" for name, text in gpu.health.items() if text in _BAD.get(name, ())]
        if gpu.health.get("Summary") == "Limited Capacity":
            limits.insert(0, "Limited Capacity")
        if limits:
            return fail(
                expected="Healthy, full bandwidth", found=_told(", ".join(limits), gpu, fabric), remedy=_SWITCHES
            )
    odd = [f"{gpu.bus_id}: {name} {text}" for gpu in told for name, text in gpu.health.items() if _is_odd(name, text)]
    if odd:
        return unknown(f"a health that is not known: {odd[0]}")
    if all(text == "N/A" for gpu in told for text in gpu.health.values()):
        return skip("the fabric's health is N/A here")
    return passed("full bandwidth")


@check("nvlink.domain", driver, gpus, fabric, scope="node", severity="fail")
@by_kind
def one_domain(found: Known, fabric: Fabric, profile: Profile) -> Finding:
    """All GPUs of the node are in one NVLink domain that spans machines: one pair of ClusterUUID and CliqueId."""
    if isinstance(found, Unreadable):
        return unknown(found.reason)
    if found is not None and not found.has_domain:
        return skip(f"{found.name}: its NVLink ends at the machine")
    if not fabric.gpus:
        return skip(NO_GPU)
    expected = "one ClusterUUID, not zero, and one CliqueId"
    island = [gpu for gpu in fabric.gpus if gpu.cluster == ZERO]
    if island:
        return fail(
            expected=expected,
            found=f"a ClusterUUID of zeros: {_ids(island)}",
            remedy=f"an NVLink island is no domain over machines; {_SWITCHES}",
        )
    absent = [gpu for gpu in fabric.gpus if gpu.state in _ABSENT]
    if absent:
        told = _told(f"fabric {absent[0].state}", absent[0], fabric)
        return fail(expected=expected, found=told, remedy=_absent_remedy(fabric, _SWITCHES))
    pairs = {(gpu.cluster, gpu.clique) for gpu in fabric.gpus if gpu.cluster is not None and gpu.clique is not None}
    if len(pairs) > 1:
        told = "; ".join(f"{gpu.bus_id} in {gpu.cluster}, clique {gpu.clique}" for gpu in fabric.gpus)
        return fail(expected=expected, found=told, remedy=_SWITCHES)
    pending = [gpu for gpu in fabric.gpus if (gpu.state, gpu.status) != (_COMPLETED, _SUCCESS)]
    if pending:
        return unknown(f"the fabric is not up: see nvlink.state ({_ids(pending)})")
    silent = [gpu for gpu in fabric.gpus if gpu.cluster is None or gpu.clique is None]
    if silent:
        return unknown(f"no ClusterUUID or no CliqueId: {_ids(silent)}")
    ((cluster, clique),) = pairs
    note = (
        "the number of GPUs in no partition of their own, which other racks have too" if clique == NO_PARTITION else ""
    )
    return passed(f"{cluster}, clique {clique}", note)


@check("nvlink.fabric_manager", driver, gpus, fabric_manager, scope="node", severity="fail")
@by_kind
def manager(found: Known, fabric_manager: Service, profile: Profile) -> Finding:
    """The Fabric Manager runs where a machine has NVSwitches of its own."""
    other = not_for(found, False, "the fabric's managers are on the rack's switch trays")
    if other is not None:
        return other
    if fabric_manager.is_active:
        return passed("active")
    return fail(
        expected="active",
        found=fabric_manager.state,
        remedy=f"install the one of the driver's version, and start it: systemctl enable --now {FABRIC_MANAGER}",
    )


def _state_problem(gpu: Membership, waited_s: float) -> Optional[str]:
    """Return what is wrong with a GPU's place in the fabric, or None: nothing, or nothing that is known."""
    if gpu.state in _ABSENT:
        return f"fabric {gpu.state}"
    if gpu.state in PENDING:
        return f"fabric {gpu.state}" + (f" after {waited_s:g} s" if waited_s else "")
    if gpu.state != _COMPLETED:
        return None
    if gpu.status not in (None, "", _SUCCESS, *_ABSENT) and not _is_unreadable(gpu.status):
        return f"{_COMPLETED}, but {gpu.status}"
    if gpu.health.get("Summary") == "Unhealthy":
        return f"{_COMPLETED}, but Unhealthy{_reasons(gpu)}"
    wrong = gpu.health.get("Incorrect Configuration")
    return f"{_COMPLETED}, but {wrong}" if wrong and not _is_fine("Incorrect Configuration", wrong) else None


def _reasons(gpu: Membership) -> str:
    told = [f"{name} {text}" for name, text in gpu.health.items() if name != "Summary" and not _is_fine(name, text)]
    return f" ({', '.join(told)})" if told else ""


def _is_fine(name: str, text: str) -> bool:
    return text in _FINE.get(name, ()) or _is_unreadable(text)


def _is_odd(name: str, text: str) -> bool:
    """Return whether a line of health says neither good nor bad; Summary and configuration are nvlink.state's."""
    return name in _BAD and text not in (*_FINE[name], *_BAD[name])


def _is_unreadable(text: str) -> bool:
    return text == "" or text[:1] == "[" or text.startswith(("ERR", "Unknown Error"))


def _absent_remedy(fabric: Fabric, otherwise: str) -> str:
    if len(fabric.gpus) == 1:
        return f"only one GPU is visible, and then the driver tells of no fabric: see gpu.count; {otherwise}"
    return otherwise


def _told(problem: str, gpu: Membership, fabric: Fabric) -> str:
    """Return a problem with all GPUs that have the same state and status."""
    alike = [
        item for item in fabric.gpus if (item.state, item.status, item.health) == (gpu.state, gpu.status, gpu.health)
    ]
    return f"{problem}: {_ids(alike)}"


def _indices(gpus: list[GpuLinks]) -> str:
    return " ".join(f"GPU {gpu.gpu}" for gpu in gpus)


def _speeds(speeds: list[float]) -> str:
    return " and ".join(f"{speed:g} GB/s" for speed in speeds)


def _ids(gpus: list[Membership]) -> str:
    return " ".join(gpu.bus_id for gpu in gpus)
