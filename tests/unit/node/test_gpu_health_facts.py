"""How GPUs are, read from what nvidia-smi says; the texts of 580 are recorded on H200."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k3env.node.facts import gpu_health, read, smi
from k3env.node.facts.gpu_health import GpuHealth, Health, Process, Processes, Repairs
from k3env.node.facts.nvlink import Fabric, fabric
from k3env.node.facts.smi import sections
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Profile
from tests.unit.node.played import DENIED, HANGS, KILLED, MISSING, Played, Said, tray

RECORDED = (Path(__file__).parents[2] / "data" / "nvidia-smi" / "h200x2-580.159.04" / "q.txt").read_text(
    encoding="utf-8"
)
IDS = ("00000000:00:06.0", "00000000:00:07.0")
# What public reports say of the head of later drivers; driver 610 also has one more line of health.
LATER = (
    RECORDED.replace("Driver Version                                         : 580.159.04\n", "")
    .replace(
        "CUDA Version                                           : 13.0", "KMD Version : {v}\nCUDA UMD Version : 13.3"
    )
    .replace(
        "Partition Assigned                         : N/A", "Partition Assigned : N/A\n            GFM State : N/A"
    )
)
DRIVERS = {"580": RECORDED, "610": LATER.replace("{v}", "610.43.02"), "616": LATER.replace("{v}", "616.10")}


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_whole_text_says_the_same_for_each_driver(tmp_path: Path, driver: str) -> None:
    found = sections(DRIVERS[driver])
    assert tuple(found) == IDS
    for values in found.values():
        assert values["Fabric/State"] == "Completed"
        assert values["Fabric/Health/Summary"] == "N/A"
        assert values["ECC Errors/Channel Repair Pending"] == "No"
        assert values["Clocks Event Reasons/HW Slowdown/HW Thermal Slowdown"] == "Not Active"
        assert values["PCI/Device Id"] == "0x233510DE"


@pytest.mark.parametrize("driver", DRIVERS)
def test_repairs(tmp_path: Path, driver: str) -> None:
    played = Played(tmp_path, {"nvidia-smi": Said(DRIVERS[driver])})
    found = gpu_health.repairs(played.machine)
    assert isinstance(found, Repairs)
    assert [(item.bus_id, item.channel_pending, item.tpc_pending, item.unrepairable) for item in found.gpus] == [
        (address, False, False, False) for address in IDS
    ]
    assert "Channel Repair Pending: No" in found.source[0].excerpt


def test_repairs_of_a_driver_that_tells_them_in_the_whole_text_alone(tmp_path: Path) -> None:
    without = "\n".join(line for line in RECORDED.splitlines() if "Repair Pending" not in line) + "\n"
    played = Played(tmp_path, by_words={"nvidia-smi -q -d ECC": Said(without), "nvidia-smi -q": Said(RECORDED)})
    played.programs["nvidia-smi"] = MISSING
    found = gpu_health.repairs(played.machine)
    assert isinstance(found, Repairs) and found.gpus[0].channel_pending is False
    played.by_words["nvidia-smi -q"] = Said(without)
    found = gpu_health.repairs(played.machine)
    assert isinstance(found, Repairs) and found.gpus[0].channel_pending is None


@pytest.mark.parametrize("driver", DRIVERS)
def test_a_driver_without_fields_of_health_is_asked_for_the_whole_text(tmp_path: Path, driver: str) -> None:
    def answer(words: tuple[str, ...]) -> Said:
        if words[1] == "-q":
            return Said(DRIVERS[driver])
        lacking = [name for name in words[1].partition("=")[2].split(",") if name.startswith("fabric.health")]
        if lacking:
            return Said(f'Field "{lacking[0]}" is not a valid field to query.\n\n', 2)
        return Said("".join(f"{address}, Completed, Success, 0, {ZERO}\n" for address in IDS))

    found = fabric(Played(tmp_path, {"nvidia-smi": answer}).machine)
    assert isinstance(found, Fabric)
    assert [(item.state, item.status, item.clique, item.cluster) for item in found.gpus] == [
        ("Completed", "Success", 0, ZERO)
    ] * 2
    assert set(found.gpus[0].health.values()) == {"N/A"}
    assert "Health/Summary: N/A" in found.source[0].excerpt


ZERO = "00000000-0000-0000-0000-000000000000"
CELLS = {
    "gpu_recovery_action": ("recovery", "None", "None"),
    "remapped_rows.pending": ("remap_pending", "Yes", True),
    "remapped_rows.failure": ("remap_failed", "No", False),
    "ecc.errors.uncorrected.volatile.total": ("ecc_uncorrected", "12", 12),
    "mig.mode.current": ("mig", "Enabled", True),
    "compute_mode": ("compute_mode", "Exclusive_Process", "Exclusive_Process"),
    "memory.used": ("memory_used_mib", "17 MiB", 17),
    "persistence_mode": ("persistence", "Disabled", False),
    "clocks_event_reasons.active": ("throttle", "0x0000000000000049", 0x49),
    "power.limit": ("power_limit_w", "1400.00 W", 1400.0),
    "power.default_limit": ("power_default_w", "1400.00 W", 1400.0),
}
ODD = (
    *("N/A", "[N/A]", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "[GPU is lost]", "", "ERR!"),
    *("[Insufficient Permissions]", "[Requested functionality has been deprecated]", "Not Supported"),
)


def queried(cells: dict[str, str]) -> Played:
    """Return a node whose one GPU has these cells."""

    def answer(words: tuple[str, ...]) -> Said:
        fields = words[1].partition("=")[2].split(",")
        return Said(", ".join({"pci.bus_id": IDS[0], **cells}[name] for name in fields) + "\n")

    return Played(Path("/nowhere"), {"nvidia-smi": answer})


def health(cells: dict[str, str]) -> GpuHealth:
    found = gpu_health.health(queried(cells).machine)
    assert isinstance(found, Health)
    return found.gpus[0]


def test_every_value_is_read() -> None:
    found = health({field: text for field, (_, text, _) in CELLS.items()})
    assert {name: getattr(found, name) for name, _, _ in CELLS.values()} == {
        name: value for name, _, value in CELLS.values()
    }
    assert found.silent == {}


@pytest.mark.parametrize("odd", [*ODD, "maybe", "\ufffd", "-1", "1e3", "٣"])
@pytest.mark.parametrize("field", CELLS)
def test_an_odd_cell_is_no_value_and_is_kept(field: str, odd: str) -> None:
    name = CELLS[field][0]
    found = health({**{key: text for key, (_, text, _) in CELLS.items()}, field: odd})
    if name == "recovery" and odd not in ODD:
        assert found.recovery == odd, "a recovery that nobody knows is still one"
        return
    assert getattr(found, name) is None
    assert found.silent == {name: odd}


def test_fields_that_the_driver_lacks_cost_only_themselves(tmp_path: Path) -> None:
    played = tray(tmp_path)
    smi_ = played.programs["nvidia-smi"]

    def older(words: tuple[str, ...]) -> Said:
        for name in ("gpu_recovery_action", "clocks_event_reasons.active"):
            if name in words[1].partition("=")[2].split(","):
                return Said(f'Field "{name}" is not a valid field to query.\n\n', 2)
        return smi_(words) if callable(smi_) else smi_

    played.programs["nvidia-smi"] = older
    machine = played.machine
    found = gpu_health.health(machine)
    assert isinstance(found, Health) and len(found.gpus) == 4
    assert found.gpus[0].silent == {"recovery": smi.NO_SUCH_FIELD, "throttle": smi.NO_SUCH_FIELD}
    assert found.gpus[0].power_limit_w == 1400.0
    assert len(machine.asked) == 3


# Processes

APPS = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,process_name --format=csv"
HEAD = "gpu_bus_id, pid, process_name\n"


def processes(tmp_path: Path, said: Said) -> Processes | Unreadable:
    played = Played(tmp_path, {"nvidia-smi": MISSING, "id": Said("somebody\n")}, {APPS: said})
    found: Processes | Unreadable = read(gpu_health.processes, played.machine, Profile())
    return found


def test_nothing_is_nobody(tmp_path: Path) -> None:
    found = processes(tmp_path, Said(HEAD))
    assert isinstance(found, Processes)
    assert (found.all, found.uid) == ((), os.getuid())


def test_a_process_has_a_user_or_is_not_seen(tmp_path: Path) -> None:
    me = os.getpid()
    found = processes(
        tmp_path, Said(f"{HEAD}00000000:00:06.0, {me}, python3, with a comma\n00000000:00:07.0, 4194304, [N/A]\n")
    )
    assert isinstance(found, Processes)
    assert found.all == (
        Process(IDS[0], me, "python3, with a comma", os.getuid(), "somebody"),
        Process(IDS[1], 4194304, "[N/A]"),
    )


def test_a_process_that_ended_meanwhile_is_none(tmp_path: Path) -> None:
    answers = [f"{HEAD}00000000:00:06.0, 4194304, gone\n00000000:00:07.0, 4194303, hidden\n"]
    answers.append(f"{HEAD}00000000:00:07.0, 4194303, hidden\n")
    played = Played(tmp_path, {"nvidia-smi": MISSING}, {APPS: lambda words: Said(answers.pop(0))})
    found: Processes | Unreadable = read(gpu_health.processes, played.machine, Profile())
    assert isinstance(found, Processes) and found.all == (Process(IDS[1], 4194303, "hidden"),) and not answers


@pytest.mark.parametrize(("told", "count"), [("0,1,2,3", 4), ("2", 1), ("", None), ("GPU-1", None), (None, None)])
def test_how_many_gpus_the_job_has(tmp_path: Path, told: str | None, count: int | None) -> None:
    played = Played(tmp_path, {"nvidia-smi": MISSING, "id": Said("somebody\n")}, {APPS: Said(HEAD)})
    machine = played.machine
    machine.environment.update({"SLURM_JOB_ID": "9"}, **({} if told is None else {"SLURM_JOB_GPUS": told}))
    found: Processes | Unreadable = read(gpu_health.processes, machine, Profile())
    assert isinstance(found, Processes) and (found.job, found.jobs_gpus) == ("9", count)


@pytest.mark.parametrize(
    "said",
    [
        HANGS,
        KILLED,
        MISSING,
        DENIED,
        Said(""),
        Said("garbage\n"),
        Said(f"{HEAD}00000000:00:06.0, [N/A], x\n"),
        Said(f"{HEAD}garbage\n"),
    ],
)
def test_processes_that_can_not_be_told(tmp_path: Path, said: Said) -> None:
    assert isinstance(processes(tmp_path, said), Unreadable)
