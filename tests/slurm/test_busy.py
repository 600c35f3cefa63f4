"""Nodes that run jobs are not changed, on a real Slurm."""

from __future__ import annotations

import pytest

from tests.sandbox.cli import Said
from tests.slurm.cluster import SOMEBODY, Cluster

ONE, TWO, THREE = "gb300-01", "gb300-02", "gb300-03"


@pytest.fixture
def playbook(cluster: Cluster) -> str:
    """A play with something to change on each node."""
    for node in cluster.site.nodes.values():
        node.run("rm", "-f", "/opt/mark")
    return cluster.site.playbook(
        {"verify": {"checks": ["cache.*"]}, "ignore_errors": True},
        {"command": {"argv": ["touch", "/opt/mark"], "creates": "/opt/mark"}},
    )


def run(cluster: Cluster, playbook: str, *options: str, hosts: str = "all", **environment: str) -> Said:
    words = cluster.site.provision(playbook, *options, hosts=hosts)
    return cluster.site.type(words, {**cluster.environment(), **environment}).end()


def marked(cluster: Cluster) -> list[str]:
    return [name for name, node in cluster.site.nodes.items() if node.path("/opt/mark").exists()]


def test_a_node_that_runs_somebodys_job_is_refused_before_it_is_changed(cluster: Cluster, playbook: str) -> None:
    # On the second node no step has begun: only Slurm's controller knows of the job there.
    job = cluster.submit(ONE, TWO, user=SOMEBODY)
    said = run(cluster, playbook)
    assert said.statuses() == {ONE: "failed", TWO: "failed", THREE: "changed"} and said.code == 2
    assert marked(cluster) == [THREE]
    for host in (ONE, TWO):
        (finding,) = [item for item in said.findings(host) if item["id"] == "run.busy_node"]
        assert finding["message"].startswith(f"this node runs Slurm job {job} of {SOMEBODY} (serve) since 20")
        assert "--allow-busy" in finding["remedy"] and f"slurm:job:{job}" in finding["remedy"]
    # Reading disturbs nobody, and what has nothing to change neither.
    checked = run(cluster, playbook, "--check")
    assert checked.code == 0 and checked.changes().keys() == {ONE, TWO}
    # Allowed, and then as it should be.
    assert run(cluster, playbook, "--allow-busy").code == 0 and marked(cluster) == [ONE, TWO, THREE]
    assert set(run(cluster, playbook).statuses().values()) == {"ok"}
    cluster.cancel(job)


def test_the_job_around_us_and_the_one_that_is_named_are_ours(cluster: Cluster, playbook: str) -> None:
    ours = cluster.submit(ONE, TWO)
    others = cluster.submit(THREE, user=SOMEBODY)
    inside = run(cluster, playbook, SLURM_JOB_ID=ours)
    assert inside.statuses() == {ONE: "changed", TWO: "changed", THREE: "failed"}
    named = run(cluster, playbook, hosts=f"slurm:job:{others}")
    assert named.statuses() == {THREE: "changed"}


def test_a_controller_that_hangs_is_not_waited_for(cluster: Cluster, playbook: str) -> None:
    job = cluster.submit(ONE, user=SOMEBODY)
    cluster.hang_controller()
    try:
        said = run(cluster, playbook)
    finally:
        cluster.hang_controller(False)
    assert said.statuses() == {ONE: "failed", TWO: "changed", THREE: "changed"}
    assert f"job {job} of {SOMEBODY} since" in said.document["hosts"][ONE]["message"]
    (unknown,) = said.findings(TWO, "unknown")
    assert unknown["id"] == "run.busy_node" and "squeue" in unknown["found"]
