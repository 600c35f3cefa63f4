"""system.* and slurm.*: tables of what facts say and what the finding must be."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from k3env.node import checks
from k3env.node.facts import Facts
from k3env.node.facts.inside import Inside, inside
from k3env.protocol.container import Container
from k3env.protocol.profile import Profile
from tests.unit.node.checktable import judged, mismatches, rows
from tests.unit.node.tools import Node

ROWS = [*rows("system.yaml"), *rows("slurm.yaml")]


@pytest.mark.parametrize("row", ROWS, ids=[f"{row['check']}: {row['name']}" for row in ROWS])
def test_table(row: dict[str, Any]) -> None:
    finding = judged(row)
    assert mismatches(finding, row["expect"]) == []
    assert finding.id == row["check"]
    if finding.status in ("fail", "warn"):
        assert finding.expected and finding.found and finding.remedy
    for text in (finding.expected, finding.found, finding.remedy, finding.message):
        assert "None" not in (text or "") and "{" not in (text or ""), text


@pytest.mark.parametrize("rule", checks.select(("system.*", "slurm.*")), ids=lambda rule: rule.id)
def test_every_check_has_rows_of_all_kinds(rule: checks.Check) -> None:
    seen = {row["expect"]["status"] for row in ROWS if row["check"] == rule.id}
    assert {"pass", "unknown"} <= seen
    assert seen & {"fail", "warn"} or rule.severity == "info"
    assert rule.doc


def test_nothing_asks_the_controller_before_a_job_starts() -> None:
    """Slurm commands in a prolog hang when the controller waits for that very prolog."""
    for rule in checks.select(("slurm.*", "system.*")):
        facts = {fact.__name__ for fact in rule.facts if fact.__module__.endswith(".slurm")}
        if facts - {"shape", "private"}:
            assert not rule.runs_in("prolog") and not rule.runs_in("hc"), rule.id


# What answers by asking nobody else.
AT_ONCE = {"system.meta", "system.arch_page", "system.limits", "system.numa", "system.container_tools", "slurm.shape"}


def test_commands_that_never_end_cost_the_contexts_time_once(tmp_path: Path) -> None:
    node = Node(tmp_path)
    for name in ("setpriv", "unshare", "nvidia-ctk", "chronyc", "srun", "munge", "unsquashfs", "enroot", "scontrol"):
        node.program(name, "trap '' TERM; while :; do sleep 1; done")
    node.file("/etc/slurm/slurm.conf", "ClusterName=x\n")
    image = node.file("/images/k3.sqsh", b"hsqs" + bytes(100))
    wanted = Profile(at_rank=True, container=Container("enroot", image))
    rules = checks.select(("system.*", "slurm.*"))
    begun = time.monotonic()
    node.environment["HF_HUB_OFFLINE"] = "1"
    facts = Facts(node.machine(), wanted, ends=begun + 2.0)
    values = facts.collect(tuple(fact for rule in rules for fact in rule.facts))
    taken = time.monotonic() - begun
    values[inside] = Inside()  # whatever these tests run in
    findings = {rule.id: checks.judge(rule, values, wanted) for rule in rules}
    for name in (
        "system.enroot_userns",
        "system.toolkit",
        "system.image_arch",
        "slurm.tools",
        "slurm.node",
        "slurm.munge",
    ):
        assert findings[name].status == "unknown", findings[name]
    for name in AT_ONCE:
        assert "no answer" not in findings[name].message, findings[name]
    assert taken < 10, "side by side, not one after another"
