"""invoke preflight, as a person types it, on trays that were never provisioned."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.sandbox.cli import Site

GPUS = """
- name: GPUs
  hosts: all
  tasks:
    - name: Driver and GPUs
      verify: {checks: [gpu.driver.loaded, gpu.driver.version, gpu.count, gpu.cc, system.limits, system.meta]}
"""
STEP = "srun --ntasks-per-node=1 /opt/k3env/k3env-preflight.pyz"


@pytest.fixture(scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("untouched"))


@pytest.fixture
def book(tmp_path: Path) -> str:
    path = tmp_path / "gpus.yml"
    path.write_text(GPUS)
    return str(path)


def test_a_verdict_never_says_fit_without_the_ranks(untouched: Site, book: str) -> None:
    said = untouched.k3env("preflight", "--hosts", "tray-[01-02]", "--playbook", book)
    assert said.code == 0, said.out + said.err
    lines = said.out.splitlines()
    assert "tray-[01-02]  no fault  1 skipped, 5 passed" in lines
    assert "nothing found against it: 2 skipped, 10 passed" in lines
    assert f"not checked: 1 check of a rank; in the job: {STEP}" in lines
    assert lines[-1].startswith("simulated: tray-[01-02]") or lines[-2].startswith("simulated: tray-[01-02]")
    assert "TASK" not in said.out and "PLAY" not in said.out


def test_hosts_that_say_the_same_are_told_once(untouched: Site, book: str) -> None:
    said = untouched.k3env("preflight", "--hosts", "sandbox", "--playbook", book, "--extra-vars", "driver_min=999")
    assert said.code == 2 and said.out.count("FAIL gpu.driver.version") == 1
    assert said.out.startswith("tray-[01-04]:\n  FAIL gpu.driver.version\n    expected: >= 999\n")
    assert "not fit for Kimi K3: 4 failed" in said.out


def test_all_checks_and_those_across(untouched: Site) -> None:
    said = untouched.k3env("preflight", "--hosts", "tray-[01-02]", "--output", "json")
    document = said.document
    assert {item["id"] for item in document["across"]} >= {"across.driver", "across.clock"}
    ids = {item["id"] for task in document["hosts"]["tray-01"]["tasks"] for item in task["findings"]}
    assert ids >= {"gpu.count", "cache.space", "venv.pins", "system.limits"}
    assert [item for item in said.findings("tray-01", "skip") if item["remedy"] == f"run it in the job: {STEP}"]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--output", "nagios"), 0),
        (("--output", "nagios", "--extra-vars", "driver_min=999"), 2),
        (("--output", "text", "--extra-vars", "driver_min=999", "--context", "login"), 0),
        (("--output", "junit"), 0),
        (("--output", "prometheus"), 0),
        (("--output", "jsonl"), 0),
    ],
)
def test_forms(untouched: Site, book: str, words: tuple[str, ...], code: int) -> None:
    said = untouched.k3env("preflight", "--hosts", "tray-01", "--playbook", book, *words)
    assert said.code == code, said.out + said.err
    form = words[1]
    if form == "nagios":
        assert said.out.startswith("PREFLIGHT " + ("CRITICAL" if code else "OK")) and "| pass=" in said.out
    elif form == "junit":
        assert ElementTree.fromstring(said.out).get("tests") == "6"  # noqa: S314 - we wrote it
    elif form == "prometheus":
        assert 'k3env_preflight_reached{node="tray-01"} 1\n' in said.out
    elif form == "jsonl":
        assert json.loads(said.out.splitlines()[-1])["schema"] == "k3env.run/1"
    else:
        assert "1 passed" in said.out and "checked was what belongs to the context login" in said.out


def test_warnings_count_where_asked_for(untouched: Site, book: str, tmp_path: Path) -> None:
    site = tmp_path / "warn.yml"
    site.write_text("severities: {gpu.driver.version: warn}\n")
    words = ("--playbook", book, "--extra-vars", "driver_min=999", "--site-file", str(site))
    for more, code in (((), 0), (("--fail-on", "warn"), 2), (("--output", "nagios"), 1)):
        said = untouched.k3env("preflight", "--hosts", "tray-01", *words, *more)
        assert said.code == code, said.out


def test_a_file_instead(untouched: Site, book: str, tmp_path: Path) -> None:
    target = tmp_path / "out.prom"
    words = ("--output", "prometheus", "--output-file", str(target))
    said = untouched.k3env("preflight", "--hosts", "tray-01", "--playbook", book, *words)
    assert (said.code, said.out) == (0, "") and target.read_text().startswith("# HELP")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--playbook", "caches"), "cache_dirs may change something"),
        (("--context", "jbo"), "did you mean job?"),
        (("--output", "nagois"), "did you mean nagios?"),
        (("--fail-on", "never"), "--fail-on never is unknown"),
        (("--output", "jsonl", "--output-file", "x"), "--output jsonl is a stream"),
    ],
)
def test_what_is_wrong_is_told_before_a_host_is_reached(untouched: Site, words: tuple[str, ...], told: str) -> None:
    said = untouched.k3env("preflight", "--hosts", "tray-01", *words)
    assert said.code == 1 and told in said.err


def test_only_preflight_has_these_forms(untouched: Site) -> None:
    said = untouched.k3env("provision", "--hosts", "tray-01", "--output", "nagios")
    assert said.code == 1 and "use one of text, json, jsonl" in said.err
