"""A stand-in for nvidia-smi in k3env's sandbox. It asks no GPU: it reads the files of a tray.

    python3 nvidia_smi.py OVERLAY [-L] [-i INDEX[,INDEX]] [--query-gpu=FIELD[,FIELD] --format=csv[,noheader][,nounits]]
                          [--query-compute-apps=FIELD[,FIELD]] [-q [-d SECTION]] [nvlink -s]

Driver and GPUs come from OVERLAY/proc, /sys and /dev each time, so what is edited there is seen. Texts and exit codes
are those of driver 580.159.04: errors go to standard output; 2 unknown field, 6 no device, 9 no driver, 255 bad option.
Standard library only: it is copied into a tray's `lib` and runs there by itself.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import NamedTuple, Optional

BANNER = "NVIDIA-SMI {driver} (a stand-in of k3env's sandbox, no GPU behind it)"
NO_DRIVER = (
    "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. "
    "Make sure that the latest NVIDIA driver is installed and running.\n"
)
UNITS = {
    **dict.fromkeys(("memory.total", "memory.used", "memory.free"), "MiB"),
    **dict.fromkeys(("power.limit", "power.default_limit", "power.draw"), "W"),
}
HEALTH = {
    "fabric.health.summary": "Healthy",
    "fabric.health.bandwidth": "Full",
    "fabric.health.route_recovery_in_progress": "False",
    "fabric.health.route_unhealthy": "False",
    "fabric.health.access_timeout_recovery": "False",
    "fabric.health.incorrect_configuration": "None",
}


class Stop(Exception):
    """What to print last, and the exit code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


class Gpu(NamedTuple):
    """A GPU as the tray's files show it."""

    minor: int
    name: str
    uuid: str
    bus: str
    device_id: str


def main(argv: list[str]) -> int:
    overlay, *arguments = argv
    try:
        print(answer(overlay, arguments))
    except Stop as stop:
        print(stop)
        return stop.code
    return 0


def answer(overlay: str, arguments: list[str]) -> str:
    """Return what nvidia-smi would print, or raise Stop."""
    options = read_options(arguments)
    driver = driver_version(overlay)
    gpus = visible(overlay)
    if not gpus:
        raise Stop(6, "No devices were found")
    chosen = choose(gpus, options.get("-i"))
    if "nvlink" in options:
        return links(gpus, chosen, told(overlay))
    if "--query-compute-apps" in options:
        # Nobody computes on a tray.
        head = ", ".join(field.strip() for field in options["--query-compute-apps"].split(","))
        return "" if "noheader" in options.get("--format", "").split(",") else head
    if "-q" in options:
        return whole(overlay, driver, gpus, chosen)
    if "--query-gpu" in options:
        return query(overlay, driver, gpus, chosen, options["--query-gpu"], options.get("--format", ""))
    if "-L" in options:
        return "\n".join(f"GPU {index}: {gpus[index].name} (UUID: {gpus[index].uuid})" for index in chosen)
    rows = [f"{index}  {gpus[index].name}  {gpus[index].bus}" for index in chosen]
    return "\n".join([BANNER.format(driver=driver), f"Driver Version: {driver}", *rows])


def read_options(arguments: list[str]) -> dict[str, str]:
    """Return the options and their values; only those in use on a node are known."""
    options = {}
    rest = list(arguments)
    while rest:
        name, equals, value = rest.pop(0).partition("=")
        if name in ("-L", "--list-gpus") and not equals:
            options["-L"] = ""
        elif name in ("-q", "--query", "nvlink", "-s") and not equals:
            options["-q" if name == "--query" else name] = ""
        elif name in ("-i", "--id", "-d", "--query-gpu", "--query-compute-apps", "--format"):
            if not equals:
                value = rest.pop(0) if rest else ""
            options["-i" if name == "--id" else name] = value
        else:
            raise Stop(255, f"ERROR: Option {name} is not recognized. Please run 'nvidia-smi -h'.")
    return options


def driver_version(overlay: str) -> str:
    """Return the version of the loaded kernel module."""
    text = read(overlay, "proc/driver/nvidia/version")
    found = re.search(r"Kernel Module\D*?(?:for \S+)?\s+(\d+\.[\d.]+)", text or "")
    if not found:
        raise Stop(9, NO_DRIVER)
    return found.group(1)


def visible(overlay: str) -> list[Gpu]:
    """Return the GPUs whose device node can be opened, in the order of their buses. NVML sees no others."""
    directory = os.path.join(overlay, "proc/driver/nvidia/gpus")
    buses = sorted(os.listdir(directory)) if os.path.isdir(directory) else []
    gpus = [gpu for gpu in (read_gpu(overlay, bus) for bus in buses) if gpu]
    seen = [gpu for gpu in gpus if os.path.exists(os.path.join(overlay, f"dev/nvidia{gpu.minor}"))]
    if gpus and not seen:
        raise Stop(9, NO_DRIVER)
    return seen


def read_gpu(overlay: str, bus: str) -> Optional[Gpu]:
    """Return a GPU from the driver's information file; None where there is none."""
    text = read(overlay, f"proc/driver/nvidia/gpus/{bus}/information")
    if text is None:
        return None
    rows = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in text.splitlines())}
    domain, _, rest = rows.get("Bus Location", bus).partition(":")
    device = (read(overlay, f"sys/bus/pci/devices/{bus}/device") or "").strip()
    return Gpu(
        minor=int(rows.get("Device Minor", "0")),
        name=rows.get("Model", ""),
        uuid=rows.get("GPU UUID", ""),
        bus=f"{domain:0>8}:{rest}".upper(),
        device_id=device,
    )


def choose(gpus: list[Gpu], wanted: Optional[str]) -> list[int]:
    """Return the indices that -i names, all without it."""
    if wanted is None:
        return list(range(len(gpus)))
    indices = [int(part) if part.isdigit() else -1 for part in wanted.split(",")]
    if any(index not in range(len(gpus)) for index in indices):
        raise Stop(6, "No devices were found")
    return indices


def query(overlay: str, driver: str, gpus: list[Gpu], chosen: list[int], fields: str, form: str) -> str:
    """Return the CSV table of some fields."""
    wanted = [field.strip() for field in fields.split(",")]
    rows = []
    for index in chosen:
        cells = values(driver, len(gpus), index, gpus[index], told(overlay))
        for field in wanted:
            if field not in cells:
                raise Stop(2, f'Field "{field}" is not a valid field to query.\n')
        rows.append(", ".join(cell(field, cells[field], form) for field in wanted))
    if "noheader" in form.split(","):
        return "\n".join(rows)
    return "\n".join([", ".join(head(field, form) for field in wanted), *rows])


def links(gpus: list[Gpu], chosen: list[int], told: dict) -> str:  # type: ignore[type-arg]
    """Return the state of each NVLink, as `nvlink -s` prints it."""
    lines = []
    for index in chosen:
        known = told.get("gpus", {}).get(gpus[index].device_id, {})
        lines.append(f"GPU {index}: {gpus[index].name} (UUID: {gpus[index].uuid})")
        speed, down = known.get("link_gb_s", 0), told.get("links_down", [])
        lines += [
            f"\t Link {link}: {'<inactive>' if link in down else f'{speed:.3f} GB/s'}"
            for link in range(known.get("links", 0))
        ]
    return "\n".join(lines)


def whole(overlay: str, driver: str, gpus: list[Gpu], chosen: list[int]) -> str:
    """Return what of `-q` somebody reads here: repairs and the fabric, in the form of driver 580."""
    lines = ["", "==============NVSMI LOG==============", "", f"{'Attached GPUs':<55}: {len(chosen)}"]
    for index in chosen:
        cells = values(driver, len(gpus), index, gpus[index], told(overlay))
        lines.append(f"GPU {gpus[index].bus}")
        rows = (
            (4, "ECC Errors", None),
            *((8, name, "No") for name in ("Channel Repair Pending", "TPC Repair Pending", "Unrepairable Memory")),
            (4, "Fabric", None),
            (8, "State", cells["fabric.state"]),
            (8, "Status", cells["fabric.status"]),
            (8, "CliqueId", cells["fabric.cliqueId"]),
            (8, "ClusterUUID", cells["fabric.clusterUuid"]),
            (8, "Health", None),
            (12, "Summary", cells["fabric.health.summary"]),
            (12, "Bandwidth", cells["fabric.health.bandwidth"]),
        )
        for indent, name, text in rows:
            key = " " * indent + name
            lines.append(key if text is None else f"{key:<55}: {text}")
        lines.append("")
    return "\n".join(lines)


def head(field: str, form: str) -> str:
    """Return a column's head, with the unit unless it was declined."""
    return f"{field} [{UNITS[field]}]" if field in UNITS and "nounits" not in form.split(",") else field


def cell(field: str, value: str, form: str) -> str:
    """Return a cell, with the unit unless it was declined or nothing is known."""
    has_unit = field in UNITS and "nounits" not in form.split(",") and not value.startswith("[")
    return f"{value} {UNITS[field]}" if has_unit else value


def told(overlay: str) -> dict:  # type: ignore[type-arg]
    """Return what the hardware tells: the GPUs by device id, and what is wrong with them."""
    found: dict = json.loads(read(overlay, "nvidia-smi.json") or "{}")  # type: ignore[type-arg]
    return found


def values(driver: str, count: int, index: int, gpu: Gpu, told: dict) -> dict[str, str]:  # type: ignore[type-arg]
    """Return all cells of a GPU. A device id that nobody described has [N/A] where the hardware would answer."""
    known = told.get("gpus", {}).get(gpu.device_id, {})
    fabric = told.get("fabric", {})
    memory = known.get("memory_mib")
    total = "[N/A]" if memory is None else str(memory)
    power = "[N/A]" if "power_w" not in known else f"{known['power_w']:.2f}"
    return {
        "index": str(index),
        "count": str(count),
        "name": gpu.name,
        "gpu_name": gpu.name,
        "uuid": gpu.uuid,
        "gpu_uuid": gpu.uuid,
        "serial": "[N/A]",
        "driver_version": driver,
        "pci.bus_id": gpu.bus,
        "gpu_bus_id": gpu.bus,
        "pci.domain": "0x" + gpu.bus.split(":")[0][-4:],
        "pci.bus": "0x" + gpu.bus.split(":")[1],
        "pci.device_id": f"0x{gpu.device_id[2:].upper()}10DE",
        "compute_cap": str(known.get("compute_cap", "[N/A]")),
        "memory.total": total,
        "memory.used": "0",
        "memory.free": total,
        "power.limit": power,
        "power.default_limit": power,
        "power.draw": "[N/A]",
        "addressing_mode": str(known.get("addressing_mode", "[N/A]")),
        "persistence_mode": "Enabled",
        "compute_mode": "Default",
        "pstate": "P0",
        "mig.mode.current": "Disabled",
        "ecc.mode.current": "Enabled",
        "ecc.errors.uncorrected.volatile.total": "0",
        "remapped_rows.pending": "No",
        "remapped_rows.failure": "No",
        "gpu_recovery_action": "None",
        "clocks_event_reasons.active": "0x0000000000000001",
        **(HEALTH if fabric.get("clusterUuid", "").strip("0-") else dict.fromkeys(HEALTH, "N/A")),
        **{f"fabric.{key}": str(value) for key, value in fabric.items()},
        **told.get("cells", {}),
    }


def read(overlay: str, name: str) -> Optional[str]:
    """Return a file's text, None where there is none."""
    try:
        with open(os.path.join(overlay, name), encoding="utf-8") as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
