"""The rack's files: what is composed, when, and from what; and the tools that read them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from k3env.errors import InventoryError
from k3env.sandbox import Rack, default_root, environment, overlay, processes
from k3env.sandbox.gpus import GPUS
from k3env.sandbox.spec import Fault, Spec, parse
from k3env.sandbox.tools import base_python

from .client import run, wait_for

ROOT = Path(__file__).resolve().parents[2]
BOOT_ID = "overlay/proc/sys/kernel/random/boot_id"


@pytest.fixture
def rack(tmp_path: Path) -> Iterator[Rack]:
    with Rack(tmp_path / "rack") as rack:
        yield rack
    rack.reset()


# What an inventory may say


@pytest.mark.parametrize(
    ("wanted", "spec"),
    [
        ({}, Spec("GB300", 4, "580.105.08", 2000, None)),
        ({"gpu": "GB200", "gpus": 2, "driver": "570.86.15"}, Spec("GB200", 2, "570.86.15")),
        ({"gpus": 0, "free_gib": 0}, Spec(gpus=0, free_gib=0)),
        ({"gpu": "B200", "gpus": 8}, Spec("B200", 8)),
        ({"fault": None}, Spec()),
        ({"fault": "refuse"}, Spec(fault=Fault("refuse"))),
        ({"fault": "silent"}, Spec(fault=Fault("silent"))),
        ({"fault": "drop_after_bytes:6000"}, Spec(fault=Fault("drop_after_bytes", after=6000))),
        ({"fault": "die_at_task:trtllm_build"}, Spec(fault=Fault("die_at_task", module="trtllm_build"))),
        ({"cells": {"b": "x", "a": "y"}}, Spec(cells=(("a", "y"), ("b", "x")))),
        ({"links_down": [3], "imex": "INIT_GPU", "xids": [79]}, Spec(links_down=(3,), imex="INIT_GPU", xids=(79,))),
    ],
)
def test_a_mapping_is_a_tray(wanted: dict[str, Any], spec: Spec) -> None:
    assert parse("tray", wanted) == spec


@pytest.mark.parametrize(
    ("host", "wanted", "said"),
    [
        ("tray", {"gpuz": 4}, ("no key 'gpuz'", "did you mean gpu")),
        ("tray", {"gpu": "GB30"}, ("no gpu 'GB30'", "did you mean GB300?")),
        ("tray", {"gpu": 300}, ("gpu is wrong", "GB300, GB200", "300 (int)")),
        ("tray", {"gpus": "4"}, ("gpus is wrong", "whole number", "'4' (str)")),
        ("tray", {"gpus": True}, ("gpus is wrong", "True (bool)")),
        ("tray", {"gpus": -1}, ("gpus is wrong", "-1 (int)")),
        ("tray", {"gpus": 5}, ("gpus is wrong", "at most 4 of GB300")),
        ("tray", {"driver": 580.1}, ("driver is wrong", "580.105.08", "580.1 (float)")),
        ("tray", {"driver": "new"}, ("driver is wrong", "'new' (str)")),
        ("tray", {"free_gib": 1.5}, ("free_gib is wrong", "1.5 (float)")),
        ("tray", {"fault": "refuses"}, ("no fault 'refuses'", "did you mean refuse?", "drop_after_bytes:N")),
        ("tray", {"fault": "drop_after_byte:5"}, ("no fault", "did you mean drop_after_bytes?")),
        ("tray", {"fault": "silent:1"}, ("fault is wrong", "silent", "'silent:1'")),
        ("tray", {"fault": "drop_after_bytes"}, ("fault is wrong", "drop_after_bytes:N")),
        ("tray", {"fault": "drop_after_bytes:many"}, ("fault is wrong", "a number of bytes")),
        ("tray", {"fault": "die_at_task:"}, ("fault is wrong", "die_at_task:trtllm_build")),
        ("tray", {"fault": 7}, ("fault is wrong", "7 (int)")),
        ("tray", {"cells": {"fabric.cliqueId": 7}}, ("cells is wrong", "texts by field")),
        ("tray", {"links_down": 3}, ("links_down is wrong", "a list of whole numbers", "3 (int)")),
        ("tray", {"xids": ["79"]}, ("xids is wrong", "a list of whole numbers")),
        ("tray", {"imex": True}, ("imex is wrong", "True (bool)")),
        ("tray", "GB300", ("k3env_sandbox is wrong", "a mapping", "'GB300' (str)")),
        ("tray", None, ("k3env_sandbox is wrong", "None (NoneType)")),
        ("shared", {}, ("can't be a tray", "rename the host")),
        ("../tray", {}, ("can't be a tray",)),
        (".lock", {}, ("can't be a tray",)),
    ],
)
def test_a_wrong_mapping_is_told(rack: Rack, host: str, wanted: Any, said: tuple[str, ...]) -> None:
    with pytest.raises(InventoryError) as caught:
        rack.start({"good": {}, host: wanted})
    finding = caught.value.finding
    text = " | ".join(str(part) for part in (finding.message, finding.expected, finding.found, finding.remedy))
    assert [part for part in said if part not in text] == []
    assert finding.subject == host
    assert not rack.path.exists()  # nothing is made for a wrong inventory


@pytest.mark.parametrize("name", ["sandbox.yml", "sandbox-faults.yml"])
def test_the_shipped_inventories_are_trays(name: str) -> None:
    tree = yaml.safe_load((ROOT / "inventories" / name).read_text(encoding="utf-8"))
    group = tree["all"]["children"]["sandbox"]
    hosts = group.get("hosts") or group["children"]["sandbox_faults"]["hosts"]
    specs = {host: parse(host, values["k3env_sandbox"]) for host, values in hosts.items()}
    assert all((spec.gpu, spec.gpus) == ("GB300", 4) for spec in specs.values())
    if name == "sandbox.yml":
        assert list(specs) == ["tray-01", "tray-02", "tray-03", "tray-04"]
        assert set(specs.values()) == {Spec()}
    else:
        faults = {spec.fault.kind if spec.fault else spec.driver for spec in specs.values()}
        assert faults == {"580.105.08", "570.86.15", "refuse", "silent", "drop_after_bytes", "die_at_task"}


# What is composed


def test_a_tray_is_laid_out_for_the_agent(rack: Rack) -> None:
    endpoint = rack.start({"one": {}})["one"]
    tray = rack.path / "one"
    files = Path(endpoint.overlay)
    assert files == tray / "overlay"
    version = (files / "proc/driver/nvidia/version").read_text()
    assert version == "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.105.08  Release Build\n"
    assert (files / "sys/module/nvidia/version").read_text() == "580.105.08\n"
    buses = ["0008:06:00.0", "0009:06:00.0", "0018:06:00.0", "0019:06:00.0"]
    assert sorted(os.listdir(files / "proc/driver/nvidia/gpus")) == buses
    assert sorted(os.listdir(files / "sys/bus/pci/devices")) == buses
    pci = files / "sys/bus/pci/devices" / buses[0]
    assert [(pci / name).read_text() for name in ("vendor", "device", "class")] == [
        "0x10de\n",
        "0x31c2\n",
        "0x030200\n",
    ]
    assert uuid.UUID((tray / BOOT_ID).read_text().strip()).version == 4
    nodes = {
        path.name: (path / "cpulist").read_text().strip() for path in (files / "sys/devices/system/node").glob("node*")
    }
    assert nodes == {"node0": "0-71", "node1": "72-143", "node2": "", "node10": "", "node18": "", "node26": ""}
    machine = json.loads((files / "machine.json").read_text())
    assert (machine["cpus"], machine["free_bytes"]["/"]) == (144, 2000 << 30)
    assert [path.name for path in (files / "dev").glob("nvidia[0-9]")] != []
    for name in ("home", "tmp", "state"):
        assert (tray / name).stat().st_mode & 0o777 == 0o700
    assert not (tray / "home" / "cache").exists()  # that is provisioning's
    assert not Path(endpoint.variables["trtllm_repo"]).exists()
    assert endpoint.variables["cache_base"] == "~/cache"


def test_trays_share_the_checkout_and_nothing_else(rack: Rack) -> None:
    endpoints = rack.start({"one": {}, "two": {}})
    one, two = (endpoints[name].variables for name in ("one", "two"))
    shared = {key for key in one if one[key] == two[key]}
    assert set(one) - shared == {"k3env_state_dir"}
    assert one["cache_base"].startswith("~/"), "one path that is each tray's own"
    differing = [BOOT_ID, "ssh_host_ed25519_key", "overlay/proc/driver/nvidia/gpus/0008:06:00.0/information"]
    for name in differing:
        assert (rack.path / "one" / name).read_text() != (rack.path / "two" / name).read_text()
    assert len({endpoint.port for endpoint in endpoints.values()}) == 2


@pytest.mark.parametrize("gpu", GPUS)
def test_each_gpu_fills_its_machine(gpu: str) -> None:
    count = len(GPUS[gpu].buses)
    files = overlay.compose("one", Spec(gpu=gpu, gpus=count))
    assert len([name for name in files if name.endswith("/information")]) == count
    assert GPUS[gpu].compute_cap in files[overlay.NVIDIA_SMI]
    total = int(files["proc/meminfo"].split()[1])
    of_gpus = count * GPUS[gpu].memory_mib * 1024 if GPUS[gpu].board.is_coherent else 0
    assert total == GPUS[gpu].board.memory_gib * 1024 * 1024 + of_gpus


def test_an_edit_stays_until_the_mapping_differs(rack: Rack) -> None:
    rack.start({"one": {}, "two": {}})
    rack.stop()
    version = rack.path / "one/overlay/proc/driver/nvidia/version"
    tool, boot_id = rack.path / "one/bin/nvidia-smi", rack.path / "one" / BOOT_ID
    version.write_text("edited\n")
    tool.write_text("#!/bin/sh\nexit 9\n")
    (rack.path / "one/home/kept").touch()
    boot = boot_id.read_text()
    for again in (rack, Rack(rack.path)):
        again.start({"one": {}})
        again.stop()
        assert (version.read_text(), tool.read_text()) == ("edited\n", "#!/bin/sh\nexit 9\n")
    rack.start({"one": {"driver": "570.86.15"}})
    assert "570.86.15" in version.read_text()
    assert "overlay" in tool.read_text()
    assert boot_id.read_text() != boot
    assert (rack.path / "one/home/kept").exists()  # what the tray wrote is no part of what is composed


def test_a_host_keeps_its_key_and_each_run_has_its_own(rack: Rack) -> None:
    first = rack.start({"one": {}})["one"]
    client_key = Path(first.private_key).read_text()
    assert rack.start({"one": {}})["one"] == first  # running already
    rack.stop()
    assert not Path(first.private_key).exists()
    second = rack.start({"one": {}})["one"]
    assert second.host_key == first.host_key
    assert Path(second.private_key).read_text() != client_key


def test_reset_leaves_nothing_that_runs_or_lies_there(rack: Rack) -> None:
    endpoint = rack.start({"one": {}})["one"]
    run(endpoint, "setsid sleep 60 </dev/null >/dev/null 2>&1 &")
    (rack.path / "one/home").chmod(0)
    (rack.path / "notes").mkdir()  # somebody else's
    version = rack.path / "one/overlay/proc/driver/nvidia/version"
    version.write_text("edited\n")
    rack.reset()
    assert processes.running(rack.path / "one") == []
    assert sorted(os.listdir(rack.path)) == [".lock", "notes"]
    rack.start({"one": {}})
    assert "580.105.08" in version.read_text()


def test_another_machine_in_its_place_ends_what_ran_there(rack: Rack) -> None:
    endpoint = rack.start({"one": {}})["one"]
    run(endpoint, "setsid sleep 60 </dev/null >/dev/null 2>&1 &")
    rack.stop()
    assert len(processes.running(rack.path / "one")) == 1
    rack.start({"one": {"gpu": "GB200"}})
    assert wait_for(lambda: processes.running(rack.path / "one") == [])


def test_a_composition_that_was_cut_off_is_made_again(rack: Rack) -> None:
    rack.start({"one": {}})
    rack.stop()
    (rack.path / "one/tray.json").unlink()
    shutil.rmtree(rack.path / "one/bin")
    rack.start({"one": {}})
    assert (rack.path / "one/bin/nvidia-smi").exists()


def test_racks_that_start_at_once_agree(tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from k3env.sandbox import Rack\n"
        "with Rack(Path(sys.argv[1])) as rack:\n"
        "    for endpoint in rack.start({f'tray-{n}': {} for n in range(4)}).values():\n"
        "        files = Path(endpoint.overlay)\n"
        "        print(endpoint.host_key, endpoint.variables, (files / 'machine.json').read_text())\n"
    )
    argv = [sys.executable, "-c", script, str(tmp_path / "rack")]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    surroundings = {**os.environ, "PYTHONPATH": path}
    started = [subprocess.Popen(argv, stdout=subprocess.PIPE, env=surroundings) for _ in range(4)]
    said = [process.communicate(timeout=60)[0] for process in started]
    assert [process.returncode for process in started] == [0] * 4
    assert len(set(said)) == 1
    assert said[0].count(b"ssh-ed25519") == 4


def test_the_root_follows_xdg(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert default_root() == tmp_path / "k3env/sandbox"
    assert Rack().path == (tmp_path / "k3env/sandbox").resolve()
    for relative in ("", "state"):
        monkeypatch.setenv("XDG_STATE_HOME", relative)
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        assert default_root() == tmp_path / "home/.local/state/k3env/sandbox"


# What runs on a tray


def test_nothing_of_the_users_environment_reaches_a_tray(tmp_path: Path) -> None:
    around = {
        "PATH": "/venv/bin:/usr/bin",
        "VIRTUAL_ENV": "/venv",
        "PYTHONPATH": "/venv/lib",
        "HOME": str(tmp_path),
        "SSH_AUTH_SOCK": "/run/agent",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "PIP_TARGET": "/elsewhere",
        "PIP_INDEX_URL": "https://index.invalid",
        "https_proxy": "http://proxy.invalid",
        "NO_PROXY": "localhost",
        "K3ENV_MINIATURE_FAIL": "oom",
    }
    tray = tmp_path / "one"
    made = environment.of_tray(tray, "me", around)
    assert made == {
        "PATH": f"{tray}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": f"{tray}/home",
        "TMPDIR": f"{tray}/tmp",
        "USER": "me",
        "LOGNAME": "me",
        "SHELL": "/bin/sh",
        "LANG": "C.UTF-8",
        "K3ENV_TRAY": str(tray),
        "PIP_INDEX_URL": "https://index.invalid",
        "https_proxy": "http://proxy.invalid",
        "NO_PROXY": "localhost",
        "K3ENV_MINIATURE_FAIL": "oom",
    }


@pytest.mark.parametrize(
    ("around", "files", "config"),
    [
        ({}, [], None),
        ({}, [".pip/pip.conf"], ".pip/pip.conf"),
        ({}, [".pip/pip.conf", ".config/pip/pip.conf"], ".config/pip/pip.conf"),
        ({"XDG_CONFIG_HOME": "etc"}, [".pip/pip.conf", "etc/pip/pip.conf"], "etc/pip/pip.conf"),
        ({"PIP_CONFIG_FILE": "mine"}, [".pip/pip.conf"], "mine"),
    ],
)
def test_pip_is_configured_as_the_user_has_it(
    tmp_path: Path, around: dict[str, str], files: list[str], config: str | None
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()
    given = {key: str(tmp_path / value) for key, value in around.items()}
    made = environment.of_tray(tmp_path / "one", "me", {"HOME": str(tmp_path), **given})
    assert made.get("PIP_CONFIG_FILE") == (config and str(tmp_path / config))


def test_a_trays_python_is_the_base_interpreter(rack: Rack) -> None:
    endpoint = rack.start({"one": {}})["one"]
    done = run(endpoint, "exec python3 -I -S -c 'import sys; print(sys.executable, sys.prefix == sys.base_prefix)'")
    assert done.out.decode().split() == [str(base_python()), "True"]


def test_a_python_that_is_gone_is_found_again(rack: Rack) -> None:
    rack.start({"one": {}})
    rack.stop()
    python = rack.path / "one/bin/python3"
    right = python.read_text()
    for content, after in (
        (right.replace(str(base_python()), "/nonexistent/python3"), right),
        *((edit, edit) for edit in ("", "#!/bin/sh\nexit 1\n", right.replace("exec ", "exec '"))),
    ):
        python.write_text(content)
        rack.start({"one": {}})
        rack.stop()
        assert python.read_text() == after


def test_processes_of_a_tray_are_told_from_others(rack: Rack) -> None:
    endpoints = rack.start({"one": {}, "one-more": {}})
    for endpoint in endpoints.values():
        run(endpoint, "for n in 1 2; do setsid sh -c 'sleep 60 & wait' </dev/null >/dev/null 2>&1 & done")
    assert wait_for(lambda: len(processes.running(rack.path / "one")) == 4)
    assert processes.kill(rack.path / "one") == 0
    assert processes.running(rack.path / "one") == []
    assert len(processes.running(rack.path / "one-more")) == 4


# nvidia-smi and its kind


@pytest.fixture
def tray(tmp_path: Path) -> Path:
    """A tray's files without its server."""
    with Rack(tmp_path / "rack") as rack:
        rack.start({"one": {}})
        return rack.path / "one"


def smi(tray: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run([tray / "bin/nvidia-smi", *arguments], capture_output=True, text=True, check=False)
    assert done.stderr == ""  # the real one has its errors on standard output
    return done.returncode, done.stdout


def query(tray: Path, fields: str, form: str = "csv,noheader") -> list[str]:
    code, out = smi(tray, f"--query-gpu={fields}", f"--format={form}")
    assert code == 0
    return out.splitlines()


def test_nvidia_smi_reads_the_tray(tray: Path) -> None:
    assert query(tray, "index,name,pci.bus_id,compute_cap,memory.total,driver_version,count") == [
        f"{index}, NVIDIA GB300, {bus}, 10.3, 284208 MiB, 580.105.08, 4"
        for index, bus in enumerate(GPUS["GB300"].buses)
    ]
    assert query(tray, "memory.total,power.limit,pci.device_id", "csv,nounits") == [
        "memory.total, power.limit, pci.device_id",
        *["284208, 1400.00, 0x31C210DE"] * 4,
    ]
    assert query(tray, "index,memory.used", "csv")[0] == "index, memory.used [MiB]"
    code, out = smi(tray, "-L")
    assert code == 0
    assert out.splitlines()[1].startswith("GPU 1: NVIDIA GB300 (UUID: GPU-")
    assert smi(tray, "--query-gpu=index", "--format=csv,noheader", "-i", "1,3") == (0, "1\n3\n")
    assert "stand-in" in smi(tray)[1]


def test_nvidia_smi_sees_an_edit(tray: Path) -> None:
    files = tray / "overlay"
    version = files / "proc/driver/nvidia/version"
    version.write_text("NVRM version: NVIDIA UNIX aarch64 Kernel Module  570.86.15  Fri Sep 13 11:01:10 UTC 2024\n")
    shutil.rmtree(files / "proc/driver/nvidia/gpus/0018:06:00.0")
    assert query(tray, "pci.bus_id,driver_version") == [
        "00000008:06:00.0, 570.86.15",
        "00000009:06:00.0, 570.86.15",
        "00000019:06:00.0, 570.86.15",
    ]
    (files / "dev/nvidia0").unlink()  # a masked device: NVML counts what it can open
    (files / "sys/bus/pci/devices/0009:06:00.0/device").write_text("0xffff\n")
    assert query(tray, "pci.bus_id,compute_cap,memory.total") == [
        "00000009:06:00.0, [N/A], [N/A]",
        "00000019:06:00.0, 10.3, 284208 MiB",
    ]


@pytest.mark.parametrize(
    ("removed", "arguments", "code", "out"),
    [
        ([], ["--query-gpu=index,bogus", "--format=csv"], 2, 'Field "bogus" is not a valid field to query.\n\n'),
        ([], ["--query-gpu=index", "--format=csv", "-i", "99"], 6, "No devices were found\n"),
        ([], ["--bogus"], 255, "ERROR: Option --bogus is not recognized. Please run 'nvidia-smi -h'.\n"),
        (["proc/driver/nvidia/gpus"], ["-L"], 6, "No devices were found\n"),
        (["proc/driver"], ["-L"], 9, None),
        ([f"dev/nvidia{index}" for index in range(4)], ["-L"], 9, None),
    ],
)
def test_nvidia_smi_fails_as_the_real_one(
    tray: Path, removed: list[str], arguments: list[str], code: int, out: str | None
) -> None:
    for name in removed:
        path = tray / "overlay" / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    got = smi(tray, *arguments)
    assert got[0] == code
    assert got[1] == out if out is not None else "couldn't communicate with the NVIDIA driver" in got[1]


def test_nvidia_smi_tells_links_repairs_and_the_fabric(tray: Path) -> None:
    code, out = smi(tray, "nvlink", "-s")
    assert (code, out.count("GPU "), out.count("53.125 GB/s")) == (0, 4, 72)
    code, out = smi(tray, "-q", "-d", "ECC")
    assert (code, out.count("Channel Repair Pending"), out.count(": Completed")) == (0, 4, 4)
    assert smi(tray, "--query-compute-apps=gpu_bus_id,pid", "--format=csv") == (0, "gpu_bus_id, pid\n")
    (fabric,) = set(query(tray, "fabric.state,fabric.status,fabric.cliqueId,fabric.health.summary"))
    assert fabric == "Completed, Success, 0, Healthy"


@pytest.mark.parametrize(
    ("argv", "code", "out"),
    [
        (["nvidia-imex-ctl", "-q"], 0, "READY\n"),
        (["nvidia-imex-ctl", "--bogus"], 1, ""),
        (["systemctl", "is-active", "nvidia-imex.service"], 0, "active\n"),
        (["systemctl", "is-active", "nvidia-fabricmanager.service"], 3, "inactive\n"),
        (["systemctl", "start", "nvidia-imex"], 1, ""),
        (["journalctl", "-k", "--grep=NVRM: Xid|SXid"], 1, "-- No entries --\n"),
        (["dmesg"], 0, "Linux version of the sandbox\n"),
    ],
)
def test_other_tools_of_a_tray(tray: Path, argv: list[str], code: int, out: str) -> None:
    done = subprocess.run([tray / "bin" / argv[0], *argv[1:]], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, out)
    assert bool(done.stderr) == (code == 1 and not out)


@pytest.mark.parametrize("tool", ["nvcc", "cmake", "patchelf"])
def test_stand_ins_say_what_they_are(tray: Path, tool: str) -> None:
    done = subprocess.run([tray / "bin" / tool, "--version"], capture_output=True, text=True, check=False)
    assert (done.returncode, "stand-in" in done.stdout) == (0, True)
    other = subprocess.run([tray / "bin" / tool, "file"], capture_output=True, text=True, check=False)
    assert (other.returncode, "stand-in" in other.stderr) == (1, True)


def test_starting_again_is_quick(rack: Rack) -> None:
    trays: dict[str, Any] = {f"tray-{number}": {} for number in range(4)}
    rack.start(trays)
    rack.stop()
    begin = time.monotonic()
    rack.start(trays)
    assert time.monotonic() - begin < 0.3
