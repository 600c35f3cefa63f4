"""The rack as its tests hold it: a bridge, nodes on it, and all that can go wrong with one."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType

from tests.rack import machine
from tests.rack.machine import PATH, Spec
from tests.rack.processes import Process, all_processes, namespace_of

CHECKOUT = Path(__file__).parents[2]
_UNSHARE = ("--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--mount-proc", "--propagation", "private")


class Bed:
    """Namespaces that hold a network of nodes; use as a context manager, everything goes at its end."""

    def __init__(self, directory: Path) -> None:
        """Keep the nodes' directories and keys in a directory."""
        self.directory = directory
        self._lock = threading.Lock()
        self._count = 0

    def __enter__(self) -> Bed:
        """Start the holder, and make the key that every node accepts."""
        keygen(self.key)
        argv = ["unshare", *_UNSHARE, "--kill-child", sys.executable, "-m", "tests.rack.holder"]
        self._unshare = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=CHECKOUT)
        self._read()
        (self._holder,) = (item.pid for item in all_processes() if item.parent == self._unshare.pid)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the holder, and with it all that runs in its namespaces."""
        assert self._unshare.stdin is not None and self._unshare.stdout is not None
        self._unshare.stdin.close()
        self._unshare.stdout.close()
        try:
            self._unshare.wait(5)
        except subprocess.TimeoutExpired:
            self._unshare.kill()
            self._unshare.wait()

    @property
    def key(self) -> Path:
        """The private key that every node accepts."""
        return self.directory / "user_key"

    def argv(self, *argv: str) -> list[str]:
        """Return the words that run a command as the controller: in the rack's network, gone when the tests are."""
        return ["nsenter", "-t", str(self._holder), "-n", "-u", "--", "setpriv", "--pdeathsig", "KILL", *argv]

    def ip(self, command: str, check: bool = True) -> None:
        """Run a command of ip(8) at the bridge's side."""
        argv = ["nsenter", "-t", str(self._holder), "-n", "--", "ip", *command.split()]
        done = subprocess.run(argv, capture_output=True, text=True)
        assert done.returncode == 0 or not check, done.stderr

    def start(self, specs: Sequence[Spec]) -> list[Node]:
        """Start nodes and wait until their sshds answer."""
        inner = self._ask({"start": [asdict(spec) for spec in specs]})
        outer = {item.inner[-2]: item.pid for item in all_processes() if item.parent == self._holder}
        nodes = [Node(self, spec, outer[pid]) for spec, pid in zip(specs, inner, strict=True)]
        for node in nodes:
            node.wait_for_sshd()
        return nodes

    def spec(self, name: str, site: Path, root: str, disk_mib: int, sshd: Sequence[str]) -> Spec:
        """Return a node to start: its own directory, keys and address, one shared directory a site."""
        with self._lock:
            self._count += 1
            number = self._count
        directory = site / name
        directory.mkdir()
        keygen(directory / "host_key")
        (directory / "boot_id").write_text(f"{uuid.uuid4()}\n")
        return Spec(
            name=name,
            address=f"10.99.{number // 250}.{number % 250 + 1}",
            interface=f"v{number}",
            root=root,
            disk_mib=disk_mib,
            directory=str(directory),
            shared=str(site / "shared"),
            authorized=public(self.key),
            sshd=tuple(sshd),
        )

    def forget(self, nodes: Sequence[Node]) -> None:
        """Stop nodes and free their disks."""
        for node in nodes:
            kill(node.pid)
        for node in nodes:
            node.wait_for_end()
        self._ask({"forget": [node.spec.directory for node in nodes]})

    def _ask(self, request: object) -> list[int]:
        assert self._unshare.stdin is not None
        with self._lock:
            self._unshare.stdin.write(json.dumps(request).encode() + b"\n")
            self._unshare.stdin.flush()
            answer = self._read()
        if isinstance(answer, dict):
            raise RuntimeError(answer["error"])
        assert isinstance(answer, list)
        return answer

    def _read(self) -> object:
        assert self._unshare.stdout is not None
        line = self._unshare.stdout.readline()
        if not line:
            raise RuntimeError(f"the rack's holder ended with {self._unshare.wait()}; it needs root and namespaces")
        return json.loads(line)


@dataclass
class Node:
    """A running node."""

    bed: Bed
    spec: Spec
    pid: int
    """Of its PID 1, as this process sees it."""

    @property
    def name(self) -> str:
        """Its host name."""
        return self.spec.name

    # Looking

    def path(self, path: str) -> Path:
        """Return a path of the node as this process can open it."""
        return Path(f"/proc/{self.pid}/root") / path.lstrip("/")

    def run(self, *argv: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a command on the node, without sshd."""
        words = ["nsenter", "-t", str(self.pid), "-a", "--wd=/", "--", *argv]
        environment = {"PATH": PATH, "HOME": "/root"}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or not check, done.stderr
        return done

    def processes(self) -> list[Process]:
        """Return all that runs here, but PID 1 and the listening sshd."""
        return [item for item in self._all() if item.pid != self.pid and not _listens(item)]

    def at_work(self) -> list[Process]:
        """Return what runs here, but sshd's processes."""
        return [item for item in self.processes() if not item.command.startswith("sshd")]

    def worker(self) -> Process:
        """Return the newest run's worker."""
        records = sorted(self.path("/var/tmp").glob("k3env-*/runs/*/pid"), key=lambda item: item.stat().st_mtime)
        inner = int(records[-1].read_text())
        return next(item for item in self.processes() if item.inner[-1] == inner)

    def follower(self) -> Process:
        """Return the agent's process that passes the journal on."""
        sessions = {item.pid for item in self.processes() if item.command.startswith("sshd")}
        return next(item for item in self.processes() if item.parent in sessions and "python" in item.command)

    # sshd

    def wait_for_sshd(self, timeout_s: float = 10.0) -> None:
        """Wait until something listens on port 22."""
        wait_until(lambda: self.run("sh", "-c", "kill -0 $(cat /run/sshd.pid)", check=False).returncode == 0, timeout_s)

    def sshd(self, *lines: str) -> None:
        """Restart sshd with lines in place of usual ones; sessions go on."""
        self.stop_sshd()
        self.path(machine.CONFIG).write_text(machine.sshd_config(self.spec, lines))
        self.start_sshd()

    def start_sshd(self) -> None:
        """Start sshd as it is configured."""
        self.run("/usr/sbin/sshd", "-f", machine.CONFIG, "-E", "/run/sshd.log")

    def stop_sshd(self) -> None:
        """Kill the listener: from now on connections are refused."""
        listener = self._listener()
        kill(listener, signal.SIGKILL)
        wait_until(lambda: not namespace_of(listener), 5)

    def hang_sshd(self) -> None:
        """Stop the listener: connections are accepted by the kernel and never greeted."""
        kill(self._listener(), signal.SIGSTOP)

    @contextlib.contextmanager
    def connected(self) -> Iterator[None]:
        """Hold a connection to sshd on which nothing is ever said."""
        with self._child("import socket, sys; s = socket.create_connection((sys.argv[1], 22))"):
            yield

    @contextlib.contextmanager
    def listening(self, greeting: bytes) -> Iterator[None]:
        """Listen in sshd's place: greet whoever comes, and close."""
        code = (
            "import socket, sys, threading\ns = socket.create_server((sys.argv[1], 22))\n"
            f"def serve():\n  while True:\n    c, _ = s.accept(); c.sendall({greeting!r}); c.close()\n"
            "threading.Thread(target=serve, daemon=True).start()"
        )
        with self._child(code):
            yield

    @contextlib.contextmanager
    def _child(self, code: str) -> Iterator[None]:
        """Run Python in the node's network until left."""
        end = "; print(flush=True); sys.stdin.read()" if "\n" not in code else "\nprint(flush=True); sys.stdin.read()"
        words = ["nsenter", "-t", str(self.pid), "-n", "--", sys.executable, "-I", "-c", code + end, self.spec.address]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
            assert child.stdout is not None
            child.stdout.readline()
            yield

    def cut_sessions(self) -> None:
        """Kill sshd's sessions, and leave what they started."""
        for item in self.processes():
            if item.command.startswith("sshd"):
                kill(item.pid, signal.SIGKILL)

    def new_host_key(self) -> None:
        """Give the node another host key than known_hosts has."""
        key = Path(self.spec.directory) / "other_key"
        keygen(key)
        self.path("/etc/ssh/rack_host_key").write_bytes(key.read_bytes())
        self.sshd()

    def clock_off(self, seconds: int) -> None:
        """Let every session's wall clock go wrong by some seconds; the kernel's, and so files' times, stay right."""
        library = self.path("/opt/clock.so")
        library.parent.mkdir(exist_ok=True)
        source = Path(__file__).with_name("clock.c")
        subprocess.run(["gcc", "-shared", "-fPIC", f"-DOFFSET=({seconds})", "-o", library, source], check=True)
        self.sshd("SetEnv LD_PRELOAD=/opt/clock.so")
        off = self.run("env", "LD_PRELOAD=/opt/clock.so", "date", "+%s").stdout
        assert abs(int(off) - seconds - time.time()) < 5

    # The road

    def cable(self, plugged: bool) -> None:
        """Pull the network cable, or plug it in."""
        self.bed.ip(f"link set {self.spec.interface} {'up' if plugged else 'down'}")
        # What could not be asked a moment ago is asked again.
        self.bed.ip(f"neigh flush to {self.spec.address}")

    def drop_packets(self, percent: int) -> None:
        """Lose some of the packets that the node sends; none, after that."""
        words = ["nsenter", "-t", str(self.pid), "-n", "--", "nft", "-f", "-"]
        rules = "flush ruleset\n" + _chain("rack", f"numgen random mod 100 < {percent} drop")
        subprocess.run(words, input=rules, text=True, check=True)

    @contextlib.contextmanager
    def resetting(self) -> Iterator[None]:
        """Answer the controller's packets to the node with resets, as a firewall that forgot its state does."""
        words = self.bed.argv("nft", "-f", "-")
        table = f"rack_{self.spec.interface}"
        rule = f"ip daddr {self.spec.address} ip protocol tcp reject with tcp reset"
        subprocess.run(words, input=_chain(table, rule), text=True, check=True)
        try:
            yield
        finally:
            subprocess.run(words, input=f"delete table ip {table}\n", text=True, check=True)

    @contextlib.contextmanager
    def delayed(self, milliseconds: float) -> Iterator[None]:
        """Let each packet to and from the node take some milliseconds."""
        words = self.bed.argv(sys.executable, "-m", "tests.rack.delay", self.spec.interface, f"{milliseconds:g}")
        between = subprocess.Popen(words, stdout=subprocess.PIPE, cwd=CHECKOUT)
        assert between.stdout is not None
        try:
            assert between.stdout.readline() == b"delayed\n"
            yield
        finally:
            between.kill()
            between.wait()
            between.stdout.close()

    # Power

    def freeze(self) -> None:
        """Stop every process of the node."""
        self._signal_all(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let them go on."""
        self._signal_all(signal.SIGCONT)

    def power_off(self) -> None:
        """Cut the power: no connection is closed, nothing is written any more."""
        if not namespace_of(self.pid):
            return
        self.cable(False)
        kill(self.pid)
        self.wait_for_end()

    def wait_for_end(self) -> None:
        """Wait until nothing of the node runs any more."""
        wait_until(lambda: not namespace_of(self.pid), 10)
        # Its network namespace goes a while later, and the cable's name with it.
        self.bed.ip(f"link del {self.spec.interface}", check=False)

    def power_on(self) -> None:
        """Boot the same disk again: another boot id, an empty /tmp and /run."""
        Path(self.spec.boot_id).write_text(f"{uuid.uuid4()}\n")
        (again,) = self.bed.start([replace(self.spec)])
        self.pid = again.pid

    def _signal_all(self, number: int) -> None:
        for item in self._all():
            kill(item.pid, number)

    def _all(self) -> list[Process]:
        here = namespace_of(self.pid)
        return [item for item in all_processes() if here and namespace_of(item.pid) == here]

    def _listener(self) -> int:
        return next(item.pid for item in self._all() if _listens(item))

    # The ground

    def fill(self, path: str, leave_kib: int = 0) -> Path:
        """Fill the filesystem of a directory; return the file that does."""
        filler = self.path(f"{path}/filler")
        free = os.statvfs(filler.parent)
        assert free.f_bavail * free.f_frsize <= 512 << 20, "a disk is memory: give this site's nodes a small one"
        with filler.open("wb") as file:
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize - 1024 * leave_kib))
        return filler

    def remount(self, path: str, options: str) -> None:
        """Change how a filesystem is mounted on this node alone."""
        self.run("mount", "-o", f"remount,{options}", path)

    def unmount(self, path: str) -> None:
        """Take a filesystem away from under everybody's feet."""
        self.run("umount", "-l", path)

    def user(self, name: str, *, shell: str = "/bin/sh", password: str = "") -> None:
        """Make a user whom the rack's key lets in, with a home and perhaps a password."""
        self.run("useradd", "--no-log-init", "--create-home", "--home-dir", f"/home/{name}", "--shell", shell, name)
        self.run("passwd", "--quiet", "--delete", name)  # sshd refuses those whose password is locked
        self.path("/etc/ssh/rack_authorized_keys").chmod(0o644)
        if password:
            self.run("sh", "-c", f"echo {name}:{password} | chpasswd --crypt-method SHA256")

    def sudoers(self, *lines: str) -> None:
        """Say who may become whom."""
        path = self.path("/etc/sudoers")
        path.unlink(missing_ok=True)
        path.write_text("\n".join(["Defaults env_reset", "root ALL=(ALL) ALL", *lines, ""]))
        path.chmod(0o440)
        self.run("visudo", "--check", "--strict")

    def script(self, path: str, text: str) -> None:
        """Put a shell script on the node."""
        there = self.path(path)
        there.parent.mkdir(parents=True, exist_ok=True)
        there.unlink(missing_ok=True)
        there.write_text(f"#!/bin/sh\n{text}\n")
        there.chmod(0o755)


def keygen(path: Path) -> None:
    """Make an ed25519 key."""
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", path.name, "-f", path], check=True)


def public(key: Path) -> str:
    """Return the public half of a key, type and data."""
    return " ".join(key.with_name(f"{key.name}.pub").read_text().split()[:2])


def wait_until(is_so: Callable[[], object], timeout_s: float, what: str = "") -> None:
    """Wait for something to become true."""
    ends = time.monotonic() + timeout_s
    while not is_so():
        assert time.monotonic() < ends, f"not within {timeout_s:g} s: {what or is_so}"
        time.sleep(0.02)


def kill(pid: int, number: int = signal.SIGKILL) -> None:
    """Send a signal to a process that may have ended."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _chain(table: str, rule: str) -> str:
    """Return a rule for what a network namespace sends, as nft reads it."""
    return f"table ip {table} {{\nchain out {{\ntype filter hook output priority 0\n{rule}\n}}\n}}\n"


def _listens(item: Process) -> bool:
    return item.command.startswith(("sshd: /usr/sbin/sshd", "/usr/sbin/sshd"))
