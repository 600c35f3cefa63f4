"""What may end long work before its time: a job's cgroup, logind at logout, a state directory that does not last."""

from __future__ import annotations

import getpass
import os
from pathlib import Path

import pytest

from k3env.node.facts.mounts import Mount
from k3env.node.facts.session import Logind, Place, Session, logind, place, session
from k3env.node.lasting import of_session, of_state
from k3env.node.machine import Machine
from k3env.protocol.event import Event
from k3env.protocol.outcome import fold
from k3env.protocol.plan import STOP, Plan, Task
from tests.agent import Agent, task

SSH = "0::/user.slice/user-1000.slice/session-3.scope\n"


@pytest.mark.parametrize(
    ("cgroup", "environment", "found"),
    [
        ("0::/system.slice/ssh.service\n", {}, Place()),
        ("", {}, Place()),
        ("0::/\n", {}, Place()),
        (SSH, {}, Place(scope_of=1000)),
        ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/run-1.scope\n", {}, Place(manager_of=1000)),
        ("0::/system.slice/slurmstepd.scope/job_812/step_extern/user/task_special\n", {}, Place("812", "extern")),
        ("0::/system.slice/gb300-01_slurmstepd.scope/job_812/step_0/user/task_0\n", {}, Place("812", "0")),
        ("0::/system.slice/slurmstepd.scope/job_812/step_batch/user/task_0\n", {}, Place("812", "batch")),
        # v1: pam_slurm_adopt moves what Slurm has hierarchies of; the session's own scope stays in systemd's.
        (
            "9:memory:/slurm/uid_1000/job_812/step_extern/task_0\n1:name=systemd:/user.slice/user-1000.slice/session-3.scope\n",
            {},
            Place("812", "extern", scope_of=1000),
        ),
        ("4:cpuset:/slurm_gb300-01/uid_1000/job_7/step_extern\n", {}, Place("7", "extern")),
        ("0::/system.slice/ssh.service\n", {"SLURM_JOB_ID": "9", "SLURM_STEP_ID": "1"}, Place("9", "1")),
        ("0::/kubepods/job_x/pod\n", {}, Place()),
        ("0::/user.slice/user-1000.slice/session-3.scope-not\n", {}, Place()),
    ],
)
def test_where_a_process_stands(cgroup: str, environment: dict[str, str], found: Place) -> None:
    assert place(cgroup, environment) == found


def conf(*lines: str) -> str:
    return "\n".join(("[Login]", *lines, ""))


@pytest.mark.parametrize(
    ("files", "killed", "spared"),
    [
        ([""], "", "ada root"),
        ([conf("#KillUserProcesses=no")], "", "ada"),
        ([conf("#KillUserProcesses=yes")], "ada", "root"),
        ([conf("KillUserProcesses=yes")], "ada", "root"),
        ([conf("KillUserProcesses = on ")], "ada", "root"),
        ([conf("#KillUserProcesses=yes", "KillUserProcesses=no")], "", "ada"),
        ([conf("KillUserProcesses=yes"), conf("KillUserProcesses=no")], "", "ada"),
        ([conf("KillUserProcesses=no"), conf("KillUserProcesses=1")], "ada", ""),
        ([conf("KillUserProcesses=yes", "KillExcludeUsers=root ada")], "bob", "ada root"),
        ([conf("KillUserProcesses=yes", "KillExcludeUsers=ada")], "bob root", "ada"),
        ([conf("KillUserProcesses=yes", "KillExcludeUsers=ada", "KillExcludeUsers=")], "ada root", ""),
        ([conf("KillOnlyUsers=bob")], "bob", "ada root"),
        ([conf("KillUserProcesses=yes", "KillOnlyUsers=bob", "KillOnlyUsers=eve")], "bob eve", "ada"),
        ([conf("KillOnlyUsers=bob", "KillExcludeUsers=bob")], "", "bob"),
        (["[Manager]\nKillUserProcesses=yes\n"], "", "ada"),
        (["", "[Login]\n#KillUserProcesses=yes\n"], "", "ada"),
        ([conf("KillUserProcesses=maybe")], "", "ada"),
    ],
)
def test_whom_logind_ends(files: list[str], killed: str, spared: str) -> None:
    said = logind((f"/etc/{number}", text) for number, text in enumerate(files))
    assert [user for user in killed.split() if not said.kills(user)] == []
    assert [user for user in spared.split() if said.kills(user)] == []


KILLS = Logind(True, said_by="/etc/systemd/logind.conf: KillUserProcesses=yes")


@pytest.mark.parametrize(
    ("found", "detached", "told"),
    [
        (Session(Place(), ""), True, []),
        (Session(Place(scope_of=1000), SSH, "ada"), True, []),
        (Session(Place(scope_of=1000), SSH, "ada", KILLS), False, ["run.killed_at_logout warn"]),
        (Session(Place(scope_of=1000), SSH, "ada", KILLS), True, ["run.killed_at_logout fail"]),
        (Session(Place(scope_of=1000), SSH, "ada", KILLS, lingers=True), True, ["run.killed_at_logout fail"]),
        (Session(Place(scope_of=0), SSH, "root", KILLS), True, []),
        (Session(Place(manager_of=1000), "", "ada"), False, ["run.killed_at_logout warn"]),
        (Session(Place(manager_of=1000), "", "ada", KILLS, lingers=True), True, []),
        (Session(Place("812", "extern"), ""), True, ["run.in_job warn"]),
        (
            Session(Place("812", "extern", 1000), "", "ada", KILLS),
            False,
            ["run.in_job warn", "run.killed_at_logout warn"],
        ),
    ],
)
def test_what_a_session_means_for_long_work(found: Session, detached: bool, told: list[str]) -> None:
    findings = list(of_session(found, detached))
    assert [f"{item.id} {item.status}" for item in findings] == told
    assert all(item.expected and item.found and item.remedy for item in findings)


@pytest.mark.parametrize(
    ("fstype", "told"),
    [("ext4", ""), ("xfs", ""), ("overlay", ""), ("tmpfs", "reboot"), ("rootfs", "reboot"), ("nfs4", "stalls")],
)
def test_what_a_state_directory_means(fstype: str, told: str) -> None:
    found = of_state("/var/tmp/k3env-0", Mount("/var", fstype, "somewhere"))
    assert (found.message if found else "").find(told) >= 0 and bool(found) == bool(told)
    assert of_state("/var/tmp/k3env-0", None) is None


def overlaid(root: Path, files: dict[str, str]) -> str:
    for path, text in files.items():
        (root / path.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        (root / path.lstrip("/")).write_text(text)
    return str(root)


def nodes(root: Path) -> dict[str, str]:
    """The files of a node whose logind kills, and whose state directory lies in memory."""
    me = getpass.getuser()
    return {
        "/proc/self/cgroup": f"0::/user.slice/user-{os.geteuid()}.slice/session-3.scope\n",
        "/proc/self/mountinfo": f"21 1 0:1 / / rw - ext4 /dev/x rw\n22 21 0:2 / {root.resolve()} rw - tmpfs tmpfs rw\n",
        "/etc/systemd/logind.conf": conf("#KillUserProcesses=no", "KillUserProcesses=no"),
        "/usr/lib/systemd/logind.conf.d/50.conf": conf("KillUserProcesses=yes", f"KillExcludeUsers=not-{me}"),
        "/etc/systemd/logind.conf.d/40.conf": conf("KillUserProcesses=no"),
    }


def test_the_files_of_a_node_are_read_in_loginds_order(tmp_path: Path) -> None:
    files = nodes(tmp_path)
    found = session(Machine(overlay=overlaid(tmp_path / "overlay", files)))
    assert found.user == getpass.getuser() and found.logind.kills(found.user)
    assert found.logind.said_by.startswith("/usr/lib/systemd/logind.conf.d/50.conf: ")
    files["/etc/systemd/logind.conf.d/50.conf"] = ""  # one of the same name in /etc takes its place
    assert not session(Machine(overlay=overlaid(tmp_path / "overlay", files))).logind.kills(found.user)


CHANGING = task("command", argv=["true"], unless=["true"])


def begun(agent: Agent, **more: object) -> Event:
    heard = agent.follow([CHANGING], **more)  # type: ignore[arg-type]
    return heard.events[0]


def test_a_run_says_so_as_it_begins_once_for_a_host(tmp_path: Path) -> None:
    agent = Agent(tmp_path, overlay=overlaid(tmp_path / "overlay", nodes(tmp_path)))
    heard = agent.follow([CHANGING])
    assert heard.events[0].kind == "begin" and heard.results() == {"1.1": "ok"}
    plans = {"a": [Task("1.1", "one", "command"), Task("1.2", "two", "command")]}
    told = [("a", event) for event in (*heard.events, heard.events[0])]
    outcome = fold("r", "", plans, told)
    ids = [finding.id for item in outcome.hosts["a"].tasks for finding in item.findings]
    assert sorted(ids) == ["run.killed_at_logout", "run.state_dir"]


def test_work_that_would_not_survive_is_not_left_to_itself(tmp_path: Path) -> None:
    agent = Agent(tmp_path, overlay=overlaid(tmp_path / "overlay", nodes(tmp_path)))
    heard = agent.follow([CHANGING], detached=True)
    assert heard.kinds() == ["end"] and heard.status == "failed"
    (finding,) = heard.events[0].data["findings"]
    assert finding["id"] == "run.killed_at_logout" and "--detach" in finding["remedy"]


def test_short_work_and_a_lasting_node_say_nothing(tmp_path: Path) -> None:
    killing = overlaid(tmp_path / "overlay", nodes(tmp_path))
    assert "findings" not in begun(Agent(tmp_path / "a", overlay=killing), when_unfollowed=STOP).data
    lasting = overlaid(tmp_path / "lasting", {"/proc/self/cgroup": "0::/system.slice/ssh.service\n"})
    assert "findings" not in begun(Agent(tmp_path / "b", overlay=lasting)).data
    assert Plan(()).when_unfollowed != STOP
