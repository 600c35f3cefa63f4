"""The GPUs and their driver: what the kernel, the PCI bus and NVML each say, side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Union

from k3env.node.facts import nvml
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt

if TYPE_CHECKING:
    from k3env.node.process import Completed

VERSION_FILE = "/proc/driver/nvidia/version"
PROC_GPUS = "/proc/driver/nvidia/gpus"
PCI_DEVICES = "/sys/bus/pci/devices"
NVIDIA_SMI = "nvidia-smi"

ANSWER_S = 5.0
"""A driver that has not answered after this many seconds is called unresponsive."""

Capability = tuple[int, int]


@dataclass(frozen=True)
class Driver:
    """The loaded NVIDIA kernel driver."""

    version: Optional[str]
    """Such as "580.105.08"; None where no driver is loaded."""
    open_module: Optional[bool]
    """Whether it is the open kernel module; None where no driver is loaded."""
    source: Evidence


@dataclass(frozen=True)
class Gpu:
    """One GPU as NVML sees it. None: NVML has no such value for it."""

    bus_id: str
    name: Optional[str] = None
    capability: Optional[Capability] = None
    memory_mib: Optional[int] = None


@dataclass(frozen=True)
class Gpus:
    """The GPUs by three sources. Bus ids have a domain of eight hexadecimal digits and small letters."""

    nvml: Union[tuple[Gpu, ...], Unreadable]
    """What a process of this user may use: masked device nodes are missing here."""
    proc: Union[tuple[str, ...], Unreadable]
    """What the kernel driver drives."""
    pci: Union[tuple[str, ...], Unreadable]
    """What hangs on the bus."""
    reader: str = NVIDIA_SMI
    """Who asked NVML: nvidia-smi, or we ourselves through its library."""
    source: tuple[Evidence, ...] = ()


def driver(machine: Machine) -> Union[Driver, Unreadable]:
    """Read the loaded driver from the kernel, not from a library that may be newer.

    Source: /proc/driver/nvidia/version, first line: "NVIDIA UNIX Open Kernel Module for aarch64  580.105.08  Release
    Build", or "NVIDIA UNIX x86_64 Kernel Module  570.86.15  …" of the closed one; its date may be absent.
    """
    try:
        data = machine.read(VERSION_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return Driver(None, None, Evidence(VERSION_FILE, excerpt="no such file"))
    line = data.split(b"\n", 1)[0]
    source = Evidence(VERSION_FILE, excerpt=excerpt(line))
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d\S*)", line.decode("utf-8", "replace"))
    if found is None:
        return Unreadable(f"no driver version in {VERSION_FILE}", source)
    return Driver(found.group(1), b"Open Kernel Module" in line, source)


def gpus(machine: Machine) -> Gpus:
    """Read which GPUs there are from NVML, the kernel driver and the PCI bus.

    No one of them is enough: NVML leaves out a GPU whose device node can't be opened, with exit code 0.
    """
    reader, (seen, seen_source) = _nvml(machine)
    proc, proc_source = _proc(machine)
    pci, pci_source = _pci(machine)
    return Gpus(seen, proc, pci, reader, (seen_source, proc_source, pci_source))


def bus_id(text: str) -> str:
    """Return a PCI address as "00000008:06:00.0"; the kernel writes its domain shorter, nvidia-smi its letters large.

    Raises ValueError for anything else.
    """
    found = re.fullmatch(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[0-9a-f]{2}\.[0-7])", text.strip().lower())
    if found is None:
        raise ValueError(f"{text!r} is no PCI address")
    return f"{int(found.group(1) or '0', 16):08x}:{found.group(2)}"


def _proc(machine: Machine) -> tuple[Union[tuple[str, ...], Unreadable], Evidence]:
    """Read the GPUs that the kernel driver drives.

    Source: "Bus Location" in /proc/driver/nvidia/gpus/*/information; the directory's name says the same.
    """
    found: list[str] = []
    where = f"{PROC_GPUS}/*/information"
    try:
        for name in machine.list(PROC_GPUS):
            text = machine.text(f"{PROC_GPUS}/{name}/information")
            location = re.search(r"^Bus Location:\s*(\S+)", text, re.MULTILINE)
            found.append(bus_id(location.group(1) if location else name))
    except (FileNotFoundError, NotADirectoryError):
        if machine.is_dir(PROC_GPUS):
            return _unreadable(where, "a GPU vanished while it was read")
        return (), Evidence(where, excerpt="no such directory")
    except (OSError, ValueError) as error:
        return _unreadable(where, error)
    return tuple(found), Evidence(where, excerpt="\n".join(found))


def _pci(machine: Machine) -> tuple[Union[tuple[str, ...], Unreadable], Evidence]:
    """Read the GPUs on the PCI bus, with a driver or without.

    Source: vendor 0x10de (NVIDIA) with class 0x0302xx (3D controller) or 0x0300xx (VGA) under /sys/bus/pci/devices.
    """
    found: list[str] = []
    where = f"{PCI_DEVICES}/*/{{vendor,class}}"
    try:
        for name in machine.list(PCI_DEVICES):
            if machine.text(f"{PCI_DEVICES}/{name}/vendor").strip() != "0x10de":
                continue
            if machine.text(f"{PCI_DEVICES}/{name}/class").startswith(("0x0302", "0x0300")):
                found.append(bus_id(name))
    except (OSError, ValueError) as error:
        return _unreadable(where, error)
    return tuple(found), Evidence(where, excerpt="\n".join(found))


def _unreadable(where: str, why: object) -> tuple[Unreadable, Evidence]:
    source = Evidence(where, excerpt=excerpt(str(why).encode()))
    return Unreadable(f"{where}: {why}", source), source


Nvml = tuple[Union[tuple[Gpu, ...], Unreadable], Evidence]


def _nvml(machine: Machine) -> tuple[str, Nvml]:
    """Ask nvidia-smi, and where it is not installed NVML itself."""
    if machine.which(NVIDIA_SMI) is not None:
        return NVIDIA_SMI, _smi(machine)
    if machine.simulated:
        # The library here would be that of the machine which plays the node.
        return NVIDIA_SMI, _unreadable(NVIDIA_SMI, "not found")
    return nvml.LIBRARY, _library()


def _library() -> Nvml:
    """Ask NVML's library; this may never return, but a fact runs in a child that can be left behind."""
    try:
        devices = nvml.devices()
    except OSError as error:
        return _unreadable(nvml.LIBRARY, f"no {NVIDIA_SMI}, and {error}")
    except nvml.Failed as error:
        return _unreadable(nvml.LIBRARY, error)
    found = tuple(Gpu(bus_id(item.bus_id), item.name, item.capability, item.memory_mib) for item in devices)
    return found, Evidence(nvml.LIBRARY, excerpt="\n".join(f"{gpu.bus_id}, {gpu.name}" for gpu in found))


# What follows knows nvidia-smi's ways, as recorded from 580.159.04: errors stand on stdout, the exit code is NVML's,
# and 0 does not mean that every GPU was seen.

_FIELDS = ("name", "compute_cap", "memory.total")
_UNKNOWN_FIELD, _NO_DEVICES, _BAD_INFOROM = 2, 6, 14
_NO_VALUE = re.compile(
    r"\[?(?:N/A|Not Supported|Unknown Error|GPU requires reset|GPU is lost|Insufficient Permissions"
    r"|Requested functionality has been deprecated|ERR!)?\]?\Z"
)
_ROW = re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7](?:,|\Z)")


def _smi(machine: Machine) -> Nvml:
    done = _query(machine, _FIELDS)
    if done.exit_code == _UNKNOWN_FIELD and not done.timed_out:
        return _field_by_field(machine)
    rows = _rows(done)
    if isinstance(rows, Unreadable):
        return rows, done.evidence()
    return tuple(_gpu(address, cells) for address, cells in rows), done.evidence()


def _query(machine: Machine, fields: tuple[str, ...]) -> Completed:
    argv = (NVIDIA_SMI, f"--query-gpu={','.join(('pci.bus_id', *fields))}", "--format=csv,noheader")
    return machine.run(argv, timeout_s=ANSWER_S)


def _rows(done: Completed) -> Union[list[tuple[str, list[str]]], Unreadable]:
    """Return the cells behind each bus id, or why there are none."""
    if done.timed_out or done.exit_code is None:
        return Unreadable(f"driver unresponsive after {ANSWER_S:g} s", done.evidence())
    lines = [line.strip() for line in done.text.splitlines() if line.strip()]
    rows = [line.split(", ") for line in lines if _ROW.match(line)]
    if done.exit_code == _NO_DEVICES:
        return []
    if done.exit_code not in (0, _BAD_INFOROM) or (lines and not rows):
        said = lines[0] if lines else excerpt(done.stderr).partition("\n")[0] or "it says nothing"
        return Unreadable(f"{NVIDIA_SMI} ended with {done.exit_code}: {said}", done.evidence())
    return [(bus_id(first), cells) for first, *cells in rows]


def _field_by_field(machine: Machine) -> Nvml:
    """Ask for each field alone: one that this driver does not know makes nvidia-smi refuse the whole query."""
    done = _query(machine, ())
    rows = _rows(done)
    if isinstance(rows, Unreadable):
        return rows, done.evidence()
    found: dict[str, dict[str, str]] = {address: {} for address, _ in rows}
    for field in _FIELDS:
        answer = _rows(_query(machine, (field,)))
        for address, cells in [] if isinstance(answer, Unreadable) else answer:
            found.setdefault(address, {})[field] = ", ".join(cells)
    return tuple(
        _gpu(address, [cells.get(field, "") for field in _FIELDS]) for address, cells in found.items()
    ), done.evidence()


def _gpu(address: str, cells: list[str]) -> Gpu:
    """Build a GPU of its cells; should a name hold a comma one day, the last two cells still never do."""
    *name, capability, memory = cells
    return Gpu(address, _cell(", ".join(name)), _capability(capability), _mebibytes(memory))


def _cell(text: str) -> Optional[str]:
    text = text.strip()
    return None if _NO_VALUE.match(text) else text


def _capability(text: str) -> Optional[Capability]:
    found = re.fullmatch(r"(\d+)\.(\d+)", text.strip())
    return (int(found.group(1)), int(found.group(2))) if found else None


def _mebibytes(text: str) -> Optional[int]:
    found = re.fullmatch(r"(\d+)\s*MiB", text.strip())
    return int(found.group(1)) if found else None
