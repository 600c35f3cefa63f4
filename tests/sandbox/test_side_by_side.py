"""Nodes whose checkouts are their own work at the same time; those that share one, one after the other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.sandbox.cli import Site

# Each waits for all the others: it only ends where all are at work at once.
MEET = 'touch "$1"; i=0; while [ $(ls "$2" | wc -l) -lt 4 ]; do sleep 0.1; i=$((i+1)); [ $i -lt 600 ] || exit 1; done'
ALONE = 'echo begin >> "$1"; sleep 0.5; echo end >> "$1"; touch "$2"'
PLAY = """
- name: Build
  hosts: all
  tasks:
    - name: Own
      command:
        argv:
          - sh
          - -c
          - '{meet}; touch "$3"'
          - sh
          - "{root}/met/{{{{ inventory_hostname }}}}"
          - "{root}/met"
          - "{root}/{{{{ inventory_hostname }}}}/made"
        creates: "{root}/{{{{ inventory_hostname }}}}/made"
        checkout: "{root}/{{{{ inventory_hostname }}}}"
    - name: Shared
      command:
        argv: [sh, -c, '{alone}', sh, "{root}/shared/log", "{root}/shared/made"]
        creates: "{root}/shared/made"
        checkout: "{root}/shared"
"""


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return Site(tmp_path_factory.mktemp("state"))


def test_own_checkouts_are_changed_at_once_and_a_shared_one_once(fresh: Site, tmp_path: Path) -> None:
    for name in ("met", "shared", *(f"tray-0{number}" for number in (1, 2, 3, 4))):
        (tmp_path / name).mkdir()
    book = tmp_path / "book.yml"
    book.write_text(PLAY.format(meet=MEET, alone=ALONE, root=tmp_path))
    said = fresh.provision("--playbook", str(book))
    assert said.code == 0, said.err
    own = {host: told["tasks"][0]["status"] for host, told in said.document["hosts"].items()}
    assert list(own.values()) == ["changed"] * 4
    shared = [told["tasks"][1]["status"] for told in said.document["hosts"].values()]
    assert sorted(shared) == ["changed", "ok", "ok", "ok"]
    assert (tmp_path / "shared/log").read_text().split() == ["begin", "end"]


def test_own_checkouts_are_built_at_once(fresh: Site, tmp_path: Path) -> None:
    """Each build begins before any other has ended, by what the nodes' journals say of the main job."""
    trays = ("tray-01", "tray-02")
    for name in trays:
        (tmp_path / name).mkdir()
    repo = f"trtllm_repo={tmp_path}/{{{{ inventory_hostname }}}}/TensorRT-LLM"
    words = ("--hosts", ",".join(trays), "--tags", "build", "--extra-vars", repo, "--output", "jsonl")
    said = fresh.k3env("provision", *words)
    assert said.code == 0, said.err
    lines = [json.loads(line) for line in said.out.splitlines()]
    events = [line for line in lines if line["schema"] == "k3env.event/1"]
    builds = [event for event in events if event["kind"] == "apply" and event["data"]["module"] == "trtllm_build"]
    begun = {event["host"]: event["time"] for event in builds}
    assert set(begun) == set(trays)
    of = {(event["host"], event["task"]) for event in builds}
    ended = {
        event["host"]: event["time"]
        for event in events
        if event["kind"] == "result" and (event["host"], event["task"]) in of
    }
    assert max(begun.values()) < min(ended.values()), (begun, ended)
