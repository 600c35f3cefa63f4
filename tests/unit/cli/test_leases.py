"""invoke leases, as typed; on a host that this machine is itself."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


def typed(tmp_path: Path, *words: str) -> tuple[int, dict[str, Any]]:
    argv = [sys.executable, "-m", "k3env.cli", "leases", *words, "--output", "json", "--connection", "local"]
    given = ["--hosts", "localhost", "--extra-vars", f"trtllm_repo={tmp_path}/repo", "--extra-vars"]
    given += [f"k3env_state_dir={tmp_path}/state"]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "home")}
    done = subprocess.run([*argv, *given], capture_output=True, text=True, env=environment, timeout=60)
    return done.returncode, json.loads(done.stdout)


@pytest.mark.parametrize("words", [(), ("--list",), ("--break",)])
def test_nobody_holds_one(tmp_path: Path, words: tuple[str, ...]) -> None:
    code, document = typed(tmp_path, *words)
    assert (code, document["exit_code"]) == (0, 0)
    (run,) = [item for item in document["hosts"]["localhost"]["tasks"] if item["status"] != "skipped"]
    assert (run["name"], run["status"]) == (
        "Leases of dead owners" if "--break" in words else "Leases that stand", "ok",
    )  # fmt: skip


def test_one_of_both(tmp_path: Path) -> None:
    code, document = typed(tmp_path, "--list", "--break")
    assert code == 1 and "exclude each other" in document["error"]["message"]
