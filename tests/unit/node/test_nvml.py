"""NVML by its library, where nvidia-smi is not installed: here a few lines of C, laid out as nvml.h has it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
FAKE = r"""
#include <string.h>
typedef unsigned int u; typedef unsigned long long ull;
typedef struct { char legacy[16]; u domain, bus, device, id, sub; char bus_id[32]; } pci;
typedef struct { ull total, free, used; } memory;
typedef struct { u version; ull total, reserved, free, used; } memory2;
typedef struct { u version, channel, tpc; } repair;
typedef struct { u id, scope; long long at, latency; u type, code; union { double d; u n; ull l; } value; } field;
typedef struct { u pid; ull used; u gi, ci; } process;
typedef struct { u version; unsigned char uuid[16]; u status, clique; unsigned char state; u mask; } fabric2;
typedef struct { u version; unsigned char uuid[16]; u status, clique; unsigned char state;
    u mask; unsigned char summary; } fabric3;
#define FIRST (h == (void *)1)
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(u *n) { *n = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(u i, void **h) { *h = (void *)(long)(i + 1); return i == 2 ? 15 : 0; }
int nvmlDeviceGetPciInfo_v3(void *h, pci *p) {
    strcpy(p->bus_id, FIRST ? "00000008:06:00.0" : "00000009:06:00.0"); return 0;
}
int nvmlDeviceGetName(void *h, char *name, u n) { strncpy(name, "NVIDIA GB300", n); return 0; }
int nvmlDeviceGetCudaComputeCapability(void *h, int *a, int *b) { *a = 10; *b = 3; return 0; }
int nvmlDeviceGetMemoryInfo(void *h, memory *m) { m->total = 284208ull << 20; m->used = 600ull << 20; return 0; }
int nvmlDeviceGetMemoryInfo_v2(void *h, memory2 *m) { m->used = 17ull << 20; return m->version == 0x02000028 ? 0 : 25; }
int nvmlDeviceGetRepairStatus(void *h, repair *r) {
    r->channel = !FIRST; r->tpc = 0; return r->version == 0x0100000c ? 0 : 25;
}
int nvmlDeviceGetFieldValues(void *h, int n, field *f) {
    f->code = f->id == 230 ? 0 : 2; f->value.n = FIRST ? 0 : 5; return 0;
}
int nvmlDeviceGetRemappedRows(void *h, u *a, u *b, u *p, u *f) { *a = *b = 4; *p = !FIRST; *f = 0; return 0; }
int nvmlDeviceGetTotalEccErrors(void *h, int type, int counter, ull *n) {
    *n = type == 1 && counter == 0 ? 7 : 99; return 0;
}
int nvmlDeviceGetMigMode(void *h, u *now, u *later) { *now = !FIRST; *later = 0; return 0; }
int nvmlDeviceGetComputeMode(void *h, u *m) { *m = FIRST ? 0 : 2; return 0; }
int nvmlDeviceGetPersistenceMode(void *h, u *m) { *m = FIRST; return 0; }
int nvmlDeviceGetCurrentClocksEventReasons(void *h, ull *bits) { *bits = FIRST ? 1 : 0x48; return 0; }
int nvmlDeviceGetPowerManagementLimit(void *h, u *mw) { *mw = 1400000; return 0; }
int nvmlDeviceGetPowerManagementDefaultLimit(void *h, u *mw) { return FIRST ? (*mw = 1400000, 0) : 3; }
int nvmlDeviceGetNvLinkState(void *h, u link, u *on) { *on = FIRST || link != 5; return link < 18 ? 0 : 2; }
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u *n, process *p) {
    *n = FIRST; p[0].pid = 4194304; p[0].used = 5ull << 20; return 0;
}
#if FABRIC
int nvmlDeviceGetGpuFabricInfoV(void *h, void *out) {
    fabric3 *f = out;
    if (f->version != (FABRIC == 3 ? 0x03000028 : 0x02000024)) return 25;
    memset(f->uuid, 0x5a, 16);
    f->status = FIRST ? 0 : 999; f->clique = 7; f->state = 3; f->mask = FIRST ? 0x1aa : 0x455;
    if (FABRIC == 3) f->summary = FIRST ? 1 : 3;
    return 0;
}
#endif
"""
CODE = """
import json
from k3env.node.facts import gpu, gpu_health, nvlink
from k3env.node.machine import Machine
from k3env.protocol import codec
facts = (gpu.gpus, gpu_health.health, gpu_health.repairs, gpu_health.processes, nvlink.fabric, nvlink.links)
print(json.dumps({fact.__name__: codec.encode(fact(Machine())) for fact in facts}))
"""
pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def asked(directory: Path, fabric: int) -> dict[str, Any]:
    """Return the facts of a machine without nvidia-smi."""
    (directory / "nvml.c").write_text(FAKE, encoding="utf-8")
    library = directory / "libnvidia-ml.so.1"
    argv = ["cc", f"-DFABRIC={fabric}", "-shared", "-fPIC", "-w", "-o", str(library), str(directory / "nvml.c")]
    subprocess.run(argv, check=True)
    environment = {"LD_LIBRARY_PATH": str(directory), "PATH": str(directory), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", CODE], env=environment, check=True, capture_output=True, text=True, timeout=30
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_the_library_tells_what_nvidia_smi_would(tmp_path: Path) -> None:
    found = asked(tmp_path, 3)
    # The third GPU is lost: it is left out, and the others still speak.
    assert [item["bus_id"] for item in found["gpus"]["nvml"]] == ["00000008:06:00.0", "00000009:06:00.0"]
    first, second = found["health"]["gpus"]
    assert first == {
        "bus_id": "00000008:06:00.0",
        "recovery": "None",
        "remap_pending": False,
        "remap_failed": False,
        "ecc_uncorrected": 7,
        "mig": False,
        "compute_mode": "Default",
        "memory_used_mib": 17,
        "persistence": True,
        "throttle": 1,
        "power_limit_w": 1400.0,
        "power_default_w": 1400.0,
        "silent": {},
    }
    assert (second["recovery"], second["mig"], second["compute_mode"]) == ("Recover IMEX Domain", True, "Prohibited")
    assert (second["throttle"], second["silent"]) == (0x48, {"power_default_w": "[N/A]"})
    assert [item.get("channel_pending") for item in found["repairs"]["gpus"]] == [False, True]
    assert [item["pid"] for item in found["processes"]["all"]] == [4194304]
    assert [len(item["up"]) for item in found["links"]["gpus"]] == [18, 17]
    assert found["links"]["gpus"][1]["down"] == [5]


@pytest.mark.parametrize(("version", "summaries"), [(3, ["Healthy", "Limited Capacity"]), (2, ["N/A", "N/A"])])
def test_the_fabric_by_either_version_of_its_struct(tmp_path: Path, version: int, summaries: list[str]) -> None:
    first, second = asked(tmp_path, version)["fabric"]["gpus"]
    assert (first["state"], first["status"], first["clique"]) == ("Completed", "Success", 7)
    assert first["cluster"] == "5a5a5a5a-5a5a-5a5a-5a5a-5a5a5a5a5a5a"
    assert (first["health"]["Bandwidth"], first["health"]["Incorrect Configuration"]) == ("Full", "None")
    assert (second["status"], second["health"]["Bandwidth"]) == ("unknown error", "Degraded")
    assert [item["health"]["Summary"] for item in (first, second)] == summaries


def test_a_driver_without_the_fabrics_function(tmp_path: Path) -> None:
    (first, _) = asked(tmp_path, 0)["fabric"]["gpus"]
    assert first == {"bus_id": "00000008:06:00.0", "health": {}}
