"""explain and modules: every name that a person may meet is explained."""

from __future__ import annotations

import dataclasses
import json

import pytest

from k3env.cli import explain
from k3env.cli.options import ALL
from k3env.errors import UsageError
from k3env.k3 import variables
from k3env.node import checks, modules
from k3env.playbook import keywords, site

# name, kinds, part of what is told
NAMES = [
    ("copy", {"module"}, "whole"),
    ("gpu.driver.version", {"check"}, "severity"),
    ("cache.*", {"check", "key of a site file"}, "cache.owner"),
    ("system.ib_ports", {"key of a site file"}, "with the port"),
    ("gpus_per_node", {"variable"}, "whole number, default: 4"),
    ("trtllm_commit", {"variable"}, "none: set it in the inventory"),
    ("container", {"variable"}, "mapping with engine, image, mounts"),
    ("loop_var", {"key of a loop_control"}, "the item"),
    ("severities", {"key of a site file"}, "glob"),
    ("block", {"key of a block"}, "tasks"),
    ("--site-file", {"option"}, "--site-file"),
    ("serial", {"key of a play"}, "percentages"),
]


@pytest.mark.parametrize("name, kinds, told", NAMES)
def test_names(name: str, kinds: set[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert kinds <= {item.kind for item in explain.entries(name)}
    explain.explain.body(None, name=name, output="text")
    assert told in " ".join(capsys.readouterr().out.split())


def test_everything_has_words() -> None:
    known = {item.name for item in explain._all()}
    for names in (
        modules.names(),
        variables.names(),
        [rule.id for rule in checks.select(("*",))],
        [option.name for option in ALL],
        [f"{name}.{item.name}" for name, kind in site.sections().items() for item in dataclasses.fields(kind)],
        (*keywords.PLAY, *keywords.TASK, *keywords.BLOCK, *keywords.IMPORT, *keywords.IMPORT_TASKS),
    ):
        assert set(names) <= known
    for item in explain._all():
        assert item.summary, item
        for parameter in item.parameters:
            assert parameter.summary, parameter


def test_an_unknown_name_gets_the_nearest() -> None:
    for name, meant in (
        ("cop", "copy"),
        ("gpu.drivr.version", "gpu.driver.version"),
        ("trtllm_comit", "trtllm_commit"),
    ):
        with pytest.raises(UsageError, match="nothing is called") as caught:
            explain.entries(name)
        assert caught.value.finding.remedy == f"did you mean {meant}?"
    with pytest.raises(UsageError):
        explain.entries("")


def test_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    explain.explain.body(None, name="file", output="json")
    (item,) = json.loads(capsys.readouterr().out)
    assert item["kind"] == "module" and "path" in [parameter["name"] for parameter in item["parameters"]]
    explain.modules.body(None, output="json")
    assert [item["name"] for item in json.loads(capsys.readouterr().out)] == list(modules.names())
    explain.modules.body(None, output="text")
    assert len(capsys.readouterr().out.splitlines()) == len(modules.names())
