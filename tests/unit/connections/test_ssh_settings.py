"""ssh_config as OpenSSH reads it, and what it leads to: keys, agents, jump hosts. Real ssh, ssh-agent, sshd."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3env.connections.host_keys import KnownHosts
from k3env.connections.road import Road
from k3env.connections.ssh import Settings, SshConnection
from k3env.connections.ssh_settings import Asked, expand, jumps, resolve
from k3env.errors import AuthFailed, HostKeyMismatch, Unreachable
from tests.sshd import Sshd, keygen, sshd, with_config


@pytest.fixture(autouse=True)
def no_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)


CONFIG = """
Include {root}/included
Host gb-*
  HostName %h.rack.local
  User operator
  Port 2200
  IdentityFile {root}/keys/%r-%n
  IdentitiesOnly yes
  HostKeyAlias rack-%h
Host behind
  ProxyJump one@j1:2201,[fd00::2]:2202
Host direct
  ProxyJump none
Host *
  ProxyJump never
Match host matched exec "test %h = matched"
  User from-match
"""


def test_openssh_reads_ssh_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_config(tmp_path, monkeypatch, CONFIG.format(root=tmp_path))
    (tmp_path / "included").write_text("Host included\n  HostName 10.9.8.7\n")
    found = resolve(Asked("gb-01"))
    assert (found.hostname, found.port, found.user) == ("gb-01.rack.local", 2200, "operator")
    assert found.key_files == (f"{tmp_path}/keys/operator-gb-01",) and found.only_these_keys
    assert found.known_hosts == (f"{tmp_path}/known_hosts", "/dev/null")
    assert resolve(Asked("included")).hostname == "10.9.8.7"
    assert resolve(Asked("matched")).user == "from-match"
    assert resolve(Asked("direct")).jumps == ()
    assert resolve(Asked("behind")).jumps == (Asked("j1", 2201, "one"), Asked("fd00::2", 2202))


def test_what_the_inventory_says_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_config(tmp_path, monkeypatch, CONFIG.format(root=tmp_path))
    (tmp_path / "included").write_text("")
    found = resolve(Asked("gb-01", 22, "root", "/k/my key"))
    assert (found.port, found.user, found.key_files) == (22, "root", ("/k/my key",))


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("ProxyCommand nc %h %p", "proxycommand"),
        ("KnownHostsCommand /bin/true", "knownhostscommand"),
        ("PKCS11Provider /usr/lib/opensc.so", "pkcs11provider"),
        ("HostbasedAuthentication yes", "hostbasedauthentication"),
        ("RevokedHostKeys /etc/ssh/revoked", "revokedhostkeys"),
        ("BindAddress 127.0.0.2", "bindaddress"),
        ("VerifyHostKeyDNS yes", "verifyhostkeydns"),
    ],
)
def test_what_only_openssh_can_do_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, told: str
) -> None:
    with_config(tmp_path, monkeypatch, f"Host special\n  {line}\n")
    assert resolve(Asked("special")).needs_openssh[0].startswith(told)
    assert resolve(Asked("plain")).needs_openssh == ()


def test_gssapi_counts_only_with_a_ticket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ticket is a stand-in: `klist -s` says by its exit code whether there is one."""
    with_config(tmp_path, monkeypatch, "GSSAPIAuthentication yes\n")
    klist = tmp_path / "bin" / "klist"
    for code, told in ((1, False), (0, True)):
        klist.write_text(f'#!/bin/sh\n[ "$1" = -s ] && exit {code}\n')
        klist.chmod(0o755)
        assert ["gssapi" in why for why in resolve(Asked("plain")).needs_openssh] == [True] * told


@pytest.mark.parametrize(
    ("name", "public", "told"),
    [("id_a", "sk-ssh-ed25519@openssh.com AAAA", True), ("id_b", "ssh-ed25519 AAAA", False), ("id_sk", None, True)],
)
def test_a_security_key_is_known_by_its_public_half(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, public: str | None, told: bool
) -> None:
    with_config(tmp_path, monkeypatch, f"Host special\n  IdentityFile {tmp_path}/{name}\n")
    (tmp_path / name).write_text("")
    if public is not None:
        (tmp_path / f"{name}.pub").write_text(public)
    assert bool(resolve(Asked("special")).needs_openssh) is told


def test_a_connection_that_stands_already_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_config(tmp_path, monkeypatch, f"Host special\n  ControlPath {tmp_path}/%n-%p\n  ControlMaster auto\n")
    assert resolve(Asked("special")).needs_openssh == (), "there is none yet"
    with socket.socket(socket.AF_UNIX) as master:
        monkeypatch.chdir(tmp_path)  # a socket's whole path may be too long
        master.bind("special-22")
        assert resolve(Asked("special")).needs_openssh[0].startswith("controlpath")


def test_a_config_that_ssh_refuses_is_told_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_config(tmp_path, monkeypatch, "Host x\n  NoSuchOption yes\n")
    with pytest.raises(Unreachable, match="line 2") as caught:
        resolve(Asked("x"))
    assert "ssh -G x" in (caught.value.finding.remedy or "")


def test_without_openssh_the_user_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host short\n  HostName long.example\n  Port 2022\n")
    found = resolve(Asked("short"))
    assert (found.hostname, found.port) == ("long.example", 2022) and "not installed" in found.note


@pytest.mark.parametrize(
    ("text", "expanded"),
    [("~/x", "{home}/x"), ("%d/k-%h-%p", "{home}/k-host-22"), ("%%d", "%d"), ("${NAME}/x", "value/x"), ("%Q", "%Q")],
)
def test_tokens(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, expanded: str) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NAME", "value")
    assert expand(text, {"%": "%", "d": str(tmp_path), "h": "host", "p": "22"}) == expanded.format(home=tmp_path)


@pytest.mark.parametrize("text", ["-oProxyCommand=evil", "a:b:c", "user@", "[::1"])
def test_a_jump_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(Unreachable, match="can't be read"):
        list(jumps(text))


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("far")) as running:
        yield running


@pytest.fixture(scope="module")
def near(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    with sshd(tmp_path_factory.mktemp("near")) as running:
        yield running


def config_of(far: Sshd, near: Sshd, jump: str = "near") -> tuple[str, str]:
    text = (
        f"Host far\n  HostName 127.0.0.1\n  Port {far.port}\n  IdentityFile {far.key}\n  ProxyJump {jump}\n"
        f"Host near\n  HostName 127.0.0.1\n  Port {near.port}\n  IdentityFile {near.key}\n"
    )
    known = f"[127.0.0.1]:{far.port} {far.host_key}\n[127.0.0.1]:{near.port} {near.host_key}\n"
    return text, known


def test_hosts_behind_a_jump_host_share_one_connection_to_it(
    far: Sshd, near: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_config(tmp_path, monkeypatch, *config_of(far, near))
    before = near.log.read_text().count("Accepted publickey")
    road = Road()
    for _ in range(3):
        link = SshConnection(Settings("far"), road)
        link.open(15)
        assert link.start("echo $SSH_CONNECTION").receive(10) is not None
        link.close()
    assert near.log.read_text().count("Accepted publickey") - before == 1
    road.close()


def test_a_chain_of_jumps_and_one_that_bites_its_tail(
    far: Sshd, near: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, known = config_of(far, near, "near,second")
    second = f"Host second\n  HostName 127.0.0.1\n  Port {near.port}\n  IdentityFile {near.key}\n"
    loop = "Host loop\n  HostName 127.0.0.1\n  ProxyJump loop\n"
    with_config(tmp_path, monkeypatch, text + second + loop, known)
    road = Road()
    link = SshConnection(Settings("far"), road)
    link.open(15)
    assert link.start("echo there").receive(10) == b"there\n"
    link.close()
    road.close()
    with pytest.raises(Unreachable, match="more than 8 jump hosts"):
        SshConnection(Settings("loop"), Road()).open(15)


def test_a_jump_host_that_refuses_is_named(
    far: Sshd, near: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, known = config_of(far, near)
    with_config(tmp_path, monkeypatch, text.replace(str(near.key), str(far.key)), known)
    with pytest.raises(AuthFailed, match=r"jump host near: \[127\.0\.0\.1\]:\d+ refused user"):
        SshConnection(Settings("far"), Road()).open(15)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[str]:
    path = tmp_path / "agent.sock"
    process = subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL)
    try:
        for _ in range(200):
            if path.exists():
                break
            process.poll()
            subprocess.run(["sleep", "0.02"], check=True)
        yield str(path)
    finally:
        process.terminate()
        process.wait(5)


def add(agent: str, *keys: Path) -> None:
    environment = {**os.environ, "SSH_AUTH_SOCK": agent}
    subprocess.run(["ssh-add", "-q", *keys], check=True, env=environment, capture_output=True)


def test_a_full_agent_does_not_use_up_the_tries_of_a_named_key(
    far: Sshd, tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    strangers = [tmp_path / f"stranger{number}" for number in range(8)]
    for path in strangers:
        keygen(path)
    add(agent, *strangers)
    monkeypatch.setenv("SSH_AUTH_SOCK", agent)
    known = KnownHosts()
    known._add(f"[127.0.0.1]:{far.port} {far.host_key}", "test:1")
    road = Road(known)
    link = SshConnection(Settings("127.0.0.1", far.port, private_key=str(far.key)), road)
    link.open(15)
    link.close()
    with pytest.raises(AuthFailed, match="keys offered"):
        SshConnection(Settings("127.0.0.1", far.port), road).open(15)
    road.close()


def test_a_key_of_the_agent_opens_without_its_file(
    far: Sshd, tmp_path: Path, agent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(agent, far.key)
    monkeypatch.setenv("SSH_AUTH_SOCK", agent)
    with_config(tmp_path, monkeypatch, "", f"[127.0.0.1]:{far.port} {far.host_key}\n")
    road = Road()
    link = SshConnection(Settings("127.0.0.1", far.port), road)
    link.open(15)
    link.close()
    road.close()


def test_a_passphrase_is_asked_for_once(far: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    locked = tmp_path / "locked"
    with (far.key.parent / "authorized").open("a") as file:
        file.write(keygen(locked, "-t", "ed25519", "-N", "open sesame") + "\n")
    with_config(tmp_path, monkeypatch, "", f"[127.0.0.1]:{far.port} {far.host_key}\n")
    asked: list[str] = []

    def ask(path: str) -> str:
        asked.append(path)
        return "open sesame"

    road = Road(ask=ask)
    for _ in range(3):
        link = SshConnection(Settings("127.0.0.1", far.port, private_key=str(locked)), road)
        link.open(15)
        link.close()
    assert asked == [str(locked)]
    with pytest.raises(AuthFailed, match="passphrase"):
        SshConnection(Settings("127.0.0.1", far.port, private_key=str(locked)), Road(ask=lambda path: "wrong")).open(15)


def test_the_key_of_a_new_host_is_kept_when_the_user_wants_that_and_a_changed_one_never(
    far: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_config(tmp_path, monkeypatch)
    settings = Settings("127.0.0.1", far.port, private_key=str(far.key))
    with pytest.raises(HostKeyMismatch, match="is unknown"):
        SshConnection(settings, Road()).open(15)
    link = SshConnection(settings, Road(accept_new=True))
    link.open(15)
    link.close()
    known = tmp_path / "known_hosts"
    assert known.read_text() == f"[127.0.0.1]:{far.port} {far.host_key}\n" and str(known) in link.note
    again = SshConnection(settings, Road())
    again.open(15)
    again.close()
    known.write_text(f"[127.0.0.1]:{far.port} {keygen(tmp_path / 'other')}\n")
    with pytest.raises(HostKeyMismatch, match="has changed"):
        SshConnection(settings, Road(accept_new=True)).open(15)


def test_a_key_that_was_accepted_is_the_only_one_from_then_on(
    far: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever answers when a run comes back to a host is no new host."""
    with_config(tmp_path, monkeypatch, "Host n1 n2\n  HostName 127.0.0.1\n  HostKeyAlias one\n")
    road, known = Road(accept_new=True), tmp_path / "known_hosts"
    for name in ("n1", "n1", "n2"):
        link = SshConnection(Settings(name, far.port, private_key=str(far.key)), road)
        link.open(15)
        link.close()
    assert known.read_text() == f"one {far.host_key}\n"
    with sshd(tmp_path / "false") as false, pytest.raises(HostKeyMismatch, match="has changed"):
        SshConnection(Settings("n1", false.port, private_key=str(false.key)), road).open(15)
    assert known.read_text() == f"one {far.host_key}\n"


OTHER = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize(
    ("before", "refused"),
    [
        ("", ""),
        (f"first {OTHER}", ""),
        (f"first {OTHER}\n", ""),
        ("\n", ""),
        (f"@revoked * {OTHER}\n", ""),
        ("@revoked * KEY\n", "is revoked"),
        (f"@revoked * {OTHER}\n@revoked * KEY\n", "is revoked"),
        (f"@cert-authority * {OTHER}\n", "a certificate authority"),
        (f"* ssh-rsa {OTHER.split()[1]}\n", "is unknown"),
    ],
)
def test_a_new_key_is_kept_beside_what_is_known(
    far: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, before: str, refused: str
) -> None:
    before = before.replace("KEY", far.host_key)
    with_config(tmp_path, monkeypatch, "", before)
    link = SshConnection(Settings("127.0.0.1", far.port, private_key=str(far.key)), Road(accept_new=True))
    known = tmp_path / "known_hosts"
    if refused:
        with pytest.raises(HostKeyMismatch, match=refused):
            link.open(15)
        assert known.read_text() == before
        return
    link.open(15)
    link.close()
    ended = before if before.endswith("\n") or not before else f"{before}\n"
    assert known.read_text() == f"{ended}[127.0.0.1]:{far.port} {far.host_key}\n"
    assert not before.startswith("first") or KnownHosts.load([str(known)]).keys("first", 22)


def test_a_key_that_can_t_be_kept_is_not_believed(far: Sshd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_config(tmp_path, monkeypatch)
    (tmp_path / "known_hosts").unlink()
    (tmp_path / "known_hosts").mkdir()
    with pytest.raises(HostKeyMismatch, match="can't be kept"):
        SshConnection(Settings("127.0.0.1", far.port, private_key=str(far.key)), Road(accept_new=True)).open(15)
