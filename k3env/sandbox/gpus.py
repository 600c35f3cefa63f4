"""The GPUs a tray can pretend to have: public facts, one row each, with the source beside the value."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Board:
    """The machine that carries the GPUs."""

    machine: str
    """As the kernel module's version line names it: aarch64 or x86_64."""
    cpus: int
    cpu_nodes: int
    """NUMA nodes that have CPUs."""
    memory_gib: int
    """Memory of the CPUs alone."""
    is_coherent: bool
    """Whether GPU memory appears as NUMA nodes without CPUs, as it does on Grace in NUMA mode."""


@dataclass(frozen=True)
class Gpu:
    """A GPU as its node shows it. The PCI vendor is always 0x10de, the class 0x030200 (a 3D controller)."""

    name: str
    """As nvidia-smi prints it."""
    compute_cap: str
    """Two integers: "10.3"."""
    device_id: str
    """PCI device id: "0x31c2"."""
    memory_mib: int
    power_w: int
    buses: tuple[str, ...]
    """PCI bus ids as nvidia-smi prints them, with an eight-digit domain, in the order of the indices."""
    board: Board
    links: int
    """NVLinks."""
    link_gb_s: float
    """Of each, as `nvidia-smi nvlink -s` prints it."""


# Two sockets of 72 cores: `nvidia-smi topo -m` of GB200 in public logs (CPU affinity 0-71, 72-143).
# 480 GB a socket: NVIDIA's data sheets of GB200 NVL72 and GB300 NVL72, 17 TB for 36 CPUs.
GRACE = Board(machine="aarch64", cpus=144, cpu_nodes=2, memory_gib=960, is_coherent=True)
# NVIDIA's data sheets of DGX B200, B300 and H200: two sockets of 56 cores, two threads each, 2 TB.
HGX = Board(machine="x86_64", cpus=224, cpu_nodes=2, memory_gib=2048, is_coherent=False)

_HGX_BUSES = tuple(f"00000000:{bus}:00.0" for bus in ("1B", "43", "52", "61", "9D", "C3", "D1", "DF"))

GPUS: dict[str, Gpu] = {
    "GB300": Gpu(
        name="NVIDIA GB300",  # this, memory, power and buses: nvidia-smi of trays in three independent public logs
        compute_cap="10.3",  # CUDA's table of GPUs
        device_id="0x31c2",  # DCGM's list of PCI ids
        memory_mib=284208,
        power_w=1400,
        buses=("00000008:06:00.0", "00000009:06:00.0", "00000018:06:00.0", "00000019:06:00.0"),
        board=GRACE,
        links=18,
        link_gb_s=53.125,  # `nvidia-smi nvlink -s` of Blackwell in public logs
    ),
    "GB200": Gpu(
        name="NVIDIA GB200",  # this, memory, power and buses: nvidia-smi of trays in public logs
        compute_cap="10.0",  # CUDA's table of GPUs
        device_id="0x2941",  # device filters in configurations of NVIDIA/mig-parted
        memory_mib=189471,
        power_w=1200,
        buses=("00000008:01:00.0", "00000009:01:00.0", "00000018:01:00.0", "00000019:01:00.0"),
        board=GRACE,
        links=18,
        link_gb_s=53.125,  # `nvidia-smi nvlink -s` of Blackwell in public logs
    ),
    "B300": Gpu(
        name="NVIDIA B300 SXM6 AC",  # this, memory and power: nvidia-smi of nodes in public logs
        compute_cap="10.3",  # CUDA's table of GPUs
        device_id="0x3182",  # DCGM's list of PCI ids
        memory_mib=275040,
        power_w=1100,
        buses=_HGX_BUSES,  # those of a DGX B200: they differ from maker to maker
        board=HGX,
        links=18,
        link_gb_s=53.125,  # `nvidia-smi nvlink -s` of Blackwell in public logs
    ),
    "B200": Gpu(
        name="NVIDIA B200",  # this, memory, power and buses: nvidia-smi of DGX B200 in public logs
        compute_cap="10.0",  # CUDA's table of GPUs
        device_id="0x2901",  # device filters in configurations of NVIDIA/mig-parted
        memory_mib=183359,
        power_w=1000,
        buses=_HGX_BUSES,
        board=HGX,
        links=18,
        link_gb_s=53.125,  # `nvidia-smi nvlink -s` of Blackwell in public logs
    ),
    "H200": Gpu(
        name="NVIDIA H200",  # every value: `nvidia-smi -q` of driver 580.159.04 on two of them
        compute_cap="9.0",
        device_id="0x2335",
        memory_mib=143771,
        power_w=700,
        buses=tuple(f"00000000:00:{slot:02X}.0" for slot in range(6, 14)),  # 06 and 07 seen, the rest counted on
        board=HGX,
        links=18,
        link_gb_s=26.562,
    ),
}
