"""Limits, CPUs and how the kernel is set: its own texts, and what this machine really has."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from k3env.node.facts import read
from k3env.node.facts.limits import Limit, affinity, cpu_list, limits, shared_memory
from k3env.node.facts.meta import meta
from k3env.node.facts.tuning import governors, modules, numa
from k3env.node.machine import Machine
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Profile
from tests.unit.node.tools import Node, known

UNLIMITED = resource.RLIM_INFINITY


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def limit(number: int) -> Limit:
    return Limit(*(None if value == UNLIMITED else value for value in resource.getrlimit(number)))


def test_this_process_has_the_limits_that_the_kernel_tells() -> None:
    found = known(limits(Machine()))
    assert (found.nofile, found.memlock) == (limit(resource.RLIMIT_NOFILE), limit(resource.RLIMIT_MEMLOCK))


HEAD = "Limit                     Soft Limit           Hard Limit           Units\n"
FILES = "Max open files            1024                 unlimited            files\n"
LOCKED = "Max locked memory         unlimited            unlimited            bytes\n"


def test_unlimited(node: Node) -> None:
    node.file("/proc/self/limits", HEAD + FILES + LOCKED)
    found = known(limits(node.machine()))
    assert (found.nofile, found.memlock) == (Limit(1024, None), Limit(None, None))


@pytest.mark.parametrize(
    "text", ["", HEAD, HEAD + FILES, HEAD + FILES + LOCKED[:30], HEAD + LOCKED + "Max open files  a b"]
)
def test_limits_that_are_cut(node: Node, text: str) -> None:
    node.file("/proc/self/limits", text)
    assert isinstance(limits(node.machine()), Unreadable)


def test_shared_memory_by_what_is_free(node: Node) -> None:
    node.file("/machine.json", '{"free_bytes": {"/dev/shm": 5}}')
    (node.overlay / "dev/shm").mkdir(parents=True)
    assert shared_memory(node.machine()).free_bytes == 5


@pytest.mark.parametrize(("text", "cpus"), [("", ()), ("0", (0,)), ("0-2,8", (0, 1, 2, 8)), ("72-73", (72, 73))])
def test_lists_of_cpus(text: str, cpus: tuple[int, ...]) -> None:
    assert cpu_list(text) == cpus


@pytest.mark.parametrize("text", ["x", "1-", "0-99999999999", "1;2"])
def test_no_lists_of_cpus(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        cpu_list(text)


def test_a_rank_and_its_gpu(node: Node) -> None:
    node.file("/proc/self/status", "Name:\tpython3\nCpus_allowed:\tff\nCpus_allowed_list:\t72-75\n")
    for bus in ("0008:06:00.0", "0009:06:00.0", "0018:06:00.0"):
        node.file(f"/proc/driver/nvidia/gpus/{bus}/information")
    node.file("/sys/bus/pci/devices/0018:06:00.0/local_cpulist", "72-143\n")
    node.environment["SLURM_LOCALID"] = "2"
    found = affinity(node.machine())
    assert (found.cpus, found.local_rank, found.gpu) == ((72, 73, 74, 75), 2, "0018:06:00.0")
    assert known(found.near)[0] == 72
    node.environment["SLURM_LOCALID"] = "1"
    assert isinstance(affinity(node.machine()).near, Unreadable)
    node.environment["SLURM_LOCALID"] = "3"
    assert affinity(node.machine()).gpu is None


def test_modules_loaded_and_built_in(node: Node) -> None:
    node.file("/proc/modules", "nvidia_uvm 1740800 0 - Live 0x0 (OE)\nnvidia 104513536 1 nvidia_uvm, Live 0x0 (OE)\n")
    (node.overlay / "sys/module/gdrdrv").mkdir(parents=True)
    loaded = modules(node.machine()).loaded
    assert {"nvidia", "nvidia_uvm", "gdrdrv"} <= set(loaded)
    assert "nvidia_peermem" not in loaded


@pytest.mark.parametrize(("text", "balancing"), [("0\n", "0"), ("1\n", "1"), ("2", "2")])
def test_numa_balancing(node: Node, text: str, balancing: str) -> None:
    node.file("/proc/sys/kernel/numa_balancing", text)
    assert numa(node.machine()).balancing == balancing


@pytest.mark.parametrize("text", ["", "on", b"\xff"])
def test_numa_balancing_that_says_nothing(node: Node, text: str | bytes) -> None:
    node.file("/proc/sys/kernel/numa_balancing", text)
    assert isinstance(read(numa, node.machine(), Profile()), Unreadable)


def test_governors_are_counted(node: Node) -> None:
    for number, word in enumerate(("performance", "performance", "powersave")):
        node.file(f"/sys/devices/system/cpu/cpufreq/policy{number}/scaling_governor", f"{word}\n")
    assert governors(node.machine()).policies == {"performance": 2, "powersave": 1}


def test_who_says_this(node: Node) -> None:
    node.file("/proc/sys/kernel/hostname", "gb300-01\n")
    node.file("/proc/sys/kernel/random/boot_id", "abc\n")
    node.environment["ENROOT_ROOTFS"] = "/local/enroot/k3"
    found = meta(node.machine())
    assert (found.host, found.boot_id, found.container) == ("gb300-01", "abc", "ENROOT_ROOTFS=/local/enroot/k3")
