"""invoke stage, as typed: a checkpoint in small and a data set from a hub of our own, onto this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k3env.k3 import recipes
from tests.hub import REVISION, SIGNATURE, Fault, Hub
from tests.unit.node.test_model import IDENTITY, SHARDS, shard

TOKEN = "hf_9876543210fedcba"  # noqa: S105 - nobody's
MODEL, DATA = "models/moonshotai/Kimi-K3", "datasets/openai/gsm8k"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    index = {"metadata": {"total_size": 1}, "weight_map": {f"layer.{at}": name for at, name in enumerate(SHARDS)}}
    files = dict.fromkeys((*recipes.TOKENIZER, *recipes.REMOTE_CODE), b"x")
    for name in SHARDS:
        shard(tmp_path / name)
        files[name] = (tmp_path / name).read_bytes()
    files |= {"config.json": json.dumps(IDENTITY).encode(), "model.safetensors.index.json": json.dumps(index).encode()}
    with Hub({MODEL: files, DATA: {"main/test-00000-of-00001.parquet": b"PAR1"}}) as made:
        made.token = TOKEN
        made.revisions[DATA] = "e53f048856ff4f594e959d75785d2c2d37b678ee"
        yield made


def typed(tmp_path: Path, hub: Hub, *words: str, token: str = TOKEN) -> tuple[int, dict[str, Any]]:
    """Type it; the token is in the environment of who types, and must be nowhere else."""
    (tmp_path / "site.yml").write_text(f"""
all:
  hosts: {{mover: {{ansible_connection: local, k3env_state_dir: {tmp_path}/state}}}}
  vars:
    checkpoint: {tmp_path}/Kimi-K3
    dataset: {tmp_path}/gsm8k
    hf_endpoint: {hub.url()}
    hf_token: {{secret: env:HF_TOKEN}}
""")
    argv = [sys.executable, "-m", "k3env.cli", "stage", "--hosts", "mover", "--inventory", str(tmp_path / "site.yml")]
    environment = {
        "PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "home"), "no_proxy": "*",
        "HF_TOKEN": token,
    }  # fmt: skip
    done = subprocess.run(
        [*argv, "--output", "json", *words], capture_output=True, text=True, env=environment, timeout=100
    )  # fmt: skip
    assert token not in done.stdout + done.stderr and SIGNATURE not in done.stdout
    return done.returncode, json.loads(done.stdout)


def statuses(document: dict[str, Any]) -> dict[str, str]:
    return {task["name"]: task["status"] for task in document["hosts"]["mover"]["tasks"] if task["status"] != "skipped"}


def test_it_comes_is_judged_and_comes_once(tmp_path: Path, hub: Hub) -> None:
    code, document = typed(tmp_path, hub, "--check")
    assert (code, hub.requests, document["hosts"]["mover"]["changed"]) == (0, [], 2), document
    code, document = typed(tmp_path, hub)
    assert code == 0, document
    assert statuses(document) == {
        "Checkpoint of Kimi K3": "changed",
        "Data set of the evaluation": "changed",
        "Checkpoint, judged": "ok",
        "Image, judged": "ok",
        "Cubins, judged": "ok",
    }
    passed = {
        item["id"]
        for task in document["hosts"]["mover"]["tasks"]
        for item in task["findings"]
        if item["status"] == "pass"
    }
    assert {"model.identity", "model.complete", "model.files"} <= passed
    asked = len(hub.requests)
    code, document = typed(tmp_path, hub)
    assert (code, document["hosts"]["mover"]["changed"], len(hub.requests)) == (0, 0, asked)
    assert (tmp_path / "gsm8k/main/test-00000-of-00001.parquet").read_bytes() == b"PAR1"
    for path in tmp_path.rglob("*"):
        assert not path.is_file() or TOKEN.encode() not in path.read_bytes(), path


def test_a_gated_model_is_told_with_what_to_do(tmp_path: Path, hub: Hub) -> None:
    hub.faults["/tree/"] = Fault(99, 403, {"X-Error-Code": "GatedRepo"})
    code, document = typed(tmp_path, hub, "--tags", "checkpoint")
    (finding,) = document["hosts"]["mover"]["tasks"][0]["findings"]
    assert (code, finding["id"]) == (2, "hub.gated")
    assert finding["remedy"] == f"accept the terms on {hub.url()}/moonshotai/Kimi-K3 with the account of the token"


def test_a_branch_is_an_error_before_anything_is_contacted(tmp_path: Path, hub: Hub) -> None:
    code, document = typed(tmp_path, hub, "--extra-vars", "checkpoint_revision=main")
    assert (code, hub.requests) == (1, [])
    assert "checkpoint_revision must be a full commit" in document["error"]["message"]
    assert not os.path.exists(tmp_path / "Kimi-K3")


def test_the_pin_is_kimi_k3s() -> None:
    from k3env.k3.variables import Variables

    assert Variables().checkpoint_revision == REVISION
