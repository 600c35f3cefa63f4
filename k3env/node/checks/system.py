"""What a node, and a rank on it, must be besides its GPUs: network, limits, kernel, containers, image."""

from __future__ import annotations

from k3env.node.checks._containers import (
    container_libs,
    container_tmp,
    container_tools,
    enroot_paths,
    enroot_userns,
    pyxis_plugin,
    toolkit_age,
    toolkit_works,
)
from k3env.node.checks._image import image_arch, image_compressor, image_sqsh
from k3env.node.checks._kernel import about, arch_page, clock_set
from k3env.node.checks._limits import (
    governor,
    kernel_modules,
    locked_memory,
    mem_cgroup,
    near_gpu,
    numa_balancing,
    open_files,
    rdma_modules,
    shm,
)
from k3env.node.checks._network import net_egress, net_ib, net_rank0_port

__all__ = (
    "about",
    "arch_page",
    "clock_set",
    "container_libs",
    "container_tmp",
    "container_tools",
    "enroot_paths",
    "enroot_userns",
    "governor",
    "image_arch",
    "image_compressor",
    "image_sqsh",
    "kernel_modules",
    "locked_memory",
    "mem_cgroup",
    "near_gpu",
    "net_egress",
    "net_ib",
    "net_rank0_port",
    "numa_balancing",
    "open_files",
    "pyxis_plugin",
    "rdma_modules",
    "shm",
    "toolkit_age",
    "toolkit_works",
)
