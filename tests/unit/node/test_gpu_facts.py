"""Driver and GPUs, read from files in an overlay and from an nvidia-smi that says what real ones said."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from k3env.node import process
from k3env.node.facts import Facts, gpu, smi
from k3env.node.facts.gpu import Driver, Gpu, Gpus, driver, gpus
from k3env.node.facts.smi import bus_id
from k3env.node.machine import Machine
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Profile

ROOT = Path(__file__).parents[3]
RECORDED: dict[str, dict[str, Any]] = yaml.safe_load(
    (ROOT / "tests" / "data" / "nvidia-smi" / "recordings.yaml").read_text(encoding="utf-8")
)
QUERY = "pci.bus_id,name,compute_cap,memory.total"
H200 = Gpu("00000000:00:06.0", "NVIDIA H200", (9, 0), 143771)


class Node:
    """A machine of files and recorded answers."""

    def __init__(self, directory: Path) -> None:
        self.overlay = directory / "overlay"
        self.bin = directory / "bin"
        self.answers = directory / "answers"
        for path in (self.overlay, self.bin, self.answers):
            path.mkdir()

    @property
    def machine(self) -> Machine:
        return Machine(overlay=str(self.overlay), environment={"PATH": f"{self.bin}:/usr/bin:/bin"})

    def file(self, path: str, text: str) -> None:
        place = self.overlay / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")

    def smi(self, query: str, stdout: str, exit_code: int = 0) -> None:
        """Let nvidia-smi answer a query."""
        (self.answers / query).write_text(stdout, encoding="utf-8")
        (self.answers / f"{query}.code").write_text(str(exit_code), encoding="utf-8")
        self.script(
            f'answer="{self.answers}/${{1#--query-gpu=}}"\n'
            '[ "$2" = --format=csv,noheader ] && [ -f "$answer" ] || exit 99\n'
            'cat "$answer"; exit "$(cat "$answer.code")"'
        )

    def script(self, body: str) -> None:
        path = self.bin / "nvidia-smi"
        path.write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        path.chmod(0o755)

    def recorded(self, name: str) -> None:
        self.smi(QUERY, RECORDED[name]["stdout"], RECORDED[name]["exit_code"])


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


# The driver

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.105.08  Release Build  (dvs@U22)  Wed Oct 29\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan 23 02:59:32 UTC 2025\n"
CLOSED_ARM = "NVRM version: NVIDIA UNIX aarch64 Kernel Module  535.183.06  Wed Jun 26 06:42:53 UTC 2024\n"
DISTRIBUTION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.126.09-0ubuntu1  Release Build\n"


@pytest.mark.parametrize(
    ("text", "version", "is_open"),
    [
        (RECORDED["proc version"]["stdout"], "580.159.04", True),
        (OPEN, "580.105.08", True),
        (CLOSED, "570.86.15", False),
        (CLOSED_ARM, "535.183.06", False),
        (DISTRIBUTION, "580.126.09-0ubuntu1", True),
    ],
)
def test_the_driver_says_version_and_module(node: Node, text: str, version: str, is_open: bool) -> None:
    node.file(gpu.VERSION_FILE, text)
    found = driver(node.machine)
    assert isinstance(found, Driver)
    assert (found.version, found.open_module) == (version, is_open)
    assert found.source.source == gpu.VERSION_FILE
    assert version in found.source.excerpt


def test_no_driver_is_looked_for_and_not_there(tmp_path: Path) -> None:
    if os.path.exists(gpu.VERSION_FILE):
        pytest.skip("this machine has an NVIDIA driver")
    found = driver(Machine())
    assert isinstance(found, Driver)
    assert (found.version, found.open_module) == (None, None)


@pytest.mark.parametrize("text", ["", "something else\n", "\0\0\0"])
def test_a_version_that_is_none_is_unreadable(node: Node, text: str) -> None:
    node.file(gpu.VERSION_FILE, text)
    found = driver(node.machine)
    assert isinstance(found, Unreadable)
    assert gpu.VERSION_FILE in found.reason


def test_a_version_that_may_not_be_read_is_unreadable(node: Node) -> None:
    (node.overlay / "proc/driver/nvidia/version").mkdir(parents=True)
    (found,) = Facts(node.machine, Profile()).collect((driver,)).values()
    assert isinstance(found, Unreadable)
    assert "IsADirectoryError" in found.reason


# NVML through nvidia-smi


def nvml(node: Node) -> Any:
    return gpus(node.machine).nvml


def test_two_gpus(node: Node) -> None:
    node.recorded("two GPUs")
    assert nvml(node) == (H200, Gpu("00000000:00:07.0", "NVIDIA H200", (9, 0), 143771))


def test_no_devices_is_none_not_unreadable(node: Node) -> None:
    node.recorded("the only device node masked")
    assert nvml(node) == ()


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("no device nodes, not root", "ended with 9: NVIDIA-SMI has failed because it couldn't communicate"),
        ("no NVML library", "ended with 12: NVIDIA-SMI couldn't find libnvidia-ml.so"),
    ],
)
def test_errors_stand_on_stdout(node: Node, name: str, told: str) -> None:
    node.recorded(name)
    found = nvml(node)
    assert isinstance(found, Unreadable)
    assert told in found.reason
    assert found.evidence is not None
    assert found.evidence.exit_code == RECORDED[name]["exit_code"]
    assert found.evidence.source.startswith("nvidia-smi --query-gpu=pci.bus_id,name")


@pytest.mark.parametrize(
    ("stdout", "exit_code", "told"),
    [  # from public reports
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n", 18, "mismatch"),
        ("Failed to initialize NVML: Unknown Error\n", 255, "Unknown Error"),
        ("Unable to determine the device handle for GPU0000:65:00.0: Unknown Error\n", 0, "device handle"),
        ("", 1, "it says nothing"),
    ],
)
def test_other_errors(node: Node, stdout: str, exit_code: int, told: str) -> None:
    node.smi(QUERY, stdout, exit_code)
    found = nvml(node)
    assert isinstance(found, Unreadable)
    assert told in found.reason


def test_a_gpu_that_can_not_be_opened_is_left_out_although_the_exit_code_is_0(node: Node) -> None:
    lost = "Unable to determine the device handle for GPU0000:65:00.0: Unknown Error\n"
    node.smi(QUERY, lost + RECORDED["one GPU"]["stdout"])
    assert nvml(node) == (H200,)


def test_a_warning_behind_the_rows_does_not_hide_them(node: Node) -> None:
    node.smi(QUERY, RECORDED["one GPU"]["stdout"] + "WARNING: infoROM is corrupted at gpu 0000:00:06.0\n", 14)
    assert nvml(node) == (H200,)


def test_a_field_that_the_driver_does_not_know_costs_only_itself(node: Node) -> None:
    unknown = RECORDED["unknown field"]["stdout"].replace("bogus", "compute_cap")
    node.smi(QUERY, unknown, 2)
    node.smi("pci.bus_id,name,memory.total", "00000000:00:06.0, NVIDIA H200, 143771 MiB\n")
    assert nvml(node) == (Gpu("00000000:00:06.0", "NVIDIA H200", None, 143771),)


def test_a_driver_that_knows_no_bus_ids_is_unreadable(node: Node) -> None:
    node.smi(QUERY, RECORDED["unknown field"]["stdout"].replace("bogus", "pci.bus_id"), 2)
    assert isinstance(nvml(node), Unreadable)


ODD = [cell.strip() for row in RECORDED["odd cells"]["stdout"].splitlines() for cell in row.split(",") if "A" in cell]
REPORTED = ["[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "[GPU is lost]", "[Insufficient Permissions]"]


@pytest.mark.parametrize("cell", [*sorted(set(ODD)), *REPORTED, "N/A", "ERR!", "", "Not Supported"])
def test_cells_without_a_value(node: Node, cell: str) -> None:
    node.smi(QUERY, f"0000000F:01:00.0, {cell}, {cell}, {cell}\n")
    assert nvml(node) == (Gpu("0000000f:01:00.0", None, None, None),)


@pytest.mark.parametrize(
    ("cells", "wanted"),
    [
        ("NVIDIA GB300, 10.3, 284208 MiB", Gpu("00000008:06:00.0", "NVIDIA GB300", (10, 3), 284208)),
        ("NVIDIA GB300, 10.3, 284208MiB", Gpu("00000008:06:00.0", "NVIDIA GB300", (10, 3), 284208)),
        ("NVIDIA Graphics Device, 10.0, [N/A]", Gpu("00000008:06:00.0", "NVIDIA Graphics Device", (10, 0), None)),
        ("A name, with a comma, 12.1, 1 MiB", Gpu("00000008:06:00.0", "A name, with a comma", (12, 1), 1)),
    ],
)
def test_rows(node: Node, cells: str, wanted: Gpu) -> None:
    node.smi(QUERY, f"00000008:06:00.0, {cells}\n")
    assert nvml(node) == (wanted,)


def test_a_driver_that_does_not_answer(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smi, "ANSWER_S", 0.3)
    monkeypatch.setattr(process, "GRACE_S", 0.1)
    node.script("trap '' TERM; sleep 30")
    found = nvml(node)
    assert isinstance(found, Unreadable)
    assert found.reason == "driver unresponsive after 0.3 s"


def test_a_simulated_node_without_nvidia_smi_never_asks_this_machine(node: Node, tmp_path: Path) -> None:
    machine = Machine(overlay=str(node.overlay), environment={"PATH": str(node.bin)})
    found = gpus(machine).nvml
    assert isinstance(found, Unreadable)
    assert "not found" in found.reason


# NVML through its library

FAKE = r"""
#include <string.h>
typedef struct { char legacy[16]; unsigned domain, bus, device, id, sub; char bus_id[32]; } pci;
typedef struct { unsigned long long total, free, used; } memory;
int nvmlInit_v2(void) { return INIT; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **h) { *h = (void *)(long)(i + 1); return 0; }
int nvmlDeviceGetPciInfo_v3(void *h, pci *p) {
    strcpy(p->bus_id, h == (void *)1 ? "00000008:06:00.0" : "00000009:06:00.0");
    return 0;
}
int nvmlDeviceGetName(void *h, char *name, unsigned n) { strncpy(name, "NVIDIA GB300", n); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) { *a = 10; *b = 3; return h == (void *)1 ? 0 : 999; }
int nvmlDeviceGetMemoryInfo(void *h, memory *m) { m->total = 284208ull << 20; return h == (void *)1 ? 0 : 3; }
"""


def by_library(directory: Path, init: int | None) -> str:
    """Return the fact on a machine without nvidia-smi, whose library is a few lines of C, or none."""
    if init is not None:
        (directory / "nvml.c").write_text(FAKE, encoding="utf-8")
        library = directory / "libnvidia-ml.so.1"
        argv = ["cc", f"-DINIT={init}", "-shared", "-fPIC", "-w", "-o", str(library), str(directory / "nvml.c")]
        subprocess.run(argv, check=True)
    code = "from k3env.node.facts.gpu import gpus; from k3env.node.machine import Machine; print(gpus(Machine()))"
    environment = {"LD_LIBRARY_PATH": str(directory), "PATH": str(directory), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True, timeout=30
    )
    return done.stdout


needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@needs_compiler
def test_the_library_where_nvidia_smi_is_not_installed(tmp_path: Path) -> None:
    found = by_library(tmp_path, 0)
    first = "Gpu(bus_id='00000008:06:00.0', name='NVIDIA GB300', capability=(10, 3), memory_mib=284208)"
    second = "Gpu(bus_id='00000009:06:00.0', name='NVIDIA GB300', capability=None, memory_mib=None)"
    assert f"nvml=({first}, {second})" in found
    assert "reader='libnvidia-ml.so.1'" in found


@needs_compiler
def test_the_library_says_why_not(tmp_path: Path) -> None:
    assert "nvmlInit_v2 returned 18: driver and library differ in version" in by_library(tmp_path, 18)


def test_neither_nvidia_smi_nor_its_library(tmp_path: Path) -> None:
    found = by_library(tmp_path, None)
    if "reader='libnvidia-ml.so.1'" in found and "Unreadable" not in found.split("proc=")[0]:
        pytest.skip("this machine has NVML")
    assert "no nvidia-smi, and libnvidia-ml.so.1" in found


def test_a_python_without_ctypes_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ctypes", None)
    machine = Machine(environment={"PATH": "/nowhere"})
    found = gpus(machine).nvml
    assert isinstance(found, Unreadable)
    assert "this Python can't ask the library itself" in found.reason


# The kernel and the bus


def bus(node: Node, name: str, vendor: str, kind: str) -> None:
    node.file(f"{gpu.PCI_DEVICES}/{name}/vendor", f"{vendor}\n")
    node.file(f"{gpu.PCI_DEVICES}/{name}/class", f"{kind}\n")


def test_the_bus_by_vendor_and_class(node: Node) -> None:
    bus(node, "0008:06:00.0", "0x10de", "0x030200")
    bus(node, "0009:06:00.0", "0x10de", "0x030000")
    bus(node, "0009:06:00.1", "0x10de", "0x040300")  # a GPU's sound
    bus(node, "0000:01:00.0", "0x15b3", "0x020700")  # an HCA
    bus(node, "0000:02:00.0", "0x1a03", "0x030000")  # a BMC's screen
    assert gpus(node.machine).pci == ("00000008:06:00.0", "00000009:06:00.0")


def test_the_kernels_gpus(node: Node) -> None:
    node.file(f"{gpu.PROC_GPUS}/0000:00:06.0/information", RECORDED["proc information"]["stdout"])
    node.file(f"{gpu.PROC_GPUS}/0008:06:00.0/information", "Model: \t\t NVIDIA GB300\n")
    assert gpus(node.machine).proc == ("00000000:00:06.0", "00000008:06:00.0")


def test_no_driver_drives_no_gpu(node: Node) -> None:
    if os.path.exists(gpu.PROC_GPUS):
        pytest.skip("this machine has an NVIDIA driver")
    assert gpus(node.machine).proc == ()


def test_a_gpu_that_vanishes_is_unreadable(node: Node) -> None:
    (node.overlay / "proc/driver/nvidia/gpus/0008:06:00.0").mkdir(parents=True)
    found = gpus(node.machine).proc
    assert isinstance(found, Unreadable)
    assert "vanished" in found.reason


def test_a_bus_that_can_not_be_listed_is_not_zero_gpus(node: Node) -> None:
    node.file(gpu.PCI_DEVICES, "")
    assert isinstance(gpus(node.machine).pci, Unreadable)


def test_a_strange_name_on_the_bus_is_unreadable(node: Node) -> None:
    bus(node, "strange", "0x10de", "0x030200")
    found = gpus(node.machine).pci
    assert isinstance(found, Unreadable)
    assert "strange" in found.reason


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("00000008:06:00.0", "00000008:06:00.0"),
        ("0008:06:00.0", "00000008:06:00.0"),
        ("0000000F:0A:1F.7", "0000000f:0a:1f.7"),
        ("06:00.0", "00000000:06:00.0"),
        (" 0000:00:07.0\n", "00000000:00:07.0"),
    ],
)
def test_bus_ids_have_one_form(text: str, wanted: str) -> None:
    assert bus_id(text) == wanted


@pytest.mark.parametrize("text", ["", "6:0.0", "0000:00:07.8", "000000008:06:00.0", "GPU-1"])
def test_what_is_no_bus_id(text: str) -> None:
    with pytest.raises(ValueError, match="no PCI address"):
        bus_id(text)


def test_both_facts_travel_through_a_child(node: Node) -> None:
    node.recorded("two GPUs")
    node.file(gpu.VERSION_FILE, OPEN)
    node.file(f"{gpu.PROC_GPUS}/0000:00:06.0/information", RECORDED["proc information"]["stdout"])
    values = Facts(node.machine, Profile()).collect((driver, gpus))
    assert values[driver] == driver(node.machine)
    assert values[gpus] == gpus(node.machine)
    assert isinstance(values[gpus], Gpus)
    assert len(values[gpus].source) == 3
