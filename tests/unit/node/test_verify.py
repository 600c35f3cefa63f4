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
    assert len(ids) == len(set(ids)) == 7
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
        Check("x.fine", (driver,), lambda driver, profile: passed(driver.version), "node", "fail"),
    )
    bad, good = module.judge(machine(tmp_path, OPEN), Profile())
    assert (bad.id, bad.status, bad.severity) == ("x.broken", "unknown", "fail")
    assert "the check itself failed: RuntimeError: oh no" in bad.message
    assert (good.status, good.found) == ("pass", "580.105.08")


@pytest.mark.parametrize(("context", "status"), [("job", "pass"), ("login", "skip"), ("prolog", "skip")])
def test_what_belongs_to_a_rank_needs_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, context: str, status: str
) -> None:
    module = select(monkeypatch, Check("x.limits", (driver,), lambda driver, profile: passed("fine"), "rank", "fail"))
    (found,) = module.judge(machine(tmp_path, OPEN), Profile(context=context))
    assert (found.status, found.scope) == (status, "rank")
    assert found.message == ("needs the job's context" if status == "skip" else "")


def test_the_module_is_found_by_its_name() -> None:
    from k3env.node import modules

    assert modules.find("verify") is verify_module.Verify
