"""Slurm jobs on a node: processes as Slurm 22.05, 23.11 and 25.05 leave them, and a squeue that answers, or doesn't.

What squeue prints is Slurm 22.05's; a real one is asked in tests/slurm.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.errors import Refused
from k3env.node.facts import jobs as reading
from k3env.node.facts.jobs import Job, jobs
from k3env.node.leases.busy import refuse_busy
from k3env.node.machine import Machine
from k3env.protocol.finding import Unreadable

SLURMD = (100, "slurmd", "/usr/sbin/slurmd\0-D\0-N\0gb300-01\0", 1, 0)
STEPD = (200, "slurmstepd", "slurmstepd: [812.batch]\0\0\0", 1, 0)
EXTERN = (201, "slurmstepd", "slurmstepd: [812.extern]", 1, 0)
SLEEP = (210, "sleep", "sleep\x00100000000\0", 201, 0)
USERS = (211, "python3", "python3\0serve.py\0", 200, 1)
HOLDER = (220, "slurmstepd", "/usr/sbin/slurmstepd\0infinity\0", 1, 0)
OTHER = (230, "slurmstepd", "slurmstepd: [s7_813.0]", 1, 0)
PRETENDER = (240, "python3", "slurmstepd: [814.batch]", 1, 1)
Process = tuple[int, str, str, int, int]


def node(root: Path, *processes: Process, cgroup: str = "0::/user.slice\n", squeue: str | None = None) -> Machine:
    """A node with these processes: pid, name, command line, parent, uid; `squeue` is a script's body."""
    files = {
        "self/cgroup": cgroup,
        "stat": "cpu 1\nbtime 1700000000\n",
        "1/comm": "systemd",
    }
    for pid, name, words, parent, uid in processes:
        after = " ".join(["S", str(parent), *["0"] * 17, str(pid * 100), "0"])
        files |= {
            f"{pid}/comm": f"{name}\n",
            f"{pid}/cmdline": words,
            f"{pid}/stat": f"{pid} (a (b) c) {after}\n",
            f"{pid}/status": f"Name:\tx\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n",
        }
    for name, text in files.items():
        path = root / "proc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    program = root / "bin" / "squeue"
    program.parent.mkdir()
    if squeue is not None:
        program.write_text(f"#!/bin/sh\n{squeue}\n")
        program.chmod(0o755)
    return Machine(
        overlay=str(root), environment={"PATH": f"{program.parent}{':/bin' if squeue else ''}", "SLURM_JOB_ID": ""}
    )


# processes, numbers of the jobs, whose they are
FOUND: list[tuple[tuple[Process, ...], dict[str, str | None]]] = [
    ((), {}),
    ((HOLDER,), {}),
    ((PRETENDER,), {}),
    ((STEPD, EXTERN, SLEEP, USERS), {"812": "daemon"}),
    ((EXTERN, SLEEP), {"812": None}),
    ((OTHER, STEPD), {"812": None, "813": None}),
]


@pytest.mark.parametrize("processes, wanted", FOUND)
def test_processes(tmp_path: Path, processes: tuple[Process, ...], wanted: dict[str, str | None]) -> None:
    found = jobs(node(tmp_path, *processes))
    assert {job.id: job.user for job in found.all} == wanted
    # Without slurmd nobody is asked.
    assert found.by_controller is None


def test_since_when_a_job_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    (job,) = jobs(node(tmp_path, EXTERN, STEPD, USERS)).by_process
    assert str(job) == "job 812 of daemon since 2023-11-14T22:16:40"


ANSWER = "echo '812|812|alice|2026-11-30T11:03:53|k3 | serve'; echo '900|890_7|bob|2026-11-30T12:00:00|eval'"


def test_what_the_controller_knows_counts_too(tmp_path: Path) -> None:
    told = tmp_path / "told"
    found = jobs(node(tmp_path, SLURMD, STEPD, squeue=f'echo "$@" > {told}; {ANSWER}'))
    assert [str(job) for job in found.all] == [
        "job 812 of alice (k3 | serve) since 2026-11-30T11:03:53",
        "job 890_7 of bob (eval) since 2026-11-30T12:00:00",
    ]
    assert "--nodelist=gb300-01" in told.read_text()


# squeue, what is said of it
SILENT = [
    (None, "squeue is not installed where it is looked for"),
    ("echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1", "Unable to contact"),
    ("exit 3", "exit code 3"),
    ("sleep 60", "no answer within 0.3 s"),
]


@pytest.mark.parametrize("squeue, said", SILENT)
def test_a_controller_that_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, squeue: str | None, said: str
) -> None:
    monkeypatch.setattr(reading, "CONTROLLER_S", 0.3)
    monkeypatch.setattr(reading, "_PLACES", ())
    machine = node(tmp_path, SLURMD, squeue=squeue)
    found = jobs(machine).by_controller
    assert isinstance(found, Unreadable) and said in found.reason
    # That is not busy, and it is said.
    (unknown,) = refuse_busy(machine, "")
    assert (unknown.status, unknown.severity) == ("unknown", "warn") and said in (unknown.found or "")


# allowed, our own cgroup, whether it is refused
ALLOWED = [
    ("", "0::/user.slice\n", True),
    ("*", "0::/user.slice\n", False),
    ("812", "0::/user.slice\n", False),
    ("81", "0::/user.slice\n", True),
    ("1,812", "0::/user.slice\n", False),
    ("", "0::/system.slice/slurmstepd.scope/job_812/step_extern/user/task_0\n", False),
    ("", "5:devices:/slurm/uid_1/job_812/step_0\n0::/\n", False),
    ("", "0::/system.slice/slurmstepd.scope/job_8123/step_extern\n", True),
]


@pytest.mark.parametrize("allowed, cgroup, refused", ALLOWED)
def test_whose_job_may_run_there(tmp_path: Path, allowed: str, cgroup: str, refused: bool) -> None:
    machine = node(tmp_path, STEPD, USERS, cgroup=cgroup)
    if not refused:
        assert refuse_busy(machine, allowed) == ()
        return
    with pytest.raises(Refused, match="this node runs Slurm job 812 of daemon since") as caught:
        refuse_busy(machine, allowed)
    assert "--allow-busy" in (caught.value.finding.remedy or "")


def test_a_task_of_an_array_is_known_by_both_its_numbers(tmp_path: Path) -> None:
    machine = node(tmp_path, SLURMD, squeue="echo '900|890_7|bob|2026-11-30T12:00:00|eval'")
    assert refuse_busy(machine, "900") == refuse_busy(machine, "890_7") == ()
    with pytest.raises(Refused, match="job 890_7"):
        refuse_busy(machine, "890")


def test_many_jobs_are_counted(tmp_path: Path) -> None:
    rows = "; ".join(f"echo '{id}|{id}|bob|2026-11-30T12:00:00|e'" for id in range(10, 15))
    with pytest.raises(Refused, match=r"job 10 .*; job 12 [^;]*; and 2 more"):
        refuse_busy(node(tmp_path, SLURMD, squeue=rows), "")


def test_a_job_as_its_step_says_it(tmp_path: Path) -> None:
    machine = node(tmp_path)
    machine.environment["SLURM_JOB_ID"] = "812"
    assert jobs(machine).own == "812" and Job("812") == Job("812", None, None)
