"""The one host that builds, over real connections: it goes first, and the others wait for it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from k3env.protocol.folding import fold
from tests.sandbox.cli import Said, Site

BUILT = """
- name: Built
  hosts: all
  {policy}
  tasks:
    - name: Begin
      command: {{argv: [sh, -c, 'echo "$0 begin" >> {at}/order', "{{{{ inventory_hostname }}}}"], read_only: true}}
    - name: Build
      tags: build
      command:
        argv: [sh, -c, 'echo "$0 build" >> {at}/order; sleep 0.5; {build}', "{{{{ inventory_hostname }}}}"]
        creates: "{at}/checkout/built"
        checkout: "{at}/checkout"
    - name: End
      command: {{argv: [sh, -c, 'echo "$0 end" >> {at}/order', "{{{{ inventory_hostname }}}}"], read_only: true}}
- name: Afterwards
  hosts: all
  tasks:
    - command: {{argv: ["true"], read_only: true}}
"""
TRAYS = [f"tray-0{number}" for number in range(1, 5)]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("builder"))


@pytest.fixture
def at(tmp_path: Path) -> Path:
    (tmp_path / "checkout").mkdir()
    return tmp_path


def written(at: Path, build: str = "touch built", policy: str = "tags: a") -> str:
    """Write the playbook, and return its path."""
    command = f'cd "{at}/checkout" && {build}'
    (at / "book.yml").write_text(BUILT.format(at=at, build=command, policy=policy))
    return str(at / "book.yml")


def run(site: Site, at: Path, *arguments: str, build: str = "touch built", policy: str = "tags: a") -> Said:
    return site.provision("--playbook", written(at, build, policy), "--extra-vars", "builder=tray-02", *arguments)


def order(at: Path) -> list[str]:
    path = at / "order"
    return path.read_text().splitlines() if path.exists() else []


@pytest.mark.parametrize("policy", ["tags: a", "serial: 2", "any_errors_fatal: true"])
def test_the_builder_goes_first_and_the_others_find_nothing_to_build(site: Site, at: Path, policy: str) -> None:
    said = run(site, at, policy=policy)
    assert said.code == 0, said.err
    assert said.statuses() == {name: "changed" if name == "tray-02" else "ok" for name in TRAYS}
    assert order(at)[:3] == ["tray-02 begin", "tray-02 build", "tray-02 end"]
    assert sorted(order(at)[3:]) == sorted(f"{name} {what}" for name in TRAYS for what in ("begin", "end")
                                           if name != "tray-02")  # fmt: skip


@pytest.mark.parametrize("policy", ["tags: a", "serial: 1", "any_errors_fatal: true", "max_fail_percentage: 90"])
def test_a_builder_that_fails_leaves_the_others_uncontacted(site: Site, at: Path, policy: str) -> None:
    said = run(site, at, build="exit 3", policy=policy)
    assert said.code == 2
    assert said.statuses() == {name: "failed" if name == "tray-02" else "notrun" for name in TRAYS}
    assert order(at) == ["tray-02 begin", "tray-02 build"], "another host was contacted"
    reason = "any_errors_fatal: tray-02 failed" if policy.startswith("any") else "its builder tray-02 failed"
    assert said.document["hosts"]["tray-04"]["message"] == reason


@pytest.mark.parametrize("narrowed", [("--limit", "tray-01,tray-03"), ("--limit", "!tray-02,!tray-04")])
def test_a_builder_that_is_not_asked_for_builds_and_does_nothing_else(
    site: Site, at: Path, narrowed: tuple[str, ...]
) -> None:
    said = run(site, at, *narrowed)
    assert said.code == 0, said.err
    assert said.statuses() == {"tray-01": "ok", "tray-02": "changed", "tray-03": "ok"}
    assert order(at)[0] == "tray-02 build" and len(order(at)) == 5
    told = {task["name"]: task for task in said.document["hosts"]["tray-02"]["tasks"]}
    assert [told[name]["status"] for name in ("Begin", "Build", "End")] == ["skipped", "changed", "skipped"]
    assert "only builds" in told["Begin"]["message"]


def test_the_builder_alone_and_a_run_that_builds_nothing(site: Site, at: Path) -> None:
    assert run(site, at, "--limit", "tray-02").statuses() == {"tray-02": "changed"}
    said = run(site, at, "--limit", "tray-01", "--skip-tags", "build")
    assert said.statuses() == {"tray-01": "ok"}, "there is nothing for a builder to do"


def test_check_mode_tells_what_each_would_do(site: Site, at: Path) -> None:
    said = run(site, at, "--check")
    assert said.code == 0 and set(said.statuses().values()) == {"changed"}
    assert not (at / "checkout/built").exists()


def one_play(at: Path, build: str = "touch built", policy: str = "tags: a") -> str:
    path = Path(written(at, build, policy))
    path.write_text(path.read_text().partition("- name: Afterwards")[0])
    return str(path)


@pytest.mark.parametrize("policy", ["tags: a", "serial: 1", "any_errors_fatal: true"])
@pytest.mark.parametrize("limit", ["tray-[01-04]", "tray-01,tray-03"])
def test_a_builder_is_left_to_itself_and_the_others_come_with_the_next_run(
    site: Site, at: Path, policy: str, limit: str
) -> None:
    book = one_play(at, f"while ! test -e {at}/go; do sleep 0.1; done; touch built", policy)
    words = ("--playbook", book, "--extra-vars", "builder=tray-02", "--limit", limit)
    said = site.provision(*words, "--detach")
    assert said.code == 0 and set(said.statuses().values()) == {"notrun"}, said.err
    (run,) = re.findall(r"invoke attach (\S+)", said.err)
    assert f"run {run} goes on without this command on tray-02\n" in said.err
    others = sorted(set(said.statuses()) - {"tray-02"})
    assert f"not begun:  {fold(others)}: the builder comes first\n" in said.err
    message = "its builder tray-02 is left to itself, and comes first"
    assert {said.document["hosts"][name]["message"] for name in others} == {message}
    assert max(len(line) for line in said.err.splitlines() if "builder" in line) <= 80
    (at / "go").touch()
    followed = site.k3env("attach", run, "--output", "json")
    assert followed.code == 130 and "never begun, and not begun now" in followed.err, "the others are not done"
    assert followed.statuses()["tray-02"] == "changed" and followed.statuses()[others[0]] == "notrun"
    assert {line.partition(" ")[0] for line in order(at)} == {"tray-02"}, "another host was begun"
    again = site.provision(*words)
    assert again.code == 0 and set(again.statuses().values()) == {"ok"}, again.err
    assert sum(line.endswith("build") for line in order(at)) == 1, "it was built twice"


def test_a_builder_that_can_not_be_left_is_said(site: Site, at: Path) -> None:
    """Two plays follow each other, which nobody would see to."""
    said = run(site, at, "--detach")
    assert said.code == 1 and said.document["error"]["found"] == "2 plays, one after another"


def test_a_detached_builder_that_is_not_reached_is_no_work(site: Site, at: Path) -> None:
    inventory = at / "site.yml"
    inventory.write_text("all:\n  hosts:\n    tray-01: {k3env_sandbox: {gpu: GB300}}\n"
                         "    down: {ansible_host: 127.0.0.1, ansible_port: 1}\n")  # fmt: skip
    words = ("--inventory", str(inventory), "--timeout", "3", "--extra-vars", "builder=down", "--detach")
    said = site.provision("--playbook", one_play(at), *words, hosts="tray-01")
    assert said.code == 4 and said.statuses() == {"tray-01": "notrun", "down": "unreachable"}, said.err
    assert "is at work on no host" in said.err and order(at) == []


def test_describe_says_who_waits(site: Site, at: Path) -> None:
    book = ("--hosts", "sandbox", "--playbook", written(at), "--extra-vars", "builder=tray-02")
    said = site.k3env("describe", *book)
    assert "  after builder tray-02 has finished well: tray-03\n" in said.out, said.out
    told = json.loads(site.k3env("describe", *book, "--output", "json").out)
    waiting = {host: name for plan in told["plans"] for host, name in plan["builders"].items()}
    assert waiting == dict.fromkeys(("tray-01", "tray-03", "tray-04"), "tray-02")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("tray-2", "did you mean tray-02?"),
        ("sandbox", "sandbox, a group of tray-[01-"),
        ("nobody", "set the variable builder to one of these, or add the host to the inventory"),
        ("tray-[01-02]", "builder must be the name of one host"),
    ],
)
def test_a_builder_that_is_no_host(site: Site, at: Path, name: str, says: str) -> None:
    said = site.provision("--playbook", written(at), "--extra-vars", f"builder={name}", "--inventory", "sandbox")
    assert said.code == 1 and says in said.out, said.out
    assert order(at) == []


@pytest.mark.parametrize(
    ("hosts", "found"),
    [
        (("--hosts", "sandbox"), "tray-[01-"),
        (("--hosts", "127.0.0.1:1,127.0.0.2:1"), "127.0.0.1:1,127.0.0.2:1"),
    ],
)
def test_nobody_is_contacted_whom_nobody_named(site: Site, at: Path, hosts: tuple[str, ...], found: str) -> None:
    """Without an inventory any name may be a host; a variable names none."""
    said = site.k3env(
        "provision", *hosts, "--playbook", written(at), "--extra-vars", "builder=nobody", "--output", "json"
    )
    error = said.document["error"]
    assert said.code == 1 and error["id"] and "the builder nobody is named by neither" in error["message"], said.out
    assert found in error["expected"] and error["found"] == "nobody" and "or to --hosts" in error["remedy"]


def test_a_builder_that_only_hosts_names_is_beyond_its_limit(site: Site, at: Path) -> None:
    words = ("--playbook", written(at), "--extra-vars", "builder=127.0.0.2", "--timeout", "3", "--output", "json")
    said = site.k3env("provision", "--hosts", "127.0.0.1,127.0.0.2", "--limit", "127.0.0.1", *words, "--list-hosts")
    assert said.code == 0 and set(said.document["hosts"]) == {"127.0.0.1", "127.0.0.2"}


def test_a_builder_that_was_not_asked_for_is_found_again(site: Site, at: Path) -> None:
    path = written(at, build="for i in 1 2 3 4 5 6 7 8; do sleep 0.5; done; touch built")
    words = ("provision", "--hosts", "sandbox", "--limit", "tray-01", "--playbook", path, "--extra-vars")
    running = subprocess.Popen(
        site.argv(*words, "builder=tray-02"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=site.environment(),
    )
    ends = time.monotonic() + 60
    while "tray-02 build" not in order(at) and time.monotonic() < ends:
        time.sleep(0.1)
    running.send_signal(signal.SIGINT)
    assert running.wait(60) == 130
    run = max(path.name for path in (site.state / "k3env/runs").iterdir())
    said = site.k3env("attach", run, "--output", "json")
    assert said.document["hosts"]["tray-02"]["changed"] == 1, said.err
    assert said.statuses()["tray-01"] == "notrun"
    assert (at / "checkout/built").exists(), "it was not followed to its end"
    assert order(at) == ["tray-02 build"], "another host was begun"


COMPARED = """
- name: Compared
  hosts: all
  tasks:
    - command: {{argv: [touch, "{at}/checkout/built"], creates: "{at}/checkout/built", checkout: "{at}/checkout"}}
    - verify: {{checks: ["across.driver"]}}
"""


def test_the_builder_is_compared_with_those_that_come_after_it(site: Site, at: Path) -> None:
    (at / "book.yml").write_text(COMPARED.format(at=at))
    book = ("--playbook", str(at / "book.yml"), "--extra-vars", "builder=tray-02")
    (finding,) = site.provision(*book, hosts="tray-01,tray-02").document["across"]
    assert finding["id"] == "across.driver" and finding["status"] == "pass", finding
