"""k3env-preflight.pyz as its users start it: contexts, exit codes, users, places, and what must never stop a job."""

from __future__ import annotations

import ast
import json
import os
import pwd
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3env.node import __main__ as launcher
from k3env.protocol.context import CONTEXTS
from tests.unit.node.planted import CHECKS, place, plant, run
from tests.unit.node.test_floor import interpreters

IS_ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not IS_ROOT, reason="only root becomes somebody else")


@pytest.fixture(scope="module")
def where() -> Iterator[Path]:
    with place() as directory:
        yield directory


def test_the_launcher_parses_on_old_pythons_and_knows_the_table() -> None:
    ast.parse(Path(launcher.__file__).read_text(encoding="utf-8"), feature_version=(3, 6))
    assert {name: item.seconds for name, item in CONTEXTS.items() if item.fail_open} == launcher.OPEN_S
    assert tuple(CONTEXTS) == launcher.CONTEXTS
    assert set(launcher.SCRIPTS.values()) <= set(CONTEXTS)


@pytest.mark.parametrize(
    ("argv", "script", "context"),
    [
        ("k3env-preflight.pyz", "", "job"),
        ("/opt/k3env/k3env-prolog", "", "prolog"),
        ("k3env-epilog", "", "prolog"),
        ("k3env-hc.pyz", "prolog_slurmd", "hc"),
        ("k3env-preflight.pyz", "prolog_slurmd", "prolog"),
        ("k3env-preflight.pyz", "epilog_slurmd", "prolog"),
        ("k3env-preflight.pyz", "prolog_slurmctld", "prolog"),
        ("k3env-preflight.pyz", "prolog_task", "job"),
        ("k3env-preflight.pyz", "prolog_srun", "login"),
        ("k3env-preflight.pyz", "of_tomorrow", "job"),
        ("k3env-hc --context job", "prolog_slurmd", "job"),
        ("k3env-hc --context=login", "prolog_slurmd", "login"),
        ("k3env-preflight.pyz --context prolgo", "prolog_slurmd", "prolog"),
        ("k3env-preflight.pyz --context", "prolog_slurmd", "prolog"),
    ],
)
def test_the_context_is_asked_for_or_seen(argv: str, script: str, context: str) -> None:
    assert launcher.context(argv.split(), {"SLURM_SCRIPT_CONTEXT": script}) == context


@pytest.mark.parametrize(
    ("words", "ids", "code", "told"),
    [
        ("--context job", "fine rank", 0, "fit for Kimi K3: 2 passed"),
        ("--context job", "fine", 0, "nothing found against it: 1 passed\nnot checked: what belongs to a rank"),
        ("--context job", "fine bad", 2, "not fit for Kimi K3: 1 failed, 1 passed"),
        ("--context job", "bad_rank", 2, "not fit for Kimi K3"),
        ("--context job", "fine bad_warn rank", 0, "fit for Kimi K3: 1 warned, 2 passed"),
        ("--context job --fail-on warn", "fine bad_warn rank", 2, "WARN planted.bad_warn"),
        ("--context job", "dark rank", 3, "not known to be fit for Kimi K3"),
        ("--context job", "raises", 3, "the check itself failed: KeyError: 'x'"),
        ("--context prolog", "fine", 0, "nothing found against it: 1 passed"),
        ("--context prolog", "fine bad", 2, "not fit"),
        ("--context prolog", "bad_rank", 0, "not part of the context"),
        ("--context prolog", "bad_warn", 0, "WARN planted.bad_warn"),
        ("--context prolog --fail-on warn", "bad_warn", 2, "WARN planted.bad_warn"),
        ("--context prolog", "dark raises exits", 0, "not known to be fit"),
        ("--context job", "exits", 3, "the check itself failed: SystemExit: 2"),
        ("--context hc", "dark bad", 2, "not fit"),
        ("--context hc --output nagios", "fine", 0, "PREFLIGHT OK - 1 passed | pass=1"),
        ("--context hc --output nagios", "fine bad_warn", 1, "PREFLIGHT WARNING - planted.bad_warn"),
        ("--context hc --output nagios", "fine bad", 2, "PREFLIGHT CRITICAL"),
        ("--context hc --output nagios", "dark", 3, "PREFLIGHT UNKNOWN"),
        ("--context prolog --output nagios", "dark", 0, "PREFLIGHT UNKNOWN"),
    ],
)
def test_exit_codes(where: Path, words: str, ids: str, code: int, told: str) -> None:
    done = run(plant(where, *ids.split()), *words.split(), "--verbose")
    assert done.returncode == code, done.stdout + done.stderr
    assert told in done.stdout


@pytest.mark.parametrize(
    ("id", "told"),
    [
        ("vanishes", "the reader ended without an answer"),
        ("kills", "the reader ended without an answer"),
        ("loops", "no answer after 4."),
    ],
)
def test_a_defect_in_a_check_stops_nothing(where: Path, id: str, told: str) -> None:
    done = run(plant(where, id, "bad"), "--context", "prolog")
    assert (done.returncode, done.stderr) == (0, "")
    for name in (id, "bad"):
        assert f"UNKNOWN planted.{name}\n  the checks of this file were not judged: {told}" in done.stdout


def test_a_defect_in_a_file_of_checks_hides_nothing_of_the_others(where: Path) -> None:
    path = plant(where, "vanishes", other="bad")
    for context in ("prolog", "job"):
        done = run(path, "--context", context)
        assert done.returncode == 2 and "UNKNOWN planted.vanishes" in done.stdout and "FAIL other.bad" in done.stdout


def test_a_defect_of_ours_stops_nothing(where: Path) -> None:
    for code, told in (
        ("import os; os._exit(2)", "ended without a verdict, nothing was stopped"),
        ("import os; os.kill(os.getpid(), 9)", "ended without a verdict, nothing was stopped"),
        ("raise SystemExit(2)", "a defect, nothing was stopped: SystemExit: 2"),
        ("while True: pass", "no verdict after 5 s, nothing was stopped"),
    ):
        path = plant(where, "bad", replaced={"k3env/node/preflight/telling.py": code})
        done = run(path, "--context", "prolog")
        assert (done.returncode, done.stderr) == (0, f"k3env-preflight: {told}\n"), code


@pytest.mark.parametrize(("ids", "code"), [("fine", 0), ("bad", 2)])
@pytest.mark.parametrize("context", ["prolog", "hc", "job"])
@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (1, 2), (0, 1, 2)], ids=str)
def test_closed_streams_change_no_verdict(
    where: Path, context: str, closed: tuple[int, ...], ids: str, code: int
) -> None:
    path = plant(where, ids, "rank")
    words = [f"{number}>&-" for number in closed]
    done = subprocess.run(
        ["/bin/sh", "-c", f"exec {path} --context {context} {' '.join(words)}"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (code, "")


@pytest.mark.parametrize("words", ["", "--output json", "--output jsonl", "--output-file /dev/null/none"])
@pytest.mark.parametrize(
    ("ids", "context", "code"), [("bad", "prolog", 2), ("bad", "hc", 2), ("fine", "prolog", 0), ("fine", "job", 1)]
)
def test_what_cannot_be_told_was_found_all_the_same(where: Path, words: str, ids: str, context: str, code: int) -> None:
    with open("/dev/full", "w") as full:
        argv = [str(plant(where, ids, "rank")), "--context", context, *words.split()]
        done = subprocess.run(argv, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == code and "Traceback" not in done.stderr
    assert "could not be told" in done.stderr or context == "job"


@pytest.mark.parametrize("most", range(4, 12))
def test_a_lack_of_descriptors_stops_nothing(where: Path, most: int) -> None:
    script = f"ulimit -n {most}; exec {plant(where, 'fine')} --context prolog"
    done = subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True)
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr


def test_a_child_that_cannot_be_started_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(launcher.os, "fork", refused)
    monkeypatch.setattr(launcher, "unsafe", lambda path: None)
    monkeypatch.setattr(sys, "argv", ["k3env-prolog"])
    assert launcher.main() == 0
    assert "nothing was stopped: BlockingIOError" in capsys.readouterr().err


@pytest.mark.parametrize("node", ["", "0", "3", "x", "-1"])
def test_one_node_of_a_job_looks_deep(where: Path, node: str) -> None:
    code = CHECKS + "\n@dataclass(frozen=True)\nclass At:\n    number: int\ndef at(machine) -> At:\n"
    code += "    return At(machine.number)\nrule('fine', lambda at, profile: passed(f'at {at.number}'), at)\n"
    done = run(plant(where, "fine", code=code), "-v", SLURM_NODEID=node)
    assert f"at {node if node == '3' else 0}\n" in done.stdout, done.stdout


@pytest.mark.parametrize("context", ["prolog", "hc", "job"])
@pytest.mark.parametrize("words", ["--list", "--explain planted.fine", "--help", "--version"])
def test_what_is_asked_of_the_file_itself_is_printed(where: Path, context: str, words: str) -> None:
    done = run(plant(where, "fine"), *words.split(), "--context", context)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.strip()


def test_what_hangs_costs_the_time_of_the_context_once(where: Path) -> None:
    begun = time.monotonic()
    done = run(plant(where, "hang", "fine", "bad"), "--context", "prolog", "-v")
    took = time.monotonic() - begun
    assert done.returncode == 2, done.stderr
    assert "UNKNOWN planted.hang\n  no answer after 4." in done.stdout and "PASS planted.fine" in done.stdout
    assert took < 60
    left = subprocess.run(["pgrep", "-f", "^sleep 98$"], capture_output=True, text=True).stdout
    assert not left, f"left behind: {left}"


@pytest.mark.parametrize(
    ("context", "code"), [("prolog", 0), ("hc", 0), ("job", 1), ("login", 1)], ids=lambda value: str(value)
)
@pytest.mark.parametrize(
    "words",
    [
        "--outputt json",
        "--output yaml",
        "--fail-on",
        "--drain=yes",
        "--output-file /nowhere/at/all",
        "stray",
        "--list=x",
    ],
)
def test_a_wrong_command_line_stops_nothing_where_we_fail_open(
    where: Path, context: str, code: int, words: str
) -> None:
    done = run(plant(where, "fine", "rank"), "--context", context, *words.split())
    if context == "login" and "file" in words:
        return
    assert done.returncode == code, done.stdout + done.stderr
    assert "expected:" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.parametrize(("context", "code"), [("prolog", 0), ("hc", 0), ("job", 1), ("image", 1)])
@pytest.mark.parametrize("damage", ["cut", "code", "plan"])
def test_a_damaged_file_stops_nothing_where_we_fail_open(where: Path, context: str, code: int, damage: str) -> None:
    path = plant(where, "fine")
    data = path.read_bytes()
    if damage == "code":
        path.write_bytes(_without(data, where, "k3env/node/preflight/entry.py"))
    elif damage == "plan":
        path.write_bytes(_without(data, where, "k3env-bundle.json"))
    elif damage == "cut":
        # Of a file without its end Python itself says that it is none; nothing of ours has run by then.
        path.write_bytes(data[: len(data) // 2])
        assert run(path, "--context", context).returncode != 0
        return
    path.chmod(0o755)
    done = run(path, "--context", context)
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and done.stderr.strip()


@pytest.mark.parametrize(("context", "code"), [("prolog", 0), ("hc", 0), ("job", 3)])
def test_checks_that_cannot_be_imported_are_unknown(where: Path, context: str, code: int) -> None:
    path = plant(where, "fine", "bad", code="import nothing_of_that_name\n" + CHECKS)
    done = run(path, "--context", context)
    assert done.returncode == code and done.stderr == ""
    assert "not judged: ModuleNotFoundError: No module named" in done.stdout


def _without(data: bytes, where: Path, name: str) -> bytes:
    """Return a bundle that lost a file, in each of its forms."""
    path = where / "lost.zip"
    path.write_bytes(data)
    with zipfile.ZipFile(path) as archive:
        kept = {item: archive.read(item) for item in archive.namelist() if name not in item}
    with zipfile.ZipFile(path, "w") as archive:
        for item, content in kept.items():
            archive.writestr(item, content)
    return data[: data.index(b"\n") + 1] + path.read_bytes()


@pytest.mark.parametrize("version", ["3.6", "3.9", "3.11", "3.13"])
def test_other_pythons(where: Path, version: str) -> None:
    found = interpreters(version)
    if not found:
        pytest.skip(f"no Python {version} on this machine")
    path = plant(where, "fine", "bad", "rank")
    for context, code in (("prolog", 2), ("job", 2), ("hc", 2)):
        done = run(path, "--context", context, python=found[0])
        if version == "3.6":
            assert done.returncode == (1 if context == "job" else 0)
            assert done.stderr.endswith("is 3.6\n") and done.stderr.startswith("k3env-preflight: Python 3.9 or later")
        else:
            assert (done.returncode, done.stderr) == (code, ""), done.stdout + done.stderr


def test_the_time_of_a_python_that_it_was_not_compiled_for_is_all_that_differs(where: Path) -> None:
    with zipfile.ZipFile(plant(where, "fine")) as archive:
        names = archive.namelist()
    assert any(name.startswith("compiled-") and name.endswith("/k3env/node/preflight/entry.pyc") for name in names)
    assert "k3env/node/preflight/entry.py" in names and "packaging/version.py" in names


@as_root
@pytest.mark.parametrize(
    ("mode", "told"), [(0o777, "can be written by others (mode 0777)"), (0o775, "(mode 0775)"), (0o1777, "(mode 1777)")]
)
def test_root_runs_no_file_from_a_place_of_others(mode: int, told: str) -> None:
    with place() as top:
        inner = top / "inner"
        inner.mkdir()
        path = plant(inner, "fine", "bad")
        inner.chmod(mode)
        for context, code in (("prolog", 0), ("hc", 0), ("job", 1)):
            done = run(path, "--context", context)
            assert (done.returncode, done.stdout) == (code, "") and told in done.stderr
        assert run(path, "--context", "prolog", user="nobody").returncode == 2


@as_root
def test_root_runs_no_file_of_others(where: Path) -> None:
    path = plant(where, "fine", "bad", name="owned.pyz")
    link = where / "k3env-prolog"
    link.symlink_to(path)
    assert run(link).returncode == 2
    os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
    for called in (path, link):
        done = run(called, "--context", "prolog")
        assert done.returncode == 0 and f"{path} belongs to uid" in done.stderr


@as_root
@pytest.mark.parametrize(
    ("words", "environment", "who"),
    [
        ("--context prolog", {"SLURM_JOB_UID": "1", "SLURM_JOB_USER": "daemon"}, "1 /usr/sbin"),
        ("--context job", {"SLURM_JOB_UID": "1"}, "1 /usr/sbin"),
        ("--context prolog", {"SLURM_JOB_UID": "54321", "SLURM_JOB_USER": "ghost"}, "54321 /"),
        ("--context prolog", {"SLURM_JOB_UID": "0"}, "0 /root"),
        ("--context hc", {}, "65534 /nonexistent"),
        ("--context job", {}, "0 /root"),
    ],
)
def test_root_reads_as_the_user_of_the_job(where: Path, words: str, environment: dict[str, str], who: str) -> None:
    done = run(plant(where, "who", "root", "context"), *words.split(), "-v", HOME="/root", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"found:    {who}\n" in done.stdout
    assert "PASS planted.root\n  found:    0\n" in done.stdout


@as_root
def test_nobody_runs_it_too(where: Path) -> None:
    done = run(plant(where, "who", "rank"), "--verbose", user="nobody")
    assert done.returncode == 0 and "fit for Kimi K3" in done.stdout, done.stderr


def test_the_user_stands_in_the_plan(where: Path) -> None:
    profile = {"paths": {"cache_base": "/var/tmp/k3env-cache-@connecting_user@"}}
    done = run(plant(where, "base", profile=profile), "-v", *(["--context", "prolog"]))
    me = pwd.getpwuid(os.geteuid()).pw_name
    assert f"found:    /var/tmp/k3env-cache-{me}\n" in done.stdout


def test_it_does_not_run_beside_the_controller(where: Path) -> None:
    done = run(plant(where, "bad"), SLURM_SCRIPT_CONTEXT="prolog_slurmctld")
    assert done.returncode == 0 and "prolog_slurmctld runs beside slurmctld, which is no node" in done.stderr


@pytest.mark.parametrize(("ids", "code"), [("fine", 0), ("dark", 0), ("bad_rank", 2)])
def test_taskprolog_tells_its_user_and_ends_a_task_only_for_a_failure(where: Path, ids: str, code: int) -> None:
    done = run(plant(where, *ids.split()), SLURM_SCRIPT_CONTEXT="prolog_task")
    assert done.returncode == code
    assert all(line.startswith("print ") for line in done.stdout.splitlines()) and done.stdout


def test_the_file_is_replaced_at_once(where: Path, tmp_path: Path) -> None:
    target = tmp_path / "k3env.prom"
    target.write_text("old")
    done = run(plant(where, "fine"), "--output", "prometheus", "--output-file", str(target))
    assert (done.returncode, done.stdout) == (0, "")
    assert target.read_text().startswith("# HELP k3env_check_status") and os.listdir(tmp_path) == ["k3env.prom"]


def test_lines_of_all_nodes_are_reduced(where: Path) -> None:
    path = plant(where, "fine", "rank")
    lines = [run(path, "--output", "jsonl", SLURMD_NODENAME=name).stdout for name in ("a1", "a2")]
    assert [json.loads(line)["schema"] for line in lines[0].splitlines()] == ["k3env.event/1"] * 4 + ["k3env.run/1"]
    done = subprocess.run(
        [str(path), "reduce"],
        input="".join(lines),
        capture_output=True,
        text=True,
        env={"SLURM_JOB_NODELIST": "a[1-3]"},
    )
    assert done.returncode == 2 and "nothing from a3" in done.stdout, done.stdout + done.stderr


LISTENER = """
import os, socket, subprocess, sys
heard = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
heard.bind("/dev/log")
heard.settimeout(30)
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode
heard.setblocking(False)
print(code)
try:
    while True:
        print(heard.recv(8192).decode())
except BlockingIOError:
    pass
"""


@as_root
@pytest.mark.parametrize(
    ("ids", "words", "code", "told"),
    [
        ("bad", "", 2, "FAIL planted.bad: expected whole, found broken; mend it"),
        ("bad_rank bad", "", 2, "FAIL planted.bad"),
        ("dark", "", 0, "UNKNOWN planted.dark: can't tell"),
        ("vanishes", "", 0, "UNKNOWN planted.vanishes: the checks of this file were not judged"),
        ("fine", "--outptu x", 0, "k3env-preflight has no option --outptu; nothing was checked"),
        ("floods", "", 2, "FAIL planted.floods: expected x, found \\x1b[31m<&"),
    ],
)
def test_what_an_exit_code_does_not_tell_stands_in_syslog(
    where: Path, ids: str, words: str, code: int, told: str
) -> None:
    path = plant(where, *ids.split())
    # A /dev of its own, where nobody else listens.
    dev = "mount -t tmpfs none /dev && mknod -m 666 /dev/null c 1 3 && mknod -m 666 /dev/urandom c 1 9"
    argv = ["unshare", "-m", "sh", "-c", f'{dev} && exec "$@"', "sh", sys.executable, "-c", LISTENER]
    done = subprocess.run([*argv, str(path), "--context", "prolog", *words.split()], capture_output=True, text=True)
    exit_code, _, heard = done.stdout.partition("\n")
    assert exit_code == str(code), done.stdout + done.stderr
    assert "k3env-preflight[" in heard and told in heard, heard


def test_ctrl_c_and_sigterm_leave_no_reader_behind(where: Path) -> None:
    path = plant(where, "hang")
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [str(path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env={"PATH": os.defpath}
        )
        ends = time.monotonic() + 30
        while not _sleeps(process.pid):
            assert time.monotonic() < ends and process.poll() is None
            time.sleep(0.05)
        (sleeper,) = _sleeps(process.pid)
        process.send_signal(number)
        said = process.communicate(timeout=60)
        assert process.returncode == 130 and b"Traceback" not in said[1]
        while os.path.exists(f"/proc/{sleeper}"):
            assert time.monotonic() < ends
            time.sleep(0.05)


def _sleeps(pid: int) -> list[int]:
    from k3env.node.trees import descendants

    found = []
    for number in descendants(pid):
        try:
            if Path(f"/proc/{number}/cmdline").read_bytes().startswith(b"sleep\x0098"):
                found.append(number)
        except OSError:
            continue
    return found


def test_python_itself_is_isolated(where: Path, tmp_path: Path) -> None:
    (tmp_path / "json.py").write_text("raise SystemExit(7)")
    done = run(plant(where, "fine", "rank"), PYTHONPATH=str(tmp_path), PYTHONHOME="/nowhere")
    assert done.returncode == 0, done.stderr
    assert sys.version_info >= (3, 9)
