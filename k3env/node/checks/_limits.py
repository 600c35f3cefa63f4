"""What a rank must be allowed, and how the kernel must be set."""

from __future__ import annotations

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts.cache import Filesystem, cache_filesystem
from k3env.node.facts.limits import Affinity, Limit, Limits, SharedMemory, affinity, limits, shared_memory
from k3env.node.facts.system import Memory, memory
from k3env.node.facts.tuning import Governors, Modules, Numa, governors, modules, numa
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.folding import fold
from k3env.protocol.profile import Profile

GIB = 1 << 30
_SLURMD = "systemctl edit slurmd, then restart it"


@check("system.limits", limits, scope="rank", severity="fail")
def open_files(limits: Limits, profile: Profile) -> Finding:
    """A rank may open as many files as TensorRT LLM's launch asks for: above its hard limit `ulimit -n` fails."""
    wanted = profile.system.nofile
    if limits.nofile.hard is not None and limits.nofile.hard < wanted:
        return fail(
            expected=f"a hard limit of {wanted} open files or more",
            found=_shown(limits.nofile),
            remedy=f"set LimitNOFILE={wanted} or more for slurmd: {_SLURMD}; for containers, in their engine",
        )
    return passed(_shown(limits.nofile))


@check("system.memlock", limits, scope="rank", severity="warn")
def locked_memory(limits: Limits, profile: Profile) -> Finding:
    """A rank may lock all its memory: RDMA and pinned buffers need it."""
    if limits.memlock.soft is not None:
        return fail(
            expected="locked memory unlimited",
            found=f"{_shown(limits.memlock)} bytes",
            remedy=f"set LimitMEMLOCK=infinity for slurmd: {_SLURMD}, and PropagateResourceLimitsExcept=MEMLOCK in"
            " slurm.conf",
        )
    return passed("unlimited")


@check("system.shm", shared_memory, scope="rank", severity="warn")
def shm(shared_memory: SharedMemory, profile: Profile) -> Finding:
    """Shared memory has room for what NCCL and the ranks put there."""
    wanted = profile.system.shm_free_gib
    expected = f">= {wanted:g} GiB free in /dev/shm"
    remedy = "remove what jobs left there, or give the container a larger one: --ipc=host, or --shm-size"
    if shared_memory.free_bytes is None:
        return fail(expected=expected, found="no /dev/shm", remedy=remedy)
    found = f"{shared_memory.free_bytes / GIB:.1f} GiB free"
    if shared_memory.free_bytes < wanted * GIB:
        return fail(expected=expected, found=found, remedy=remedy)
    return passed(found)


@check("system.mem_cgroup", memory, cache_filesystem, scope="rank", severity="warn")
def mem_cgroup(memory: Memory, cache_filesystem: Filesystem, profile: Profile) -> Finding:
    """The job's memory limit leaves room for the ranks, and for caches in memory, which count into it."""
    if memory.cgroup is None:
        return passed("no limit")
    where = cache_filesystem.locality
    in_memory = where is not None and where.data.fstype in ("tmpfs", "ramfs")
    caches = profile.cache.free_gib if in_memory else 0
    wanted = (profile.job.memory_gib or 0) + caches
    found = f"{memory.cgroup / GIB:.1f} GiB left of the job's limit"
    if not wanted:
        return skip(f"no memory is asked for, and no cache is in memory; {found}")
    if memory.cgroup < wanted * GIB:
        why = f", {caches:g} of it for caches in memory" if caches else ""
        return fail(
            expected=f">= {wanted:g} GiB{why}",
            found=found,
            remedy="ask Slurm for all of the node's memory: --mem=0" + ("; or move cache_base to a disk" * in_memory),
        )
    return passed(found)


@check("system.affinity", affinity, scope="rank", severity="warn")
def near_gpu(affinity: Affinity, profile: Profile) -> Finding:
    """A rank may run on CPUs near its GPU."""
    if affinity.local_rank is None or affinity.gpu is None:
        return skip("no local rank with a GPU of its own: not in a step with a task for each GPU")
    if isinstance(affinity.near, Unreadable):
        return unknown(affinity.near.reason)
    if not affinity.near:
        return skip(f"the kernel names no CPUs near {affinity.gpu}")
    near = _cpus(affinity.near)
    if not set(affinity.cpus) & set(affinity.near):
        return fail(
            expected=f"some of the CPUs {near}, near GPU {affinity.gpu}",
            found=f"CPUs {_cpus(affinity.cpus)}",
            remedy="start ranks with srun --cpus-per-task and --gpus-per-task, or --cpu-bind=none",
        )
    return passed(f"CPUs {_cpus(affinity.cpus)}, near GPU {affinity.gpu}: {near}")


@check("system.numa", numa, scope="node", severity="warn")
def numa_balancing(numa: Numa, profile: Profile) -> Finding:
    """The kernel does not move memory between NUMA nodes by itself: page faults for it stall ranks."""
    if numa.balancing not in (None, "0"):
        return fail(
            expected="kernel.numa_balancing = 0",
            found=numa.balancing or "",
            remedy="sysctl -w kernel.numa_balancing=0, and the same in /etc/sysctl.d",
        )
    return passed("off" if numa.balancing else "this kernel can't")


@check("system.governor", governors, scope="node", severity="warn")
def governor(governors: Governors, profile: Profile) -> Finding:
    """CPUs run at full speed: ranks launch kernels from few threads."""
    if not governors.policies:
        return skip("the kernel does not set the CPUs' frequency here")
    slow = {name: count for name, count in governors.policies.items() if name != "performance"}
    if slow:
        return fail(
            expected="governor performance",
            found=", ".join(f"{name or 'none'} on {count} frequency domains" for name, count in slow.items()),
            remedy="cpupower frequency-set -g performance",
        )
    return passed("performance")


@check("system.modules", modules, scope="node", severity="fail")
def kernel_modules(modules: Modules, profile: Profile) -> Finding:
    """The driver's module for unified memory is loaded: containers can't have its device otherwise."""
    if "nvidia" not in modules.loaded:
        return skip("no driver loaded: see gpu.driver.loaded")
    if "nvidia_uvm" not in modules.loaded:
        return fail(
            expected="nvidia_uvm loaded",
            found="nvidia without it",
            remedy="nvidia-modprobe -u -c 0, and at boot: echo nvidia_uvm > /etc/modules-load.d/nvidia-uvm.conf",
        )
    return passed("nvidia_uvm")


@check("system.modules_rdma", modules, scope="node", severity="info")
def rdma_modules(modules: Modules, profile: Profile) -> Finding:
    """GPUs and network cards exchange data directly: by nvidia_peermem, or by DMA-BUF without it; gdrdrv for EPLB."""
    if "nvidia" not in modules.loaded:
        return skip("no driver loaded: see gpu.driver.loaded")
    missing = [name for name in ("nvidia_peermem", "gdrdrv") if name not in modules.loaded]
    if missing:
        return fail(
            expected="nvidia_peermem and gdrdrv loaded",
            found=f"without {' and '.join(missing)}",
            remedy="none needed where DMA-BUF works, as on GB300; gdrdrv is wanted for online expert balancing",
            message=f"{' and '.join(missing)} not loaded, which is fine with DMA-BUF",
        )
    return passed("nvidia_peermem gdrdrv")


def _shown(limit: Limit) -> str:
    words = ["unlimited" if value is None else str(value) for value in (limit.soft, limit.hard)]
    return f"soft {words[0]}, hard {words[1]}"


def _cpus(cpus: tuple[int, ...]) -> str:
    return fold(map(str, cpus)).strip("[]")
