"""describe: what hosts would be told, and where each value comes from, without contacting any."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from invoke.exceptions import Exit

from k3env.cli.describe import describe
from k3env.cli.options import ALL

PLAY = """\
- name: A play
  hosts: all
  vars: {from_play: "{{ trtllm_repo }}/x"}
  tasks:
    - name: Config
      copy: {dest: /etc/k3, content: "{{ trtllm_repo }}", mode: "0644"}
    - name: Token
      copy: {dest: /etc/token, content: "{{ token }}"}
      environment: {T: "{{ token }}"}
      become: true
    - name: Not here
      file: {path: /x}
      when: special
"""
SITE = """\
rack:
  vars:
    trtllm_repo: /shared/repo
    trtllm_url: https://me:hunter2@git.example/x
    ansible_become_password: hunter2
    token: {secret: "env:K3ENV_TEST_TOKEN"}
    special: false
    broken: "{{ nowhere }}"
  hosts:
    n1: {rank: 1}
    n2: {rank: 2}
    n3: {special: true, rank: 3}
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("K3ENV_TEST_TOKEN", "hunter2")
    (tmp_path / "play.yml").write_text(PLAY)
    (tmp_path / "site.yml").write_text(SITE)
    return tmp_path


def raw(**given: Any) -> dict[str, Any]:
    """Return what Invoke hands over."""
    return {**{option.name: option.default for option in ALL}, "output": "text", **given}


def typed(**given: Any) -> None:
    describe.body(None, **raw(hosts="rack", inventory=["site.yml"], playbook="play.yml", **given))


def test_plans_are_told_once_for_all_hosts_that_share_them(capsys: pytest.CaptureFixture[str]) -> None:
    typed()
    out = capsys.readouterr().out
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert [line for line in lines if line.startswith("PLAY")] == ["PLAY [A play] on n[1-2]", "PLAY [A play] on n3"]
    for line in (
        "1.1 Config (copy, play.yml:6:7)",
        'content: "/shared/repo"',
        'content: "(not shown)"',
        'as: "root"',
        "left out: when: special",
        'trtllm_repo "/shared/repo" site.yml:3:18',
        'from_play "/shared/repo/x" play.yml:3:21',
        "gpus_per_node 4 k3env's default",
        "rank differs between hosts:",
        "n1: 1 site.yml:10:16",
        'token "(secret env:K3ENV_TEST_TOKEN)" site.yml:6:12',
    ):
        assert line in lines, f"{line}\n{out}"
    assert any(line.startswith("broken \"(can't be told: the variable nowhere") for line in lines)
    assert "hunter2" not in out


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    typed(output="json", limit="n3")
    out = capsys.readouterr().out
    (plan,) = json.loads(out)["plans"]
    assert plan["hosts"] == ["n3"] and [task["module"] for task in plan["plan"]["tasks"]] == ["copy", "copy", "file"]
    assert plan["variables"]["special"] == {"value": True, "origin": "site.yml:12:19"}
    assert "hunter2" not in out


def test_the_site_file_beside_the_inventory(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "k3env-site.yml").write_text("severities: {'cache.*': info}\ncache: {free_gib: 200}\n")
    typed()
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert 'severities.cache.*: "info" k3env-site.yml:1:25' in told
    assert "cache.free_gib: 200 k3env-site.yml:2:19" in told
    (here / "other.yml").write_text("cache: {free_gib: 7}\n")
    typed(site_file="other.yml", extra_vars=["gpus_per_node=8"])
    told = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "cache.free_gib: 7 other.yml:1:19" in told and 'gpus_per_node "8" --extra-vars' in told


# what is given, what stderr says
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"hosts": "nosuch"}, "nosuch"),
    ({"site_file": "none.yml"}, "there is no file none.yml"),
    ({"playbook": "trtlm"}, "did you mean trtllm?"),
    ({"tags": "nosuch"}, "--tags nosuch"),
    ({"output": "jsonl"}, "did you mean json?"),
    ({"inventory": ["a/i.yml", "b/i.yml"]}, "the inventories have a site file each"),
]


@pytest.mark.parametrize("given, message", REFUSED)
def test_is_refused(here: Path, capsys: pytest.CaptureFixture[str], given: dict[str, Any], message: str) -> None:
    for name in ("a", "b"):
        (here / name).mkdir()
        (here / name / "i.yml").write_text("rack: {hosts: {n1: }}\n")
        (here / name / "k3env-site.yml").write_text("cache: {free_gib: 1}\n")
    with pytest.raises(Exit) as caught:
        describe.body(None, **{**raw(hosts="rack", inventory=["site.yml"], playbook="play.yml"), **given})
    assert caught.value.code == 1
    err = capsys.readouterr().err
    assert message in " ".join(err.split()) and "Traceback" not in err


def test_a_parameter_that_is_called_as_a_word_of_the_task_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    Path("play.yml").write_text(
        "- hosts: all\n  tasks:\n"
        "    - pip_packages: {venv: /v, packages: [einops], environment: {BUILD_NVEP: '0'}}\n"
        "      environment: {A: b}\n"
    )
    typed()
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith("environment:")] == [
        'environment: {"BUILD_NVEP": "0"}',
        'environment: {"A": "b"}',
    ]
