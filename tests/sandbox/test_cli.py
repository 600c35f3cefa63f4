"""What a person types: mistakes, lists, runs that are left and found again."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from k3env.reports.document import schema
from tests.sandbox.cli import Said, Site

PLAY = """
- name: A test's play
  hosts: all
  tasks:
    - name: Make a directory
      tags: made
      cache_dirs: {base: "~/made", min_free_gib: 0}
"""
SLOW = """
- name: Slow
  hosts: all
  tasks:
    - name: Take a while
      command: {argv: [sh, -c, "sleep 6; touch $HOME/slept"], unless: [sh, -c, "test -e $HOME/slept"]}
    - name: Afterwards
      command: {argv: [sh, -c, "touch $HOME/after"], unless: [sh, -c, "test -e $HOME/after"]}
"""


@pytest.fixture(scope="module")
def cli_site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("cli"))


@pytest.fixture
def book(tmp_path: Path) -> Path:
    path = tmp_path / "book.yml"
    path.write_text(PLAY)
    return path


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


BAD_BOOKS = {
    "module": (changed(PLAY, "cache_dirs", "cache_dir"), ":7:7", "cache_dirs"),
    "parameter": (changed(PLAY, "base:", "bse:"), ":7:20", "base"),
    "type": (changed(PLAY, '"~/made"', "7"), ":7:26", '"7"'),
    "duplicate": (changed(PLAY, "min_free_gib: 0", 'base: "/x"'), ":7:36", "given twice"),
    "tab": (changed(PLAY, "      tags", "\t  tags"), ":6:1", "spaces"),
    "key": (changed(PLAY, "tags: made", "tag: made"), ":6:7", "tags"),
    "play key": (changed(PLAY, "  hosts", "  host"), ":3:3", "hosts"),
    "undefined": (changed(PLAY, "~/made", "{{ cache_bas }}"), ":7:26", "cache_base"),
    "register": (changed(PLAY, "tags: made", "register: x"), ":6:7", "reads the node"),
    "no list": ("hosts: all\n", ":1:1", "list"),
    "empty": ("", "", ""),
}


@pytest.mark.parametrize("name", BAD_BOOKS)
def test_a_playbook_that_is_wrong_is_told_at_its_place(cli_site: Site, book: Path, name: str) -> None:
    text, position, words = BAD_BOOKS[name]
    book.write_text(text)
    said = cli_site.provision("--playbook", str(book))
    assert said.code == 1 and not said.document["hosts"]
    error = said.document["error"]
    assert f"{book}{position}" in error["subject"], error
    told = " ".join(str(error[key]) for key in ("message", "expected", "found", "remedy"))
    assert words in told


BAD_OPTIONS = {
    "host": (["--hosts", "tray-01x", "--inventory", "inventories/sandbox.yml"], "tray-01"),
    "group": (["--hosts", "sandbx"], "sandbox"),
    "range": (["--hosts", "tray-[00000001-99999999]"], "65536"),
    "open range": (["--hosts", "tray-[01-02"], "]"),
    "nothing": (["--hosts", "sandbox:!sandbox"], "host"),
    "limit": (["--hosts", "sandbox", "--limit", "tray-09"], "tray-0"),
    "tag": (["--hosts", "sandbox", "--tags", "mode"], "made"),
    "skipped all": (["--hosts", "sandbox", "--skip-tags", "made"], "no task"),
    "playbook": (["--hosts", "sandbox", "--playbook", "trtlm"], "trtllm"),
    "inventory": (["--hosts", "sandbox", "--inventory", "nowhere.yml"], "nowhere.yml"),
    "forks": (["--hosts", "sandbox", "--forks", "many"], "1 to 9999"),
    "timeout": (["--hosts", "sandbox", "--timeout", "-3"], "above 0"),
    "output": (["--hosts", "sandbox", "--output", "jsn"], "json"),
    "connection": (["--hosts", "sandbox", "--connection", "telnet"], "ssh"),
    "variable": (["--hosts", "sandbox", "--extra-vars", "gpus_per_nod=4"], "gpus_per_node"),
    "no equals": (["--hosts", "sandbox", "--extra-vars", "gpus"], "NAME=VALUE"),
    "no hosts": ([], "--hosts"),
    "user": (["--hosts", "sandbox", "--user=-oProxyCommand=x"], "user name"),
    "become user": (["--hosts", "sandbox", "--become-user", "a b"], "user name"),
}


@pytest.mark.parametrize("name", BAD_OPTIONS)
def test_an_option_that_is_wrong_is_one_message_and_no_connection(cli_site: Site, book: Path, name: str) -> None:
    options, words = BAD_OPTIONS[name]
    before = _runs(cli_site)
    playbook = [] if "--playbook" in options else ["--playbook", str(book)]
    output = [] if "--output" in options else ["--output", "json"]
    said = cli_site.k3env("provision", *playbook, *output, *options)
    assert said.code == 1 and words in said.err and _runs(cli_site) == before
    assert said.err.startswith("ERROR ") and said.err.count("ERROR") == 1
    if output:
        assert said.document["error"]["message"] and said.document["hosts"] == {}


def test_lists_of_hosts_contact_nobody(cli_site: Site, book: Path) -> None:
    said = cli_site.k3env("provision", "--hosts", "sandbox:!tray-03", "--list-hosts", "--playbook", str(book))
    assert said.code == 0 and said.out == "  hosts (3):\n    tray-01\n    tray-02\n    tray-04\n"
    assert not cli_site.rack.exists() or not (cli_site.rack / "tray-01" / "home" / "made").exists()


def test_the_exit_code_tells_of_changes_only_when_asked(cli_site: Site, book: Path) -> None:
    run = ("--playbook", str(book))
    assert cli_site.provision(*run, "--check").code == 0
    assert cli_site.provision(*run, "--check", "--detailed-exitcode").code == 5
    assert not (cli_site.rack / "tray-01" / "home" / "made").exists()
    assert cli_site.provision(*run, "--detailed-exitcode").code == 5
    assert cli_site.provision(*run, "--detailed-exitcode").code == 0


def test_json_lines_are_events_and_the_document(cli_site: Site, book: Path) -> None:
    said = cli_site.k3env("provision", "--hosts", "tray-01", "--playbook", str(book), "--output", "jsonl")
    *events, last = [json.loads(line) for line in said.out.splitlines()]
    jsonschema.validate(last, schema())
    assert [event["kind"] for event in events] == ["hello", "begin", "task", "result", "end"]
    assert {event["schema"] for event in events} == {"k3env.event/1"}


def test_what_a_tray_brings_is_below_every_other_source(cli_site: Site, tmp_path: Path) -> None:
    inventory = tmp_path / "own.yml"
    inventory.write_text(
        "all:\n  hosts:\n    own-1: {}\n    own-2:\n"
        f"      cache_base: {tmp_path}/said\n  vars:\n    k3env_sandbox: {{gpu: GB300}}\n"
    )
    said = cli_site.provision("--inventory", str(inventory), "--playbook", "caches", hosts="all")
    assert said.code == 0, said.err
    assert (tmp_path / "said").is_dir() and (cli_site.rack / "own-1" / "home" / "cache").is_dir()
    assert not (cli_site.rack / "own-2" / "home" / "cache").exists()


def test_this_machine_itself_is_a_host_without_ssh(cli_site: Site, tmp_path: Path, book: Path) -> None:
    book.write_text(changed(PLAY, "~/made", str(tmp_path / "made")))
    state = f"k3env_state_dir={tmp_path / 'state'}"
    run = ("--playbook", str(book), "--connection", "local", "--extra-vars", state)
    said = cli_site.provision(*run, hosts="localhost")
    assert said.code == 0 and (tmp_path / "made").is_dir()
    assert said.document["hosts"]["localhost"]["simulated"] is False


@pytest.fixture
def slow(cli_site: Site, tmp_path: Path) -> Iterator[list[str]]:
    path = tmp_path / "slow.yml"
    path.write_text(SLOW)
    yield ["provision", "--hosts", "tray-[01-02]", "--playbook", str(path)]
    for tray in ("tray-01", "tray-02"):
        for name in ("slept", "after"):
            (cli_site.rack / tray / "home" / name).unlink(missing_ok=True)


def started(site: Site, argv: list[str]) -> subprocess.Popen[str]:
    """Start a command and wait until both hosts are at work."""
    known = set(_runs(site))
    process = subprocess.Popen(
        site.argv(*argv), env=site.environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    ends = time.monotonic() + 30
    while time.monotonic() < ends:
        for run in set(_runs(site)) - known:
            events = site.state / "k3env" / "runs" / run / "events.jsonl"
            if events.exists() and events.read_text().count('"kind":"apply"') == 2:
                return process
        time.sleep(0.05)
    raise AssertionError(process.communicate())


def test_one_ctrl_c_leaves_the_work_and_attach_finds_it(cli_site: Site, slow: list[str]) -> None:
    process = started(cli_site, slow)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130
    (run,) = re.findall(r"invoke attach (\S+)", out)
    assert f"invoke cancel {run}" in out
    attached = cli_site.k3env("attach", run, "--output", "json")
    assert attached.code == 0, attached.err
    assert attached.statuses() == {"tray-01": "changed", "tray-02": "changed"}
    assert (cli_site.rack / "tray-01" / "home" / "after").exists()
    again = cli_site.k3env("attach", run, "--output", "json")
    assert again.document["hosts"] == attached.document["hosts"], "the record and the nodes tell the same"
    assert run in cli_site.k3env("runs").out


def test_a_second_ctrl_c_cancels_on_every_node(cli_site: Site, slow: list[str]) -> None:
    process = started(cli_site, slow)
    process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130 and time.monotonic() - begun < 20
    assert "cancelled: [tray-[01-02]]" in out
    time.sleep(6)
    assert not (cli_site.rack / "tray-01" / "home" / "slept").exists()


def test_a_killed_controller_loses_nothing(cli_site: Site, slow: list[str]) -> None:
    process = started(cli_site, slow)
    process.kill()
    process.communicate()
    run = _runs(cli_site)[-1]
    attached = cli_site.k3env("attach", run[:-2], "--output", "json")
    assert attached.code == 0 and attached.statuses() == {"tray-01": "changed", "tray-02": "changed"}


def test_cancel_ends_a_run_that_was_left(cli_site: Site, slow: list[str]) -> None:
    process = started(cli_site, slow)
    process.kill()
    process.communicate()
    said = cli_site.k3env("cancel", _runs(cli_site)[-1], "--output", "json")
    assert json.loads(said.out)["hosts"]["tray-01"]["status"] == "notrun"
    assert said.code == 0 and "cancelled: [tray-[01-02]]" in said.err
    assert not (cli_site.rack / "tray-01" / "home" / "after").exists()


def test_a_check_stops_when_its_controller_does(cli_site: Site, tmp_path: Path) -> None:
    path = tmp_path / "reading.yml"
    path.write_text(
        "- name: Reading\n  hosts: all\n  tasks:\n"
        "    - name: Look for long\n      command: {argv: [sleep, '30'], read_only: true}\n"
    )
    process = subprocess.Popen(
        cli_site.argv("provision", "--hosts", "tray-01", "--playbook", str(path), "--check"),
        env=cli_site.environment(),
        stdout=subprocess.PIPE,
        text=True,
    )
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    begun = time.monotonic()
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 130 and time.monotonic() - begun < 20
    assert "cancelled: [tray-01]" in out and "invoke attach" not in out


@pytest.mark.parametrize("name", ["no such run", "ambiguous"])
def test_a_run_is_named_by_its_beginning(cli_site: Site, name: str) -> None:
    said = cli_site.k3env("attach", "20" if name == "ambiguous" else "nosuch", "--output", "json")
    assert said.code == 1 and said.document["error"]["remedy"]


def test_many_hosts_need_few_threads_and_all_are_in_the_recap(cli_site: Site, tmp_path: Path, book: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    inventory = tmp_path / "many.yml"
    inventory.write_text(
        f"all:\n  hosts:\n    gone-[001:200]:\n  vars: {{ansible_host: 127.0.0.1, ansible_port: {port}}}\n"
    )
    run = ("--inventory", str(inventory), "--forks", "8", "--playbook", str(book))
    said = cli_site.provision(*run, hosts="gone-[001-200]")
    assert said.code == 4 and len(said.document["hosts"]) == 200
    assert set(said.statuses().values()) == {"unreachable"}
    assert said.err.count("unreachable: [") < 50, "what is the same at the same moment is told once"


def test_k3env_works_from_an_installed_wheel_anywhere(tmp_path: Path) -> None:
    """Shipped playbooks, inventories, the schema and the miniature are in the wheel."""
    root = Path(__file__).parents[2]
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", tmp_path, root], check=True, capture_output=True
    )
    (wheel,) = tmp_path.glob("k3env-*.whl")
    target = tmp_path / "installed"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--target", target, wheel],
        check=True,
        capture_output=True,
    )
    environment = {**os.environ, "PYTHONPATH": str(target), "XDG_STATE_HOME": str(tmp_path / "state")}
    argv = [sys.executable, "-P", "-c", "import sys; from k3env.cli.__main__ import main; main()"]
    done = subprocess.run(
        [*argv, "provision", "--hosts", "sandbox", "--playbook", "caches", "--output", "json"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    said = Said(done.returncode, done.stdout, done.stderr)
    assert said.code == 0, said.err
    assert set(said.statuses().values()) == {"changed"}
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import k3env; print(k3env.__file__)"], env=environment, cwd=tmp_path, text=True,
        capture_output=True, check=True,
    )  # fmt: skip
    assert str(target) in where.stdout


def _runs(site: Site) -> list[str]:
    base = site.state / "k3env" / "runs"
    return sorted(path.name for path in base.iterdir()) if base.is_dir() else []
