"""CPUs and memory that a build may use, read from a tree of files as kernels have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.node.facts.system import Cpus, cpus, memory
from k3env.node.machine import Machine

GIB = 1 << 30
KIB_OF_GIB = 1 << 20


def node(number: int, cpus: str, free: int, cached: int = 0) -> dict[str, str]:
    """A NUMA node as /sys has it; sizes in GiB."""
    lines = {"MemTotal": 2 * free, "MemFree": free, "Active(file)": cached, "Inactive(file)": 0, "SReclaimable": 0}
    text = "".join(f"Node {number} {key}:{value * KIB_OF_GIB:15} kB\n" for key, value in lines.items())
    return {
        f"/sys/devices/system/node/node{number}/cpulist": f"{cpus}\n",
        f"/sys/devices/system/node/node{number}/meminfo": text,
    }


def tree(root: Path, files: dict[str, str], cpu_count: int = 8) -> Machine:
    """A machine that sees these files, and nothing of this one's memory."""
    defaults = {
        "/proc/meminfo": f"MemTotal: {800 * KIB_OF_GIB} kB\nMemAvailable: {400 * KIB_OF_GIB} kB\n",
        "/proc/self/cgroup": "0::/nowhere/at/all\n",
        "/machine.json": f'{{"cpus": {cpu_count}}}',
        "/sys/devices/system/node/online": "0\n",
        "/sys/fs/cgroup/memory.max": "max\n",
        "/sys/fs/cgroup/memory.high": "max\n",
        "/sys/fs/cgroup/memory.current": "0\n",
        "/sys/fs/cgroup/cpu.max": "max 100000\n",
    }
    for name, text in {**defaults, **files}.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Machine(overlay=str(root))


def test_a_grace_node_counts_no_gpu_memory(tmp_path: Path) -> None:
    nodes = {**node(0, "0-71", 200, 30), **node(1, "72-143", 210), **node(2, "", 280), **node(10, "", 280)}
    found = memory(tree(tmp_path, {"/proc/meminfo": f"MemAvailable: {1000 * KIB_OF_GIB} kB\n", **nodes}))
    assert (found.available, found.cpu_nodes, found.cgroup) == (1000 * GIB, 440 * GIB, None)


def test_a_node_whose_memory_all_has_cpus(tmp_path: Path) -> None:
    found = memory(tree(tmp_path, {**node(0, "0-7", 200), **node(1, "8-15", 200)}))
    assert (found.available, found.cpu_nodes) == (400 * GIB, None)
    assert found.source[0].source == "/proc/meminfo"


@pytest.mark.parametrize(
    ("files", "left"),
    [
        ({"memory.max": "max", "memory.high": "max"}, None),
        ({"memory.max": str(64 * GIB), "memory.current": str(10 * GIB)}, 54),
        ({"memory.max": str(64 * GIB), "memory.high": str(32 * GIB), "memory.current": str(10 * GIB)}, 22),
        ({"memory.max": str(8 * GIB), "memory.current": str(9 * GIB)}, 0),
        (
            {
                "memory.max": str(64 * GIB),
                "memory.current": str(60 * GIB),
                "memory.stat": f"anon 1\ninactive_file {50 * GIB}\n",
            },
            54,
        ),
    ],
)
def test_a_cgroup_of_version_2(tmp_path: Path, files: dict[str, str], left: int | None) -> None:
    job = "/sys/fs/cgroup/system.slice/job_1"
    around = {"/proc/self/cgroup": "0::/system.slice/job_1/step_0\n", f"{job}/memory.current": "0\n"}
    found = memory(tree(tmp_path, {**around, **{f"{job}/{name}": f"{text}\n" for name, text in files.items()}}))
    assert found.cgroup == (None if left is None else left * GIB)


def test_a_cgroup_of_version_1(tmp_path: Path) -> None:
    step = "/sys/fs/cgroup/memory/slurm/job_1"
    files = {
        "/proc/self/cgroup": "4:cpu,cpuacct:/slurm\n3:memory:/slurm/job_1\n",
        f"{step}/memory.limit_in_bytes": f"{32 * GIB}\n",
        f"{step}/memory.usage_in_bytes": f"{4 * GIB}\n",
        f"{step}/memory.stat": f"total_inactive_file {1 * GIB}\n",
        "/sys/fs/cgroup/memory/slurm/memory.limit_in_bytes": "9223372036854771712\n",
        "/sys/fs/cgroup/memory/slurm/memory.usage_in_bytes": "0\n",
    }
    assert memory(tree(tmp_path, files)).cgroup == 29 * GIB


def test_a_quota_of_cpus(tmp_path: Path) -> None:
    files = {
        "/proc/self/cgroup": "0::/job\n",
        "/sys/fs/cgroup/job/cpu.max": "250000 100000\n",
    }
    found = cpus(tree(tmp_path, files, cpu_count=16))
    assert found == Cpus(16, 2.5)
    assert (found.usable, Cpus(16).usable, Cpus(16, 0.5).usable) == (2, 16, 1)
