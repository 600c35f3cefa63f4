"""Facts about Slurm where it is real: in steps, beside a drained node, while the controller or munge is silent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from k3env import payload
from k3env.node import checks
from k3env.node.facts import slurm
from k3env.node.facts.inside import Inside, inside
from k3env.protocol import codec
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Gpu, Job, Profile
from tests.rack.bed import wait_until
from tests.slurm.cluster import Cluster

# Reads facts as a node does, with what travels there; a line for each process.
_READ = """
import json, sys
sys.path.insert(0, "/shared/k3env.zip")
from k3env.node.facts import read, slurm
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Profile
slurm.ANSWER_S = float(sys.argv[1])
found = {}
for name in sys.argv[2:]:
    value = read(getattr(slurm, name), Machine(), Profile())
    found[name] = ["unreadable" if isinstance(value, Unreadable) else "value", codec.encode(value)]
sys.stdout.write(json.dumps(found) + "\\n")
"""


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[Cluster]:
    (cluster.site.shared / "k3env.zip").write_bytes(payload.build().data)
    (cluster.site.shared / "read.py").write_text(_READ)
    yield cluster
    cluster.hang_controller(False)


def facts(text: str) -> list[dict[str, Any]]:
    """Return the facts that each process read."""

    def fact(name: str, kind: str, value: Any) -> Any:
        return codec.decode(Unreadable if kind == "unreadable" else codec.hints(getattr(slurm, name))["return"], value)

    rows = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [{name: fact(name, kind, value) for name, (kind, value) in row.items()} for row in rows]


def on_node(cluster: Cluster, *names: str, answer_s: float = 5.0) -> dict[str, Any]:
    """Read facts on the first node, outside of a job."""
    done = cluster.site.node.run("python3", "/shared/read.py", str(answer_s), *names)
    (found,) = facts(done.stdout)
    return found


def step(*options: str) -> list[str]:
    return ["srun", *options, "python3", "/shared/read.py", "5", "shape"]


def status(shape: slurm.Shape, ranks: int) -> str:
    (rule,) = checks.select(("slurm.shape",))
    values = {rule.facts[0]: shape, rule.facts[1]: None}
    return checks.judge(rule, values, Profile(gpu=Gpu(count=4), job=Job(ranks=ranks))).status


def test_the_shape_of_a_step_with_a_task_for_each_gpu(nodes: Cluster) -> None:
    said = nodes.slurm(*step("--chdir=/", "--nodes=2", "--ntasks-per-node=4", "--label")).stdout
    found = facts("\n".join(line.partition(": ")[2] for line in said.splitlines()))
    shapes = [row["shape"] for row in found]
    assert len(shapes) == 8
    assert {(item.nodes, item.tasks, item.per_node) for item in shapes} == {(2, 8, (4, 4))}
    assert {item.node for item in shapes} == {0, 1}
    assert (status(shapes[0], 8), status(shapes[0], 16)) == ("pass", "fail")


def test_a_preflights_own_step_is_not_the_shape_of_the_job(nodes: Cluster) -> None:
    """In a job of four tasks a node, one a node for the preflight; and one step of the batch script itself."""
    own = " ".join(step("--ntasks-per-node=1", "--ntasks=2"))
    whole = " ".join(step("--ntasks-per-node=4", "--ntasks=8"))
    script = f"cd /shared; {own} > own; python3 /shared/read.py 5 shape > batch; {whole} > whole; touch done"
    words = ["sbatch", "--parsable", "--nodes=2", "--ntasks-per-node=4", "--chdir=/", "--output=/dev/null"]
    nodes.slurm(*words, f"--wrap={script}")
    wait_until((nodes.site.shared / "done").exists, 40)
    texts = {name: facts((nodes.site.shared / name).read_text()) for name in ("own", "batch", "whole")}
    assert {name: len(found) for name, found in texts.items()} == {"own": 2, "batch": 1, "whole": 8}
    for name, found in texts.items():
        assert (status(found[0]["shape"], 8), status(found[0]["shape"], 12)) == ("pass", "fail"), (name, found[0])


def test_what_srun_offers(nodes: Cluster) -> None:
    found = on_node(nodes, "tools", "pyxis", "private")
    assert not isinstance(found["tools"].mpi, Unreadable), found["tools"]
    assert found["tools"].expected and "none" in found["tools"].mpi
    kinds = {kind for kind in found["tools"].mpi if not kind.startswith("pmi")}
    assert kinds <= {"none", "cray_shasta", "openmpi"}, "a line of prose is no kind of MPI"
    (rule,) = checks.select(("slurm.tools",))
    has_pmix = any(kind.startswith("pmix") for kind in found["tools"].mpi)
    judged = checks.judge(rule, {slurm.tools: found["tools"], inside: Inside()}, Profile())
    assert judged.status == ("pass" if has_pmix else "fail"), judged
    assert (found["pyxis"].line, found["pyxis"].offered) == (None, False)
    assert (found["private"].configured, found["private"].plugin) == (True, None)


def test_a_node_as_its_controller_sees_it(nodes: Cluster) -> None:
    assert on_node(nodes, "node")["node"].state == "IDLE"
    nodes.drain("gb300-01", "k3env: gpu.count = 3")
    found = on_node(nodes, "node")["node"]
    assert (found.name, found.state, found.reason) == ("gb300-01", "IDLE+DRAIN", "k3env: gpu.count = 3")


def test_a_controller_that_is_silent_costs_a_deadline_and_no_verdict(nodes: Cluster) -> None:
    nodes.hang_controller()
    begun = time.monotonic()
    found = on_node(nodes, "node", answer_s=0.5)["node"]
    assert isinstance(found, Unreadable) and "no answer" in found.reason
    assert time.monotonic() - begun < 20


def test_munge_and_a_munge_that_is_gone(nodes: Cluster) -> None:
    found = on_node(nodes, "munge")["munge"]
    assert (found.installed, found.works) == (True, True)
    assert "MUNGE:" not in str(found), "a credential is shown to nobody"
    nodes.site.node.run("mv", "/run/munge", "/run/munge.away")
    try:
        gone = on_node(nodes, "munge")["munge"]
    finally:
        nodes.site.node.run("mv", "/run/munge.away", "/run/munge")
    assert (gone.works, "munge" in gone.reason) == (False, True), gone


PYXIS = "required /usr/lib/nowhere/spank_pyxis.so runtime_path=/run/pyxis"


def test_a_plugin_stack_that_names_what_is_not_there(nodes: Cluster) -> None:
    nodes.site.node.script("/etc/slurm/plugstack.conf.d/pyxis.conf", "")
    there = nodes.site.node.path("/etc/slurm")
    (there / "plugstack.conf").write_text("include plugstack.conf.d/*.conf\n")
    (there / "plugstack.conf.d/pyxis.conf").write_text(f"# pyxis\n{PYXIS}\n")
    try:
        found = on_node(nodes, "pyxis")["pyxis"]
    finally:
        (there / "plugstack.conf").unlink()
        (there / "plugstack.conf.d/pyxis.conf").unlink()
    assert (found.line, found.missing) == (PYXIS, "/usr/lib/nowhere/spank_pyxis.so")
    (rule,) = checks.select(("system.pyxis",))
    assert checks.judge(rule, {slurm.pyxis: found, inside: Inside()}, Profile()).status == "fail"
