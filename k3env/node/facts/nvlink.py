"""NVLink: each GPU's place in the fabric, its links, and who manages the switches of a single machine."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import Optional, Union

from k3env.node.facts import deadline, nvml, smi
from k3env.node.facts.services import Service, service
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable

PENDING = ("Not Started", "In Progress")
"""States that may still change by themselves."""
PAUSE_S = 2.0
PATIENCE_S = 30.0
"""How long a fabric that comes up is given, seconds. It takes seconds after a reset, or it stays so for weeks."""
FABRIC_MANAGER = "nvidia-fabricmanager"


@dataclass(frozen=True)
class Membership:
    """One GPU's place in the fabric, in the driver's words; None: this driver does not tell."""

    bus_id: str
    state: Optional[str] = None
    """Completed, In Progress, Not Started, Not Supported, N/A, or a way to say that it can't be read."""
    status: Optional[str] = None
    """Success, or what went wrong."""
    clique: Optional[int] = None
    cluster: Optional[str] = None
    """The ClusterUUID in small letters; zeros where the fabric does not leave the machine."""
    health: dict[str, str] = field(default_factory=dict)
    """Summary, Bandwidth and so on, as `nvidia-smi -q` calls them; those that this driver lacks are not there."""


@dataclass(frozen=True)
class Fabric:
    """The fabric as the GPUs that this process may use see it."""

    gpus: tuple[Membership, ...]
    waited_s: float = 0.0
    """How long it was given to come up, in seconds."""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class GpuLinks:
    """The NVLinks of one GPU, by number."""

    gpu: str
    """Its index, or its bus id where NVML was asked."""
    up: tuple[int, ...] = ()
    down: tuple[int, ...] = ()
    strange: tuple[str, ...] = ()
    """Lines that say neither."""
    gb_s: tuple[float, ...] = ()
    """The speeds of those that are up, each once; in GB/s."""


@dataclass(frozen=True)
class Links:
    """The NVLinks of the GPUs that this process may use."""

    gpus: tuple[GpuLinks, ...]
    source: tuple[Evidence, ...] = ()


@deadline(45.0)
def fabric(machine: Machine) -> Union[Fabric, Unreadable]:
    """Read each GPU's place in the fabric. One that still comes up is given a while, as long as the context allows.

    Source: nvidia-smi --query-gpu=fabric.*; of a driver that lacks some of these fields, the section "Fabric" of -q.
    """
    waited_s = 0.0
    patience_s = _patience_s(machine)
    while True:
        found, source = _memberships(machine)
        if isinstance(found, Unreadable):
            return found
        if waited_s + PAUSE_S > patience_s or not any(gpu.state in PENDING for gpu in found):
            return Fabric(found, waited_s, (source,))
        machine.wait(PAUSE_S)
        waited_s += PAUSE_S


def links(machine: Machine) -> Union[Links, Unreadable]:
    """Read which NVLinks are up.

    Source: nvidia-smi nvlink -s: "GPU 0: …", then "Link 3: 53.125 GB/s" or "Link 3: <inactive>"; or the same from NVML.
    """
    if machine.which(smi.NVIDIA_SMI) is None:
        _, rows, source = smi.table(machine, (), nvml.links)
        if isinstance(rows, Unreadable):
            return rows
        return Links(tuple(_links(address, list(cells.items())) for address, cells in rows), (source,))
    limit_s = smi.answer_s(machine)
    done = smi.ask(machine, "nvlink", "-s")
    failed = smi.failure(done, limit_s, (0, smi.NO_DEVICES))
    if failed is not None:
        return failed
    if done.exit_code == smi.NO_DEVICES:
        return Links((), (done.evidence(),))
    return _read_links(done.text, done.evidence())


def fabric_manager(machine: Machine) -> Union[Service, Unreadable]:
    """Read whether the manager of an HGX's NVSwitches runs. NVL72 trays have none: their switch trays do that."""
    return service(machine, FABRIC_MANAGER)


_STATES = ("fabric.state", "fabric.status", "fabric.cliqueId", "fabric.clusterUuid")
_HEALTH = {
    "fabric.health.summary": "Summary",
    "fabric.health.bandwidth": "Bandwidth",
    "fabric.health.route_recovery_in_progress": "Route Recovery in progress",
    "fabric.health.route_unhealthy": "Route Unhealthy",
    "fabric.health.access_timeout_recovery": "Access Timeout Recovery",
    "fabric.health.incorrect_configuration": "Incorrect Configuration",
}
_TEXT = {"fabric.state": "State", "fabric.status": "Status", "fabric.cliqueId": "CliqueId"}
_TEXT.update({"fabric.clusterUuid": "ClusterUUID"})
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GPU = re.compile(r"GPU (\d+):")
_LINK = re.compile(r"Link (\d{1,4}):\s*(.*)")


def _patience_s(machine: Machine) -> float:
    """Return how long a fabric that comes up is waited for, leaving time for the last look."""
    if machine.ends is None:
        return 0.0
    return max(0.0, min(PATIENCE_S, machine.ends - time.monotonic() - PAUSE_S))


def _memberships(machine: Machine) -> tuple[Union[tuple[Membership, ...], Unreadable], Evidence]:
    who, rows, source = smi.table(machine, (*_STATES, *_HEALTH), nvml.fabric)
    if isinstance(rows, Unreadable):
        return rows, source
    lacking = any(cell == smi.NO_SUCH_FIELD for _, cells in rows for cell in cells.values())
    if lacking and who == smi.NVIDIA_SMI:
        rows, source = _whole_text(machine)
        if isinstance(rows, Unreadable):
            return rows, source
    return tuple(_membership(*row) for row in rows), source


def _whole_text(machine: Machine) -> tuple[smi.Rows, Evidence]:
    """Read the section "Fabric" of the whole text, which has other lines from driver to driver."""
    limit_s = smi.answer_s(machine)
    done = smi.ask(machine, "-q")
    failed = smi.failure(done, limit_s, (0, smi.BAD_INFOROM))
    if failed is not None:
        return failed, done.evidence()
    names = {**_TEXT, **{field: f"Health/{name}" for field, name in _HEALTH.items()}}
    rows, shown = [], []
    for address, values in smi.sections(done.text).items():
        said = {path[len("Fabric/") :]: text for path, text in values.items() if path.startswith("Fabric/")}
        rows.append((address, {field: said.get(name, smi.NO_SUCH_FIELD) for field, name in names.items()}))
        shown += [f"{address}: {path}: {text}" for path, text in said.items()]
    source = Evidence(done.evidence().source, done.exit_code, "\n".join(shown))
    if not rows:
        return Unreadable("no GPU in the answer of nvidia-smi -q", done.evidence()), source
    return tuple(rows), source


def _membership(address: str, cells: dict[str, str]) -> Membership:
    said = {field: text.strip() for field, text in cells.items() if text != smi.NO_SUCH_FIELD}
    clique = re.fullmatch(r"[0-9]{1,10}", said.get("fabric.cliqueId", ""))
    cluster = _UUID.fullmatch(said.get("fabric.clusterUuid", "").lower())
    return Membership(
        address,
        said.get("fabric.state"),
        said.get("fabric.status"),
        int(clique.group()) if clique else None,
        cluster.group() if cluster else None,
        {name: said[field] for field, name in _HEALTH.items() if field in said},
    )


def _read_links(text: str, source: Evidence) -> Union[Links, Unreadable]:
    found: list[tuple[str, list[tuple[str, str]]]] = []
    for line in map(str.strip, text.splitlines()):
        head, link = _GPU.match(line), _LINK.fullmatch(line)
        if head:
            found.append((head.group(1), []))
        elif link and found:
            found[-1][1].append((link.group(1), link.group(2)))
        elif line and found:
            found[-1][1].append(("", line))
        elif line:
            return Unreadable(f"{smi.NVIDIA_SMI} nvlink -s said: {line}", source)
    if not found:
        return Unreadable(f"{smi.NVIDIA_SMI} nvlink -s said nothing", source)
    return Links(tuple(_links(*item) for item in found), (source,))


def _links(gpu: str, said: list[tuple[str, str]]) -> GpuLinks:
    speeds = {int(link): _speed(text) for link, text in said if link}
    down = tuple(int(link) for link, text in said if link and text == "<inactive>")
    strange = tuple(text for link, text in said if not link or (speeds[int(link)] is None and int(link) not in down))
    up = tuple(link for link, speed in speeds.items() if speed is not None)
    return GpuLinks(gpu, up, down, strange, tuple(sorted({speed for speed in speeds.values() if speed})))


def _speed(text: str) -> Optional[float]:
    """Return GB/s of a link that is up, 0 where only that is known, None of another one."""
    if text == "up":
        return 0.0
    found = re.fullmatch(r"([0-9]{1,5}(?:\.[0-9]{1,4})?) GB/s", text)
    return float(found.group(1)) if found and float(found.group(1)) > 0 else None
