"""command: guards, read-only commands, and what their failure says."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from k3env.errors import TaskFailed
from k3env.node import git
from k3env.node.modules.command import Command
from k3env.node.process import Completed
from k3env.protocol import codec
from k3env.protocol.profile import Profile
from tests.unit.node import ground
from tests.unit.node.ground import Watched, perform


@pytest.fixture
def machine(tmp_path: Path) -> Watched:
    return ground.machine(tmp_path / "home")


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "command needs creates, removes, unless or read_only: true"),
    ({"read_only": False}, "command needs creates, removes, unless or read_only: true"),
    ({"creates": "/a", "unless": ("true",)}, "one guard, found creates and unless"),
    ({"creates": "a"}, "absolute path, or chdir"),
    ({"creates": "/a", "chdir": "b"}, "chdir must be an absolute path"),
    ({"creates": "/a", "timeout_s": 0}, "timeout_s must be above 0"),
    ({"creates": "/a", "argv": ()}, "argv names no program"),
]


@pytest.mark.parametrize(("parameters", "says"), REFUSED, ids=[str(row[0]) for row in REFUSED])
def test_refused_at_load(parameters: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Command(**{"argv": ("true",), **parameters})


def test_creates(tmp_path: Path, machine: Watched) -> None:
    module = Command(("touch", "made here"), creates="made here", chdir=str(tmp_path))
    (change,) = perform(module, machine)
    assert change.what == "touch 'made here'"
    assert change.before == f"{tmp_path}/made here is absent"
    assert machine.started == [("touch", "made here")]
    (tmp_path / "made here").unlink()
    assert len(module.changes(machine)) == 1


def test_why_there_is_nothing_to_do(machine: Watched) -> None:
    true = ("true",)
    assert Command(true, creates="/etc").reasons(machine) == ("/etc is there",)
    assert Command(true, removes="gone", chdir="/srv").reasons(machine) == ("/srv/gone is absent",)
    assert Command(true, unless=("test", "-e", "a b")).reasons(machine) == ("test -e 'a b' ends with 0",)
    assert Command(true, read_only=True).reasons(machine) == ()


def test_creates_that_makes_nothing_fails_with_what_the_command_said(tmp_path: Path, machine: Watched) -> None:
    module = Command(("sh", "-c", "echo cannot do it >&2; true"), creates=str(tmp_path / "never"))
    with pytest.raises(TaskFailed, match="ended with 0 without doing its work") as caught:
        module.apply(machine, module.changes(machine))
    finding = caught.value.finding
    assert finding.id == "task.unproven" and "never is absent" in (finding.found or "")
    assert finding.evidence[0].excerpt == "cannot do it"


def test_removes(tmp_path: Path, machine: Watched) -> None:
    stale = tmp_path / "stale"
    stale.symlink_to(tmp_path / "gone")  # a link to nothing is there, too
    perform(Command(("rm", str(stale)), removes=str(stale)), machine)
    assert not stale.is_symlink()


def test_unless(tmp_path: Path, machine: Watched) -> None:
    module = Command(("sh", "-c", "echo done > f"), unless=("grep", "-q", "done", "f"), chdir=str(tmp_path))
    (change,) = perform(module, machine)
    assert (change.before, change.after) == ("guard ends with 2", "guard ends with 0")


def test_a_guard_that_can_not_be_started_asks_for_the_command(tmp_path: Path, machine: Watched) -> None:
    guard = tmp_path / "guard"
    module = Command(("cp", "/bin/true", str(guard)), unless=(str(guard),))
    assert [change.before for change in perform(module, machine)] == ["guard ends with 127"]


def test_a_guard_without_an_answer_fails(machine: Watched, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k3env.node.modules.command.GUARD_S", 0.2)
    with pytest.raises(TaskFailed, match="gave no answer"):
        Command(("true",), unless=("sleep", "60")).changes(machine)


def test_read_only_runs_each_time_and_changes_nothing(machine: Watched) -> None:
    module = Command(("sh", "-c", "echo seen; echo more"), read_only=True)
    assert module.changes(machine) == ()
    assert module.writes() == ()
    for _ in range(2):
        (finding,) = module.judge(machine, Profile())
        assert (finding.status, finding.message) == ("pass", "seen")
    assert len(machine.started) == 2


def test_what_a_failed_command_says(machine: Watched) -> None:
    module = Command(("sh", "-c", "echo why >&2; exit 3"), read_only=True)
    with pytest.raises(TaskFailed, match="exit code 3") as caught:
        module.judge(machine, Profile())
    (evidence,) = caught.value.finding.evidence
    assert (evidence.exit_code, evidence.excerpt) == (3, "why")


def test_a_failed_command_is_told_by_its_meaning(machine: Watched) -> None:
    said = "ModuleNotFoundError: No module named 'transformers'"
    with pytest.raises(TaskFailed, match="a devel image") as caught:
        Command(("sh", "-c", f'echo "{said}" >&2; exit 1'), read_only=True).judge(machine, Profile())
    finding = caught.value.finding
    assert finding.id == "run.devel_image" and "release-style image" in (finding.remedy or "")
    assert finding.found == f"exit code 1: {said}"


def test_a_failure_that_nobody_knows_is_told_by_its_own_error(machine: Watched) -> None:
    said = "echo 'error: flux is broken' >&2; echo 'gmake: *** [all] Error 2' >&2; exit 3"
    with pytest.raises(TaskFailed) as caught:
        Command(("sh", "-c", said), read_only=True).judge(machine, Profile())
    assert caught.value.finding.id == "command.failed"
    assert caught.value.finding.found == "exit code 3: error: flux is broken"


def test_git_s_own_error_is_told_and_not_what_follows_it(machine: Watched, tmp_path: Path) -> None:
    done = Completed(("git", "fetch"), 128, b"", b"fatal: flux is broken\nerror: external filter 'x' failed 1\n")
    assert git.failure("git failed", done, str(tmp_path)).finding.found == "fatal: flux is broken"


def test_a_command_that_takes_too_long(machine: Watched) -> None:
    begun = time.monotonic()
    with pytest.raises(TaskFailed, match="no end after"):
        Command(("sleep", "60"), creates="/never", timeout_s=0.3).apply(machine, ())
    assert time.monotonic() - begun < 10


def test_no_shell_reads_the_words(tmp_path: Path, machine: Watched) -> None:
    module = Command(("touch", "$(id); *"), creates="$(id); *", chdir=str(tmp_path), environment={"X": "1"})
    perform(module, machine)
    assert [path.name for path in tmp_path.iterdir() if path.name != "home"] == ["$(id); *"]


def test_in_a_container_the_checkout_is_mounted_and_held() -> None:
    module = Command(("true",), creates="/srv/repo/x", checkout="/srv/repo", chdir="/srv/repo/cpp")
    assert module.writes() == ("/srv/repo",)


def test_parameters_travel_as_json() -> None:
    module = Command(("true",), creates="/a", environment={"A": "1"})
    assert codec.decode(Command, codec.encode(module)) == module
