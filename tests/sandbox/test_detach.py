"""Work that is left to itself, and found again by whoever may: here, and from another account."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from tests.sandbox.cli import Said, Site

SLOW = """
- name: Slow
  hosts: all
  tasks:
    - name: Take a while
      command: {argv: [sh, -c, "sleep SECONDS; touch $HOME/slept"], unless: [sh, -c, "test -e $HOME/slept"]}
    - name: Afterwards
      command: {argv: [sh, -c, "touch $HOME/after"], unless: [sh, -c, "test -e $HOME/after"]}
"""
HOSTS = ("--hosts", "tray-[01-02]")


@pytest.fixture
def here(tmp_path: Path) -> Site:
    return Site(tmp_path / "here")


@pytest.fixture
def elsewhere(here: Site, tmp_path: Path) -> Site:
    """Another account of the same operator: it has no record of its own, and reaches the same trays."""
    (tmp_path / "elsewhere" / "k3env").mkdir(parents=True)
    (tmp_path / "elsewhere" / "k3env" / "sandbox").symlink_to(here.rack)
    return Site(tmp_path / "elsewhere")


def book(directory: Path, seconds: float, text: str = SLOW) -> str:
    path = directory / "slow.yml"
    path.write_text(text.replace("SECONDS", str(seconds)))
    return str(path)


def begin(site: Site, playbook: str, *options: str) -> tuple[Said, str]:
    said = site.k3env("provision", *HOSTS, "--playbook", playbook, "--detach", *options)
    (run,) = re.findall(r"invoke attach (\S+)", said.out + said.err)
    return said, run


def listed(said: Said) -> list[dict[str, object]]:
    told = json.loads(said.out)
    assert told["schema"] == "k3env.runs/1"
    runs: list[dict[str, object]] = told["runs"]
    return runs


def test_a_run_that_is_left_is_seen_followed_and_told_again_from_elsewhere(
    here: Site, elsewhere: Site, tmp_path: Path
) -> None:
    begun = time.monotonic()
    said, run = begin(here, book(tmp_path, 15), "--output", "json")
    assert said.code == 0 and time.monotonic() - begun < 40, said.err
    assert set(said.statuses().values()) == {"notrun"} and f"invoke cancel {run}" in said.err
    (seen,) = listed(elsewhere.k3env("runs", *HOSTS, "--output", "json"))
    assert (seen["run"], seen["state"], seen["what"]) == (run, "running", "slow: Slow")
    assert "@" in str(seen["owner"]) and seen["hosts"] == {
        "tray-01": "1/2 Take a while", "tray-02": "1/2 Take a while"
    }  # fmt: skip
    assert listed(elsewhere.k3env("runs", "--output", "json")) == []
    followed = elsewhere.k3env("attach", run[:-2], *HOSTS, "--output", "json")
    assert followed.code == 0 and set(followed.statuses().values()) == {"changed"}, followed.err
    assert not (elsewhere.state / "k3env" / "runs").exists(), "whoever began it keeps the record"
    again = elsewhere.k3env("attach", run, *HOSTS, "--output", "json")
    assert again.document["hosts"] == followed.document["hosts"]
    own = here.k3env("attach", run, "--output", "json")
    assert own.code == 0 and own.document["hosts"] == followed.document["hosts"]
    assert [item["state"] for item in listed(here.k3env("runs", "--output", "json"))] == ["ended"]


def test_a_part_of_a_run_is_ended_and_the_rest_goes_on(here: Site, tmp_path: Path) -> None:
    _, run = begin(here, book(tmp_path, 8))
    said = here.k3env("cancel", run, "--limit", "tray-02", "--output", "json")
    assert said.code == 0 and said.statuses() == {"tray-02": "notrun"}, said.err
    for words in (
        ("cancel", run, "--limit", "tray-03"),
        ("attach", run, "--limit", "nosuch"),
        ("runs", "--limit", "x"),
    ):
        wrong = here.k3env(*words)
        assert wrong.code == 1 and "--limit" in wrong.err, wrong.err
    (seen,) = listed(here.k3env("runs", "--output", "json"))
    assert seen["state"] == "open"
    rest = here.k3env("attach", run, "--limit", "tray-01", "--output", "json")
    assert rest.code == 0 and rest.statuses() == {"tray-01": "changed"}, rest.err
    (seen,) = listed(here.k3env("runs", "--output", "json"))
    assert (seen["state"], seen["hosts"]) == ("ended", {"tray-01": "changed", "tray-02": "notrun"})
    assert [path.parts[-3] for path in here.rack.glob("tray-*/home/slept")] == ["tray-01"]


def test_a_run_of_another_account_is_ended(here: Site, elsewhere: Site, tmp_path: Path) -> None:
    _, run = begin(here, book(tmp_path, 60))
    said = elsewhere.k3env("cancel", run, *HOSTS, "--output", "json")
    assert said.code == 0 and "cancelled: [tray-[01-02]]" in said.err
    (seen,) = listed(elsewhere.k3env("runs", *HOSTS, "--output", "json"))
    assert seen["state"] == "ended" and "cancelled at 1/2 Take a while" in str(seen["hosts"])
    text = elsewhere.k3env("runs", *HOSTS).out
    assert max(map(len, text.splitlines())) <= 80 and "tray-[01-02]: cancelled at" in text
    assert not list(here.rack.glob("tray-*/home/slept"))


def test_a_run_that_failed_is_told_as_it_was(here: Site, elsewhere: Site, tmp_path: Path) -> None:
    playbook = book(tmp_path, 0, SLOW.replace("touch $HOME/slept", "echo broken; exit 3"))
    first = here.k3env("provision", *HOSTS, "--playbook", playbook, "--output", "json")
    assert first.code == 2
    run = first.document["run"]
    again = elsewhere.k3env("attach", run, *HOSTS, "--output", "json")
    assert again.code == 2 and again.document["hosts"] == first.document["hosts"]
    shown = elsewhere.k3env("attach", run, *HOSTS)
    assert shown.code == 2 and "failed: [tray-" in shown.out and "broken" in shown.out
    own = here.k3env("attach", run)
    assert own.code == 2 and "failed: [tray-" in own.out and "no host left" in own.out


def test_a_run_that_no_node_knows(here: Site, elsewhere: Site, tmp_path: Path) -> None:
    begin(here, book(tmp_path, 0))
    said = elsewhere.k3env("attach", "20000101", *HOSTS, "--output", "json")
    assert said.code == 1 and "invoke runs --hosts" in said.document["error"]["remedy"]
    own = elsewhere.k3env("attach", "20000101", "--output", "json")
    assert own.code == 1 and "--hosts" in own.document["error"]["remedy"]


def test_a_host_that_cannot_be_asked_is_not_forgotten(here: Site, elsewhere: Site, tmp_path: Path) -> None:
    _, run = begin(here, book(tmp_path, 0))
    inventory = tmp_path / "site.yml"
    inventory.write_text(
        "all:\n  hosts:\n    tray-[01:02]: {k3env_sandbox: {gpu: GB300}}\n"
        "    down: {ansible_host: 127.0.0.1, ansible_port: 1}\n"
    )
    asked = ("--hosts", "all", "--inventory", str(inventory), "--timeout", "5", "--output", "json")
    seen = elsewhere.k3env("runs", *asked)
    assert seen.code == 4 and set(json.loads(seen.out)["problems"]) == {"down"} and len(listed(seen)) == 1
    followed = elsewhere.k3env("attach", run, *asked)
    assert followed.code == 4 and followed.statuses()["down"] == "unreachable"
    unknown = elsewhere.k3env("attach", "2000", *asked)
    assert unknown.code == 4 and "down did not" in unknown.document["error"]["message"]


def test_hosts_that_do_not_begin_are_told_and_the_others_go_on(here: Site, tmp_path: Path) -> None:
    inventory = tmp_path / "site.yml"
    inventory.write_text(
        "all:\n  hosts:\n    tray-01: {k3env_sandbox: {gpu: GB300}}\n"
        "    down: {ansible_host: 127.0.0.1, ansible_port: 1}\n"
    )
    playbook = book(tmp_path, 60)
    words = ("--hosts", "all", "--inventory", str(inventory), "--timeout", "5", "--output", "json")
    said = here.k3env("provision", *words, "--playbook", playbook, "--detach")
    assert said.code == 4 and said.statuses() == {"tray-01": "notrun", "down": "unreachable"}
    assert "goes on without this command on tray-01" in said.err
    alone = here.k3env("provision", "--hosts", "down", *words[2:], "--playbook", playbook, "--detach")
    assert alone.code == 4 and "is at work on no host" in alone.err
    (run,) = re.findall(r"invoke cancel (\S+)", said.err)
    ended = here.k3env("cancel", run)
    assert ended.code == 4 and "cancelled: [tray-01]" in ended.out, "the other one is as unreachable as it was"


def test_a_busy_node_is_named_when_a_second_run_is_left_there(here: Site, tmp_path: Path) -> None:
    playbook = book(tmp_path, 60)
    _, run = begin(here, playbook)
    second = here.k3env("provision", *HOSTS, "--playbook", playbook, "--detach", "--output", "json")
    assert second.code == 2
    (finding,) = second.findings("tray-01")
    assert finding["id"] == "run.busy" and run in finding["message"]
    assert here.k3env("cancel", run).code == 0


TWO = SLOW + SLOW.replace("Slow", "Slower")


@pytest.mark.parametrize(
    ("text", "options", "found"),
    [
        (SLOW, ("--check",), "changes nothing"),
        (TWO, (), "2 plays"),
        (SLOW.replace("hosts: all", "hosts: all\n  serial: 1"), (), "serial"),
        (SLOW.replace("hosts: all", "hosts: all\n  any_errors_fatal: true"), (), "across hosts"),
    ],
)
def test_work_that_needs_its_controller_is_not_begun(
    here: Site, tmp_path: Path, text: str, options: tuple[str, ...], found: str
) -> None:
    playbook = book(tmp_path, 0, text)
    said = here.k3env("provision", *HOSTS, "--playbook", playbook, "--detach", "--output", "json", *options)
    assert said.code == 1 and found in said.document["error"]["found"]
    assert not list(here.rack.glob("tray-*/home/*"))


@pytest.mark.parametrize(
    ("options", "found"),
    [(("--connection", "slurm"), "srun's step ends with this command (n1)"), (("--drain",), "nobody would resume")],
)
def test_work_that_would_end_or_stay_drained_is_not_begun(
    here: Site, tmp_path: Path, options: tuple[str, ...], found: str
) -> None:
    words = ("--hosts", "n1", "--playbook", book(tmp_path, 0), "--detach", "--output", "json", *options)
    said = here.k3env("provision", *words)
    assert said.code == 1 and found in said.document["error"]["found"]
