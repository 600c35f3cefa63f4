"""A real OpenSSH sshd on loopback, with keys of its own, for one test."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Sshd:
    """Where it listens, and the keys that matter."""

    port: int
    key: Path
    host_key: str
    """"ssh-ed25519 AAAA…"."""
    process: subprocess.Popen[bytes]
    log: Path


def with_config(root: Path, monkeypatch: pytest.MonkeyPatch, text: str = "", known_hosts: str = "") -> Path:
    """Put an `ssh` before the real one that reads this ssh_config: OpenSSH finds the user's by passwd, not by $HOME."""
    real = shutil.which("ssh")
    assert real, "openssh-client is missing"
    (root / "bin").mkdir()
    (root / "known_hosts").write_text(known_hosts)
    config = root / "ssh_config"
    files = f"Host *\n  UserKnownHostsFile {root}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
    config.write_text(f"{text}\n{files}")
    program = root / "bin" / "ssh"
    program.write_text(f'#!/bin/sh\nexec {real} -F {config} "$@"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{root / 'bin'}:{os.environ['PATH']}")
    return config


def keygen(path: Path, *arguments: str) -> str:
    """Make a key; return its public half."""
    subprocess.run(["ssh-keygen", "-q", "-N", "", "-f", path, *(arguments or ("-t", "ed25519"))], check=True)
    kind, data, *_ = path.with_name(path.name + ".pub").read_text().split()
    return f"{kind} {data}"


@contextmanager
def sshd(root: Path, *lines: str) -> Iterator[Sshd]:
    """Run an sshd that accepts one key; `lines` are added to its configuration."""
    program = shutil.which("sshd", path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin")
    assert program, "openssh-server is missing"
    root.mkdir(exist_ok=True)
    host_key, public = keygen(root / "host"), keygen(root / "user")
    (root / "authorized").write_text(public + "\n")
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    config, log = root / "config", root / "log"
    config.write_text(
        "\n".join(
            [
                *lines,
                f"ListenAddress 127.0.0.1:{port}",
                f"HostKey {root}/host",
                f"AuthorizedKeysFile {root}/authorized",
                f"PidFile {root}/pid",
                "StrictModes no",
                "UsePAM no",
                "PasswordAuthentication no",
                "LogLevel DEBUG",
            ]
        )
        + "\n"
    )
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    process = subprocess.Popen([program, "-D", "-f", config, "-E", log])
    try:
        _wait(port)
        yield Sshd(port, root / "user", host_key, process, log)
    finally:
        process.terminate()
        process.wait(10)


def _wait(port: int) -> None:
    ends = time.monotonic() + 10
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), 1):
                return
        except OSError:
            if time.monotonic() > ends:
                raise
            time.sleep(0.02)
