"""The cluster itself: jobs run as their users, administrators drain, other lines of slurm.conf count."""

from __future__ import annotations

from pathlib import Path

from tests.rack.bed import Bed, wait_until
from tests.rack.site import Site
from tests.slurm.cluster import SOMEBODY, Cluster


def test_a_job_runs_on_the_nodes_that_it_asked_for(cluster: Cluster) -> None:
    job = cluster.submit("gb300-01", "gb300-02", user=SOMEBODY)
    assert [cluster.state(name) for name in cluster.site.nodes] == ["allocated", "allocated", "idle"]
    first, second, _ = cluster.site.nodes.values()
    wait_until(lambda: f"slurmstepd: [{job}.batch]" in str(first.processes()), 5)
    # Nodes are apart; and of an allocation, a node without a step has no process.
    assert "slurmstepd" not in str(second.processes())
    cluster.drain("gb300-01", "k3env: a test")
    assert (cluster.state("gb300-01"), cluster.reason("gb300-01")) == ("draining", "k3env: a test")
    cluster.cancel(job)
    cluster.wait_for("drained", "gb300-01")
    assert "slurmstepd" not in str(first.processes())


def test_only_an_administrator_drains(cluster: Cluster) -> None:
    done = cluster.slurm(
        "scontrol", "update", "nodename=gb300-01", "state=drain", "reason=x", user=SOMEBODY, check=False
    )
    assert done.returncode != 0 and "Invalid user id" in done.stderr and cluster.state("gb300-01") == "idle"


def test_lines_of_slurm_conf_and_nothing_left_at_its_end(slurm_bed: Bed, tmp_path: Path) -> None:
    with Site(slurm_bed, tmp_path / "site", ("a",)) as site:
        site.node.script("/opt/prolog", "echo $SLURM_JOB_ID >> /var/log/prolog")
        with Cluster(site, ["Prolog=/opt/prolog", "PrologFlags=Alloc", "clustername=other"]) as cluster:
            said = cluster.slurm("scontrol", "show", "config").stdout
            assert "ClusterName             = other\n" in said and "/opt/prolog" in said
            job = cluster.submit("a")
            told = site.node.path("/var/log/prolog")
            wait_until(lambda: told.exists() and told.read_text() == f"{job}\n", 20, "the prolog has run")
            run, daemons = cluster.conf.parent, cluster.daemons
            assert len(daemons) == 2
        assert not run.exists() and not any(Path(f"/proc/{pid}").exists() for pid in daemons)
