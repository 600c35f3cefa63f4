"""known_hosts: every form of line, against ssh-keygen -F."""

from __future__ import annotations

import base64
import subprocess
import sys
from collections.abc import Callable
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


def calls(work: Callable[[], object]) -> int:
    """Return how many functions a piece of work calls, Python's and C's."""
    count = 0

    def step(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(step)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_the_work_grows_with_the_lines_and_a_look_up_in_plain_names_does_not(tmp_path: Path) -> None:
    """paramiko's own reader is quadratic: 10,000 lines take it 5.5 s."""
    found = []
    for size in (1_000, 10_000):
        path = tmp_path / f"known_{size}"
        path.write_text(
            "".join(
                f"host-{number},10.0.{number >> 8}.{number & 255} ssh-ed25519 {KEYS['a']}\n" for number in range(size)
            )
        )
        loading = calls(lambda path=path: KnownHosts.load([str(path)]))  # type: ignore[misc]
        known = KnownHosts.load([str(path)])
        found.append((loading, calls(lambda known=known: known.keys("host-77", 22))))  # type: ignore[misc]
    (small, look_up), (large, same) = found
    assert large < 11 * small and look_up == same < 20


def test_a_look_up_among_hashed_lines_makes_one_hash_a_line(tmp_path: Path) -> None:
    path = tmp_path / "known"
    salt, digest = (base64.b64encode(bytes([number]) * 20).decode() for number in (1, 2))
    path.write_text(f"|1|{salt}|{digest} ssh-ed25519 {KEYS['a']}\n" * 1_000)
    known = KnownHosts.load([str(path)])
    assert calls(lambda: known.keys("host", 22)) < 3 * 1_000 + 20, "hmac.digest makes two calls of its own"
