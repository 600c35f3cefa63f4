"""The network: texts of the kernel, and real sockets on loopback."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3env.node.facts import network, read
from k3env.node.facts.network import Port, egress, infiniband, listening
from k3env.node.machine import Machine
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Profile, System
from tests.unit.node.tools import Node, known


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_ports_as_the_kernel_tells_them(node: Node) -> None:
    for device, texts in {
        "mlx5_0": ("4: ACTIVE", "5: LinkUp", "800 Gb/sec (4X XDR)", "InfiniBand"),
        "mlx5_1": ("1: DOWN", "3: Disabled", "2.5 Gb/sec (1X SDR)", "Ethernet"),
    }.items():
        for name, text in zip(("state", "phys_state", "rate", "link_layer"), texts):
            node.file(f"/sys/class/infiniband/{device}/ports/1/{name}", f"{text}\n")
    node.file("/sys/class/infiniband/odd/ports/2/state", b"\xff\xfe")
    assert infiniband(node.machine()).ports == (
        Port("mlx5_0/1", "ACTIVE", "LinkUp", 800.0, "InfiniBand"),
        Port("mlx5_1/1", "DOWN", "Disabled", 2.5, "Ethernet"),
        Port("odd/2", ""),
    )


def test_a_machine_without_cards(tmp_path: Path) -> None:
    machine = Machine(overlay=str(tmp_path))
    if not machine.is_dir(network.INFINIBAND):
        assert infiniband(machine).ports == ()


def test_a_real_listener_is_seen_and_a_closed_one_is_not(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert port in listening(Machine()).ports
    listener.close()
    assert port not in listening(Machine()).ports


HEAD = "  sl  local_address rem_address   st tx_queue rx_queue\n"
SOCKET = "   0: 0100007F:1F40 00000000:0000 {} 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100\n"


@pytest.mark.parametrize(("state", "ports"), [("0A", (8000,)), ("01", ()), ("06", ())])
def test_only_listening_counts(node: Node, state: str, ports: tuple[int, ...]) -> None:
    node.file("/proc/net/tcp", HEAD + SOCKET.format(state))
    node.file("/proc/net/tcp6", HEAD)
    assert listening(node.machine()).ports == ports


@pytest.mark.parametrize("text", [HEAD + "   0: 0100\n", HEAD + "garbage\n"])
def test_a_table_that_is_cut(node: Node, text: str) -> None:
    node.file("/proc/net/tcp", text)
    assert isinstance(read(listening, node.machine(), Profile()), Unreadable)


def profile(*hosts: str) -> Profile:
    return Profile(system=System(egress_hosts=hosts))


def test_a_host_that_accepts_and_one_that_refuses(node: Node, listener: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        closed = f"127.0.0.1:{other.getsockname()[1]}"
    opened = f"127.0.0.1:{listener.getsockname()[1]}"
    found = known(egress(node.machine(), profile(opened, closed)))
    assert (found.needless, found.reached, found.failed) == (None, (opened,), {closed: "Connection refused"})


def test_a_host_that_never_answers(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in: packets that get lost can't be had on loopback."""
    monkeypatch.setattr(network, "CONNECT_S", 0.3)
    node.program("bash", "exec sleep 30")
    assert known(egress(node.machine(), profile("host.invalid:443"))).failed == {
        "host.invalid:443": "no answer after 0.3 s"
    }


def test_a_proxy_is_what_must_be_reached(node: Node, listener: socket.socket) -> None:
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    node.environment["https_proxy"] = f"http://user:secret@{address}/"
    found = known(egress(node.machine(), profile("host.invalid:443")))
    assert found.reached == (address,)
    assert "secret" not in str(found)


def test_a_mirror_stands_in_for_the_host_of_cubins(node: Node, listener: socket.socket) -> None:
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    node.environment["FLASHINFER_CUBINS_REPOSITORY"] = f"http://{address}/cubins/"
    assert known(egress(node.machine(), profile(network.CUBIN_HOST))).reached == (address,)


@pytest.mark.parametrize(
    ("url", "port", "address"),
    [
        ("https://mirror/x", 443, "mirror:443"),
        ("http://mirror/x", 443, "mirror:80"),
    ],
)
def test_addresses_of_urls(url: str, port: int, address: str) -> None:
    assert network._address(url, port) == address


@pytest.mark.parametrize(
    ("environment", "through"),
    [
        ({"https_proxy": "http://me:word@proxy/"}, "proxy:80"),
        ({"HTTPS_PROXY": "proxy:8080"}, "proxy:8080"),
        ({"all_proxy": "https://proxy"}, "proxy:443"),
        ({"https_proxy": "http://proxy:3128", "no_proxy": "localhost,.site"}, "mirror.site:443"),
        ({"https_proxy": ""}, "mirror.site:443"),
    ],
)
def test_ranks_take_the_proxy_that_requests_takes(environment: dict[str, str], through: str) -> None:
    assert network._through("mirror.site:443", environment) == through


def test_a_proxy_that_is_none_is_told_without_its_password() -> None:
    with pytest.raises(ValueError, match="https_proxy is no proxy's URL") as caught:
        network._through("mirror.site:443", {"https_proxy": "http://me:word@proxy:port"})
    assert "word" not in str(caught.value)


@pytest.mark.parametrize("url", ["https://", "http://me:word@:1/", "http://a:99999999/"])
def test_urls_without_an_address(url: str) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        network._address(url, 443)
    assert "word" not in str(caught.value)


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ({"TRANSFORMERS_OFFLINE": "True"}, "TRANSFORMERS_OFFLINE is set"),
        ({"FLASHINFER_CUBIN_DIR": "/cubins"}, "FLASHINFER_CUBIN_DIR is filled: /cubins"),
    ],
)
def test_nothing_is_tried_where_nothing_is_needed(node: Node, environment: dict[str, str], told: str) -> None:
    node.file("/cubins/one")
    node.environment.update(environment)
    node.program("bash", 'touch "$0.started"; exit 1')
    assert known(egress(node.machine(), profile("host.invalid:443"))).needless == told
    assert not (node.bin / "bash.started").exists()


@pytest.mark.parametrize("environment", [{"HF_HUB_OFFLINE": "0"}, {"FLASHINFER_CUBIN_DIR": "/empty"}, {}])
def test_empty_cubins_need_the_outside(node: Node, environment: dict[str, str]) -> None:
    (node.overlay / "empty").mkdir()
    node.environment.update(environment)
    node.program("bash", "exit 1")
    assert known(egress(node.machine(), profile("host.invalid:443"))).needless is None


def test_a_site_that_asks_for_no_host(node: Node) -> None:
    assert known(egress(node.machine(), profile())).needless == "the site file asks for no host"
