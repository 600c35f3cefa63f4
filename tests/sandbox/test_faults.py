"""One fault a host: what each looks like from the controller, and that the others get their work done."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.sandbox.cli import Said, Site, tasks_with

FAULTS = ("--inventory", "inventories/sandbox-faults.yml", "--timeout", "5")


@pytest.fixture(scope="module")
def fault_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("faults"))


@pytest.fixture(scope="module")
def said(fault_site: Site) -> Said:
    """The main job on all faults at once."""
    return fault_site.provision(*FAULTS)


def test_all_faults_at_once(said: Said) -> None:
    assert said.code == 2, said.err
    assert said.statuses() == {
        "fit": "changed",
        "old-driver": "failed",
        "refuses": "unreachable",
        "silent": "unreachable",
        "drops": "changed",
        "dies": "failed",
    }


def test_an_old_driver_is_refused_with_what_to_do(said: Said) -> None:
    (finding,) = [item for item in said.findings("old-driver") if item["id"] == "gpu.driver.version"]
    assert (finding["expected"], finding["found"]) == (">= 580", "570.86.15")
    assert "upgrade the driver" in finding["remedy"]
    host = said.document["hosts"]["old-driver"]
    assert host["failed"] == 1 and host["notrun"] == len(host["tasks"]) - 1, "nothing is built on an unfit node"


@pytest.mark.parametrize(("host", "words"), [("refuses", "refused"), ("silent", "no SSH banner within 5 s")])
def test_a_host_that_is_not_reached_says_why(said: Said, host: str, words: str) -> None:
    found = said.document["hosts"][host]
    assert words in found["message"] and found["unreachable"] == 1 and found["notrun"] == len(found["tasks"])


def test_a_rebooted_host_has_failed_and_another_one_built(said: Said) -> None:
    dies = said.document["hosts"]["dies"]
    findings = [item["id"] for task in dies["tasks"] for item in task["findings"]]
    assert "run.rebooted" in findings
    built = [host for host in ("fit", "drops") if "trtllm_build" in tasks_with(said, host, ["changed"])]
    assert len(built) == 1


def test_a_dropped_connection_is_followed_on(fault_site: Site, said: Said) -> None:
    assert "connection lost" in said.err and "connected again" in said.err
    host = said.document["hosts"]["drops"]
    assert host["failed"] == host["notrun"] == 0


def test_the_next_run_finds_the_dead_tray_alive_again(fault_site: Site, said: Said) -> None:
    again = fault_site.provision(*FAULTS, "--limit", "fit,drops,dies")
    assert again.code == 0, again.err
    assert fault_site.provision(*FAULTS, "--limit", "fit,drops,dies").changes() == {}


@pytest.mark.parametrize("host", ["refuses", "silent"])
def test_a_dead_tray_alone_is_unreachable(fault_site: Site, host: str) -> None:
    alone = fault_site.provision(*FAULTS, hosts=host)
    assert alone.code == 4 and alone.statuses() == {host: "unreachable"}


def test_a_builder_that_dies_is_relieved_by_a_waiter(tmp_path: Path) -> None:
    """The tray that dies goes first and has the lease; the next one takes its build over."""
    site = Site(tmp_path / "state")
    inventory = tmp_path / "two.yml"
    inventory.write_text(
        "all:\n  children:\n    pair:\n      hosts:\n"
        "        dies:\n          k3env_sandbox: {gpu: GB300, fault: 'die_at_task:trtllm_build'}\n"
        "        waits:\n          k3env_sandbox: {gpu: GB300}\n"
    )
    said = site.provision("--inventory", str(inventory), "--forks", "1", hosts="dies,waits")
    assert said.code == 2 and said.statuses() == {"dies": "failed", "waits": "changed"}, said.err
    assert [item["id"] for item in said.findings("dies")] == ["run.rebooted"]
    assert "trtllm_build" in tasks_with(said, "waits", ["changed"])


def test_a_build_that_fails_runs_once_and_is_adopted_by_the_others(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    environment = {**site.environment(), "K3ENV_MINIATURE_FAIL": "oom"}
    argv = site.argv("provision", "--hosts", "sandbox", "--output", "json", "--tags", "build")
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, env=environment)
    said = Said(done.returncode, done.stdout, done.stderr)
    assert said.code == 2 and set(said.statuses().values()) == {"failed"}
    assert len(list((site.checkout / ".k3env" / "logs").glob("*-1.3.log"))) == 1, "one build"
    messages = sorted(host["message"] for host in said.document["hosts"].values())
    assert sum(message.startswith("failed on tray-0") for message in messages) == 3
    for host in said.document["hosts"]:
        (finding,) = said.findings(host)
        assert "memory" in finding["message"] + (finding["found"] or "") and finding["remedy"]
    assert site.provision("--tags", "build").code == 0, "the next run tries again, and builds"


def test_a_connection_lost_in_the_middle_of_a_build_is_followed_on(tmp_path: Path) -> None:
    site = Site(tmp_path / "state")
    inventory = tmp_path / "one.yml"
    inventory.write_text(
        "all:\n  hosts:\n    drops:\n      k3env_sandbox: {gpu: GB300, fault: 'drop_after_bytes:5200'}\n"
    )
    begun = time.monotonic()
    said = site.provision("--inventory", str(inventory), "--tags", "build", hosts="drops")
    assert said.code == 0, said.err
    assert "connection lost" in said.err and "connected again" in said.err
    assert tasks_with(said, "drops", ["changed"]) == ["git_checkout", "trtllm_build"]
    assert time.monotonic() - begun < 120
