"""`invoke fetch`, and the main job without any network: a miniature TensorRT LLM behind a git daemon, and real pip."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from k3env.sandbox import upstream
from tests.sandbox.cli import Said
from tests.unit.fetching.served import daemon
from tests.unit.node import ground

TOOLS = {"nvcc": "release 13.0, V13.0.88", "cmake": "cmake version 3.31.6", "patchelf": "patchelf 0.18.0"}
INSIDE = 'ip link 2>/dev/null | grep -q "state UP" && exit 76; exec "$@"'
"""No device leads anywhere in a fresh network namespace."""


@dataclass(frozen=True)
class Place:
    """Where a person types, with stand-ins for the compilers, which a miniature does not need."""

    root: Path

    def type(self, *words: str, network: bool = False) -> Said:
        environment = {
            "PATH": f"{self.root}/bin:{os.environ['PATH']}", "HOME": str(self.root), "LANG": "C.UTF-8",
            "XDG_STATE_HOME": str(self.root / "state"), "PIP_CACHE_DIR": str(self.root / "pip"),
        }  # fmt: skip
        argv: Sequence[str] = [sys.executable, "-m", "k3env.cli", *words]
        apart = [] if network else ["unshare", *(["-n"] if os.geteuid() == 0 else ["-Urn"]), "sh", "-c", INSIDE, "sh"]
        done = subprocess.run([*apart, *argv], env=environment, capture_output=True, text=True, check=False)
        return Said(done.returncode, done.stdout, done.stderr)

    def provision(self, *options: str) -> Said:
        words = ("--hosts", "localhost", "--connection", "local", "--tags", "build,deps", "--skip-tags", "always")
        own = ("--extra-vars", f"@{self.root}/vars.yml", "--extra-vars", f"offline_dir={self.root}/off")
        return self.type("provision", *words, *own, "--output", "json", *options)

    def fetch(self, *options: str) -> Said:
        target = ("--arch", os.uname().machine, "--python", ground.VERSION)
        words = ("fetch", "--directory", str(self.root / "off"), *target, "--extra-vars", f"@{self.root}/vars.yml")
        return self.type(*words, *options, network=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A directory that was fetched from a server which is gone."""
    probe = ["unshare", *(["-n"] if os.geteuid() == 0 else ["-Urn"]), "true"]
    if shutil.which("unshare") is None or subprocess.run(probe, capture_output=True, check=False).returncode:
        pytest.skip("needs network namespaces")
    index = subprocess.run(
        [sys.executable, "-m", "pip", "index", "versions", "einops"], capture_output=True, check=False
    )
    if index.returncode:
        pytest.skip(f"needs the package index: {index.stderr.decode(errors='replace').strip()[-200:]}")
    made = Place(tmp_path_factory.mktemp("offline"))
    for name, says in TOOLS.items():
        program = made.root / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\necho '{says}'\n")
        program.chmod(0o755)
    commits = upstream.make(made.root / "served")
    (made.root / "nodes").mkdir()
    with daemon(made.root / "served") as url:
        given = {
            "trtllm_repo": f"{made.root}/nodes/TensorRT-LLM",
            "trtllm_url": f"{url}/{upstream.TRTLLM}",
            "trtllm_commit": commits[upstream.TRTLLM][2],
            "flashinfer_url": f"{url}/{upstream.FLASHINFER}",
            "flashinfer_commit": commits[upstream.FLASHINFER][1],
        }
        (made.root / "vars.yml").write_text(json.dumps(given))
        said = made.fetch()
    assert said.code == 0, said.err + said.out
    assert "mirrors   2, with 2 commits" in said.out and "MISSING" not in said.out
    return made


def test_the_main_job_runs_without_a_network(place: Place) -> None:
    said = place.provision()
    assert said.statuses() == {"localhost": "changed"}, said.err
    site = (
        place.root / "nodes/TensorRT-LLM" / f".venv-{ground.VERSION}" / "lib" / f"python{ground.VERSION}/site-packages"
    )
    (info,) = site.glob("flashinfer_python-*.dist-info")
    direct = json.loads((info / "direct_url.json").read_text())
    assert direct["url"].startswith("git://127.0.0.1") and direct["vcs_info"]["commit_id"]
    assert (site / "fla").is_dir() and (site / "einops").is_dir()
    assert place.provision().changes() == {}, "and a second time there is nothing to do"

    # What isn't there is named, with the command that fetches it.
    for variable, what in {
        "fla_core_version=0.5.0": "fla-core==0.5.0",
        f"flashinfer_commit={'1' * 40}": "1" * 40,
    }.items():
        said = place.provision("--extra-vars", variable)
        (finding,) = said.findings("localhost")
        assert finding["id"].startswith("offline.") and what in finding["message"]
        assert f"invoke fetch --directory {place.root}/off --arch {os.uname().machine}" in finding["remedy"]


def test_a_second_fetch_is_content_without_the_server(place: Place) -> None:
    said = place.fetch()
    assert said.code == 0 and "new       0 files" in said.out, said.err


def test_what_to_fetch_must_be_said(place: Place) -> None:
    assert "--directory DIR" in place.type("fetch").err
    said = place.type("fetch", "--directory", str(place.root / "other"))
    assert said.code == 1 and "trtllm_commit" in said.err
    said = place.type("fetch", "--directory", str(place.root / "other"), "--arch", "arm64")
    assert said.code == 1 and "aarch64 or x86_64" in said.err and not (place.root / "other").exists()
