"""Trays whose GPUs, links, fabric or IMEX are ill, seen from the controller."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cli import Said, Site

INVENTORY = """\
all:
  children:
    sandbox:
      hosts:
        fit: {k3env_sandbox: {}}
        link: {k3env_sandbox: {links_down: [3], xids: [79, 13]}}
        fabric:
          k3env_sandbox:
            cells: {fabric.clusterUuid: 00000000-0000-0000-0000-000000000000, fabric.health.summary: Unhealthy}
        reset: {k3env_sandbox: {cells: {gpu_recovery_action: Reset, mig.mode.current: Enabled}}}
        imex: {k3env_sandbox: {imex: WAITING_FOR_PEERS}}
        hgx: {k3env_sandbox: {gpu: B300, gpus: 8}}
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> Said:
    path: Path = tmp_path_factory.mktemp("sick") / "sick.yml"
    path.write_text(INVENTORY, encoding="utf-8")
    site = Site(tmp_path_factory.mktemp("state"))
    return site.k3env("preflight", "--hosts", "sandbox", "--inventory", str(path), "--output", "json")


@pytest.mark.parametrize(
    ("host", "failed", "warned"),
    [
        ("fit", set(), set()),
        ("link", {"nvlink.links", "gpu.xid"}, {"gpu.xid_app"}),
        ("fabric", {"nvlink.state", "nvlink.domain"}, set()),
        ("reset", {"gpu.recovery", "gpu.mig"}, set()),
        ("imex", {"nvlink.imex_daemon", "nvlink.imex_domain"}, {"nvlink.imex_peers"}),
        ("hgx", {"gpu.count"}, {"gpu.platform"}),
    ],
)
def test_an_illness_is_told_and_nothing_else(said: Said, host: str, failed: set[str], warned: set[str]) -> None:
    assert said.code == 2, said.err
    for status, wanted in (("fail", failed), ("warn", warned), ("unknown", set())):
        found = {item["id"] for item in said.findings(host, status) if item["id"].startswith(("gpu.", "nvlink."))}
        assert found == wanted, status


def test_a_channel_is_the_jobs_to_open(said: Said) -> None:
    (skipped,) = [item for item in said.findings("fit", "skip") if item["id"] == "nvlink.imex_channel"]
    assert "srun" in skipped["remedy"]
