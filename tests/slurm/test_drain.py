"""--drain on a real Slurm: drained, waited for, changed, judged, resumed; and never what is somebody else's."""

from __future__ import annotations

import pwd
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tests.rack.bed import wait_until
from tests.sandbox.cli import Said
from tests.slurm.cluster import SOMEBODY, Cluster

ONE, TWO, THREE = "gb300-01", "gb300-02", "gb300-03"
UID = pwd.getpwnam(SOMEBODY).pw_uid
CACHES = "/var/tmp/k3env-cache-root"
"""Without it a node is not fit."""
DRAINS = "drained gb300-[01-03]: k3env: run "


@pytest.fixture(autouse=True)
def fresh(cluster: Cluster) -> Iterator[None]:
    """No node carries a mark of an earlier test; each is fit until a test says otherwise."""
    for node in cluster.site.nodes.values():
        node.run("rm", "-f", "/opt/mark")
        node.run("mkdir", "-p", CACHES)
    yield


def playbook(cluster: Cluster, *before: dict[str, Any], **play: Any) -> str:
    """Something to change, which looks into what state Slurm has its node, and a judgement at the end."""
    node = "$(hostname)"
    seen = f"scontrol show node {node} | grep -o 'State=[A-Z+]*' > /opt/mark; sleep 0.2"
    return cluster.site.playbook(
        *before,
        {"command": {"argv": ["sh", "-c", seen], "creates": "/opt/mark"}},
        {"verify": {"checks": ["cache.locality"]}},
        **play,
    )


def words(cluster: Cluster, book: str, *options: str, hosts: str = "all") -> list[str]:
    return cluster.site.provision(book, "--drain", *options, hosts=hosts)


def run(cluster: Cluster, book: str, *options: str, hosts: str = "all") -> Said:
    return cluster.site.type(words(cluster, book, *options, hosts=hosts), cluster.environment()).end()


def marks(cluster: Cluster) -> dict[str, str]:
    paths = {name: node.path("/opt/mark") for name, node in cluster.site.nodes.items()}
    return {name: path.read_text().strip() for name, path in paths.items() if path.exists()}


def states(cluster: Cluster) -> list[str]:
    return [cluster.state(name) for name in cluster.site.nodes]


def left(said: Said, nodes: str) -> str:
    """Return the command that resumes some nodes, as it was said."""
    (command,) = re.findall(rf"{re.escape(nodes)} stays drained: .*; when it is fit: (scontrol .*)", said.err)
    return str(command)


def test_drained_changed_judged_and_resumed(cluster: Cluster) -> None:
    said = run(cluster, playbook(cluster))
    assert said.code == 0 and set(said.statuses().values()) == {"changed"}, said.err
    assert marks(cluster) == dict.fromkeys((ONE, TWO, THREE), "State=IDLE+DRAIN")
    assert states(cluster) == ["idle"] * 3 and DRAINS in said.err and "resumed gb300-[01-03]: fit" in said.err
    assert said.document["run"] in said.err


def test_jobs_are_waited_for_and_shown_and_nodes_go_at_their_own_pace(cluster: Cluster) -> None:
    job = cluster.submit(ONE, TWO, user=SOMEBODY)
    running = cluster.site.type(words(cluster, playbook(cluster), "--forks", "1"), cluster.environment())
    running.until(f"waiting for job {job} of {SOMEBODY} (serve) since ")
    assert "--- gb300-[01-02]: waiting for" in running.said
    # The one that is free is not kept waiting, also with one host at a time.
    wait_until(lambda: list(marks(cluster)) == [THREE], 20)
    assert states(cluster)[:2] == ["draining", "draining"]
    cluster.cancel(job)
    said = running.end()
    assert said.code == 0 and states(cluster) == ["idle"] * 3, said.err
    assert marks(cluster)[ONE] == "State=IDLE+DRAIN"


def test_what_is_not_fit_stays_drained_and_is_taken_over_by_the_next_run(cluster: Cluster) -> None:
    cluster.site.nodes[TWO].run("rmdir", CACHES)
    said = run(cluster, playbook(cluster))
    assert said.code == 2 and states(cluster) == ["idle", "drained", "idle"]
    assert left(said, TWO) == f"scontrol update nodename={TWO} state=resume"
    assert cluster.reason(TWO) == f"k3env: run {said.document['run']} of root@controller"
    cluster.site.nodes[TWO].run("mkdir", CACHES)
    again = run(cluster, playbook(cluster))
    assert again.code == 0 and states(cluster) == ["idle"] * 3, again.err
    assert f"{TWO}: drained by an earlier run, and now by this one" in again.err


def test_what_somebody_else_drained_is_changed_and_left_as_it_was(cluster: Cluster) -> None:
    cluster.drain(TWO, "dimm 3: RMA")
    said = run(cluster, playbook(cluster))
    assert said.code == 0 and marks(cluster).keys() == {ONE, TWO, THREE}
    assert states(cluster) == ["idle", "drained", "idle"] and cluster.reason(TWO) == "dimm 3: RMA"
    assert f"{TWO} is DRAIN already (dimm 3: RMA; root@20" in said.err


def test_a_reason_that_changes_meanwhile_is_not_ours_any_more(cluster: Cluster) -> None:
    wait = {"command": {"argv": ["sh", "-c", "while [ ! -e /shared/go ]; do sleep 0.1; done"], "read_only": True}}
    (cluster.site.shared / "go").unlink(missing_ok=True)
    running = cluster.site.type(words(cluster, playbook(cluster, wait), hosts=ONE), cluster.environment())
    running.until("drained gb300-01")
    cluster.drain(ONE, "dimm 3: RMA")
    (cluster.site.shared / "go").touch()
    said = running.end()
    assert (cluster.state(ONE), cluster.reason(ONE)) == ("drained", "dimm 3: RMA")
    assert said.code == 2 and "its reason is no longer ours: dimm 3: RMA" in said.document["hosts"][ONE]["message"]


def test_batches_are_drained_one_after_the_other(cluster: Cluster) -> None:
    cluster.site.nodes[TWO].run("rmdir", CACHES)
    said = run(cluster, playbook(cluster, serial=1, any_errors_fatal=True))
    assert said.statuses() == {ONE: "changed", TWO: "failed", THREE: "notrun"}
    assert states(cluster) == ["idle", "drained", "idle"] and "drained gb300-03" not in said.err
    order = [line for line in said.err.splitlines() if re.match(r"--- (drained|resumed) gb300", line)]
    assert [shlex.split(line)[1:3] for line in order] == [
        ["drained", f"{ONE}:"],
        ["resumed", f"{ONE}:"],
        ["drained", f"{TWO}:"],
    ]


def test_jobs_that_do_not_end_in_time(cluster: Cluster) -> None:
    job = cluster.submit(ONE, user=SOMEBODY)
    said = run(cluster, playbook(cluster), "--drain-timeout", "2", hosts=f"{ONE},{TWO}")
    assert said.statuses() == {ONE: "failed", TWO: "changed"} and states(cluster)[:2] == ["draining", "idle"]
    (finding,) = [item for item in said.findings(ONE) if item["id"] == "run.drain"]
    assert "did not end within 2 s" in finding["message"] and f"job {job} of {SOMEBODY}" in finding["found"]
    assert left(said, ONE)


def test_interrupted_it_stays_drained(cluster: Cluster) -> None:
    cluster.submit(ONE, user=SOMEBODY)
    running = cluster.site.type(words(cluster, playbook(cluster), hosts=ONE), cluster.environment())
    running.until("waiting for job")
    running.signal(signal.SIGINT)
    said = running.end(20)
    assert said.code == 130 and cluster.state(ONE) == "draining" and left(said, ONE)


def test_check_says_what_would_be_drained(cluster: Cluster) -> None:
    cluster.submit(ONE, TWO)
    cluster.drain(THREE, "mine")
    said = run(cluster, playbook(cluster), "--check")
    assert said.code == 0 and "would be drained: gb300-[01-02]; 1 job runs there" in said.err
    assert "gb300-03 is DRAIN already (mine;" in said.err and states(cluster)[0] == "allocated"


def test_the_job_around_us_is_not_waited_for(cluster: Cluster) -> None:
    ours = cluster.submit(ONE)
    argv = words(cluster, playbook(cluster), hosts=ONE)
    said = cluster.site.type(argv, {**cluster.environment(), "SLURM_JOB_ID": ours}).end()
    assert said.code == 0 and cluster.state(ONE) == "allocated", said.err


# What is wrong before anything is contacted or drained, and what stands in front of the command
REFUSED = {
    "can't be run: No such file": ["env", "PATH=/nowhere"],
    "Slurm does not let this user drain": ["env", "PATH={bin}:/usr/bin:/bin"],
    "Slurm does not know elsewhere": [],
    "this run's last task judges nothing": [],
    "scontrol failed: ": [],
}


@pytest.mark.parametrize("message", REFUSED)
def test_refused_before_anything_is_contacted(cluster: Cluster, message: str) -> None:
    book, site, hosts = playbook(cluster), cluster.site, ONE
    if "elsewhere" in message:
        site.inventory({ONE: {}, "elsewhere": {}})
        hosts = "all"
    elif "judges" in message:
        book = site.playbook({"command": {"argv": ["true"], "creates": "/opt/mark"}})
    elif "failed" in message:
        cluster.stop_controller()
    elif "let" in message:
        # Slurm asks munge who it is: another user than the one who may.
        (site.home / "bin").mkdir()
        (site.home / "bin/scontrol").write_text(f'#!/bin/sh\nexec setpriv --reuid {UID} /usr/bin/scontrol "$@"\n')
        (site.home / "bin/scontrol").chmod(0o755)
    typed = words(cluster, book, hosts=hosts)
    at = typed.index(sys.executable)
    around = [word.format(bin=site.home / "bin") for word in REFUSED[message]]
    try:
        said = site.type([*typed[:at], *around, *typed[at:]], cluster.environment()).end()
    finally:
        if "failed" in message:
            cluster.start_controller()
            cluster.clear()  # what an earlier test left it to remember
        site.inventory({name: {} for name in site.nodes})
    assert said.code == 1 and message in said.document["error"]["message"], said.err
    assert marks(cluster) == {}
    cluster.wait_for("idle", ONE)
