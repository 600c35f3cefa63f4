"""invoke inventory: ansible-inventory's options, its output, and what is said about mistakes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from invoke import Context, Exit

from k3env.cli.inventory import inventory
from tests.unit.inventory.cases import printing

SITE = "gpu: {hosts: {'gb[01:03]': {v: 1}}, vars: {w: a}}\nall: {hosts: {lone: }, vars: {x: yes}}\n"


@pytest.fixture(autouse=True)
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("K3ENV_INVENTORY", raising=False)
    (tmp_path / "site.yml").write_text(SITE)
    return tmp_path


def ask(capsys: pytest.CaptureFixture[str], **options: Any) -> tuple[int, str, str]:
    """Run the command; return its exit code, its output and its errors."""
    given = {"list": False, "graph": False, "host": None, "group": None, "vars": False, "playbook_dir": None}
    given |= {"inventory": ["site.yml"], "limit": None, "extra_vars": []}
    try:
        inventory(Context(), **{**given, **options})
        code = 0
    except Exit as ended:
        code = ended.code
    said = capsys.readouterr()
    return code, said.out, said.err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, list=True, limit="gb01,lone", extra_vars=["e=1"])
    assert (code, err) == (0, "warning: site.yml:2:34: yes is true to Ansible, text to other readers of YAML; write true, or \"yes\" for the text\n")  # fmt: skip # noqa: E501
    assert json.loads(out) == {
        "_meta": {
            "hostvars": {
                "gb01": {"v": 1, "w": "a", "x": True, "e": "1"},
                "lone": {"x": True, "e": "1"},
            },
            "profile": "inventory_legacy",
        },
        "all": {"children": ["ungrouped", "gpu"]},
        "ungrouped": {"hosts": ["lone"]},
        "gpu": {"hosts": ["gb01"]},
    }


def test_host(capsys: pytest.CaptureFixture[str]) -> None:
    assert json.loads(ask(capsys, host="gb02")[1]) == {"v": 1, "w": "a", "x": True}
    code, out, err = ask(capsys, host="gb20")
    assert (code, out) == (1, "")
    assert "there is no host gb20" in err and "did you mean gb0" in err


def test_graph(capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(capsys, graph=True, group="gpu")[1] == "@gpu:\n  |--gb01\n  |--gb02\n  |--gb03\n"
    assert "  |  |--{w = a}\n" in ask(capsys, graph=True, vars=True)[1]
    code, _, err = ask(capsys, graph=True, group="gpus")
    assert (code, "did you mean gpu?" in err) == (1, True)


def test_playbook_dir(capsys: pytest.CaptureFixture[str]) -> None:
    Path("play/group_vars").mkdir(parents=True)
    Path("play/group_vars/gpu.yml").write_text("w: play\n")
    assert json.loads(ask(capsys, host="gb01", playbook_dir="play")[1])["w"] == "play"
    assert "no directory" in ask(capsys, host="gb01", playbook_dir="plya")[2]


@pytest.mark.parametrize(
    "options, message, detail",
    [
        ({}, "what is to be printed?", "--list, --graph, --host NAME"),
        ({"list": True, "graph": True}, "what is to be printed?", "--list, --graph"),
        ({"list": True, "group": "gpu"}, "--group goes with --graph", "--graph"),
        ({"list": True, "limit": "gb09"}, "no host or group gb09", "gb0"),
        ({"list": True, "inventory": ["siet.yml"]}, "there is no inventory siet.yml", "did you mean site.yml?"),
        ({"list": True, "inventory": ["a,b"]}, "there is no inventory a,b", "--hosts"),
    ],
)
def test_mistakes(options: dict[str, Any], message: str, detail: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = ask(capsys, **options)
    assert (code, out) == (1, "")
    assert message in err and detail in err


def test_several_inventories_and_programs(capsys: pytest.CaptureFixture[str]) -> None:
    Path("more.sh").write_text(printing('{"gpu": {"hosts": ["gb09"]}, "_meta": {"hostvars": {"gb09": {"v": 9}}}}'))
    Path("more.sh").chmod(0o700)
    said = json.loads(ask(capsys, list=True, inventory=["site.yml", "more.sh"])[1])
    assert said["gpu"]["hosts"] == ["gb01", "gb02", "gb03", "gb09"]
    assert said["_meta"]["hostvars"]["gb09"] == {"v": 9, "w": "a", "x": True}


def test_what_it_prints_is_an_inventory_again(capsys: pytest.CaptureFixture[str]) -> None:
    listed = ask(capsys, list=True)[1]
    Path("again.sh").write_text(printing(listed))
    Path("again.sh").chmod(0o700)
    assert ask(capsys, list=True, inventory=["again.sh"])[1] == listed


def test_as_it_is_typed(site: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "K3ENV_INVENTORY": "site.yml"}
    done = subprocess.run(
        [sys.executable, "-m", "k3env.cli", "inventory", "--list", "--limit", "gb01"],
        cwd=site,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["gpu"] == {"hosts": ["gb01"]}
