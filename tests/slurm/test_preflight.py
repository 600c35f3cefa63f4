"""k3env-preflight.pyz where Slurm runs it: Prolog, Epilog, TaskProlog, HealthCheckProgram, and in a job."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.rack.bed import Bed, wait_until
from tests.rack.site import Site
from tests.slurm.cluster import SOMEBODY, Cluster
from tests.unit.node.planted import CHECKS, plant

NODES = ("a", "b")
HERE = "/opt/k3env"
CODE = (
    CHECKS
    + """
rule("user", lambda who, profile: passed(str(who.uid)) if who.uid == {"prolog": 1, "hc": 65534}.get(profile.context, 1)
     else fail(expected="the job's user", found=str(who.uid), remedy="drop"), _who)
"""
)
WRAPPER = "#!/bin/sh\nexec /opt/k3env/k3env-hc --drain >> /var/log/hc 2>&1\n"


@pytest.fixture(scope="module")
def made(slurm_bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster whose scripts are links to one file; slurmd looks for them when it starts."""
    lines = [
        f"Prolog={HERE}/k3env-prolog",
        f"Epilog={HERE}/k3env-epilog",
        f"TaskProlog={HERE}/k3env-preflight.pyz",
        "PrologFlags=Alloc",
        "SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2",
    ]
    with Site(slurm_bed, tmp_path_factory.mktemp("preflight") / "site", NODES) as site:
        for name in NODES:
            _plant(site, name, "user")
        with Cluster(site, lines) as cluster:
            yield cluster


@pytest.fixture
def slurm(made: Cluster) -> Iterator[Cluster]:
    for name in NODES:
        _plant(made.site, name, "user")
    made.clear()
    yield made


def _plant(site: Site, name: str, *ids: str, other: str | None = None) -> None:
    directory = site.nodes[name].path(HERE)
    directory.mkdir(mode=0o755, exist_ok=True)
    new = plant(directory, *ids, code=CODE, other=other, name="new.pyz")
    new.rename(directory / "k3env-preflight.pyz")
    for link in ("k3env-prolog", "k3env-epilog", "k3env-hc"):
        (directory / link).unlink(missing_ok=True)
        (directory / link).symlink_to("k3env-preflight.pyz")


def _job(slurm: Cluster, *words: str, script: str) -> Path:
    """Run a job on node a to its end; return what it said."""
    out = slurm.site.shared / "out"
    out.write_text("")
    out.chmod(0o666)
    words = ("--nodelist=a", "--chdir=/", "--output=/shared/out", "--open-mode=append", f"--wrap={script}", *words)
    job = slurm.slurm("sbatch", "--parsable", *words, user=SOMEBODY).stdout.strip()
    wait_until(lambda: slurm.job(job) in ("", "COMPLETED", "FAILED"), 30, f"job {job} ends")
    return out


def test_a_fit_node_runs_its_job_and_the_user_reads_the_verdict(slurm: Cluster) -> None:
    out = _job(slurm, script="true")
    assert "nothing found against it: 1 passed" in out.read_text()
    slurm.wait_for("idle", *NODES)
    log = slurm.site.nodes["a"].path("/var/log/slurmd.log").read_text("utf-8", "replace")
    assert "rog failed" not in log and "error: Waiting" not in log


def test_a_node_that_fails_is_drained_by_slurm_and_the_job_kept(slurm: Cluster) -> None:
    _plant(slurm.site, "a", "bad")
    words = ("--nodelist=a", "--chdir=/", "--output=/dev/null", "--wrap=true")
    job = slurm.slurm("sbatch", "--parsable", *words, user=SOMEBODY).stdout.strip()
    wait_until(lambda: slurm.state("a").startswith("drain"), 30, "a is drained")
    assert slurm.reason("a").startswith("Prolog error")
    wait_until(lambda: slurm.job(job) == "PENDING", 30, "the job is requeued")
    assert slurm.state("b") == "idle"


@pytest.mark.parametrize("ids", ["dark", "raises", "vanishes", "exits", "bad_warn", "bad_rank"])
def test_what_is_not_known_stops_no_job(slurm: Cluster, ids: str) -> None:
    _plant(slurm.site, "a", ids)
    # TaskProlog is another matter: there a failed check of the rank ends the task, and only the task.
    _job(slurm, script="true")
    slurm.wait_for("idle", *NODES)


def test_a_check_of_the_rank_that_fails_ends_the_task(slurm: Cluster) -> None:
    _plant(slurm.site, "a", "bad_rank")
    out = _job(slurm, script="echo it ran").read_text()
    assert "it ran" not in out and "FAIL planted.bad_rank" in out
    slurm.wait_for("idle", *NODES)


def test_an_epilog_that_fails_drains_the_node_after_the_job(slurm: Cluster) -> None:
    go, begun = slurm.site.shared / "go", slurm.site.shared / "out"
    go.unlink(missing_ok=True)
    begun.write_text("")
    begun.chmod(0o666)
    script = "echo begun > /shared/out; while ! test -e /shared/go; do sleep 0.1; done"
    job = slurm.submit("a", script=script, user=SOMEBODY)
    wait_until(lambda: "begun" in begun.read_text(), 30, "the prolog is over")
    _plant(slurm.site, "a", "bad")
    go.touch()
    wait_until(lambda: slurm.state("a") == "drained", 30, "a is drained")
    wait_until(lambda: slurm.reason("a").startswith("Epilog error"), 30, "the reason is Slurm's")
    wait_until(lambda: slurm.job(job) in ("", "COMPLETED"), 30, "the job has ended well")


def test_slurmd_runs_the_health_check_which_drains_by_itself(slurm_bed: Bed, tmp_path: Path) -> None:
    with Site(slurm_bed, tmp_path / "site", ("c",)) as site:
        _plant(site, "c", "user")
        site.nodes["c"].script("/opt/hc", WRAPPER)
        lines = ["HealthCheckProgram=/opt/hc", "HealthCheckInterval=2", "HealthCheckNodeState=ANY"]
        with Cluster(site, lines) as cluster:
            said = site.nodes["c"].path("/var/log/hc")
            wait_until(lambda: said.exists() and said.read_text().count("nothing found against it") > 1, 30, "it ran")
            assert cluster.state("c") == "idle"
            _plant(site, "c", "bad")
            wait_until(lambda: cluster.reason("c").startswith("k3env: planted.bad:"), 30, "c is drained")


def test_the_health_check_drains_on_request_and_only_over_our_own_reason(slurm: Cluster) -> None:
    node = slurm.site.nodes["a"]
    node.script("/opt/hc", WRAPPER)
    node.run("env", "-i", "SLURMD_NODENAME=a", "/opt/hc")
    assert slurm.state("a") == "idle"
    _plant(slurm.site, "a", "bad")
    node.run("env", "-i", "SLURMD_NODENAME=a", "/opt/hc", check=False)
    wait_until(lambda: slurm.reason("a").startswith("k3env: planted.bad: expected whole, found broken"), 30)
    assert slurm.state("a") == "drained"
    slurm.resume("a")
    slurm.drain("a", "bad fan, ask Eve")
    node.run("env", "-i", "SLURMD_NODENAME=a", "/opt/hc", check=False)
    wait_until(lambda: not [item for item in node.processes() if "k3env" in item.command], 30)
    assert slurm.reason("a") == "bad fan, ask Eve"


def test_a_controller_that_hangs_holds_up_no_health_check(slurm: Cluster) -> None:
    node = slurm.site.nodes["a"]
    node.script("/opt/hc", WRAPPER)
    _plant(slurm.site, "a", "bad")
    slurm.hang_controller()
    try:
        done = node.run("env", "-i", "SLURMD_NODENAME=a", "/opt/hc", check=False)
        assert done.returncode == 2
        wait_until(lambda: "scontrol" in str(node.processes()), 10, "scontrol asks, and nobody waits for it")
    finally:
        slurm.hang_controller(False)
    wait_until(lambda: slurm.reason("a").startswith("k3env:"), 40)


def test_in_a_job_all_its_nodes_are_reduced_to_one_report(slurm: Cluster) -> None:
    for name in NODES:
        _plant(slurm.site, name, "user", "rank")
    line = f"srun --ntasks-per-node=1 {HERE}/k3env-preflight.pyz --output jsonl | {HERE}/k3env-preflight.pyz reduce"
    out = _job(slurm, "--nodelist=a,b", "--nodes=2", script=line).read_text()
    assert "a,b" in out or "[a-b]" in out or "fit for Kimi K3: " in out, out
    assert "fit for Kimi K3" in out
