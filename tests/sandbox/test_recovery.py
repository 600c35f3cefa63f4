"""What goes wrong around a run: records, state, payload, output, and finding a run again all the same."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.sandbox.cli import Said, Site
from tests.sandbox.test_cli import SLOW, _runs, started

QUICK = """
- name: Quick
  hosts: all
  tasks:
    - name: Look
      tags: look
      command: {argv: ["true"], read_only: true}
"""


@pytest.fixture(scope="module")
def spot(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("recovery"))


@pytest.fixture
def quick(tmp_path: Path) -> str:
    (tmp_path / "quick.yml").write_text(QUICK)
    return str(tmp_path / "quick.yml")


@pytest.fixture
def slow(tmp_path: Path) -> str:
    (tmp_path / "slow.yml").write_text(SLOW)
    return str(tmp_path / "slow.yml")


def rested(spot: Site) -> None:
    for tray in spot.rack.glob("tray-*"):
        for name in ("slept", "after"):
            (tray / "home" / name).unlink(missing_ok=True)


def test_an_agent_that_dies_after_hello_is_one_failure_with_its_words(spot: Site, quick: str) -> None:
    assert spot.provision("--playbook", quick, hosts="tray-01").code == 0
    runs = spot.rack / "tray-01" / "state" / "runs"
    shutil.rmtree(runs)
    runs.write_text("a file where a directory belongs")
    begun = time.monotonic()
    said = spot.provision("--playbook", quick, hosts="tray-01")
    assert said.code == 2 and time.monotonic() - begun < 60
    (finding,) = said.findings("tray-01")
    assert finding["id"] == "run.agent" and "NotADirectoryError" in finding["found"]
    assert said.err.count("reconnecting") == 0
    runs.unlink()


def test_a_payload_that_somebody_cleaned_up_is_sent_anew(spot: Site, quick: str) -> None:
    assert spot.provision("--playbook", quick, hosts="tray-01").code == 0
    (worker,) = (spot.rack / "tray-01" / "state" / "payload").glob("*/k3env/node/worker.py")
    worker.unlink()
    for cached in worker.parent.glob("__pycache__/worker.*"):
        cached.unlink()
    assert spot.provision("--playbook", quick, hosts="tray-01").code == 2
    assert spot.provision("--playbook", quick, hosts="tray-01").code == 0


def test_a_damaged_record_is_named_and_the_others_are_listed(spot: Site, quick: str) -> None:
    assert spot.provision("--playbook", quick, hosts="tray-01").code == 0
    good = _runs(spot)[-1]
    base = spot.state / "k3env" / "runs"
    for name, text in (
        ("10000101-000000-empty", ""),
        ("10000101-000000-other", "[]"),
        ("10000101-000000-field", '{"a":1}'),
    ):
        (base / name).mkdir()
        (base / name / "run.json").write_text(text)
    with (base / good / "events.jsonl").open("ab") as file:
        file.write(b'[]\n"x"\n{"host":"zzz","play":1,"event":{"kind":"end"}}\n\xff\xfe\x00\n{"host"')
    said = spot.k3env("runs")
    assert said.code == 0 and good in said.out and said.err.count("can't be read") == 3
    attached = spot.k3env("attach", "10000101-000000-other", "--output", "json")
    assert attached.code == 1 and "rm -r" in attached.document["error"]["remedy"]
    for name in ("empty", "other", "field"):
        shutil.rmtree(base / f"10000101-000000-{name}")


def test_a_state_directory_that_cannot_be_written_stops_before_any_host(tmp_path: Path, quick: str) -> None:
    (tmp_path / "k3env").write_text("a file")
    said = Site(tmp_path).k3env("provision", "--hosts", "localhost", "--connection", "local", "--playbook", quick)
    assert said.code == 1 and "XDG_STATE_HOME" in said.err and "defect" not in said.err


def test_ctrl_c_begins_no_further_host(spot: Site, slow: str) -> None:
    argv = ["provision", "--hosts", "tray-[01-03]", "--playbook", slow, "--forks", "2"]
    process = started(spot, argv)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    run = _runs(spot)[-1]
    attached = spot.k3env("attach", run, "--output", "json")
    assert attached.statuses() == {"tray-01": "changed", "tray-02": "changed", "tray-03": "notrun"}
    assert "never begun" in attached.err and "tray-03" in attached.err
    assert not (spot.rack / "tray-03" / "home" / "slept").exists()
    rested(spot)


def test_cancel_after_a_killed_controller_leaves_hosts_that_never_began_alone(spot: Site, slow: str) -> None:
    process = started(spot, ["provision", "--hosts", "tray-[01-03]", "--playbook", slow, "--forks", "2"])
    process.kill()
    process.communicate()
    said = spot.k3env("cancel", _runs(spot)[-1], "--output", "json")
    assert set(said.document["hosts"]) == {"tray-01", "tray-02", "tray-03"}
    assert said.code == 0 and set(said.statuses().values()) == {"notrun"}
    rested(spot)


def test_a_run_is_found_again_from_elsewhere_without_its_environment(spot: Site, slow: str, tmp_path: Path) -> None:
    inventory = tmp_path / "site.yml"
    inventory.write_text("all:\n  hosts:\n    tray-[01:02]:\n  vars:\n    k3env_sandbox: {gpu: GB300}\n")
    environment = {**spot.environment(), "K3ENV_INVENTORY": "site.yml"}
    argv = spot.argv("provision", "--hosts", "tray-[01-02]", "--playbook", slow)
    process = subprocess.Popen(argv, env=environment, cwd=tmp_path, stdout=subprocess.PIPE, text=True)
    time.sleep(3)
    process.kill()
    process.communicate()
    attached = spot.k3env("attach", _runs(spot)[-1], "--output", "json")
    assert attached.code == 0 and set(attached.statuses().values()) == {"changed"}, attached.err
    rested(spot)


def test_a_host_that_was_lost_is_followed_on_when_it_is_back(spot: Site, slow: str, tmp_path: Path) -> None:
    """The tray goes away with the controller's process; what runs on it does not."""
    process = started(spot, ["provision", "--hosts", "tray-[01-02]", "--playbook", slow])
    process.kill()
    process.communicate()
    run = _runs(spot)[-1]
    with (spot.state / "k3env" / "runs" / run / "events.jsonl").open("a") as file:
        file.write('{"host":"tray-01","play":1,"event":{"kind":"unreachable","data":{"message":"gone"}}}\n')
    attached = spot.k3env("attach", run, "--output", "json")
    assert attached.code == 0 and set(attached.statuses().values()) == {"changed"}
    rested(spot)


def test_output_that_nobody_reads_leaves_the_work_and_says_how_to_find_it(spot: Site, slow: str) -> None:
    read, write = os.pipe()
    process = subprocess.Popen(
        spot.argv("provision", "--hosts", "tray-[01-02]", "--playbook", slow),
        env=spot.environment(),
        stdout=write,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(write)
    assert b"PLAY" in os.read(read, 100)
    os.close(read)
    _, told = process.communicate(timeout=40)
    assert process.returncode == 130 and "invoke attach" in told and "Traceback" not in told
    attached = spot.k3env("attach", _runs(spot)[-1], "--output", "json")
    assert attached.code in (0, 130)
    rested(spot)


@pytest.mark.parametrize(
    "arguments", [["--tags", "nope"], ["--extra-vars", "gpus_per_nod=4"], ["--private-key", "/none"], ["--limit", "zz"]]
)
def test_a_list_of_hosts_is_checked_like_a_run(spot: Site, quick: str, arguments: list[str]) -> None:
    said = spot.provision("--list-hosts", "--playbook", quick, *arguments)
    assert said.code == 1 and said.document["error"]


def test_a_list_of_hosts_is_narrowed_by_the_plays_and_is_a_document(spot: Site, tmp_path: Path) -> None:
    path = tmp_path / "narrow.yml"
    path.write_text(QUICK.replace("hosts: all", "hosts: tray-0[13]".replace("0[13]", "[01,03]")))
    said = spot.provision("--list-hosts", "--playbook", str(path))
    assert said.code == 0 and list(said.document["hosts"]) == ["tray-01", "tray-03"]


def test_a_key_that_cannot_be_used_is_a_usage_error(spot: Site, quick: str, tmp_path: Path) -> None:
    (tmp_path / "key.pub").write_text("ssh-ed25519 AAAA")
    for key in ("/none", str(tmp_path / "key.pub")):
        said: Said = spot.provision("--playbook", quick, "--private-key", key)
        assert said.code == 1 and "--private-key" in said.document["error"]["message"]
