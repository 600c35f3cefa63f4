"""Completion and misspelt names, as typed into the program."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k3env.cli import namespace
from k3env.cli.completion import candidates

TASKS = namespace()

# line, some that must be offered, some that must not
LINES = [
    ("k3env", ["provision", "explain", "sandbox.path"], ["--hosts"]),
    ("k3env prov", ["provision"], []),
    ("k3env provision", ["--hosts", "--site-file", "-v"], []),
    ("k3env provision --ho", ["--hosts"], ["provision"]),
    ("k3env provision --hosts", ["sandbox", "tray-01", "all"], ["--hosts"]),
    ("k3env provision --hosts sand", ["sandbox"], ["--hosts"]),
    ("k3env provision --hosts sandbox", ["sandbox", "--tags"], []),
    ("k3env provision --hosts tray-01,tr", ["tray-01,tray-02"], ["tray-02"]),
    ("k3env provision --hosts=tray", ["tray-02"], []),
    ("k3env provision --hosts = tray", ["tray-02"], []),
    ("k3env provision --hosts sandbox --limit t", ["tray-03"], []),
    ("k3env provision --hosts 'tray-0", ["tray-03"], []),
    ("k3env provision --check --tags", ["build", "always", "never"], ["--tags"]),
    ("k3env provision --playbook caches --tags c", ["caches", "verify"], ["build"]),
    ("k3env provision --tags caches --skip-tags", ["caches"], ["provision"]),
    ("k3env provision --playbook", ["trtllm", "caches"], []),
    ("k3env provision --inventory", ["inventories/sandbox.yml"], []),
    ("k3env provision --output", ["text", "json", "jsonl"], []),
    ("k3env preflight --output", ["text", "json", "jsonl", "junit", "nagios", "prometheus"], []),
    ("k3env preflight --context", ["hc", "prolog", "job", "login", "image"], []),
    ("k3env preflight --fail-on", ["warn", "fail"], []),
    ("k3env provision --connection", ["ssh", "local"], []),
    ("k3env provision --extra-vars trt", ["trtllm_commit="], []),
    ("k3env provision --forks", [], ["provision", "--hosts"]),
    ("k3env provision --user x", [], ["provision"]),
    ("k3env explain", ["copy", "gpu.driver.version", "trtllm_repo"], []),
    ("k3env explain gpu.dr", ["gpu.driver.version"], []),
    ("k3env schema --only", ["playbook", "site"], []),
    ("k3env provision --inventory nowhere.yml --hosts", [], ["sandbox"]),
    ("k3env provision --playbook nowhere.yml --tags", [], ["build"]),
    ("k3env caches --hosts sandbox provision --play", ["--playbook"], []),
]


@pytest.mark.parametrize("line, offered, never", LINES)
def test_what_may_come_next(line: str, offered: list[str], never: list[str]) -> None:
    found = candidates(line, TASKS)
    assert set(offered) <= set(found), found
    assert not set(never) & set(found)


def test_the_environments_inventory_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "site.yml").write_text("rack: {hosts: {'n[1:2]': }}\n")
    monkeypatch.setenv("K3ENV_INVENTORY", str(tmp_path / "site.yml"))
    assert candidates("k3env provision --hosts", TASKS) == ["all", "n1", "n2", "rack", "ungrouped"]


def test_programs_are_not_started_and_nobody_waits(tmp_path: Path) -> None:
    script = tmp_path / "dynamic"
    script.write_text(f"#!/bin/sh\ntouch {tmp_path}/started\nsleep 60\n")
    script.chmod(0o755)
    os.mkfifo(tmp_path / "pipe.yml")
    begun = time.monotonic()
    for path in (script, tmp_path, tmp_path / "pipe.yml"):
        assert candidates(f"k3env provision --inventory {path} --hosts", TASKS) == []
    assert time.monotonic() - begun < 8 and not (tmp_path / "started").exists()
    assert signal.getsignal(signal.SIGALRM) == signal.SIG_DFL


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from(
            ["provision", "--hosts", "--tags", "=", ",", "'", '"', "\\", "$(x)", "explain", "é", "", "--", "-", "x,"]
        )
    )
)
def test_no_line_gives_a_traceback(words: list[str]) -> None:
    assert isinstance(candidates("k3env " + " ".join(words), TASKS), list)


def typed(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "k3env.cli", *words], capture_output=True, text=True, timeout=60)


# words, what stderr says
MISSPELT = [
    (["provison", "--hosts", "x"], "there is no task provison", "did you mean provision?"),
    (["provision", "--tagz", "x"], "provision has no option --tagz", "did you mean --tags?"),
    (["provision", "--hosts", "a", "b"], "there is no task b", "put commas between names"),
    (["provision", "--check=false"], "there is no task false", "an option of provision"),
    (["provision", "--hosts"], "--hosts needed value", "k3env --help provision"),
    (["--nope"], "there is no option --nope before a task", "--"),
    (["explain"], "positional arguments: 'name'", "k3env --help explain"),
    (["--help", "provison"], "there is no task provison", "did you mean provision?"),
    (["sandbox.pth"], "there is no task sandbox.pth", "did you mean sandbox.path?"),
]


@pytest.mark.parametrize("words, message, remedy", MISSPELT)
def test_misspelt_names_get_the_nearest(words: list[str], message: str, remedy: str) -> None:
    done = typed(*words)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("ERROR ") and "Traceback" not in done.stderr
    told = " ".join(done.stderr.split())
    assert message in told and remedy in told


def test_the_shells_hook() -> None:
    assert "tray-01" in typed("--complete", "--", "k3env", "provision", "--hosts").stdout.split()
    assert "--version" in typed("--complete", "--", "k3env", "--").stdout.split()
    assert typed("--complete", "--", "k3env", "'x", "--").stderr == ""
    assert "_complete_k3env" in typed("--print-completion-script", "bash").stdout


@pytest.mark.parametrize("words", [["--help"], ["--list"], ["--complete", "--", "k3env", "provision", "--hosts"]])
def test_help_lists_and_completion_are_quick(words: list[str]) -> None:
    """Under 0.35 s on an idle machine; processor time says the same on a busy one."""
    taken = []
    for _ in range(3):
        before = os.times()
        assert typed(*words).returncode == 0
        after = os.times()
        taken.append(after.children_user + after.children_system - before.children_user - before.children_system)
    assert min(taken) < (0.6 if "--complete" in words else 0.35), taken


def test_what_lists_tasks_imports_nothing_heavy() -> None:
    heavy = ("paramiko", "fabric", "pydantic", "jinja2", "rich", "ClusterShell", "cryptography", "asyncssh")
    code = f"import sys; import k3env.cli; k3env.cli.namespace(); print([n for n in {heavy!r} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr
