"""The GPUs and their driver: what the kernel, the PCI bus and NVML each say, side by side."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Optional, Union

from k3env.node.facts import nvml, smi
from k3env.node.facts.smi import bus_id, unreadable
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt

VERSION_FILE = "/proc/driver/nvidia/version"
PROC_GPUS = "/proc/driver/nvidia/gpus"
PCI_DEVICES = "/sys/bus/pci/devices"

Capability = tuple[int, int]


@dataclass(frozen=True)
class Driver:
    """The loaded NVIDIA kernel driver."""

    version: Optional[str]
    """Such as "580.105.08"; None where no driver is loaded."""
    open_module: Optional[bool]
    """Whether it is the open kernel module; None where no driver is loaded."""
    source: Evidence
    cpu: Optional[str] = None
    """What the module was made for: "aarch64" or "x86_64"; None where it does not say."""


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
    device_ids: dict[str, str] = field(default_factory=dict)
    """PCI device ids, such as "0x31c2", by bus id."""
    reader: str = smi.NVIDIA_SMI
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
    text = line.decode("utf-8", "replace")
    found = re.search(r"Kernel Module(?: for \S+)?\s+(\d\S*)", text)
    if found is None:
        return Unreadable(f"no driver version in {VERSION_FILE}", source)
    cpu = re.search(r"\b(aarch64|x86_64)\b", text)
    return Driver(found.group(1), b"Open Kernel Module" in line, source, cpu.group(1) if cpu else None)


def gpus(machine: Machine) -> Gpus:
    """Read which GPUs there are from NVML, the kernel driver and the PCI bus.

    No one of them is enough: NVML leaves out a GPU whose device node can't be opened, with exit code 0.
    """
    reader, rows, seen_source = smi.table(machine, _FIELDS, nvml.identity)
    proc, proc_source = _proc(machine)
    pci, ids, pci_source = _pci(machine)
    seen = rows if isinstance(rows, Unreadable) else tuple(_gpu(*row) for row in rows)
    return Gpus(seen, proc, pci, ids, reader, (seen_source, proc_source, pci_source))


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
            return unreadable(where, "a GPU vanished while it was read")
        return (), Evidence(where, excerpt="no such directory")
    except (OSError, ValueError) as error:
        return unreadable(where, error)
    return tuple(found), Evidence(where, excerpt="\n".join(found))


def _pci(machine: Machine) -> tuple[Union[tuple[str, ...], Unreadable], dict[str, str], Evidence]:
    """Read the GPUs on the PCI bus and their device ids, with a driver or without.

    Source: vendor 0x10de (NVIDIA) with class 0x0302xx (3D controller) or 0x0300xx (VGA) under /sys/bus/pci/devices.
    """
    found: dict[str, str] = {}
    where = f"{PCI_DEVICES}/*/{{vendor,class}}"
    try:
        for name in machine.list(PCI_DEVICES):
            if machine.text(f"{PCI_DEVICES}/{name}/vendor").strip() != "0x10de":
                continue
            if machine.text(f"{PCI_DEVICES}/{name}/class").startswith(("0x0302", "0x0300")):
                found[bus_id(name)] = _device_id(machine, name)
    except (OSError, ValueError) as error:
        refused, source = unreadable(where, error)
        return refused, {}, source
    known = {address: device for address, device in found.items() if device}
    return tuple(found), known, Evidence(where, excerpt="\n".join(map(" ".join, found.items())))


def _device_id(machine: Machine, name: str) -> str:
    """Return a device id such as "0x31c2", or nothing where none can be read."""
    try:
        text = machine.text(f"{PCI_DEVICES}/{name}/device").strip().lower()
    except OSError:
        return ""
    return text if re.fullmatch(r"0x[0-9a-f]{4}", text) else ""


_FIELDS = ("name", "compute_cap", "memory.total")


def _gpu(address: str, cells: dict[str, str]) -> Gpu:
    return Gpu(
        address, smi.value(cells["name"]), _capability(cells["compute_cap"]), smi.mebibytes(cells["memory.total"])
    )


def _capability(text: str) -> Optional[Capability]:
    found = re.fullmatch(r"(\d{1,4})\.(\d{1,4})", text.strip())
    return (int(found.group(1)), int(found.group(2))) if found else None
