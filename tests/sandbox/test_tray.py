"""A tray's SSH server, seen through a plain client."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import paramiko
import pytest

from k3env.sandbox import Endpoint, Rack, processes, tray, wire
from k3env.sandbox.watch import TaskWatch

from .client import connect, execute, run, wait_for


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rack]:
    with Rack(tmp_path_factory.mktemp("rack")) as rack:
        yield rack
    rack.reset()


@pytest.fixture(scope="module")
def fit(rack: Rack) -> Endpoint:
    return rack.start({"fit": {}})["fit"]


@pytest.mark.parametrize(
    ("command", "status", "out", "err"),
    [
        ("echo hello", 0, b"hello\n", b""),
        ("echo oops >&2; exit 3", 3, b"", b"oops\n"),
        ("no-such-command 2>/dev/null", 127, b"", b""),
        ("printf 'a\\0\\377\\r\\n'", 0, b"a\0\xff\r\n", b""),
        ("kill -9 $$", -1, b"", b""),  # as sshd: a signal leaves no status
        ("exec 1>&- 2>&-; sleep 0.1; exit 4", 4, b"", b""),
        ('printf "%s" "$0"', 0, b"/bin/sh", b""),
        ("test -t 0 || test -t 1 || echo no terminal", 0, b"no terminal\n", b""),
        ("pwd; umask >/dev/null", 0, b"HOME\n", b""),
    ],
)
def test_commands(fit: Endpoint, rack: Rack, command: str, status: int, out: bytes, err: bytes) -> None:
    expected = out.replace(b"HOME", str(rack.path / "fit" / "home").encode())
    assert run(fit, command) == (status, expected, err)


def test_large_streams_pass_unchanged(fit: Endpoint) -> None:
    data = bytes(range(256)) * 40_000  # 10 MB
    done = run(fit, "tee /dev/stderr", data)
    digests = [hashlib.sha256(stream).digest() for stream in (done.out, done.err)]
    assert done.status == 0
    assert digests == [hashlib.sha256(data).digest()] * 2


def test_a_client_that_does_not_read_holds_the_command_up(fit: Endpoint, rack: Rack) -> None:
    count = rack.path / "fit" / "tmp" / "count"
    script = (
        "import sys\nfor n in range(1, 65):\n sys.stdout.write('x' * 1048576)\n open(sys.argv[1], 'w').write(str(n))"
    )
    with connect(fit) as transport:
        channel = transport.open_session()
        channel.exec_command(f'python3 -c "{script}" {count}')
        assert wait_for(count.exists)
        time.sleep(0.5)
        held_at = int(count.read_text())
        assert held_at <= 8  # MiB: the client's window and the pipe
        received = 0
        while data := channel.recv(1 << 20):
            received += len(data)
        assert (received, channel.recv_exit_status()) == (64 << 20, 0)


def test_a_command_that_does_not_read_holds_no_client_up(fit: Endpoint) -> None:
    assert run(fit, "exec 0<&-; sleep 0.2; echo done", b"x" * (8 << 20)) == (0, b"done\n", b"")


def test_input_and_output_run_side_by_side(fit: Endpoint) -> None:
    with connect(fit) as transport:
        channel = transport.open_session()
        channel.exec_command("cat")
        for line in (b"one\n", b"two\n"):
            channel.sendall(line)
            assert channel.recv(100) == line
        channel.shutdown_write()
        assert (channel.recv(100), channel.recv_exit_status()) == (b"", 0)


def test_channels_share_a_connection(fit: Endpoint) -> None:
    with connect(fit) as transport:
        channels = [transport.open_session() for _ in range(4)]
        for number, channel in enumerate(channels):
            channel.exec_command(f"cat; exit {number}")
        for channel in channels:
            channel.shutdown_write()
        assert [channel.recv_exit_status() for channel in channels] == [0, 1, 2, 3]


def test_a_lost_client_ends_input_and_output(fit: Endpoint, rack: Rack) -> None:
    ended, broken = rack.path / "fit" / "tmp" / "ended", rack.path / "fit" / "tmp" / "broken"
    with connect(fit) as transport:
        transport.open_session().exec_command(f"cat; touch {ended}")
        transport.open_session().exec_command(
            f"trap '' PIPE; while echo x; do sleep 0.05; done 2>/dev/null; touch {broken}"
        )
    assert wait_for(ended.exists)
    assert wait_for(broken.exists)


def test_a_detached_worker_outlives_connection_and_server(tmp_path: Path) -> None:
    with Rack(tmp_path / "rack") as rack:
        endpoint = rack.start({"one": {}})["one"]
        home = rack.path / "one"
        done = run(endpoint, "setsid sleep 60 </dev/null >/dev/null 2>&1 & echo started")
        assert done == (0, b"started\n", b"")
    assert wait_for(lambda: len(processes.running(home)) == 1)
    rack.reset()
    assert processes.running(home) == []
    assert not home.exists()


def test_only_the_key_of_the_run_is_accepted(fit: Endpoint, rack: Rack) -> None:
    key = paramiko.Ed25519Key.from_private_key_file(fit.private_key)
    other = paramiko.Ed25519Key.from_private_key_file(str(rack.path / "fit/ssh_host_ed25519_key"))
    attempts: list[Callable[[paramiko.Transport], object]] = [
        lambda transport: transport.auth_publickey(fit.user, other),
        lambda transport: transport.auth_publickey("somebody", key),
        lambda transport: transport.auth_password(fit.user, ""),
        lambda transport: transport.auth_none(fit.user),
    ]
    for attempt in attempts:
        transport = paramiko.Transport((fit.hostname, fit.port))
        try:
            transport.start_client(timeout=5)
            with pytest.raises(paramiko.SSHException):
                attempt(transport)
            assert not transport.is_authenticated()
        finally:
            transport.close()


def test_the_private_key_is_its_owners_alone(fit: Endpoint) -> None:
    path = Path(fit.private_key)
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)


def test_nothing_but_commands_is_served(fit: Endpoint) -> None:
    requests: list[Callable[[paramiko.Transport], object]] = [
        lambda transport: transport.open_session().invoke_shell(),
        lambda transport: transport.open_session().get_pty(),
        lambda transport: transport.open_session().invoke_subsystem("sftp"),
        lambda transport: transport.open_channel("direct-tcpip", ("127.0.0.1", 22), ("127.0.0.1", 1)),
        lambda transport: transport.request_port_forward("127.0.0.1", 0),
    ]
    for request in requests:
        with connect(fit) as transport, pytest.raises(paramiko.SSHException):
            request(transport)


def test_connections_are_quick_and_leave_nothing(fit: Endpoint) -> None:
    run(fit, "true")
    threads = threading.active_count()
    times = []
    for _ in range(20):
        begin = time.monotonic()
        assert run(fit, "exit 5").status == 5
        times.append(time.monotonic() - begin)
    assert sorted(times)[10] < 0.1
    assert wait_for(lambda: threading.active_count() <= threads)


def test_an_idle_connection_costs_no_cpu(fit: Endpoint) -> None:
    with connect(fit) as transport:
        channel = transport.open_session()
        channel.exec_command("sleep 5")
        time.sleep(0.2)
        begin = time.process_time()
        time.sleep(1.0)
        assert time.process_time() - begin < 0.05


def test_refuse(rack: Rack) -> None:
    endpoint = rack.start({"refuses": {"fault": "refuse"}})["refuses"]
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((endpoint.hostname, endpoint.port), timeout=2)


def test_silent(rack: Rack) -> None:
    endpoint = rack.start({"silent": {"fault": "silent"}})["silent"]
    for _ in range(3):
        with socket.create_connection((endpoint.hostname, endpoint.port), timeout=2) as sock:
            sock.sendall(b"SSH-2.0-test\r\n")
            sock.settimeout(0.3)
            with pytest.raises(TimeoutError):
                sock.recv(1)


def test_drop_after_bytes(rack: Rack) -> None:
    endpoint = rack.start({"drops": {"fault": "drop_after_bytes:6000"}})["drops"]
    worker = "setsid sleep 30 </dev/null >/dev/null 2>&1 &"
    with connect(endpoint) as transport:
        assert execute(transport, worker).status == 0  # the handshake fits
        channel = transport.open_session()
        channel.exec_command("head -c 20000 /dev/zero; sleep 20")
        received = 0
        while data := channel.recv(4096):
            received += len(data)
        assert received < 6000
        assert wait_for(lambda: not transport.is_active(), 1)
    assert len(processes.running(rack.path / "drops")) >= 1  # the connection only
    assert len(run(endpoint, "head -c 20000 /dev/zero").out) == 20000


def test_a_cut_comes_at_the_byte_and_once() -> None:
    cut = wire.Cut(1000)
    assert [pushed_through(cut) for _ in range(2)] == [1000, 3000]


def pushed_through(cut: wire.Cut) -> int:
    """Send 3000 bytes in pieces over TCP; return how many arrived."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, _ = listener.accept()
        with wire.Wire(accepted, cut) as server, contextlib.suppress(OSError):
            for _ in range(6):
                server.send(bytes(500))
        received = 0
        while data := client.recv(4096):
            received += len(data)
        return received


def event(kind: str, module: str | None = None) -> bytes:
    data = {} if module is None else {"module": module}
    return b"k3env:r1 " + json.dumps({"seq": 1, "kind": kind, "data": data}).encode() + b"\n"


@pytest.mark.parametrize(
    ("pieces", "seen"),
    [
        ([event("task", "trtllm_build")], True),
        ([event("task", "cache_dirs"), event("task", "trtllm_build")], True),
        ([event("task", "trtllm_build")[:30], event("task", "trtllm_build")[30:]], True),
        ([event("result", "trtllm_build")], False),
        ([event("task")], False),
        ([b"task trtllm_build\n", b"k3env:r1 {\n", b"k3env:r1 []\n"], False),
        ([event("task", "trtllm_build")[:-1]], False),
    ],
)
def test_the_begin_of_a_task_is_seen(pieces: list[bytes], seen: bool) -> None:
    watch = TaskWatch("trtllm_build")
    assert [piece for piece in pieces if watch.sees(piece)] == (pieces[-1:] if seen else [])


def test_die_at_task(rack: Rack) -> None:
    wanted = {"dies": {"fault": "die_at_task:trtllm_build"}}
    endpoint = rack.start(wanted)["dies"]
    boot_id = rack.path / "dies" / "overlay" / "proc/sys/kernel/random/boot_id"
    before = boot_id.read_text()
    line = event("task", "trtllm_build").decode().replace('"', '\\"').strip()
    begin = time.monotonic()
    with connect(endpoint) as transport:
        assert execute(transport, "setsid sleep 60 </dev/null >/dev/null 2>&1 &").status == 0
        channel = transport.open_session()
        channel.exec_command(f'echo "{line}"; cat')
        assert channel.makefile("rb").read().startswith(b"k3env:r1")  # to the end of the connection
        assert wait_for(lambda: not transport.is_active(), 1)
        assert tray.DEATH_DELAY_S <= time.monotonic() - begin < tray.DEATH_DELAY_S + 1
    assert wait_for(lambda: processes.running(rack.path / "dies") == [], 1)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((endpoint.hostname, endpoint.port), timeout=2)
    assert wait_for(lambda: boot_id.read_text() != before, 1)
    died = time.monotonic()
    assert wait_for(lambda: listens(endpoint), tray.DOWN_S + 2)
    assert time.monotonic() - died > tray.DOWN_S - 1
    # Once per composed tray: neither now nor in a later run.
    for again in (rack, Rack(rack.path)):
        with connect(again.start(wanted)["dies"]) as transport:
            assert execute(transport, f'echo "{line}"; sleep {tray.DEATH_DELAY_S + 0.5}; echo alive').out.endswith(
                b"alive\n"
            )
        if again is not rack:
            again.stop()


def listens(endpoint: Endpoint) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex((endpoint.hostname, endpoint.port)) == 0
