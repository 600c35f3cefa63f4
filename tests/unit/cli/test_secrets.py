"""Secrets and keys that come from files and pipes: read once, bounded, refused before anything is contacted."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import paramiko
import pytest

from k3env.cli import secrets
from k3env.cli.options import Options
from k3env.cli.secrets import SECRET_BYTES, check_key, resolve
from k3env.errors import UsageError
from k3env.protocol.masking import SHORTEST
from k3env.protocol.plan import Plan, Task
from k3env.protocol.secret import Secret, placeholder

VALUE = "correct horse battery"


def plan(reference: str) -> Plan:
    return Plan((Task("1.1", "t", "command", {}, environment={"TOKEN": placeholder(Secret(reference))}),))


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(secrets, "PIPE_S", 1.0)
    yield


def written(pipe: Path, data: bytes) -> None:
    threading.Thread(target=pipe.write_bytes, args=(data,), daemon=True).start()


def test_a_secret_comes_from_a_file_or_a_pipe(tmp_path: Path, pipe: Path) -> None:
    (tmp_path / "file").write_text(VALUE + "\n")
    for path in (tmp_path / "file", pipe):
        if path == pipe:
            written(pipe, VALUE.encode() + b"\n")
        assert resolve([plan(f"file:{path}")]) == {f"file:{path}": VALUE}


def test_a_pipe_that_nobody_writes_is_given_up(pipe: Path) -> None:
    begun = time.monotonic()
    with pytest.raises(UsageError, match="within 1 s") as error:
        resolve([plan(f"file:{pipe}")])
    assert time.monotonic() - begun < 10 and error.value.finding.remedy == "write to a file first"
    with pytest.raises(UsageError, match="within 1 s"):
        check_key(Options(private_key=str(pipe)))


@pytest.mark.parametrize(
    ("data", "found"),
    [
        (b"", "too short"),
        (b"\n", "too short"),
        (b"x" * (SHORTEST - 1), "too short"),
        (b"a\0" * 8, "NUL"),
        (b"\xff\xfe" * 8, "no UTF-8"),
        (b"x" * (SECRET_BYTES + 1), "64 KiB"),
    ],
)
def test_what_is_no_secret_is_refused_before_a_host_is_contacted(tmp_path: Path, data: bytes, found: str) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(UsageError, match=found) as error:
        resolve([plan(f"file:{tmp_path}/file")])
    assert data.decode("latin-1").strip("\n") not in str(vars(error.value.finding)) or not data.strip()


@pytest.mark.parametrize("path", ["/dev/zero", "/", "/none/such"])
def test_what_can_never_be_a_secret_or_a_key(path: str) -> None:
    with pytest.raises(UsageError, match="can't be read"):
        resolve([plan(f"file:{path}")])
    with pytest.raises(UsageError, match="can't be used"):
        check_key(Options(private_key=path))


def test_a_short_secret_in_the_environment_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    short = "ÄÖÜß§"[: SHORTEST - 1]
    monkeypatch.setenv("SHORT", short)
    with pytest.raises(UsageError, match="too short") as error:
        resolve([plan("env:SHORT")])
    assert short not in str(vars(error.value.finding))


def test_a_key_in_a_pipe_is_read_once_and_stays_in_memory(tmp_path: Path, pipe: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    written(pipe, (tmp_path / "key").read_bytes())
    kept = check_key(Options(private_key=str(pipe))).private_key
    assert kept is not None and kept.startswith("/proc/")
    wanted = (tmp_path / "key.pub").read_text().split()[1]
    for _ in range(2):
        assert paramiko.PKey.from_path(Path(kept)).get_base64() == wanted
    # ssh itself takes it too: it refuses files that others can read.
    assert subprocess.run(["ssh-keygen", "-y", "-f", kept], capture_output=True, text=True).stdout.split()[1] == wanted


def test_a_key_of_a_shells_process_substitution_is_used(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")], check=True)
    (tmp_path / "quick.yml").write_text(
        "- hosts: all\n  tasks:\n    - command: {argv: ['true'], read_only: true}\n      name: Look\n"
    )
    line = (
        '"$0" -m k3env.cli provision --hosts 127.0.0.1:1 --timeout 5 --playbook "$1" --private-key <(cat "$2") '
        "--output json"
    )
    said = subprocess.run(
        ["bash", "-c", line, sys.executable, str(tmp_path / "quick.yml"), str(tmp_path / "key")],
        capture_output=True,
        text=True,
        timeout=60,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")},
    )
    assert said.returncode == 4, said.stderr  # the key was no usage error; nobody listens there
