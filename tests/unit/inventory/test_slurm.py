"""Hosts from Slurm. Its programs are stand-ins here, which answer what those of Slurm 22.05.8 answered to the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.cli.options import Options
from k3env.cli.who import who
from k3env.errors import InventoryError, UsageError
from k3env.inventory import Inventory, slurm
from tests.unit.inventory.conftest import Make

SINFO = """\
case "$*" in
  "--noheader --Node --format=%N --partition=main") printf 'gb300-01\\ngb300-02\\ngb300-03\\ngb300-04\\n' ;;
  "--noheader --Node --format=%N --partition=blades") printf 'rack0_blade0\\nrack0_blade1\\n' ;;
  "--noheader --Node --format=%N --partition="*) ;;
  "--noheader --format=%R") printf 'main\\nblades\\n' ;;
  *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""
SQUEUE = """\
case "$*" in
  "--noheader --format=%T|%N --jobs=1") echo 'RUNNING|gb300-[01-02]' ;;
  "--noheader --format=%T|%N --jobs=2") ;;
  "--noheader --format=%T|%N --jobs=3") echo 'PENDING|' ;;
  "--noheader --format=%T|%N --jobs=4") printf 'RUNNING|gb300-01\\nRUNNING|gb300-04\\nPENDING|\\n' ;;
  "--noheader --format=%T|%N --jobs=5") echo 'RUNNING|n[0-1][2-3]' ;;
  *) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
esac
"""
SCONTROL = """\
case "$*" in
  "show hostnames n[0-1][2-3]") printf 'n02\\nn03\\nn12\\nn13\\n' ;;
  *) echo "unexpected: $*" >&2; exit 9 ;;
esac
"""
NODES = "all: {hosts: {'gb300-[01:03]': }}\n"


@pytest.fixture(autouse=True)
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put Slurm's programs in front of PATH; outside of a job."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, body in (("sinfo", SINFO), ("squeue", SQUEUE), ("scontrol", SCONTROL)):
        (directory / name).write_text("#!/bin/sh\n" + body)
        (directory / name).chmod(0o700)
    monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")
    for name in ("SLURM_JOB_NODELIST", "K3ENV_INVENTORY"):
        monkeypatch.delenv(name, raising=False)
    return directory


MEANT = {
    "slurm:main": "gb300-01 gb300-02 gb300-03 gb300-04",
    "slurm:blades": "rack0_blade0 rack0_blade1",
    "slurm:job:1": "gb300-01 gb300-02",
    "slurm:job:4": "gb300-01 gb300-04",
    "slurm:job:5": "n02 n03 n12 n13",
    "slurm:main:!slurm:job:1": "gb300-03 gb300-04",
    "slurm:main:&slurm:job:4,!gb300-01": "gb300-04",
    "slurm:job:1,extra": "gb300-01 gb300-02 extra",
}


@pytest.mark.parametrize("pattern", MEANT)
def test_terms(pattern: str, inventory: Make) -> None:
    hosts = inventory("gpu:\n", adhoc_allowed=True).select(pattern)
    assert [host.name for host in hosts] == MEANT[pattern].split()


WRONG = {
    "slurm:mian": ("has no nodes in a partition mian", "did you mean slurm:main?"),
    "slurm:nosuch": ("has no nodes in a partition nosuch", "one of main, blades"),
    "slurm:": ("can't be read", "slurm:PARTITION"),
    "slurm:job": ("can't be read", "slurm:job:ID"),
    "slurm:job:": ("can't be read", "slurm:job:ID"),
    "slurm:job:x;y": ("can't be read", "slurm:job:ID"),
    "slurm:--version": ("no nodes in a partition --version", "one of main"),
    "slurm:main:gpu": ("can't be read", "slurm:PARTITION"),
    "slurm:job:2": ("the job 2 has no nodes", "a job that has ended"),
    "slurm:job:3": ("the job 3 has no nodes", "pending"),
    "slurm:job:999": ("does not know slurm:job:999", "Invalid job id specified"),
}


@pytest.mark.parametrize("pattern", WRONG)
def test_terms_that_are_wrong(pattern: str, inventory: Make) -> None:
    message, detail = WRONG[pattern]
    with pytest.raises(InventoryError) as caught:
        inventory("gpu:\n", adhoc_allowed=True).select(pattern)
    finding = caught.value.finding
    assert message in finding.message
    assert detail in f"{finding.expected} {finding.found} {finding.remedy}"


def test_what_the_inventory_does_not_know_is_no_host(inventory: Make) -> None:
    hosts = inventory(NODES)
    with pytest.raises(InventoryError, match="no host or group gb300-04"):
        hosts.select("slurm:main")
    assert [host.name for host in hosts.select("all:&slurm:main:!slurm:job:1")] == ["gb300-03"]


def test_no_slurm_here(inventory: Make, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InventoryError, match="sinfo can't be run") as caught:
        inventory(NODES).select("slurm:main")
    assert "login node" in (caught.value.finding.remedy or "")


def test_a_controller_that_is_silent(inventory: Make, monkeypatch: pytest.MonkeyPatch, programs: Path) -> None:
    monkeypatch.setattr(slurm, "TIMEOUT_S", 0.2)
    (programs / "sinfo").write_text("#!/bin/sh\nsleep 60\n")
    with pytest.raises(InventoryError, match="sinfo does not answer"):
        inventory(NODES).select("slurm:main")


@pytest.mark.parametrize("answer", ["-oProxyCommand=x", "a b", "\\033[2J", "é"])
def test_an_answer_that_holds_no_host_names(answer: str, inventory: Make, programs: Path) -> None:
    (programs / "sinfo").write_text(f"#!/bin/sh\nprintf '%b\\n' '{answer}'\n")
    with pytest.raises(InventoryError, match="answer can't be read"):
        inventory("gpu:\n", adhoc_allowed=True).select("slurm:main")


def test_the_job_around_us(inventory: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    inventory(NODES)
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gb300-[01-02]")
    assert [host.name for host in who(Options(inventory=("hosts.yml",))).hosts] == ["gb300-01", "gb300-02"]
    assert [host.name for host in who(Options()).hosts] == ["gb300-01", "gb300-02"]
    assert [host.name for host in who(Options(limit="gb300-02")).hosts] == ["gb300-02"]
    assert [host.name for host in who(Options(hosts="gb300-03", inventory=("hosts.yml",))).hosts] == ["gb300-03"]
    monkeypatch.setenv("SLURM_JOB_NODELIST", "gb300-[03-05],x1")
    with pytest.raises(InventoryError, match="does not know 3 of the 4 hosts") as caught:
        who(Options(inventory=("hosts.yml",)))
    assert caught.value.finding.found == "gb300-[04-05],x1"


LISTS = {
    "c427-032,c429-002": "c427-032 c429-002",
    "c438-[062,104]": "c438-062 c438-104",
    "rack[0-1]_blade[0-1]": "rack0_blade0 rack0_blade1 rack1_blade0 rack1_blade1",
    "n[0-1][2-3]": "n02 n03 n12 n13",
    "a,b[1-2],c": "a b1 b2 c",
}


@pytest.mark.parametrize("nodelist", LISTS)
def test_node_lists(nodelist: str, inventory: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    found = inventory("gpu:\n", adhoc_allowed=True).select_allocated(nodelist)
    assert sorted(host.name for host in found) == sorted(LISTS[nodelist].split())


def test_no_hosts_outside_of_a_job() -> None:
    with pytest.raises(UsageError, match="no --hosts") as caught:
        who(Options())
    assert "no Slurm job" in (caught.value.finding.found or "")


def test_nobody_is_asked_for_other_patterns(inventory: Make, programs: Path) -> None:
    for name in ("sinfo", "squeue", "scontrol"):
        (programs / name).unlink()
    found: Inventory = inventory(NODES)
    assert len(found.select("all")) == 3
