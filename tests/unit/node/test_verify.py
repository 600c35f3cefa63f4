"""verify: selects, collects, judges, changes nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k3env.node import checks
from k3env.node.checks import Check, passed
from k3env.node.facts.gpu import VERSION_FILE, driver
from k3env.node.machine import Machine
from k3env.node.modules import verify as verify_module
from k3env.node.modules.verify import Verify
from k3env.protocol.profile import Profile

OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.105.08  Release Build\n"


def machine(tmp_path: Path, version: str) -> Machine:
    path = tmp_path / VERSION_FILE.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text(version, encoding="utf-8")
    return Machine(overlay=str(tmp_path))


def test_findings_are_complete(tmp_path: Path) -> None:
    found = Verify(("gpu.driver.version", "gpu.driver.loaded")).judge(machine(tmp_path, OPEN), Profile())
    assert [(item.id, item.status, item.severity, item.scope) for item in found] == [
        ("gpu.driver.version", "pass", "fail", "node"),
        ("gpu.driver.loaded", "pass", "fail", "node"),
    ]
    assert all(item.evidence[0].source == VERSION_FILE and item.duration_ms is not None for item in found)


def test_globs(tmp_path: Path) -> None:
    found = Verify(("gpu.driver.*", "cache.*", "gpu.driver.loaded")).judge(machine(tmp_path, OPEN), Profile())
    ids = [item.id for item in found]
    wanted = checks.select(("gpu.driver.*", "cache.*"))
    assert sorted(ids) == sorted(rule.id for rule in wanted if rule.runs_in("job"))
    assert {item.status for item in found if item.id.startswith("cache.")} == {"skip"}


def test_it_changes_and_writes_nothing(tmp_path: Path) -> None:
    module = Verify(("gpu.*",))
    assert module.writes() == ()
    assert module.changes(machine(tmp_path, OPEN)) == ()


@pytest.mark.parametrize(
    ("patterns", "told"),
    [
        (("gpu.driver.verson",), "no check is called 'gpu.driver.verson'; did you mean gpu.driver.version?"),
        (("gpu.*", "nothing.at.all.*"), "no check is called 'nothing.at.all.*'"),
        ((), "checks names none"),
    ],
)
def test_wrong_names_are_told_at_once(patterns: tuple[str, ...], told: str) -> None:
    with pytest.raises(ValueError) as caught:
        Verify(patterns)
    assert told in str(caught.value)


def select(monkeypatch: pytest.MonkeyPatch, *rules: Check) -> Verify:
    monkeypatch.setattr(checks, "select", lambda patterns: rules)
    return Verify(("x.*",))


def test_a_check_that_breaks_does_not_hide_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(driver: Any, profile: Profile) -> Any:
        raise RuntimeError("oh no")

    module = select(
        monkeypatch,
        Check("x.broken", (driver,), broken, "node", "fail"),
        Check("x.odd", (driver,), lambda driver, profile: None, "node", "fail"),  # type: ignore[arg-type,return-value]
        Check("x.fine", (driver,), lambda driver, profile: passed(driver.version), "node", "fail"),
    )
    bad, odd, good = module.judge(machine(tmp_path, OPEN), Profile())
    assert (bad.id, bad.status, bad.severity) == ("x.broken", "unknown", "fail")
    assert "the check itself failed: RuntimeError: oh no" in bad.message
    assert (odd.status, odd.message) == ("unknown", "the check itself failed: it said None")
    assert (good.status, good.found) == ("pass", "580.105.08")


def rule(id: str, scope: str, *contexts: str) -> Check:
    return Check(id, (driver,), lambda driver, profile: passed("fine"), scope, "fail", contexts)


@pytest.mark.parametrize(
    ("context", "at_rank", "told"),
    [
        ("job", True, {"x.node": "pass", "x.rank": "pass", "x.static": "pass", "x.own": "pass"}),
        ("job", False, {"x.node": "pass", "x.rank": "skip", "x.static": "pass", "x.own": "pass"}),
        ("hc", False, {"x.node": "pass"}),
        ("prolog", False, {"x.node": "pass", "x.own": "pass"}),
        ("login", False, {"x.static": "pass"}),
        ("image", False, {"x.static": "pass"}),
    ],
)
def test_the_context_chooses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: str, at_rank: bool, told: dict[str, str]
) -> None:
    rules = [rule(f"x.{scope}", scope) for scope in ("node", "rank", "static", "across")]
    module = select(monkeypatch, *rules, rule("x.own", "static", "prolog", "job"))
    found = module.judge(machine(tmp_path, OPEN), Profile(context=context, at_rank=at_rank))
    assert {item.id: item.status for item in found} == told


def test_what_belongs_to_a_rank_says_how_it_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = select(monkeypatch, rule("x.limits", "rank"))
    (found,) = module.judge(machine(tmp_path, OPEN), Profile())
    assert (found.status, found.scope, found.message) == ("skip", "rank", "needs the job's context")
    assert found.remedy == "run it in the job: srun --ntasks-per-node=1 /opt/k3env/k3env-preflight.pyz"


def test_an_id_that_is_named_is_never_left_out_in_silence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rules = (rule("x.files", "static"), rule("x.node", "node"))
    monkeypatch.setattr(checks, "select", lambda patterns: rules)
    found = Verify(("x.*", "x.files")).judge(machine(tmp_path, OPEN), Profile(context="hc"))
    assert [(item.id, item.status, item.message) for item in found] == [
        ("x.files", "skip", "not part of the context hc"),
        ("x.node", "pass", ""),
    ]


def test_the_module_is_found_by_its_name() -> None:
    from k3env.node import modules

    assert modules.find("verify") is verify_module.Verify


def test_what_may_drain_a_node_is_about_the_node() -> None:
    """An environment and caches are a user's: that they are not there must not take the node from all others."""
    found = {rule.id for rule in checks.select(("*",)) if rule.runs_in("prolog") or rule.runs_in("hc")}
    assert found and {id.partition(".")[0] for id in found} <= {"gpu", "nvlink", "slurm", "system"}
