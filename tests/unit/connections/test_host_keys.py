"""known_hosts: every form of line, against ssh-keygen -F."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from k3env.connections.host_keys import Key, KnownHosts, fingerprint

KEYS = {
    name: base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\x20" + bytes([n]) * 32).decode()
    for n, name in enumerate("abcdefg")
}
LINES = f"""
# a comment
plain ssh-ed25519 {KEYS["a"]} a comment of the key
several,10.0.0.7,[odd]:2222 ssh-ed25519 {KEYS["b"]}
plain ssh-rsa {KEYS["c"]}
*.rack.local,!bad.rack.local ssh-ed25519 {KEYS["d"]}
@revoked plain ssh-ed25519 {KEYS["e"]}
@cert-authority *.certified ssh-ed25519 {KEYS["f"]}
[gb?]:2200 ssh-ed25519 {KEYS["g"]}
broken ssh-ed25519
broken ssh-ed25519 !!!notbase64
lonely
"""


@pytest.fixture
def known_hosts(tmp_path: Path) -> Path:
    path = tmp_path / "known_hosts"
    path.write_text(LINES)
    return path


@pytest.mark.parametrize(
    ("hostname", "port", "found"),
    [
        ("plain", 22, ["a", "c", "e"]),
        ("PLAIN", 22, ["a", "c", "e"]),
        ("plain", 2222, []),
        ("several", 22, ["b"]),
        ("10.0.0.7", 22, ["b"]),
        ("odd", 2222, ["b"]),
        ("odd", 22, []),
        ("n1.rack.local", 22, ["d"]),
        ("bad.rack.local", 22, []),
        ("x.certified", 22, ["f"]),
        ("gb1", 2200, ["g"]),
        ("gb12", 2200, []),
        ("broken", 22, []),
        ("nobody", 22, []),
    ],
)
def test_a_host_has_the_keys_that_its_lines_say(known_hosts: Path, hostname: str, port: int, found: list[str]) -> None:
    keys = KnownHosts.load([str(known_hosts)]).keys(hostname, port)
    assert [key.data for key in keys] == [KEYS[name] for name in found]


def test_markers_and_positions_are_kept(known_hosts: Path) -> None:
    keys = KnownHosts.load([str(known_hosts)]).keys("plain", 22)
    assert [key.marker for key in keys] == ["", "", "@revoked"]
    assert keys[0].source == f"{known_hosts}:3"


@pytest.mark.parametrize(("hostname", "port"), [("hashed.example", 22), ("hashed.example", 2222), ("10.1.2.3", 22)])
def test_hashed_lines_match_as_ssh_keygen_finds_them(tmp_path: Path, hostname: str, port: int) -> None:
    path = tmp_path / "known_hosts"
    name = hostname if port == 22 else f"[{hostname}]:{port}"
    path.write_text(f"{name} ssh-ed25519 {KEYS['a']}\nother ssh-ed25519 {KEYS['b']}\n")
    subprocess.run(["ssh-keygen", "-q", "-H", "-f", path], check=True, capture_output=True)
    assert hostname not in path.read_text()
    keys = KnownHosts.load([str(path)]).keys(hostname, port)
    oracle = subprocess.run(["ssh-keygen", "-F", name, "-f", path], check=True, capture_output=True, text=True)
    assert [key.data for key in keys] == [KEYS["a"]] and KEYS["a"] in oracle.stdout


def test_a_fingerprint_is_the_one_that_openssh_prints(tmp_path: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"], check=True)
    kind, data, _ = (tmp_path / "key.pub").read_text().split(" ", 2)
    shown = subprocess.run(["ssh-keygen", "-lf", tmp_path / "key.pub"], check=True, capture_output=True, text=True)
    assert Key(kind, data).fingerprint == shown.stdout.split()[1] == fingerprint(base64.b64decode(data))
