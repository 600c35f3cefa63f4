"""External commands: real processes that flood, hang, fork and ignore signals."""

from __future__ import annotations

import io
import os
import time
from pathlib import Path

import pytest

from k3env.node import process
from k3env.node.cancel import Cancel
from k3env.protocol.masking import Mask

ENVIRONMENT = {"PATH": os.environ["PATH"]}


def run(*argv: str, timeout_s: float = 10.0, **keywords: object) -> process.Completed:
    return process.run(argv, environment=ENVIRONMENT, timeout_s=timeout_s, cancel=Cancel(), **keywords)  # type: ignore[arg-type]


def sh(script: str, **keywords: object) -> process.Completed:
    return run("sh", "-c", script, **keywords)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("script", "code", "out", "err"),
    [
        ("echo out; echo err >&2; exit 3", 3, b"out\n", b"err\n"),
        ("printf '\\377\\376\\000'", 0, b"\xff\xfe\x00", b""),
        ("cat", 0, b"", b""),
        ("kill -9 $$", -9, b"", b""),
    ],
)
def test_output_is_bytes_and_the_code_is_the_commands(script: str, code: int, out: bytes, err: bytes) -> None:
    done = sh(script)
    assert (done.exit_code, done.stdout, done.stderr, done.timed_out) == (code, out, err, False)


def test_stdin_larger_than_a_pipe_arrives_whole() -> None:
    assert run("wc", "-c", stdin=b"x" * 1_000_000).text.strip() == "1000000"


def test_a_flood_on_both_streams_is_bounded_and_does_not_block() -> None:
    done = sh("head -c 5000000 /dev/zero; head -c 5000000 /dev/zero >&2; echo end")
    assert done.ok and len(done.stdout) == len(done.stderr) == process.OUTPUT_BYTES
    assert done.stdout.endswith(b"\0end\n")


def test_a_deadline_ends_the_whole_session_even_what_ignores_sigterm(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    begun = time.monotonic()
    done = sh(
        f"trap '' TERM; sleep 60 & echo $! > {pids}; echo $$ >> {pids}; echo begun; wait; sleep 60", timeout_s=0.5
    )
    assert done.timed_out and not done.ok and done.stdout == b"begun\n"
    assert time.monotonic() - begun < 30
    left = [int(pid) for pid in pids.read_text().split()]
    ends = time.monotonic() + 10
    while any(map(_alive, left)) and time.monotonic() < ends:
        time.sleep(0.05)
    assert not any(map(_alive, left))


def test_a_command_that_leaves_a_child_with_its_pipes_open_still_ends_by_its_deadline() -> None:
    begun = time.monotonic()
    done = sh("sleep 60 & echo parent", timeout_s=1.0)
    assert done.stdout == b"parent\n" and time.monotonic() - begun < 6


def test_streaming_gives_whole_lines_and_the_log_has_every_byte() -> None:
    log, lines = io.BytesIO(), []
    done = process.stream(
        [
            "sh",
            "-c",
            "printf 'one\\ntw'; sleep 0.2; printf 'o\\r3%%\\r4%%\\n'; printf '\\377'; echo err >&2; printf last",
        ],
        environment=ENVIRONMENT,
        inactivity_s=10,
        on_line=lines.append,
        log=log,
        cancel=Cancel(),
    )
    assert done.ok and [line for line in lines if line] == ["one", "two", "3%", "4%", "\ufffderr", "last"]
    assert log.getvalue() == b"one\ntwo\r3%\r4%\n\xfferr\nlast" == done.stdout


def test_inactivity_spares_silent_work_and_ends_silent_sleep() -> None:
    def silent(script: str) -> process.Completed:
        return process.stream(
            ["sh", "-c", script],
            environment=ENVIRONMENT,
            inactivity_s=2.0,
            on_line=lambda line: None,
            log=io.BytesIO(),
            cancel=Cancel(),
        )

    assert (
        silent("i=0; end=$(($(date +%s)+4)); while [ $(date +%s) -lt $end ]; do i=$((i+1)); done; exit 5").exit_code
        == 5
    )
    assert silent("sleep 60").timed_out


def test_streaming_hides_a_secret_that_comes_in_two_pieces() -> None:
    log, lines = io.BytesIO(), []
    done = process.stream(
        ["sh", "-c", "printf 'one s3c'; sleep 0.3; printf 'ret two\\nline 1\\n'; sleep 0.2; echo 'li'; printf 'ne 1'"],
        environment=ENVIRONMENT,
        inactivity_s=10,
        on_line=lines.append,
        log=log,
        cancel=Cancel(),
        mask=Mask(["s3cret", "line 1\nline 2"]),
    )
    assert lines == ["one ******** two", "********", "li", "ne 1"]
    assert log.getvalue() == done.stdout == b"one ******** two\n********\nli\nne 1"


def test_output_is_hidden_before_it_is_cut() -> None:
    script = "printf s3cret-token; head -c 1048570 /dev/zero"
    done = sh(script, mask=Mask(["s3cret-token"]))
    assert len(done.stdout) == process.OUTPUT_BYTES and b"token" not in done.stdout


def test_a_guard_goes_with_its_command_and_a_killed_command_needs_none() -> None:
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    before = children.read_text()
    each = "tr ' ' '\\n' | while read -r p; do cat /proc/$p/cmdline; echo; done"
    beside = f"sleep 1; cat /proc/$PPID/task/$PPID/children | {each}"
    assert sh(beside, guarded=True).text.count("k3env-guard") == 1
    assert sh("sleep 60", guarded=True, timeout_s=0.2).timed_out
    with pytest.raises(FileNotFoundError):
        run("/no/such/program", guarded=True)
    assert children.read_text() == before


def test_evidence_is_what_a_person_would_type_with_what_it_said() -> None:
    evidence = run("sh", "-c", "printf '\\033[31mred'; exit 4").evidence()
    assert evidence.source == "sh -c 'printf '\"'\"'\\033[31mred'\"'\"'; exit 4'"
    assert (evidence.exit_code, evidence.excerpt) == (4, "\\x1b[31mred")


def _alive(pid: int) -> bool:
    try:
        return b") Z" not in Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False


def test_a_log_that_grows_too_long_keeps_its_newest_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "LOG_BYTES", 1 << 20)
    with (tmp_path / "log").open("ab") as log:
        done = process.stream(
            ["sh", "-c", "yes some output | head -c 5000000; echo; echo the end"],
            environment={"PATH": "/usr/bin:/bin"},
            inactivity_s=30,
            on_line=lambda line: None,
            log=log,
            cancel=Cancel(),
        )
    text = (tmp_path / "log").read_text()
    assert done.ok and len(text) < 2 << 20
    assert text.startswith("(what was here is cut off") and text.endswith("the end\n")


DAEMON = "setsid sleep 60 & echo $! > {pid}; echo out"


@pytest.mark.parametrize("streamed", [False, True])
def test_a_daemon_that_keeps_the_output_open_is_not_waited_for(tmp_path: Path, streamed: bool) -> None:
    """As ssh with ControlPersist leaves one behind."""
    pid, begun, told = tmp_path / "pid", time.monotonic(), list[str]()
    script = ("sh", "-c", DAEMON.format(pid=pid))
    if streamed:
        done = process.stream(
            script, environment=ENVIRONMENT, inactivity_s=50.0, on_line=told.append, log=io.BytesIO(), cancel=Cancel()
        )
    else:
        done = run(*script, timeout_s=50.0)
    assert done.ok and done.stdout == b"out\n" and told == (["out"] if streamed else [])
    assert time.monotonic() - begun < 40
    os.kill(int(pid.read_text()), 9)  # It was left alone: it is nobody's to end.


def test_what_a_command_does_in_the_background_is_waited_for() -> None:
    done = sh("(sleep 1; echo late) & echo now")
    assert done.ok and done.stdout == b"now\nlate\n"
