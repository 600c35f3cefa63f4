"""across.*: NVLink and IMEX domains over nodes, ranks, and memory."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from k3env.node import across, checks
from k3env.node.across import Told
from k3env.node.facts.gpu import Driver, Gpu, Gpus, driver, gpus
from k3env.node.facts.imex import Domain, Peer, domain
from k3env.node.facts.nvlink import Fabric, Membership, fabric
from k3env.node.facts.serve import Serve, serve
from k3env.protocol.finding import Evidence, Finding, Unreadable
from k3env.protocol.profile import Job, Profile

SOURCE = Evidence("a table")
RACK1, RACK2 = "1" * 8 + "-1111-1111-1111-" + "1" * 12, "2" * 8 + "-2222-2222-2222-" + "2" * 12
ZERO = "00000000-0000-0000-0000-000000000000"
GRACE, X86 = Driver("580.105.08", True, SOURCE, "aarch64"), Driver("580.105.08", True, SOURCE, "x86_64")


def tray(memory_mib: int = 284208, capability: tuple[int, int] = (10, 3), count: int = 4) -> Gpus:
    ids = [f"0000000{number}:06:00.0" for number in range(count)]
    seen = tuple(Gpu(id, "NVIDIA GB300", capability, memory_mib) for id in ids)
    return Gpus(seen, tuple(ids), tuple(ids))


def member(cluster: str | None = RACK1, clique: int | None = 32766, state: str = "Completed") -> Fabric:
    gpus = (f"0000000{number}:06:00.0" for number in range(4))
    return Fabric(tuple(Membership(id, state, "Success", clique, cluster) for id in gpus))


def said(id: str, by_host: dict[str, dict[Any, Any]], profile: Profile | None = None) -> Finding:
    (rule,) = checks.select((id,))
    usual = {driver: GRACE, gpus: tray(), fabric: member(), domain: Domain("UP"), serve: None}
    told = {
        host: Told(across.telling([rule], {fact: own.get(fact, usual[fact]) for fact in rule.facts}))
        for host, own in by_host.items()
    }
    return across.judge([rule], told, profile or Profile())[0]


DOMAINS = [
    ("one rack", [{}, {}, {}], "pass", "clique 32766"),
    ("two racks with one clique", [{}, {}, {fabric: member(RACK2)}], "fail", f"n3 has {RACK2}, clique 32766"),
    ("two cliques", [{}, {}, {fabric: member(clique=5)}], "fail", "n3 has"),
    ("an island", [{}, {}, {fabric: member(ZERO)}], "unknown", "ClusterUUID of zeros"),
    ("not told", [{}, {}, {fabric: member(None, None, "In Progress")}], "unknown", "no domain"),
    ("unreadable", [{}, {fabric: Unreadable("hangs")}], "unknown", "n2: hangs"),
    ("no GPUs seen", [{}, {gpus: Gpus(Unreadable("nvml"), (), ())}], "unknown", "nvml"),
    ("HGX", [{driver: X86, fabric: member(ZERO)}] * 2, "skip", "no node's NVLink"),
    ("H200", [{driver: X86, gpus: tray(143771, (9, 0)), fabric: member(ZERO)}] * 2, "skip", "no node's NVLink"),
]


@pytest.mark.parametrize(("name", "nodes", "status", "told"), DOMAINS, ids=[row[0] for row in DOMAINS])
def test_one_nvlink_domain(name: str, nodes: list[dict[Any, Any]], status: str, told: str) -> None:
    finding = said("across.nvlink_domain", {f"n{at}": own for at, own in enumerate(nodes, 1)})
    assert finding.status == status and told in f"{finding.found} {finding.message}", finding


def test_the_way_out_names_segment_and_nodes() -> None:
    finding = said("across.nvlink_domain", {"a1": {}, "a2": {}, "a3": {fabric: member(RACK2)}})
    assert finding.remedy == "allocate nodes of one rack: --segment=3, or leave these out: --exclude=a3"


def peers(*hosts: str) -> dict[Any, Any]:
    return {domain: Domain("UP", tuple(Peer(host, "READY") for host in hosts))}


@pytest.mark.parametrize(
    ("nodes", "status", "told"),
    [
        ([peers("10.0.0.1", "10.0.0.2")] * 2, "pass", "2 nodes in the domain"),
        ([peers("10.0.0.1", "10.0.0.2"), peers("10.0.0.2", "10.0.0.1")], "pass", ""),
        ([peers("10.0.0.1", "10.0.0.2"), peers("10.0.0.2")], "fail", "n2 has 10.0.0.2"),
        ([peers("10.0.0.1"), peers()], "unknown", "n2"),
        ([peers("10.0.0.1"), {domain: Unreadable("no imex")}], "unknown", "no imex"),
        ([{driver: X86}] * 2, "skip", ""),
    ],
)
def test_lists_of_imex(nodes: list[dict[Any, Any]], status: str, told: str) -> None:
    finding = said("across.imex_nodes", {f"n{at}": own for at, own in enumerate(nodes, 1)})
    assert finding.status == status and told in f"{finding.found} {finding.message}", finding


def config(**values: Any) -> dict[Any, Any]:
    return {serve: Serve("/s.yaml", values)}


DEP16 = config(tensor_parallel_size=16, moe_expert_parallel_size=16, enable_attention_dp=True)
TEP16 = config(tensor_parallel_size=16, moe_expert_parallel_size=16)


@pytest.mark.parametrize(
    ("nodes", "own", "in_job", "status", "told"),
    [
        (4, DEP16, True, "pass", "16 GPUs on 4 nodes"),
        (3, DEP16, False, "fail", "12 GPUs on 3 nodes"),
        (5, DEP16, True, "fail", "20 GPUs on 5 nodes"),
        (18, DEP16, False, "pass", "72 GPUs"),
        (4, config(), True, "skip", ""),
        (4, {}, True, "skip", ""),
        (4, {serve: Unreadable("nfs")}, True, "skip", ""),
        (4, {**DEP16, gpus: Unreadable("hangs")}, True, "unknown", "hangs"),
        (4, {**DEP16, gpus: Gpus(Unreadable("nvml"), (), ())}, True, "unknown", "can't be counted"),
    ],
)
def test_as_many_gpus_as_ranks(nodes: int, own: dict[Any, Any], in_job: bool, status: str, told: str) -> None:
    profile = Profile(at_rank=in_job)
    finding = said("across.ranks", {f"n{at:02d}": own for at in range(nodes)}, profile)
    assert finding.status == status and told in f"{finding.found} {finding.message}", finding


def test_the_jobs_own_number_of_ranks_counts_first() -> None:
    profile = dataclasses.replace(Profile(), job=Job(ranks=8))
    assert said("across.ranks", {"a": {}, "b": {}}, profile).status == "pass"


@pytest.mark.parametrize(
    ("memory_mib", "own", "status", "told"),
    [
        (284208, DEP16, "pass", "278 GiB a GPU"),
        (189471, DEP16, "fail", "185 GiB on n[1-2]"),
        (189471, TEP16, "pass", ""),
        (284208, config(tensor_parallel_size=4), "skip", ""),
        (284208, {}, "skip", ""),
        (0, DEP16, "unknown", "not known"),
    ],
)
def test_weights_fit(memory_mib: int, own: dict[Any, Any], status: str, told: str) -> None:
    nodes = {f"n{at}": {**own, gpus: tray(memory_mib)} for at in (1, 2)}
    finding = said("across.memory", nodes)
    assert finding.status == status and told in f"{finding.found} {finding.message}", finding
    if status == "fail":
        assert finding.remedy == "take tep16"


def test_every_check_across_is_declared_as_one() -> None:
    rules = checks.select(("across.*",))
    assert len(rules) >= 13 and {rule.scope for rule in rules} == {"across"} and all(rule.doc for rule in rules)
