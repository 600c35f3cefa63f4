"""invoke bundle: what goes into the file, what doesn't, and that equal input gives equal bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from k3env.cli.bundle import compiled
from k3env.cli.options import parse
from k3env.errors import DocumentError, UsageError
from k3env.node.checks import select
from k3env.node.preflight.bundle import FILE, USER
from tests.unit.node.planted import place

RAW: dict[str, Any] = {"playbook": "preflight", "extra_vars": []}


def profile(**raw: Any) -> dict[str, Any]:
    """Return the profile of the first plan of a bundle."""
    found: dict[str, Any] = compiled(parse({**RAW, **raw})).plans[0]["profile"]
    return found


def play(directory: Path, task: str) -> str:
    path = directory / "own.yml"
    path.write_text(f"- hosts: all\n  vars: {{where: '{{{{ inventory_hostname }}}}'}}\n  tasks:\n    - {task}\n")
    return str(path)


def test_tables_play_site_file_and_extra_vars(tmp_path: Path) -> None:
    site = tmp_path / "k3env-site.yml"
    site.write_text("severities: {gpu.count: warn}\ncache: {free_gib: 7}\n")
    found = profile(site_file=str(site), extra_vars=["driver_min=590", "gpus_per_node=8"])
    assert found["severities"] == {"gpu.count": "warn"} and found["cache"]["free_gib"] == 7
    assert (found["gpu"]["driver_min"], found["gpu"]["count"]) == ("590", 8)
    assert found["paths"]["cache_base"] == f"/var/tmp/k3env-cache-{USER}"
    assert profile(extra_vars=["k3_user=eve"])["paths"]["cache_base"] == "/var/tmp/k3env-cache-eve"


def test_the_index_holds_every_check() -> None:
    index = compiled(parse(RAW)).checks
    for rule in select(("*",)):
        entry = index[rule.id]
        assert (entry.scope, entry.severity, entry.contexts) == (rule.scope, rule.severity, rule.contexts)
        assert entry.doc and [entry.runs_in(name) for name in ("hc", "job", "login")] == [
            rule.runs_in(name) for name in ("hc", "job", "login")
        ]
    assert len(index) == len(select(("*",)))


@pytest.mark.parametrize(
    ("task", "error", "told"),
    [
        ("{cache_dirs: {base: /x}}", UsageError, "own.yml:4:8: cache_dirs may change something"),
        ("{verify: {checks: [gpu.count]}, environment: {A: b}}", UsageError, "runs its checks as who starts it"),
        ("{verify: {checks: [gpu.cuont]}}", DocumentError, "did you mean gpu.count?"),
        ("{verify: {checks: ['{{ where }}']}}", DocumentError, "inventory_hostname"),
        ("{verify: {checks: [gpu.count]}, when: false}", UsageError, "no task is left to run"),
    ],
)
def test_more_than_checks_of_any_host_is_refused(tmp_path: Path, task: str, error: type, told: str) -> None:
    with pytest.raises(error) as caught:
        compiled(parse({**RAW, "playbook": play(tmp_path, task)}))
    assert told in f"{caught.value} {caught.value.finding}"


def bundle(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "k3env.cli", "bundle", *words], capture_output=True, text=True, cwd=cwd
    )


def test_the_file_runs_and_is_made_alike_each_time(tmp_path: Path) -> None:
    with place() as directory:
        first, second = directory / "one.pyz", directory / "k3env-hc"
        for path in (first, second):
            done = bundle("--output-file", str(path), "--extra-vars", "driver_min=777", cwd=tmp_path)
            assert done.returncode == 0, done.stderr
            assert "checks" in done.stdout
        assert first.read_bytes() == second.read_bytes()
        assert os.access(first, os.X_OK) and first.read_bytes().startswith(b"#!/usr/bin/python3 -IS\n")
        with zipfile.ZipFile(first) as archive:
            assert json.loads(archive.read(FILE))["plans"][0]["profile"]["gpu"]["driver_min"] == "777"
            assert {item.date_time for item in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        listed = subprocess.run([str(second), "--list"], capture_output=True, text=True, env={})
        assert listed.returncode == 0 and "gpu.count" in listed.stdout, listed.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--python", "python3"), "--python python3 is no absolute path"),
        (("--python", "/usr/bin/env python3"), "is no absolute path"),
        (("--output-file", "/nowhere/at/all"), "/nowhere/at/all can't be written"),
        (("--extra-vars", "driver_mim=1"), "did you mean driver_min?"),
        (("--playbook", "caches", "--extra-vars", "trtllm_repo=/x"), "cache_dirs may change something"),
    ],
)
def test_what_is_wrong_is_told(tmp_path: Path, words: tuple[str, ...], told: str) -> None:
    done = bundle(*words, cwd=tmp_path)
    assert done.returncode == 1 and told in done.stderr and "Traceback" not in done.stderr
    assert not list(tmp_path.iterdir())


def test_for_a_python_that_is_not_here_it_is_made_and_said(tmp_path: Path) -> None:
    done = bundle("--python", "/opt/none/bin/python3", cwd=tmp_path)
    assert done.returncode == 0 and "/opt/none/bin/python3 can't be run here" in done.stderr
    assert (tmp_path / "k3env-preflight.pyz").read_bytes().startswith(b"#!/opt/none/bin/python3 -IS\n")
