"""SSH against a real sshd: who is trusted, who gets in, what a bad road says."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from k3env.connections import channel
from k3env.connections.host_keys import Key, KnownHosts
from k3env.connections.road import Road
from k3env.connections.ssh import Settings, SshConnection
from k3env.errors import AuthFailed, ConnectTimeout, Dropped, HostKeyMismatch, Unreachable
from tests.sshd import Sshd, keygen, sshd


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("sshd"), "AcceptEnv NOTHING") as running:
        yield running


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep this machine's keys and known_hosts out of the tests."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


def road(tmp_path: Path, *lines: str) -> Road:
    known = tmp_path / "known_hosts"
    known.write_text("".join(line + "\n" for line in lines))
    return Road(KnownHosts.load([str(known)]))


def known(server: Sshd) -> str:
    return f"[127.0.0.1]:{server.port} {server.host_key}"


def connection(server: Sshd, tmp_path: Path, *lines: str, **settings: object) -> SshConnection:
    fields = {"private_key": str(server.key), **settings}
    return SshConnection(Settings("127.0.0.1", server.port, **fields), road(tmp_path, *lines))  # type: ignore[arg-type]


def test_bytes_go_both_ways_unchanged(server: Sshd, tmp_path: Path) -> None:
    link = connection(server, tmp_path, known(server))
    link.open(10)
    process = link.start("cat; echo error >&2; exit 7")
    sent = os.urandom(3_000_000)
    threading.Thread(target=lambda: (process.send(sent), process.close_input())).start()
    got = b""
    while (data := process.receive(10)) != b"":
        assert data is not None
        got += data
    assert got == sent and process.exit_code() == 7 and process.said() == "error\n"
    link.close()


@pytest.mark.parametrize("right_first", [True, False])
def test_any_of_several_known_keys_is_believed(server: Sshd, tmp_path: Path, right_first: bool) -> None:
    lines = [known(server), known(server).replace(server.host_key, keygen(tmp_path / "older"))]
    link = connection(server, tmp_path, *(lines if right_first else lines[::-1]))
    link.open(15)
    link.close()
    with pytest.raises(HostKeyMismatch, match="has changed"):
        other = known(server).replace(server.host_key, keygen(tmp_path / "other"))
        connection(server, tmp_path, lines[1], other).open(15)


def test_silence_is_none_and_the_end_is_empty(server: Sshd, tmp_path: Path) -> None:
    link = connection(server, tmp_path, known(server))
    link.open(10)
    process = link.start("sleep 0.5; echo done")
    assert process.receive(0.05) is None
    assert process.receive(5) == b"done\n" and process.receive(5) == b""
    link.close()


def lines_unknown(server: Sshd, tmp_path: Path) -> list[str]:
    return [f"elsewhere {server.host_key}"]


def lines_changed(server: Sshd, tmp_path: Path) -> list[str]:
    return [f"[127.0.0.1]:{server.port} {keygen(tmp_path / 'other')}"]


def lines_revoked(server: Sshd, tmp_path: Path) -> list[str]:
    return [known(server), f"@revoked * {server.host_key}"]


def lines_authority(server: Sshd, tmp_path: Path) -> list[str]:
    return [f"@cert-authority * {keygen(tmp_path / 'authority')}"]


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (lines_unknown, "is unknown"),
        (lines_changed, "has changed"),
        (lines_revoked, "is revoked"),
        (lines_authority, "certificate authority"),
    ],
)
def test_a_host_key_that_is_not_known_is_refused_with_its_fingerprint(
    server: Sshd, tmp_path: Path, lines: Callable[[Sshd, Path], list[str]], words: str
) -> None:
    with pytest.raises(HostKeyMismatch, match=words) as caught:
        connection(server, tmp_path, *lines(server, tmp_path)).open(10)
    shown = Key(*server.host_key.split()).fingerprint
    assert shown in (caught.value.finding.found or "") and caught.value.finding.remedy
    assert not (tmp_path / ".ssh").exists(), "nothing is ever added"


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("stranger", "refused user"),
        ("encrypted", "passphrase"),
        ("missing", "can't be read"),
        ("garbage", "can't be read"),
        (None, "no key to offer"),
    ],
)
def test_a_key_that_does_not_open_says_which(server: Sshd, tmp_path: Path, key: str | None, words: str) -> None:
    keygen(tmp_path / "stranger")
    keygen(tmp_path / "encrypted", "-t", "ed25519", "-N", "secret")
    (tmp_path / "garbage").write_text("not a key\n")
    path = str(tmp_path / key) if key else None
    with pytest.raises(AuthFailed, match=words) as caught:
        connection(server, tmp_path, known(server), private_key=path).open(10)
    assert caught.value.finding.remedy


@pytest.mark.parametrize("kind", ["rsa", "ecdsa"])
def test_other_kinds_of_keys_open_too(server: Sshd, tmp_path: Path, kind: str) -> None:
    authorized = server.key.parent / "authorized"
    with authorized.open("a") as file:
        file.write(keygen(tmp_path / kind, "-t", kind) + "\n")
    link = connection(server, tmp_path, known(server), private_key=str(tmp_path / kind))
    link.open(10)
    link.close()


def test_nobody_there(tmp_path: Path) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    for settings, words in (
        (Settings("127.0.0.1", port), "refused"),
        (Settings("no.such.invalid"), "does not resolve"),
    ):
        with pytest.raises(Unreachable, match=words) as caught:
            SshConnection(settings, road(tmp_path)).open(5)
        assert caught.value.finding.remedy


def test_a_silent_port_is_given_up_in_time(tmp_path: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        begun = time.monotonic()
        with pytest.raises(ConnectTimeout, match="no SSH banner within 1 s"):
            SshConnection(Settings("127.0.0.1", silent.getsockname()[1]), road(tmp_path)).open(1.0)
        assert time.monotonic() - begun < 4


def test_a_server_that_closes_after_the_banner_is_a_drop(tmp_path: Path) -> None:
    with socket.socket() as rude:
        rude.bind(("127.0.0.1", 0))
        rude.listen()

        def serve() -> None:
            peer, _ = rude.accept()
            peer.sendall(b"SSH-2.0-rude\r\n")
            peer.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(Dropped, match="ended the handshake"):
            SshConnection(Settings("127.0.0.1", rude.getsockname()[1]), road(tmp_path)).open(5.0)
        thread.join()


def test_a_dead_peer_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "KEEPALIVE_S", 0.5)
    monkeypatch.setattr(channel, "DEAD_S", 2.0)
    with sshd(tmp_path / "sshd") as mine:
        link = connection(mine, tmp_path, known(mine))
        link.open(10)
        process = link.start("echo begun; sleep 60")
        assert process.receive(5) == b"begun\n"
        ends = time.monotonic() + 4
        while time.monotonic() < ends:
            assert process.receive(0.2) is None, "a peer that answers is alive, however silent the command"
        children = _children(mine.process.pid)
        for pid in children:
            os.kill(pid, signal.SIGSTOP)
        try:
            begun = time.monotonic()
            with pytest.raises(Dropped, match="no sign of life"):
                while time.monotonic() - begun < 20:
                    process.receive(0.2)
            assert time.monotonic() - begun < 8
        finally:
            for pid in children:
                os.kill(pid, signal.SIGCONT)
        link.close()


def test_at_most_eight_handshakes_at_once_at_one_address(tmp_path: Path) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def hold(peer: socket.socket) -> None:
        nonlocal now, most
        with lock:
            now += 1
            most = max(most, now)
        time.sleep(0.1)
        with lock:
            now -= 1
        peer.close()

    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:

        def serve() -> None:
            for _ in range(24):
                threading.Thread(target=hold, args=(server.accept()[0],)).start()

        shared, refused = road(tmp_path), []

        def connect() -> None:
            try:
                SshConnection(Settings("127.0.0.1", server.getsockname()[1]), shared).open(30)
            except Dropped as error:
                refused.append(error)

        threads = [threading.Thread(target=serve), *(threading.Thread(target=connect) for _ in range(24))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(refused) == 24 and 2 <= most <= 8


def _children(pid: int) -> list[int]:
    """Return all descendants of a process."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == pid:
                found += [int(entry.name), *_children(int(entry.name))]
    return found
