"""What diagnoses advise: every check, variable, parameter, module, task and tag that they name is there."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest
import yaml

from k3env.cli import namespace
from k3env.k3.diagnoses.lookup import TABLES
from k3env.k3.variables import Variables
from k3env.node import checks
from k3env.node.modules import find
from k3env.protocol.container import Container

ROWS = [row for table in TABLES.values() for row in table]
MODULES = ("git_checkout", "trtllm_build", "pip_packages", "enroot_image", "hf_snapshot", "flashinfer_cubins")
PARAMETERS = {item.name for name in MODULES for item in dataclasses.fields(find(name))}
(PLAY,) = yaml.safe_load((Path(__file__).parents[3] / "playbooks" / "trtllm.yml").read_text())
TAGS = {tag for task in PLAY["tasks"] for tag in (task["tags"] if isinstance(task["tags"], list) else [task["tags"]])}
TOPICS = sorted({name.partition(".")[0] for name in checks.names()})


def every(pattern: str) -> pytest.MarkDecorator:
    found = sorted({(row.id, name) for row in ROWS for name in re.findall(pattern, row.remedy)})
    assert found, "a test that looks for nothing proves nothing"
    return pytest.mark.parametrize(("row", "name"), found)


@every(rf"\b((?:{'|'.join(TOPICS)})\.[a-z_]+(?:\.[a-z_]+|\.\*)?|(?:{'|'.join(TOPICS)})\.\*)(?![\w=])")
def test_checks(row: str, name: str) -> None:
    assert checks.select((name,)), name


@every(r"\b(trtllm_[a-z]+|k3_[a-z]+)\b")
def test_variables_and_modules(row: str, name: str) -> None:
    assert name in {item.name for item in dataclasses.fields(Variables)} or name in MODULES, name


@every(r"\b((?:no_(?!proxy)[a-z_]+|find_links|index_url|submodules|lfs|compressor|credentials|temp)(?=[:, ;]|$))")
def test_parameters(row: str, name: str) -> None:
    assert name in PARAMETERS, name


@every(r"\b(?:task|module|in) ((?:git|trtllm|pip|enroot|hf)_[a-z]+)")
def test_modules(row: str, name: str) -> None:
    assert find(name), name


@every(r"tag `(\w+)`")
def test_tags(row: str, name: str) -> None:
    assert name in TAGS, name


@every(r"invoke ([a-z]+)")
def test_tasks(row: str, name: str) -> None:
    assert name in namespace().task_names, name


@every(r"container\.([a-z]+)\b")
def test_containers(row: str, name: str) -> None:
    assert name in {item.name for item in dataclasses.fields(Container)}, name


def test_words_are_few() -> None:
    """A finding is read at a glance, in 80 columns."""
    assert {row.id: len(row.remedy) for row in ROWS if len(row.remedy) > 320} == {}
    assert {row.id: len(row.cause) for row in ROWS if len(row.cause) > 170} == {}
    assert [row.id for row in ROWS if row.cause[0].isupper() and row.cause.split()[0].islower()] == []
