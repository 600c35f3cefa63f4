"""across.*: what nodes tell of themselves, and what is said of them together."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from k3env.node import across, checks
from k3env.node.across import Told
from k3env.node.facts.clock import Clock, clock
from k3env.node.facts.gpu import Driver, driver
from k3env.node.facts.identity import Place, checkpoint, repo
from k3env.node.facts.kernel import Kernel, kernel
from k3env.node.machine import Machine
from k3env.node.manifest import Manifest
from k3env.node.modules.verify import Verify
from k3env.protocol import codec
from k3env.protocol.finding import Evidence, Finding, Unreadable
from k3env.protocol.profile import Paths, Profile

SOURCE = Evidence("a table")
NAMES = [f"gb300-{number:02d}" for number in range(1, 17)]
FACTS = {"across.driver": driver, "across.kernel": kernel, "across.checkout": repo, "across.checkpoint": checkpoint}


def said(id: str, fact: Any, by_host: dict[str, Any], lags: dict[str, float] | None = None) -> Finding:
    """Send the values over the wire, and judge them."""
    (rule,) = checks.select((id,))
    lags = lags or {}
    told = {host: Told(across.telling([rule], {fact: value}), lags.get(host)) for host, value in by_host.items()}
    (finding,) = across.judge([rule], told, Profile())
    assert (finding.id, finding.scope) == (id, "across")
    return finding


def drivers(**versions: str) -> dict[str, Any]:
    common: dict[str, Any] = {name: Driver("580.105.08", True, SOURCE) for name in NAMES}
    return {**common, **{name.replace("_", "-"): Driver(text, True, SOURCE) for name, text in versions.items()}}


def test_what_all_have_passes() -> None:
    finding = said("across.driver", driver, drivers())
    assert (finding.status, finding.found, finding.message) == ("pass", "580.105.08", "on 16 nodes")


def test_an_outlier_is_named() -> None:
    finding = said("across.driver", driver, drivers(gb300_07="580.82.07"))
    assert finding.status == "fail"
    assert finding.found == "gb300-07 has 580.82.07, the other 15 have 580.105.08"


def test_outliers_that_agree_are_folded() -> None:
    found = said("across.driver", driver, drivers(gb300_07="580.82.07", gb300_08="580.82.07", gb300_09="575.51")).found
    assert found == "gb300-[07-08] have 580.82.07, gb300-09 has 575.51, the other 13 have 580.105.08"


def test_of_two_halves_neither_is_the_rule() -> None:
    two = {"a1": Driver("580.82.07", True, SOURCE), "a2": Driver("580.105.08", True, SOURCE)}
    assert said("across.driver", driver, two).found == "a2 has 580.105.08, a1 has 580.82.07"


@pytest.mark.parametrize("missing", [Unreadable("the driver hangs"), None])
def test_a_node_that_can_not_say_is_never_passed_over(missing: Any) -> None:
    by_host = {**drivers(), "gb300-03": missing}
    if missing is None:
        (rule,) = checks.select(("across.driver",))
        told = {host: Told(across.telling([rule], {driver: value})) for host, value in by_host.items() if value}
        (finding,) = across.judge([rule], {**told, "gb300-03": Told()}, Profile())
        assert "gb300-03: the node told nothing of it" in finding.message
    else:
        finding = said("across.driver", driver, by_host)
        assert finding.message == "gb300-03: the driver hangs"
    assert finding.status == "unknown"


def test_an_outlier_counts_more_than_a_silent_node() -> None:
    by_host = {**drivers(gb300_07="580.82.07"), "gb300-03": Unreadable("the driver hangs")}
    assert said("across.driver", driver, by_host).status == "fail"


@pytest.mark.parametrize(
    "sent", [None, 5, [], {}, {"value": 5}, {"value": {"new": 1}}, {"unreadable": {}}, {"value": None}]
)
def test_what_another_version_sent_is_unknown(sent: Any) -> None:
    (rule,) = checks.select(("across.driver",))
    good = across.telling([rule], {driver: Driver("580.105.08", True, SOURCE)})
    (finding,) = across.judge([rule], {"a": Told(good), "b": Told({"gpu.driver": sent})}, Profile())
    assert finding.status == "unknown"


def test_a_kernel_with_other_pages_is_a_warning() -> None:
    many = {name: Kernel("6.8.0-64k", "aarch64", 65536, SOURCE) for name in NAMES}
    finding = said("across.kernel", kernel, {**many, "gb300-02": Kernel("6.8.0", "aarch64", 4096, SOURCE)})
    assert (finding.status, finding.found) == (
        "warn",
        "gb300-02 has 6.8.0 (4k pages), the other 15 have 6.8.0-64k (64k pages)",
    )


SHARED = Place("/s/m", "/s/m", "nfs4 nas:/export", "network", 7, content={"config.json": "abc"}, source=SOURCE)


@pytest.mark.parametrize(
    ("name", "other", "status", "told"),
    [
        ("the same", SHARED, "pass", "config.json abc"),
        ("another name of the same server", {"filesystem": "nfs4 nas-ib:/export"}, "pass", ""),
        ("other content", {"content": {"config.json": "xyz"}}, "fail", "b has config.json xyz"),
        ("nothing", {"real": None}, "fail", "b has nothing there"),
        ("its own disk below an unmounted mount point", {"kind": "local"}, "fail", "local filesystem"),
    ],
)
def test_a_path_leads_to_the_same(name: str, other: Any, status: str, told: str) -> None:
    place = other if isinstance(other, Place) else dataclasses.replace(SHARED, **other)
    finding = said("across.checkpoint", checkpoint, {"a": SHARED, "b": place, "c": SHARED})
    assert finding.status == status and told in (finding.found or ""), name


def test_equal_copies_on_the_nodes_own_disks_are_the_same() -> None:
    mine = dataclasses.replace(SHARED, kind="local", filesystem="ext4 /dev/md0")
    finding = said("across.checkpoint", checkpoint, {"a": mine, "b": dataclasses.replace(mine, inode=99)})
    assert finding.status == "pass"


def test_what_no_node_has_is_skipped() -> None:
    assert said("across.checkpoint", checkpoint, {"a": None, "b": None}).status == "skip"
    assert said("across.checkpoint", checkpoint, {"a": None, "b": SHARED}).status == "fail"


@pytest.mark.parametrize(
    ("id", "lags", "status", "told"),
    [
        ("across.clock", {"a": 0.1, "b": 0.12, "c": 0.3}, "pass", "within 0.20 s"),
        ("across.clock", {"a": 0.1, "b": 3600.0, "c": 0.3}, "fail", "b is 3599.7 s behind"),
        ("across.clock", {"a": 0.1, "b": -3600.0, "c": 0.3}, "fail", "b is 3600.1 s ahead"),
        ("across.clock_drift", {"a": 0.1, "b": 3.0, "c": 0.3}, "warn", "b is 2.7 s behind"),
        ("across.clock", {"a": 0.0, "b": 61.0, "c": 0.3}, "fail", "b is 60.7 s behind"),
        ("across.clock", {"a": -40.0, "b": 0.0, "c": 40.0}, "fail", "a is 40.0 s ahead, c is 40.0 s behind"),
        ("across.clock", {"a": -30.0, "b": 0.0, "c": 30.0}, "pass", "within 60.00 s"),
        ("across.clock_drift", {"a": 0.0, "b": 1.4, "c": 0.3}, "warn", "b is 1.1 s behind"),
        ("across.clock", {}, "skip", ""),
    ],
)
def test_clocks(id: str, lags: dict[str, float], status: str, told: str) -> None:
    finding = said(id, clock, {name: Clock(True, source=SOURCE) for name in "abc"}, lags)
    assert finding.status == status and told in (finding.found or "")


def test_a_node_tells_what_it_read(tmp_path: Path) -> None:
    """The facts of the real machine cross the wire and come back as they were."""
    machine = Machine()
    told: dict[str, Any] = {}
    machine.on_facts(told.update)
    (tmp_path / "config.json").write_text("{}")
    profile = Profile(paths=Paths(checkpoint=str(tmp_path)))
    module = Verify(("across.checkpoint", "across.kernel"))
    assert module.judge(machine, profile) == (), "a node does not judge across nodes"
    assert set(told) == {"identity.checkpoint", "kernel.kernel"}
    findings = across.judge(module.across(profile), {"a": Told(told), "b": Told(told)}, profile)
    assert [item.status for item in findings] == ["pass", "pass"]
    assert "config.json 44136fa355b3678a" in (findings[0].found or "")


def test_alone_a_node_tells_nothing() -> None:
    assert Verify(("across.kernel",)).judge(Machine(), Profile()) == ()


OWN = Place(
    "/d/r", "/d/r", "ext4 /dev/sda", "local", 7, content={"commit": "abc", "build": "1"}, stamp="x", source=SOURCE
)
NFS = dataclasses.replace(OWN, filesystem="nfs4 nas:/export", kind="network")


@pytest.mark.parametrize(
    ("one", "other", "status"),
    [
        (OWN, {"stamp": "y"}, "pass"),
        (OWN, {"content": {"commit": "abc", "build": "2"}}, "fail"),
        (OWN, {"content": {"commit": "xyz", "build": "1"}}, "fail"),
        (NFS, {}, "pass"),
        (NFS, {"stamp": "y"}, "fail"),
        (NFS, {"stamp": "y", "path": "/d/of-b"}, "pass"),
    ],
    ids=[
        "a build of its own",
        "of other things",
        "another commit",
        "one shared",
        "an old view of it",
        "own, on a server",
    ],
)
def test_checkouts_are_alike_by_what_was_built_and_a_shared_one_is_one(
    one: Place, other: dict[str, Any], status: str
) -> None:
    finding = said("across.checkout", repo, {"a": one, "b": dataclasses.replace(one, **other), "c": one})
    assert finding.status == status, finding


def test_two_builds_of_the_same_are_alike_and_of_another_are_not(tmp_path: Path) -> None:
    told = []
    built = Manifest("c" * 40, "103-real", "103-real", versions={"torch": "2.11"}, python="3.12")
    compiled: tuple[dict[str, Any], ...] = ({"made": "now", "artefacts": {"a": (1, 2)}}, {"artefacts": {"a": (3, 4)}})
    for number, differs in enumerate((*compiled, {"arch": "100-real"})):
        place = tmp_path / str(number) / ".k3env" / "manifest.json"
        place.parent.mkdir(parents=True)
        place.write_text(json.dumps(codec.encode(dataclasses.replace(built, **differs))))
        told.append(repo(Machine(), Profile(paths=Paths(repo=str(tmp_path / str(number))))))
    same, again, other = (item.content for item in told if item is not None)
    assert same == again != other and "100-real" in other.values()
    assert len({item.stamp for item in told if item is not None}) == 3
