"""Every sharp edge that is known, and every public report: each is broken here, and told with what to do."""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from k3env.k3.diagnoses.lookup import diagnose
from k3env.node.modules import _steps
from k3env.node.modules._before_build import problems
from k3env.node.process import Completed
from tests.unit.node import checktable, ground, test_before_build, test_cache

ROOT = Path(__file__).parents[3]
DATA = yaml.safe_load((ROOT / "tests/data/build/edges.yaml").read_text())
ROWS: list[dict[str, Any]] = [*DATA["edges"], *DATA["reports"]]
EDGES = 34
REPORTS = (
    "5741 186 523 1028 28 72 38 44 3081 2826 434 715 2325 1065 1912 2162 2599 4458 7327 808 7665 4275 15087 3173 3208 "
    "19339 17524 17525 625 113 142 2469 2316 8961 5677 9680 1294 2405 2801 4238 4668 4349 4513 16939 17787 17810 125 "
    "302 173679 472 844 1462 1852 1918 4337 10933 22491 33997 201 698 68"
)
"""The numbers of the reports that are known."""
WAYS = [(f"{row['of']}-{at}", way) for row in ROWS for at, way in enumerate(row["by"])]
PLAYBOOK = ROOT / "playbooks" / "trtllm.yml"


def of(kind: str) -> Any:
    chosen = [(id, way) for id, way in WAYS if kind in way]
    assert chosen
    return pytest.mark.parametrize("way", [way for _, way in chosen], ids=[id for id, _ in chosen])


def test_none_is_left_out() -> None:
    assert [row["of"] for row in DATA["edges"]] == list(range(1, EDGES + 1))
    named = [number for row in DATA["reports"] for number in re.findall(r"#(\d+)", row["of"])]
    assert sorted(named) == sorted(REPORTS.split())
    kinds = {"diagnosis", "check", "before", "test", "later"}
    assert all(len(kinds & set(way)) == 1 for _, way in WAYS) and all(row["by"] for row in ROWS)


def test_what_is_left_to_later_parts_is_little_and_has_a_reason() -> None:
    only = [row["of"] for row in ROWS if all("later" in way for way in row["by"])]
    assert [edge for edge in only if isinstance(edge, int)] == [22, 27]
    assert len(only) == 7
    assert all(len(way["later"]) > 20 for _, way in WAYS if "later" in way)


@of("diagnosis")
def test_what_fails_is_told_by_its_meaning(way: dict[str, Any], tmp_path: Path) -> None:
    noise = "\n".join(f"[{percent:3}%] Building CUDA object x{percent}.cu.o" for percent in range(100))
    output = f"{noise}\n{way['output']}\ngmake: *** [Makefile:166: all] Error 2\n"
    found = diagnose(way["tool"], output)
    assert found is not None and found.diagnosis.id == way["diagnosis"]
    # And so it reaches a person, who is told where the log is.
    step = _steps.Step("build TensorRT LLM", ("python3", "scripts/build_wheel.py"), way["tool"], logs="/r/.k3env/logs")
    done = Completed(step.argv, 1, output.encode(), b"")
    finding = _steps.failed(ground.machine(tmp_path), step, done).finding
    assert finding.id == way["diagnosis"] and found.diagnosis.cause in finding.message
    assert re.search("|".join(map(re.escape, way["remedy"].split("|"))), finding.remedy or "")
    assert "log: /r/.k3env/logs/run-host-task.log" in (finding.remedy or "")
    assert way["output"].strip() in (finding.found or "") and finding.expected


@of("check")
def test_what_is_checked_is_told(way: dict[str, Any]) -> None:
    (row,) = [row for row in checktable.rows(way["check"]) if row["name"] == way["row"]]
    finding = checktable.judged(row, *([test_cache.shaped] if way["check"] == "cache.yaml" else []))
    assert checktable.mismatches(finding, row["expect"]) == []
    assert finding.status in ("fail", "warn") and finding.expected and finding.found and finding.remedy


@of("before")
def test_what_is_told_before_the_build(way: dict[str, Any]) -> None:
    (row,) = [row for row in test_before_build.BROKEN if row[0] == way["before"]]
    (finding,) = problems(test_before_build.replace(test_before_build.GOOD, **row[1]))
    assert finding.id == f"trtllm.before.{row[2]}"
    assert row[3] in (finding.found or "") and row[4] in (finding.remedy or "") and finding.remedy and finding.expected


@of("test")
def test_what_is_tested_elsewhere_is_there(way: dict[str, Any]) -> None:
    file, _, name = way["test"].partition("::")
    assert name in functions(file), way["test"]
    assert way.get("case", "") in (ROOT / file).read_text() + told(file)


@functools.cache
def functions(file: str) -> frozenset[str]:
    tree = ast.parse((ROOT / file).read_text())
    return frozenset(item.name for item in tree.body if isinstance(item, ast.FunctionDef))


def told(file: str) -> str:
    """What a script that is tested there says."""
    script = ROOT / "k3env/node/modules/_rank_env_sh.py"
    return script.read_text() if file.endswith("test_rank_env.py") else ""


def test_flashinfer_comes_after_the_editable_install() -> None:
    """A later installation that resolves dependencies would put back what FlashInfer's fork replaces."""
    (play,) = yaml.safe_load(PLAYBOOK.read_text())
    tasks = play["tasks"]
    installing = [at for at, task in enumerate(tasks) if "trtllm_build" in task or "pip_packages" in task]
    last = tasks[installing[-1]]["pip_packages"]
    assert "flashinfer-python" in last["packages"][0] and last["no_deps"] and last["force_reinstall"]
    assert "trtllm_build" in tasks[installing[0]] and tasks[installing[0]]["trtllm_build"]["install"] == "no_deps"
    assert all(tasks[at]["pip_packages"]["no_deps"] for at in installing[1:])
