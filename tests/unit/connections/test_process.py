"""Roads that are a program: the user's own ssh against a real sshd, and stand-ins for engines that can't be here."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3env import payload
from k3env.connections.process import PREFIXES, ChildProcess, ProcessConnection, Target
from k3env.connections.road import Road
from k3env.connections.ssh import Settings, SshConnection
from k3env.errors import AuthFailed, HostKeyMismatch, Unreachable
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.plan import Plan, Start
from k3env.runner import host
from k3env.runner.session import Work
from tests.sshd import Sshd, keygen, sshd, with_config

FD_SETSIZE = 1024
"""Where select(2) ends. Source: select(2)."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd")) as running:
        yield running


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def known(server: Sshd) -> str:
    return f"[127.0.0.1]:{server.port} {server.host_key}\n"


def follow(reach: host.Callable[[], host.Connection], tmp_path: Path) -> list[Event]:
    """Run an empty plan over a connection, as the runner does."""
    events: list[Event] = []
    work = Work(payload.boot_code(), payload.build(), codec.dumps(Plan(())).encode())
    start = Start("t.1", "node", payload=payload.build().digest, state_dir=str(tmp_path / "state"))
    target = host.Target("node", reach, work, start)
    host.Follower(target, host.Limits(5, 5), lambda _, event: events.append(event), host.Wish()).follow()
    return events


def test_the_users_own_ssh_carries_a_plan(server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_config(tmp_path, monkeypatch, "", known(server))
    target = Target("127.0.0.1", server.port, None, str(server.key))
    events = follow(lambda: ProcessConnection("openssh", target), tmp_path)
    assert [event.kind for event in events] == ["hello", "begin", "end"]


def test_as_many_hosts_as_there_are_descriptors(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * FD_SETSIZE
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"only {hard} files may be opened here")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(FD_SETSIZE)]
    try:
        events = follow(lambda: ProcessConnection("local", Target("node")), tmp_path)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [event.kind for event in events] == ["hello", "begin", "end"]


def test_ctrl_c_does_not_reach_what_carries_the_connection() -> None:
    child = ChildProcess([sys.executable, "-c", "import os; print(os.getpgrp())"], "node")
    try:
        said = b""
        while not said.endswith(b"\n"):
            said += child.receive(10) or b""
        assert int(said) != os.getpgrp()
    finally:
        child.close()


@pytest.mark.parametrize(
    ("known_as", "key", "kind"),
    [("elsewhere", True, HostKeyMismatch), ("", False, AuthFailed)],
    ids=["host key", "key"],
)
def test_what_ssh_says_becomes_the_same_errors(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known_as: str, key: bool, kind: type[Unreachable]
) -> None:
    keygen(tmp_path / "stranger")
    with_config(tmp_path, monkeypatch, "", f"{known_as} {server.host_key}\n" if known_as else known(server))
    path = str(server.key if key else tmp_path / "stranger")
    link = ProcessConnection("openssh", Target("127.0.0.1", server.port, None, path))
    link.open(5)
    process = link.start("true")
    assert process.receive(10) == b""
    failure = process.failure()
    assert type(failure) is kind and failure.finding.remedy
    link.close()


def test_ssh_keeps_the_key_of_a_new_host_where_the_user_wants_that(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_config(tmp_path, monkeypatch)
    target = Target("127.0.0.1", server.port, None, str(server.key), accept_new=True)
    events = follow(lambda: ProcessConnection("openssh", target), tmp_path)
    assert [event.kind for event in events] == ["hello", "begin", "end"]
    assert server.host_key.split()[1] in (tmp_path / "known_hosts").read_text()


def test_a_host_that_refuses_is_unreachable_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_config(tmp_path, monkeypatch)
    events = follow(lambda: ProcessConnection("openssh", Target("127.0.0.1", 1)), tmp_path)
    assert [event.kind for event in events] == ["unreachable"]
    assert "refused" in events[0].data["message"]


def test_what_paramiko_cannot_do_is_done_by_ssh_and_said(
    server: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy = tmp_path / "proxy.py"
    proxy.write_text(
        "import socket, sys, threading, os\n"
        "far = socket.create_connection(('127.0.0.1', int(sys.argv[1])))\n"
        "def up():\n"
        "    while data := os.read(0, 65536): far.sendall(data)\n"
        "    far.shutdown(socket.SHUT_WR)\n"
        "threading.Thread(target=up, daemon=True).start()\n"
        "while data := far.recv(65536): os.write(1, data)\n"
    )
    text = f"Host special\n  ProxyCommand python3 {proxy} {server.port}\n  IdentityFile {server.key}\n"
    with_config(tmp_path, monkeypatch, text, f"special {server.host_key}\n")
    events = follow(lambda: SshConnection(Settings("special"), Road()), tmp_path)
    assert [event.kind for event in events] == ["road", "hello", "begin", "end"]
    assert "OpenSSH's own ssh" in events[0].data["message"] and "proxycommand" in events[0].data["message"]


@pytest.mark.parametrize("kind", ["chroot", "podman", "docker", "enroot", "slurm"])
def test_engines_get_the_command_as_one_argument(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for the engine notes its arguments and runs what comes after them, as the engine would inside."""
    program = PREFIXES[kind](Target("box"))[0]
    script = tmp_path / program
    script.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/argv\nwhile [ "$1" != /bin/sh ]; do shift; done\nexec "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    events = follow(lambda: ProcessConnection(kind, Target("box")), tmp_path)
    assert [event.kind for event in events] == ["hello", "begin", "end"]
    argv = (tmp_path / "argv").read_text()
    assert "box" in argv and argv.count("exec python3 -I -S -c") == 1


def test_a_program_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    events = follow(lambda: ProcessConnection("podman", Target("box")), tmp_path)
    assert [event.kind for event in events] == ["unreachable"] and "podman" in events[0].data["message"]
