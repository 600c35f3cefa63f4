"""--probe-dir: nodes look for each other's files in a directory, each a process of its own here."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from k3env.node import across, checks
from k3env.node.across import Told
from k3env.node.facts import probe as facts
from k3env.node.facts.probe import Probe, probe
from k3env.node.machine import Machine
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Paths, Profile


def looked(directories: list[Path], run: str = "run.1", patience_s: float = 3.0) -> dict[str, object]:
    """Let nodes look at the same time, each in the directory that it takes for the shared one."""
    found: dict[str, object] = {}
    facts.PATIENCE_S, facts.LINGER_S = patience_s, 0.5

    def look(name: str, directory: Path) -> None:
        machine = Machine(peers=len(directories), common=run)
        try:
            found[name] = probe(machine, Profile(paths=Paths(probe_dir=str(directory))))
        except Exception as error:
            found[name] = error

    nodes = [threading.Thread(target=look, args=(f"n{at}", place)) for at, place in enumerate(directories, 1)]
    for node in nodes:
        node.start()
    for node in nodes:
        node.join()
    return found


def judged(found: dict[str, object]) -> Finding:
    (rule,) = checks.select(("across.probe",))
    told = {host: Told(across.telling([rule], {probe: value})) for host, value in found.items()}
    return across.judge([rule], told, Profile())[0]


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "PATIENCE_S", 3.0)
    monkeypatch.setattr(facts, "LINGER_S", 0.5)


def test_one_directory_of_all(tmp_path: Path) -> None:
    finding = judged(looked([tmp_path] * 4))
    assert (finding.status, finding.message) == ("pass", "each of 4 nodes saw the others")
    assert list(tmp_path.iterdir()) == [], "nothing is left there"


def test_a_node_with_another_directory_there_is_named(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "shared").mkdir()
    finding = judged(looked([tmp_path / "shared", tmp_path / "shared", tmp_path / "own"]))
    assert finding.status == "fail" and "n3 does not see n[1-2]" in (finding.found or "")
    assert "n1 does not see n3" in (finding.found or "")


def test_files_of_another_run_are_none_of_ours(tmp_path: Path) -> None:
    (tmp_path / ".k3env-probe-run.0-aaaa").touch()
    (tmp_path / ".k3env-probe-run.1-not.a.word").touch()
    assert judged(looked([tmp_path] * 2)).status == "pass"


def test_what_can_not_be_written_to_is_unknown(tmp_path: Path) -> None:
    found = looked([tmp_path / "gone"] * 2)
    assert all(isinstance(item, Unreadable) for item in found.values())
    assert judged(found).status == "unknown"


def test_without_the_option_nothing_is_tried(tmp_path: Path) -> None:
    assert probe(Machine(common="x"), Profile()) is None
    assert judged({"a": None, "b": None}).status == "skip"


def test_without_a_run_or_a_job_nodes_can_not_look_together(tmp_path: Path) -> None:
    found = probe(Machine(), Profile(paths=Paths(probe_dir=str(tmp_path))))
    assert isinstance(found, Unreadable) and "neither a run nor a job" in found.reason


def test_who_could_not_look_is_told() -> None:
    mine = Probe("/s", "aa", ("aa",), 2)
    assert judged({"a": mine, "b": Unreadable("read-only")}).status == "unknown"
