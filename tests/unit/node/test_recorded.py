"""Recordings: what a node answered, answered again; whatever stands in one, nothing raises and nothing turns good."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from k3env.node import checks
from k3env.node.checks import Check
from k3env.node.facts import read
from k3env.node.machine import Machine
from k3env.node.recordings.anonymous import Anonymous
from k3env.node.recordings.recorded import COMMANDS, FILES, MACHINE, Recorded, packed, unpacked
from k3env.node.recordings.recorder import Recorder
from k3env.protocol.finding import PASS, Finding, Unreadable
from k3env.protocol.profile import Paths, Profile

DATA = Path(__file__).parents[2] / "data" / "recordings"
RULES = tuple(rule for rule in checks.select(("*",)) if rule.scope != "across")


def judged(machine: Machine, profile: Profile, rules: tuple[Check, ...] = RULES) -> dict[str, Finding]:
    """Read every fact in this process, and judge."""
    values = {fact: read(fact, machine, profile) for rule in rules for fact in rule.facts}
    for fact, value in values.items():
        assert not (isinstance(value, Unreadable) and "reader itself failed" in value.reason), (fact, value)
    findings = {rule.id: checks.judge(rule, values, profile) for rule in rules}
    for rule in rules:
        finding = findings[rule.id]
        assert "check itself failed" not in finding.message, finding
        if any(isinstance(values[fact], Unreadable) for fact in rule.facts):
            assert finding.status == "unknown", (rule.id, finding)
    return findings


def write(directory: Path, files: dict[str, bytes]) -> Path:
    for name, data in files.items():
        place = directory / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    return directory


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    """Return a recording of this machine."""
    (tmp_path / "raw").mkdir()
    profile = Profile(paths=Paths(cache_base=str(tmp_path / "base")))
    recorder = Recorder(str(tmp_path / "raw"), Machine())
    judged(recorder, profile)
    return write(tmp_path / "recording", unpacked(packed(recorder.finish("salt", profile))))


def test_a_recording_is_judged_as_its_node_was(recording: Path) -> None:
    machine = Recorded(str(recording))
    again, live = judged(machine, machine.profile), judged(Machine(), machine.profile)
    # What is measured anew, and what needs this machine's own library or accounts, may differ.
    moving = {"system.report", "cache.writable_exec", "gpu.nvml.responsive"}
    assert {id: item.status for id, item in again.items() if id not in moving and item.status != live[id].status} == {}


def test_a_device_is_opened_as_it_could_be(tmp_path: Path) -> None:
    (tmp_path / "raw").mkdir()
    recorder = Recorder(str(tmp_path / "raw"), Machine())
    recorder.try_open("/dev/null")
    for path in ("/dev/no-such-device", "/"):
        with pytest.raises(OSError):
            recorder.try_open(path)
    (tmp_path / "recording" / FILES).mkdir(parents=True)
    machine = Recorded(str(write(tmp_path / "recording", recorder.finish("salt", Profile()))))
    machine.try_open("/dev/null")
    for path, error in (("/dev/no-such-device", FileNotFoundError), ("/", IsADirectoryError), ("/dev/zero", OSError)):
        with pytest.raises(error):
            machine.try_open(path)
    machine.wait(3600.0)


def test_nothing_of_this_node_shows_through(recording: Path) -> None:
    machine = Recorded(str(recording))
    assert machine.recorded and machine.simulated
    assert not machine.exists(__file__) and machine.which("python3-of-nowhere") is None
    with pytest.raises(OSError):
        machine.read(__file__)
    assert machine.run(["true"]).exit_code == 127
    text = "".join(path.read_text(errors="replace") for path in recording.rglob("*") if path.is_file())
    assert not re.search(rf"(?<![A-Za-z0-9]){re.escape(os.uname().nodename)}(?![A-Za-z0-9])", text)


def test_a_link_in_a_recording_leads_nowhere_out(tmp_path: Path) -> None:
    (tmp_path / FILES / "etc").mkdir(parents=True)
    (tmp_path / FILES / "etc" / "passwd").symlink_to("/etc/passwd")
    with pytest.raises(FileNotFoundError):
        Recorded(str(tmp_path)).read("/etc/passwd")


@pytest.mark.parametrize("path", ["/etc/x", "../x", "files/../../x", "elsewhere/x"])
def test_a_node_can_not_write_outside_of_its_recording(path: str) -> None:
    with pytest.raises(ValueError, match="it holds"):
        unpacked(packed({path: b""}))


def test_what_is_no_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no recording"):
        Recorded(str(tmp_path))
    (tmp_path / COMMANDS).write_text("{")
    with pytest.raises(ValueError, match="is no JSON"):
        Recorded(str(tmp_path))
    (tmp_path / COMMANDS).write_text("[" * 100_000)
    with pytest.raises(ValueError, match="is no JSON"):
        Recorded(str(tmp_path))
    with pytest.raises(ValueError, match="can't be read: Not a directory"):
        Recorded(str(tmp_path / COMMANDS))


def test_a_command_that_took_too_long_then_takes_too_long_now(tmp_path: Path) -> None:
    rows = [
        {"argv": ["nvidia-smi", "-q"], "stdout": "part", "delay_s": 60},
        {"argv": ["x"], "stdout": "\udcff", "exit_code": 3},
    ]
    (tmp_path / COMMANDS).write_text(json.dumps(rows))
    machine = Recorded(str(tmp_path))
    late, other = machine.run(["nvidia-smi", "-q"], timeout_s=5), machine.run(["x"])
    assert late.timed_out and not late.ok and late.stdout == b"part"
    assert (other.exit_code, other.stdout) == (3, b"\xff")
    assert machine.which("nvidia-smi") == "/usr/bin/nvidia-smi"


@pytest.mark.parametrize(
    "secret",
    [
        "GPU-8d9f2c11-1f2a-4b3c-9d8e-0123456789ab",
        "Serial Number                         : 1652922012345",
        "1652922012345, NVIDIA GB300",
        "10.20.30.40",
        "fe80:0:0:0:1234:5678:9abc:def0",
        "a4:bf:01:02:03:04",
        "0xa088c20300d5f6a8",
        "gb300-rack7-01.cluster.example.org",
        "gb300-rack7-01",
    ],
)
def test_what_tells_of_somebody_is_replaced_by_the_same_everywhere(secret: str) -> None:
    one, other = (Anonymous("run", ["gb300-rack7-01.cluster.example.org"]) for _ in "ab")
    shown = one.text(f"a {secret} b")
    assert secret.rpartition(" ")[2] not in shown or secret not in shown
    assert shown == other.text(f"a {secret} b") != Anonymous("later", ["gb300-rack7-01"]).text(f"a {secret} b")
    assert one.value({secret: [secret, 1, None]}) == {one.text(secret): [one.text(secret), 1, None]}


@pytest.mark.parametrize(
    "text",
    [
        "580.105.08",
        "580.159.04",
        "00000008:06:00.0",
        "00000000-0000-0000-0000-000000000000",
        "127.0.0.1",
        "10.3",
        "0x0000000000000001",
    ],
)
def test_what_matters_stays(text: str) -> None:
    assert Anonymous("run", ["node-1"]).text(f"x {text} y") == f"x {text} y"


# What may stand in the place of what a node says.
NOISE = (
    b"",
    b"\xff\xfe\x00",
    b"N/A",
    b"[N/A]",
    b"[Not Supported]",
    b"ERR!",
    b"[GPU is lost]",
    b"-1",
    b"9" * 400,
    b"\n" * 50,
    b", , , ,",
)


def mutated(source: Path, target: Path, chance: random.Random) -> Path:
    """Copy a recording, and spoil some of what it holds."""
    shutil.copytree(source, target)
    commands = json.loads((target / COMMANDS).read_text()) if (target / COMMANDS).exists() else []
    for command in chance.sample(commands, min(len(commands), chance.randint(0, 3))):
        _spoil_command(command, chance)
    (target / COMMANDS).write_text(json.dumps(commands))
    files = [path for path in (target / FILES).rglob("*") if path.is_file()]
    for path in chance.sample(files, min(len(files), chance.randint(0, 4))):
        data = path.read_bytes()
        path.write_bytes(
            chance.choice([data[: len(data) // 2], chance.choice(NOISE), data.replace(b" ", b""), data * 2])
        )
        if chance.random() < 0.2:
            path.unlink()
    return target


def _spoil_command(command: dict[str, object], chance: random.Random) -> None:
    text = str(command.get("stdout", ""))
    what = chance.randrange(6)
    if what == 0:
        command["stdout"] = text[: len(text) // 2]
    elif what == 1:
        command["stdout"] = chance.choice(NOISE).decode("utf-8", "surrogateescape")
    elif what == 2:
        command["exit_code"] = chance.choice([1, 2, 6, 9, 12, 14, 15, 18, 127, 255, -9, None])
    elif what == 3:
        command["delay_s"] = 3600
    elif what == 4:
        cells = re.split(r"([,:]\s*)", text)
        at = chance.randrange(len(cells))
        cells[at] = chance.choice(NOISE).decode("utf-8", "surrogateescape")
        command["stdout"] = "".join(cells)
    else:
        command["stdout"], command["stderr"] = str(command.get("stderr", "")), text


RECORDINGS = sorted(path for path in DATA.iterdir() if path.is_dir())


@pytest.mark.parametrize("source", RECORDINGS, ids=lambda path: path.name)
@pytest.mark.parametrize("seed", range(12))
def test_whatever_a_node_says_nothing_raises(source: Path, seed: int, tmp_path: Path) -> None:
    chance = random.Random(f"{source.name} {seed}")  # noqa: S311 - the same each time
    machine = Recorded(str(mutated(source, tmp_path / "spoilt", chance)))
    judged(machine, machine.profile)


@pytest.mark.parametrize("source", RECORDINGS, ids=lambda path: path.name)
def test_the_verdicts_of_a_recording_are_known(source: Path) -> None:
    machine = Recorded(str(source))
    expected = json.loads((source / "expected.json").read_text())
    found = {id: item.status for id, item in judged(machine, machine.profile).items()}
    assert {id: found.get(id) for id in expected} == expected


@pytest.mark.parametrize("source", RECORDINGS, ids=lambda path: path.name)
def test_a_node_that_says_nothing_passes_nothing(source: Path, tmp_path: Path) -> None:
    """Every file gone and every command silent: what passed before can't pass now, but for what needs no answer."""
    empty = tmp_path / "empty"
    (empty / FILES).mkdir(parents=True)
    rows = [{**row, "stdout": "", "stderr": "", "exit_code": 0} for row in json.loads((source / COMMANDS).read_text())]
    (empty / COMMANDS).write_text(json.dumps(rows))
    machine = Recorded(str(empty))
    found = judged(machine, machine.profile)
    gpus = {id for id, item in found.items() if id.startswith(("gpu.", "nvlink.")) and item.status == PASS}
    assert gpus == set()


def test_the_command_line_judges_a_recording(tmp_path: Path) -> None:
    source = RECORDINGS[0]
    argv = [sys.executable, "-m", "k3env.cli", "facts", "--recording", str(source), "--checks", "gpu.driver.*"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert "gpu.driver.version" in done.stdout and done.returncode in (0, 2, 3), done.stderr
    assert (tmp_path / MACHINE).exists() is False
