"""cache.*: the table, and the facts on real directories."""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from k3env.node import checks
from k3env.node.facts import Facts, cache
from k3env.node.facts.cache import (
    Component,
    Probe,
    cache_base,
    cache_filesystem,
    cache_probe,
    cache_room,
    probe,
    unsafe,
)
from k3env.node.machine import Machine
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Paths, Profile
from tests.unit.node.checktable import judged, mismatches, rows
from tests.unit.node.namespaces import noexec

ROWS = rows("cache.yaml")
OTHER = 65534


def shaped(value: dict[str, Any]) -> dict[str, Any]:
    """Return a row's fact with its short forms written out: a mount, and a mode as octal text."""
    value = dict(value)
    if "components" in value:
        value["components"] = [{**item, "mode": int(item["mode"], 8)} for item in value["components"]]
    if "mount" in value:
        fstype, point, source = value.pop("mount")
        mount = {"point": point, "fstype": fstype, "source": source}
        value["locality"] = {"path": value["path"], "mount": mount, "data": mount}
    return value


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_table(row: dict[str, Any]) -> None:
    finding = judged(row, shaped)
    assert mismatches(finding, row["expect"]) == []
    if finding.status == "fail":
        assert finding.expected and finding.found and finding.remedy


def test_every_check_has_rows_that_pass_are_skipped_and_unknown() -> None:
    for rule in (rule for rule in checks.select(("cache.*",)) if rule.scope == "node"):
        seen = {row["expect"]["status"] for row in ROWS if row["check"] == rule.id}
        assert {"pass", "skip", "unknown"} <= seen, rule.id
        assert seen & {"fail", "warn"}, rule.id


def profile(base: object, **rest: Any) -> Profile:
    return Profile(paths=Paths(cache_base=str(base)), **rest)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    made = tmp_path / "base"
    made.mkdir(mode=0o700)
    return made


def test_all_facts_of_a_good_base(base: Path) -> None:
    rules = checks.select(("cache.*",))
    wanted = profile(base)
    values = Facts(Machine(), wanted).collect(tuple(fact for rule in rules for fact in rule.facts))
    findings = {rule.id: checks.judge(rule, values, wanted) for rule in rules}
    assert findings["cache.owner"].status == "pass", findings["cache.owner"]
    assert findings["cache.writable_exec"].status == "pass", findings["cache.writable_exec"]
    assert findings["cache.locality"].status in ("pass", "warn")
    assert findings["cache.space"].status in ("pass", "warn")
    assert list(base.iterdir()) == [], "a probe leaves nothing behind"


def test_no_base_is_no_question() -> None:
    for fact in (cache_base, cache_filesystem, cache_probe, cache_room):
        found = fact(Machine(), Profile())
        assert not isinstance(found, Unreadable)
        assert found.path is None


def test_the_way_to_the_base_link_by_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    found = cache_base(Machine(), profile(tmp_path / "link" / "base"))
    assert found.components[-1].path == str(tmp_path / "link")
    assert found.components[-1].kind == "link"
    assert found.itself is None


def test_a_path_with_a_slash_at_its_end_is_the_same(base: Path) -> None:
    assert cache_base(Machine(), profile(f"{base}/")).itself is not None


def test_the_base_itself(base: Path) -> None:
    found = cache_base(Machine(), profile(base))
    assert found.itself == Component(str(base), "directory", os.geteuid(), 0o700)
    assert found.wanted_uid == os.geteuid()
    assert found.components[0].path == "/"


def test_k3_user_is_who_must_own_it(base: Path) -> None:
    assert cache_base(Machine(), profile(base, user="root")).wanted_uid == 0
    (found,) = Facts(Machine(), profile(base, user="nobody-knows-me")).collect((cache_base,)).values()
    assert isinstance(found, Unreadable)
    assert "user nobody-knows-me is unknown on this node" in found.reason


def test_a_simulated_node_says_how_much_room_it_has(base: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "machine.json").write_text('{"free_bytes": {"/": 7}, "free_inodes": {"/": 5}}', encoding="utf-8")
    found = cache_room(Machine(overlay=str(overlay)), profile(base))
    assert (found.exists, found.free_bytes, found.free_inodes) == (True, 7, 5)


# The probe


def test_the_probe_leaves_what_is_there_alone(base: Path) -> None:
    (base / "triton").mkdir()
    assert probe(str(base)).failed is None
    assert [path.name for path in base.iterdir()] == ["triton"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_base_that_may_not_be_written_to(base: Path) -> None:
    base.chmod(0o500)
    found = probe(str(base))
    assert (found.failed, found.reason) == ("create", "Permission denied")


def test_a_step_that_fails_is_named_and_cleaned_up(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_locks(descriptor: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    found = probe(str(base))
    assert found.failed == "lock"
    assert found.reason == "Function not implemented: this filesystem can't do it"
    assert list(base.iterdir()) == []


def test_a_noexec_mount(base: Path) -> None:
    root = Path(__file__).parents[3]
    code = f"from k3env.node.facts.cache import probe; print(probe({str(base)!r}))"
    done = noexec(str(base), ["env", f"PYTHONPATH={root}", sys.executable, "-c", code])
    assert "failed='map', reason='Operation not permitted'" in done.stdout, done.stderr


def test_a_base_that_is_missing(tmp_path: Path) -> None:
    assert cache_probe(Machine(), profile(tmp_path / "none")) == Probe(str(tmp_path / "none"))
    assert not cache_room(Machine(), profile(tmp_path / "none")).exists
    assert not cache_filesystem(Machine(), profile(tmp_path / "none")).exists


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_nobody_tries_somebody_elses_base(base: Path) -> None:
    os.chown(base, OTHER, OTHER)
    found = cache_probe(Machine(), profile(base))
    assert isinstance(found, Unreadable)
    assert f"belongs to uid {OTHER}" in found.reason


def test_a_link_is_not_followed_to_be_tried(base: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(base)
    (found,) = Facts(Machine(), profile(tmp_path / "link")).collect((cache_probe,)).values()
    assert isinstance(found, Unreadable)


# Whom the way to the base belongs to


def way(*items: tuple[str, int, int]) -> tuple[Component, ...]:
    return tuple(Component(path, "directory", uid, mode) for path, uid, mode in items)


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (way(("/", 0, 0o755), ("/tmp", 0, 0o1777), ("/tmp/k3", 7, 0o700)), None),
        (way(("/", 0, 0o755), ("/tmp", 0, 0o1777), ("/tmp/root", 0, 0o755)), None),
        (way(("/", 0, 0o755), ("/tmp", 0, 0o1777), ("/tmp/k3", 8, 0o700)), "/tmp/k3 belongs to uid 8"),
        (way(("/", 0, 0o755), ("/x", 0, 0o777), ("/x/k3", 7, 0o700)), "/x has mode 0777, without the sticky bit"),
        (way(("/", 0, 0o755), ("/home", 0, 0o755), ("/home/u", 8, 0o755), ("/home/u/k3", 7, 0o700)), None),
        (way(("/", 0, 0o755), ("/x", 0, 0o775), ("/x/k3", 7, 0o700)), None),  # a group's, left to its managers
        (way(("/", 0, 0o755)), None),
    ],
)
def test_unsafe(found: tuple[Component, ...], told: str | None) -> None:
    said = unsafe(found, 7)
    assert said is None if told is None else told in (said or "")


def test_mode_is_for_the_owner_alone() -> None:
    assert cache.MODE & 0o077 == 0
