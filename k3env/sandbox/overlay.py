"""A tray's /proc, /sys and /dev as plain files. Composed from public facts, never recorded on a machine.

The agent on a tray looks here first and then at the machine it really runs on, so what stands here is what a rule may
ask: driver, GPUs, PCI, NUMA, memory, limits, boot id. Mounts are absent on purpose: whether a cache is on a local
filesystem is answered by the real machine.
"""

from __future__ import annotations

import json
import uuid
from pathlib import Path

from k3env.sandbox.gpus import GPUS, Gpu
from k3env.sandbox.spec import Spec

MACHINE = "machine.json"
"""Answers that are no files, beside the files: free space and inodes by path prefix, CPUs, memory in bytes."""
NVIDIA_SMI = "nvidia-smi.json"
"""What nvidia-smi gets from the hardware and not from a file, by PCI device id."""
KERNEL_LOG, UNITS, IMEX = "tools/kernel.log", "tools/units", "tools/imex"
"""What dmesg and journalctl, systemctl, and nvidia-imex-ctl of a tray print."""
BOOT_ID = "proc/sys/kernel/random/boot_id"

_GIB = 1 << 30
_IMEX_NODES = tuple(f"10.0.0.{number}" for number in range(1, 5))
_FREE_INODES = 100_000_000
_CGROUP = "system.slice/ssh.service"
_SPACE = uuid.UUID("6b3e0f6e-6b33-5a4e-8a0d-6b3365766e76")  # names the sandbox's own uuids


def compose(host: str, spec: Spec) -> dict[str, str]:
    """Return the files of a tray's overlay, text by path; a path that ends in / is a directory, even if empty."""
    gpu = GPUS[spec.gpu]
    return {
        **_driver(spec, gpu),
        **_gpus(host, spec, gpu),
        **_memory(spec, gpu),
        **_kernel(host, gpu),
        **_services(spec, gpu),
        MACHINE: _json(machine(spec)),
        NVIDIA_SMI: _json(hardware(spec)),
    }


def write(directory: Path, files: dict[str, str]) -> None:
    """Write the files under a directory that is made for them."""
    for name, text in files.items():
        path = directory / name
        if name.endswith("/"):
            path.mkdir(parents=True, exist_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")


def reboot(overlay: Path) -> None:
    """Give the tray another boot id, as a start of the machine does."""
    path = overlay / BOOT_ID
    fresh = path.with_name("boot_id.new")
    fresh.write_text(f"{uuid.uuid4()}\n", encoding="ascii")
    fresh.replace(path)


def machine(spec: Spec) -> dict[str, object]:
    """Return the answers that are no files."""
    board = GPUS[spec.gpu].board
    memory = board.memory_gib * _GIB
    return {
        "free_bytes": {"/": spec.free_gib * _GIB},
        "free_inodes": {"/": _FREE_INODES if spec.free_gib else 0},
        "cpus": board.cpus,
        "architecture": board.machine,
        "page_size": 65536 if board.is_coherent else 4096,
        "memory_bytes": memory,
        "mem_available_bytes": memory * 9 // 10,
    }


def hardware(spec: Spec) -> dict[str, object]:
    """Return what nvidia-smi is told by the hardware: the GPUs by device id, and their NVLink domain."""
    gpu = GPUS[spec.gpu]
    cells = {
        "compute_cap": gpu.compute_cap,
        "memory_mib": gpu.memory_mib,
        "power_w": gpu.power_w,
        "addressing_mode": "ATS" if gpu.board.is_coherent else "None",  # values: `nvidia-smi --help-query-gpu`
        "links": gpu.links,
        "link_gb_s": gpu.link_gb_s,
    }
    # A domain over several trays has a UUID; HGX H200 shows Completed, Success, clique 0 and a UUID of zeros.
    domain = uuid.uuid5(_SPACE, "rack") if gpu.board.is_coherent else uuid.UUID(int=0)
    fabric = {"state": "Completed", "status": "Success", "cliqueId": "0", "clusterUuid": str(domain)}
    ill = {"cells": dict(spec.cells), "links_down": list(spec.links_down)}
    return {"gpus": {gpu.device_id: cells}, "fabric": fabric, **ill}


def _driver(spec: Spec, gpu: Gpu) -> dict[str, str]:
    # Blackwell runs with the open kernel module alone; the wording is that of 550 and 580 in public reports and, for
    # x86_64, of 580.159.04. The builder and the date behind "Release Build" can be absent, so they are.
    version = f"NVRM version: NVIDIA UNIX Open Kernel Module for {gpu.board.machine}  {spec.driver}  Release Build\n"
    return {
        "proc/driver/nvidia/version": version,
        "sys/module/nvidia/version": f"{spec.driver}\n",
        # The form of /proc/modules: proc(5). Sizes are of no meaning here.
        "proc/modules": "nvidia_uvm 1740800 0 - Live 0x0000000000000000 (OE)\n"
        "nvidia 104513536 1 nvidia_uvm, Live 0x0000000000000000 (OE)\n",
        "dev/nvidiactl": "",
        "dev/nvidia-uvm": "",
    }


def _gpus(host: str, spec: Spec, gpu: Gpu) -> dict[str, str]:
    files = {"proc/driver/nvidia/gpus/": "", "sys/bus/pci/devices/": ""}
    for index, bus in enumerate(gpu.buses[: spec.gpus]):
        # The kernel writes the PCI domain with four digits and small letters, nvidia-smi with eight and capitals.
        kernel_bus = bus[4:].lower()
        files[f"proc/driver/nvidia/gpus/{kernel_bus}/information"] = _information(host, spec, gpu, index, kernel_bus)
        files[f"sys/bus/pci/devices/{kernel_bus}/vendor"] = "0x10de\n"  # NVIDIA, in the PCI id list
        files[f"sys/bus/pci/devices/{kernel_bus}/device"] = f"{gpu.device_id}\n"
        files[f"sys/bus/pci/devices/{kernel_bus}/class"] = "0x030200\n"  # 3D controller, in the PCI id list
        files[f"dev/nvidia{index}"] = ""
    return files


def _information(host: str, spec: Spec, gpu: Gpu, index: int, bus: str) -> str:
    # Keys, their order and the blanks behind them: driver 580.159.04 on H200.
    lines = (
        f"Model: \t\t {gpu.name}",
        f"GPU UUID: \t GPU-{uuid.uuid5(_SPACE, f'{host}/{index}')}",
        "Bus Type: \t PCIe",
        f"Bus Location: \t {bus}",
        f"Device Minor: \t {index}",
        f"GPU Firmware: \t {spec.driver}",
        "GPU Excluded:\t No",
    )
    return "\n".join(lines) + "\n"


def _memory(spec: Spec, gpu: Gpu) -> dict[str, str]:
    board = gpu.board
    per_node = board.memory_gib * 1024 * 1024 // board.cpu_nodes
    per_cpus = board.cpus // board.cpu_nodes
    nodes = {n: (f"{n * per_cpus}-{(n + 1) * per_cpus - 1}", per_node) for n in range(board.cpu_nodes)}
    if board.is_coherent:
        # `nvidia-smi topo -m` of GB200 in NUMA mode: the four GPUs are the nodes 2, 10, 18 and 26.
        nodes.update({2 + 8 * index: ("", gpu.memory_mib * 1024) for index in range(spec.gpus)})
    total = sum(kib for _, kib in nodes.values())
    files = {
        # With GPU memory in it: who sizes a build by MemTotal here is wrong by the memory of the GPUs.
        "proc/meminfo": _meminfo("", total),
        "sys/devices/system/node/online": ",".join(map(str, sorted(nodes))) + "\n",
        "sys/devices/system/node/has_cpu": f"0-{board.cpu_nodes - 1}\n",
        "sys/devices/system/cpu/online": f"0-{board.cpus - 1}\n",
    }
    for node, (cpus, kib) in nodes.items():
        files[f"sys/devices/system/node/node{node}/cpulist"] = f"{cpus}\n"
        files[f"sys/devices/system/node/node{node}/meminfo"] = _meminfo(f"Node {node} ", kib)
    return files


def _meminfo(prefix: str, kib: int) -> str:
    # The form of /proc/meminfo and of a NUMA node's: proc(5) and the kernel's sysfs-devices-node. A tenth is in use.
    free = kib * 9 // 10
    rows = (("MemTotal", kib), ("MemFree", free), ("MemAvailable", free))
    shown = rows if not prefix else rows[:2]
    return "".join(f"{prefix}{key + ':':<16}{value:>12} kB\n" for key, value in shown)


def _kernel(host: str, gpu: Gpu) -> dict[str, str]:
    # A kernel with 64 KiB pages, as a public report of GB300 names it; a stock one where the GPUs hang on x86_64.
    release = "6.8.0-1058-nvidia-64k" if gpu.board.machine == "aarch64" else "6.8.0-60-generic"
    return {
        BOOT_ID: f"{uuid.uuid4()}\n",
        "proc/sys/kernel/hostname": f"{host}\n",
        "proc/sys/kernel/osrelease": f"{release}\n",
        # cgroup v2 without limits, as sshd's service has them: the kernel's cgroup-v2 document, systemd's defaults.
        "proc/self/cgroup": f"0::/{_CGROUP}\n",
        "sys/fs/cgroup/cgroup.controllers": "cpuset cpu io memory pids\n",
        f"sys/fs/cgroup/{_CGROUP}/memory.max": "max\n",
        f"sys/fs/cgroup/{_CGROUP}/cpu.max": "max 100000\n",
        # As NVIDIA's tuning guide for Grace has them; a frequency domain a socket stands for all.
        "proc/sys/kernel/numa_balancing": "0\n",
        **{
            f"sys/devices/system/cpu/cpufreq/policy{n * gpu.board.cpus // 2}/scaling_governor": "performance\n"
            for n in (0, 1)
        },
        **_network(gpu),
    }


def _network(gpu: Gpu) -> dict[str, str]:
    # A ConnectX-8 of 800 Gb/s for each GPU of a GB300 tray: NVIDIA's data sheet. Texts: the kernel's
    # sysfs-class-infiniband.
    if gpu.name != "NVIDIA GB300":
        return {}
    texts = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "800 Gb/sec (4X XDR)", "link_layer": "InfiniBand"}
    return {
        f"sys/class/infiniband/mlx5_{card}/ports/1/{name}": f"{text}\n"
        for card in range(len(gpu.buses))
        for name, text in texts.items()
    }


def _services(spec: Spec, gpu: Gpu) -> dict[str, str]:
    # What systemctl, nvidia-imex-ctl, journalctl and dmesg of the tray print. The form of the domain is that of
    # `nvidia-imex-ctl -N -j` in public tools that read it; all trays have the same list of nodes, as a rack must.
    bus = gpu.buses[0][4:].lower().rsplit(".", 1)[0]
    lines = [f"NVRM: Xid (PCI:{bus}): {xid}, pid=4711, name=python3" for xid in spec.xids]
    log = "".join(f"{line}\n" for line in ("Linux version of the sandbox", *lines))
    if not gpu.board.is_coherent:
        return {KERNEL_LOG: log, f"{UNITS}/nvidia-fabricmanager": "active\n"}
    is_ready = spec.imex == "READY"
    link = "CONNECTED" if is_ready else "INVALID"
    connections = {
        str(number): {"host": node, "status": link, "changed": True} for number, node in enumerate(_IMEX_NODES)
    }
    node = {"status": spec.imex, "connections": connections, "changed": True, "version": spec.driver}
    nodes = {str(number): {**node, "host": address} for number, address in enumerate(_IMEX_NODES)}
    return {
        KERNEL_LOG: log,
        f"{UNITS}/nvidia-imex": "active\n",
        f"{IMEX}/state": f"{spec.imex}\n",
        f"{IMEX}/domain.json": _json({"nodes": nodes, "status": "UP" if is_ready else "DOWN"}),
        "dev/nvidia-caps-imex-channels/channel0": "",
        "proc/devices": "Character devices:\n195 nvidia\n242 nvidia-caps-imex-channels\n",
    }


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"
