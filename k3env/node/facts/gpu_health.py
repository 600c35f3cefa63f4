"""How the GPUs are, how they are set, and who is on them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Callable, Optional, TypeVar, Union

from k3env.node.facts import nvml, smi
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable

T = TypeVar("T")


@dataclass(frozen=True)
class GpuHealth:
    """One GPU. None: its cell holds no value, and `silent` has what stands there instead, by the name of the value."""

    bus_id: str
    recovery: Optional[str] = None
    """What the driver recommends to do, "None" if nothing."""
    remap_pending: Optional[bool] = None
    """Whether a memory row waits for a reset to be remapped."""
    remap_failed: Optional[bool] = None
    ecc_uncorrected: Optional[int] = None
    """Errors since the driver was loaded."""
    mig: Optional[bool] = None
    compute_mode: Optional[str] = None
    """Default, Exclusive_Process, Exclusive_Thread or Prohibited."""
    memory_used_mib: Optional[int] = None
    persistence: Optional[bool] = None
    throttle: Optional[int] = None
    """Bits of why clocks are lower than they could be, nvmlClocksEventReasons of nvml.h."""
    power_limit_w: Optional[float] = None
    power_default_w: Optional[float] = None
    silent: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Health:
    """The GPUs that this process may use."""

    gpus: tuple[GpuHealth, ...]
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class GpuRepair:
    """What of one GPU waits for a repair; None where the driver does not say."""

    bus_id: str
    channel_pending: Optional[bool] = None
    tpc_pending: Optional[bool] = None
    unrepairable: Optional[bool] = None
    """Whether its memory has a fault that no repair mends."""


@dataclass(frozen=True)
class Repairs:
    """The GPUs that this process may use."""

    gpus: tuple[GpuRepair, ...]
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Process:
    """A compute process on a GPU."""

    bus_id: str
    pid: int
    name: str = ""
    uid: Optional[int] = None
    """None: no such process here. It is of another pid namespace, or has just ended."""
    user: Optional[str] = None


@dataclass(frozen=True)
class Processes:
    """The compute processes on all GPUs, those of other users and containers too."""

    all: tuple[Process, ...]
    uid: int
    """Who looks."""
    jobs_gpus: Optional[int] = None
    """How many of the node's GPUs Slurm's job has; None: there is no job around, or Slurm does not say."""
    job: Optional[str] = None
    """Slurm's job around this process."""
    source: tuple[Evidence, ...] = ()


def health(machine: Machine) -> Union[Health, Unreadable]:
    """Read state and settings of each GPU, in one query.

    Source: nvidia-smi --query-gpu, or the same from NVML.
    """
    _, rows, source = smi.table(machine, tuple(field for _, field, _ in _VALUES), nvml.health)
    return rows if isinstance(rows, Unreadable) else Health(tuple(_health(*row) for row in rows), (source,))


def repairs(machine: Machine) -> Union[Repairs, Unreadable]:
    """Read which repairs wait for a reset.

    Source: the section "ECC Errors" of nvidia-smi -q; of a driver that leaves it out of -d ECC, the whole text.
    """
    if machine.which(smi.NVIDIA_SMI) is None:
        _, rows, source = smi.table(machine, tuple(_REPAIRS), nvml.repairs)
        return rows if isinstance(rows, Unreadable) else Repairs(tuple(_repair(*row) for row in rows), (source,))
    for arguments in (("-q", "-d", "ECC"), ("-q",)):
        limit_s = smi.answer_s(machine)
        done = smi.ask(machine, *arguments)
        failed = smi.failure(done, limit_s, (0, smi.NO_DEVICES, smi.BAD_INFOROM))
        if failed is not None:
            return failed
        found = smi.sections(done.text)
        if not found and done.exit_code != smi.NO_DEVICES:
            return Unreadable(f"no GPU in the answer of {smi.NVIDIA_SMI} -q", done.evidence())
        if not found or any(path.endswith("Repair Pending") for values in found.values() for path in values):
            break
    parts = {
        address: {path.rsplit("/", 1)[-1]: said for path, said in values.items()} for address, values in found.items()
    }
    shown = "\n".join(f"{address}: {key}: {said.get(key)}" for address, said in parts.items() for key in _REPAIRS)
    source = Evidence(done.evidence().source, done.exit_code, shown)
    return Repairs(tuple(_repair(address, said) for address, said in parts.items()), (source,))


def processes(machine: Machine) -> Union[Processes, Unreadable]:
    """Read which compute processes there are, and whose: the owner of /proc/PID.

    Source: nvidia-smi --query-compute-apps, or the same from NVML. Its head alone means none; no head is no answer.
    slurm.conf's manual, Prolog: SLURM_JOB_GPUS.
    """
    listed = _listed(machine)
    if isinstance(listed, Unreadable):
        return listed
    found, source = listed
    if any(not re.fullmatch(r"[0-9]{1,10}", pid) for _, pid, _ in found):
        return Unreadable("a process without a pid among those on the GPUs", source)
    users: dict[int, str] = {}
    everyone = tuple(_process(machine, address, int(pid), name, users) for address, pid, name in found)
    if any(item.uid is None for item in everyone):
        # Some end between the list and the look: those are gone from the next list.
        again = _listed(machine)
        there = {pid for _, pid, _ in again[0]} if not isinstance(again, Unreadable) else None
        everyone = tuple(item for item in everyone if item.uid is not None or there is None or str(item.pid) in there)
    job = machine.environment.get("SLURM_JOB_ID") or None
    return Processes(everyone, machine.uid(), _jobs_gpus(machine), job, (source,))


_APPS = "--query-compute-apps=gpu_bus_id,pid,process_name"
_REPAIRS = {
    "Channel Repair Pending": "channel_pending",
    "TPC Repair Pending": "tpc_pending",
    "Unrepairable Memory": "unrepairable",
}


def _listed(machine: Machine) -> Union[tuple[list[tuple[str, str, str]], Evidence], Unreadable]:
    """Return bus id, pid and name of each process that nvidia-smi lists, or NVML where that is missing."""
    if machine.which(smi.NVIDIA_SMI) is None:
        _, rows, source = smi.table(machine, (), nvml.processes)
        if isinstance(rows, Unreadable):
            return rows
        return [(address, pid, "") for address, cells in rows for pid in cells], source
    limit_s = smi.answer_s(machine)
    done = smi.ask(machine, _APPS, "--format=csv")
    failed = smi.failure(done, limit_s, (0, smi.NO_DEVICES, smi.BAD_INFOROM))
    if failed is not None:
        return failed
    if done.exit_code == smi.NO_DEVICES:
        return [], done.evidence()
    head, *lines = [line.strip() for line in done.text.splitlines() if line.strip()] or [""]
    if "pid" not in head.split(", "):
        return Unreadable(f"{smi.NVIDIA_SMI} lists no processes: {head or 'it says nothing'}", done.evidence())
    cells = [line.split(", ", 2) for line in lines]
    if any(len(row) < 3 for row in cells):
        return Unreadable("a row of the processes is not whole", done.evidence())
    return [(smi.bus_id(address), pid, name) for address, pid, name in cells], done.evidence()


def _jobs_gpus(machine: Machine) -> Optional[int]:
    told = machine.environment.get("SLURM_JOB_GPUS", "")
    return len(set(told.split(","))) if re.fullmatch(r"[0-9]+(,[0-9]+)*", told) else None


def _repair(address: str, said: dict[str, str]) -> GpuRepair:
    return GpuRepair(address, **{name: _yes(said.get(key, "")) for key, name in _REPAIRS.items()})


def _process(machine: Machine, address: str, pid: int, name: str, users: dict[int, str]) -> Process:
    status = machine.stat(f"/proc/{pid}")
    if status is None:
        return Process(address, pid, name)
    if status.st_uid not in users:
        users[status.st_uid] = _user(machine, status.st_uid)
    return Process(address, pid, name, status.st_uid, users[status.st_uid])


def _user(machine: Machine, uid: int) -> str:
    done = machine.run(("id", "-nu", str(uid)), timeout_s=1.0)
    return done.text.strip() if done.ok and done.text.strip() else f"uid {uid}"


def _health(address: str, cells: dict[str, str]) -> GpuHealth:
    read = {name: parse(cells.get(cell, "")) for name, cell, parse in _VALUES}
    silent = {name: cells.get(cell, "").strip() for name, cell, _ in _VALUES if read[name] is None}
    return GpuHealth(address, silent=silent, **read)  # type: ignore[arg-type]


def _one_of(words: dict[str, T]) -> Callable[[str], Optional[T]]:
    return lambda text: words.get(text.strip())


_yes = _one_of({"Yes": True, "No": False})
_enabled = _one_of({"Enabled": True, "Disabled": False})
_mode = _one_of({word: word for word in ("Default", "Exclusive_Process", "Exclusive_Thread", "Prohibited")})


def _number(text: str) -> Optional[int]:
    return int(text) if re.fullmatch(r"[0-9]{1,20}", text.strip()) else None


def _bits(text: str) -> Optional[int]:
    return int(text, 16) if re.fullmatch(r"0x[0-9a-fA-F]{1,16}", text.strip()) else None


def _watts(text: str) -> Optional[float]:
    found = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)\s*W", text.strip())
    return float(found.group(1)) if found else None


_VALUES: tuple[tuple[str, str, Callable[[str], object]], ...] = (
    ("recovery", "gpu_recovery_action", smi.value),
    ("remap_pending", "remapped_rows.pending", _yes),
    ("remap_failed", "remapped_rows.failure", _yes),
    ("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total", _number),
    ("mig", "mig.mode.current", _enabled),
    ("compute_mode", "compute_mode", _mode),
    ("memory_used_mib", "memory.used", smi.mebibytes),
    ("persistence", "persistence_mode", _enabled),
    ("throttle", "clocks_event_reasons.active", _bits),
    ("power_limit_w", "power.limit", _watts),
    ("power_default_w", "power.default_limit", _watts),
)
