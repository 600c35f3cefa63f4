"""From a forked process to PID 1 of a node: namespaces, an overlay root, an address, an sshd."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from pathlib import Path

from tests.rack import kernel

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONFIG = "/etc/ssh/sshd_rack"
# Hidden where the root is this machine's: what is there is not the node's.
_OWN = ("var/tmp", "root")
_DEVICES = {"null": (1, 3), "zero": (1, 5), "full": (1, 7), "random": (1, 8), "urandom": (1, 9), "tty": (5, 0)}
_LINKS = {"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2"}


@dataclass(frozen=True)
class Spec:
    """A node to be."""

    name: str
    address: str
    """An IPv4 address in 10.99.0.0/16."""
    interface: str
    """The bridge's end of its cable."""
    root: str
    """The directory that its root filesystem lies over; "/" is this machine's."""
    disk_mib: int
    directory: str
    """What outlives its boots: its disk, host key, boot id."""
    shared: str
    """The directory that stands at /shared."""
    authorized: str
    """The public key that its root accepts."""
    sshd: tuple[str, ...] = ()
    """Lines of its sshd's configuration, in place of usual ones."""

    @property
    def address6(self) -> str:
        """Its IPv6 address, in fd99::/64."""
        return str(IPv6Address(f"fd99::{int(IPv4Address(self.address)) & 0xFFFF:x}"))

    @property
    def boot_id(self) -> str:
        """The file with its boot id."""
        return f"{self.directory}/boot_id"


def disk(spec: Spec) -> None:
    """Mount what is to be the node's disk, once; it stays over reboots."""
    path = f"{spec.directory}/disk"
    if os.path.ismount(path):
        return
    os.makedirs(path, exist_ok=True)
    kernel.mount("tmpfs", path, "tmpfs", 0, f"size={spec.disk_mib}m,mode=755")
    for name in ("upper", "work", "root"):
        os.mkdir(f"{path}/{name}")
    for name in _OWN:
        own = f"{path}/upper/{name}"
        os.makedirs(own)
        os.setxattr(own, "trusted.overlay.opaque", b"y")
    os.chmod(f"{path}/upper/var/tmp", 0o1777)  # noqa: S103 - as everywhere
    os.chmod(f"{path}/upper/root", 0o700)


def forget(directory: str) -> None:
    """Let go of a node's disk; what still uses it keeps it until then."""
    path = f"{directory}/disk"
    if os.path.ismount(path):
        kernel.unmount(path)


def start(specs: Sequence[Spec], plug: Callable[[list[tuple[Spec, int]]], None]) -> list[int]:
    """Fork nodes and return the pids of their PIDs 1 in this namespace, once their sshds listen.

    `plug` gets the nodes with their pids when all nodes wait for their network interface, eth0.
    """
    births = [_Birth(spec) for spec in specs]
    pids = [int(birth.said()) for birth in births]
    for birth in births:
        birth.said()
    plug(list(zip(specs, pids, strict=True)))
    for birth in births:
        birth.go()
    for birth in births:
        birth.said()
    return pids


class _Birth:
    """A node that is being made, as its maker sees it."""

    def __init__(self, spec: Spec) -> None:
        self._name = spec.name
        go, self._go = os.pipe()
        said, say = os.pipe()
        child = os.fork()
        if child == 0:
            _leave(spec, go, say)
        os.close(go)
        os.close(say)
        self._said = open(said, "rb")  # noqa: SIM115 - closed with its node's birth
        os.waitpid(child, 0)

    def said(self) -> str:
        """Return the next thing it says: its pid, that it waits, that it is up."""
        text = self._said.readline().decode().strip()
        if not text or text.startswith("error"):
            raise RuntimeError(f"node {self._name}: {text or 'it ended while it started'}")
        return text

    def go(self) -> None:
        """Let it go on: its interface is there."""
        os.write(self._go, b"go")
        os.close(self._go)


def _leave(spec: Spec, go: int, say: int) -> None:
    """Enter new namespaces, fork PID 1 there, and end: its parent is then the holder."""
    try:
        kernel.unshare(kernel.NEW_MOUNTS | kernel.NEW_NAME | kernel.NEW_IPC | kernel.NEW_PIDS | kernel.NEW_NET)
        told, tell = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.read(told, 1)  # the pid is said first
            _boot(spec, go, say)
        os.write(say, b"%d\n" % pid)
        os.write(tell, b"y")
    finally:
        os._exit(0)


def _boot(spec: Spec, go: int, say: int) -> None:
    try:
        root = _filesystems(spec)
        os.write(say, b"ready\n")
        os.read(go, 2)
        _network(spec)
        kernel.enter_root(root)
        os.environ.clear()
        os.environ.update(PATH=PATH, HOME="/root")
        subprocess.run(["/usr/sbin/sshd", "-f", CONFIG, "-E", "/run/sshd.log"], check=True)
        os.write(say, b"up\n")
        _reap(spec.name)
    except Exception as error:
        os.write(say, f"error {type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(1)


def _filesystems(spec: Spec) -> str:
    """Mount the node's root and all that belongs below it; return where."""
    kernel.mount("none", "/", None, kernel.REC | kernel.PRIVATE)
    disk = f"{spec.directory}/disk"
    root = f"{disk}/root"
    kernel.mount("overlay", root, "overlay", 0, f"lowerdir={spec.root},upperdir={disk}/upper,workdir={disk}/work")
    for name in ("proc", "sys", "dev", "tmp", "run", "shared", "var/log", "etc/ssh"):
        os.makedirs(f"{root}/{name}", exist_ok=True)
    strict = kernel.NOSUID | kernel.NODEV | kernel.NOEXEC
    kernel.mount("proc", f"{root}/proc", "proc", strict)
    kernel.mount(spec.boot_id, f"{root}/proc/sys/kernel/random/boot_id", None, kernel.BIND)
    kernel.mount("sysfs", f"{root}/sys", "sysfs", strict)
    kernel.mount("tmpfs", f"{root}/dev", "tmpfs", kernel.NOSUID, "mode=755,size=1m")
    kernel.mount("tmpfs", f"{root}/tmp", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=1777,size=128m")
    kernel.mount("tmpfs", f"{root}/run", "tmpfs", kernel.NOSUID | kernel.NODEV, "mode=755,size=16m")
    kernel.mount(spec.shared, f"{root}/shared", None, kernel.BIND)
    _devices(f"{root}/dev")
    _files(spec, Path(root))
    return root


def _devices(dev: str) -> None:
    for name, numbers in _DEVICES.items():
        os.mknod(f"{dev}/{name}", 0o20666, os.makedev(*numbers))
        os.chmod(f"{dev}/{name}", 0o666)  # noqa: S103 - as everywhere
    for name, target in _LINKS.items():
        os.symlink(target, f"{dev}/{name}")
    os.mkdir(f"{dev}/pts")
    os.mkdir(f"{dev}/shm")
    kernel.mount("devpts", f"{dev}/pts", "devpts", kernel.NOSUID | kernel.NOEXEC, "newinstance,ptmxmode=0666,mode=620")
    os.symlink("pts/ptmx", f"{dev}/ptmx")
    kernel.mount("tmpfs", f"{dev}/shm", "tmpfs", kernel.NOSUID | kernel.NODEV, "size=16m")


def _files(spec: Spec, root: Path) -> None:
    kernel.set_hostname(spec.name)
    (root / "run/sshd").mkdir(mode=0o755)
    (root / "etc/hostname").write_text(f"{spec.name}\n")
    (root / "etc/hosts").write_text(f"127.0.0.1 localhost\n{spec.address} {spec.name}\n")
    (root / "etc/resolv.conf").unlink(missing_ok=True)
    (root / "etc/resolv.conf").write_text("")
    _private(root / "etc/ssh/rack_host_key", Path(f"{spec.directory}/host_key").read_bytes())
    _private(root / "etc/ssh/rack_authorized_keys", spec.authorized.encode())
    (root / CONFIG.lstrip("/")).write_text(sshd_config(spec, spec.sshd))


def _private(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)


def sshd_config(spec: Spec, lines: tuple[str, ...] = ()) -> str:
    """Return an sshd's configuration; `lines` take the place of those that begin with the same word."""
    usual = [
        f"ListenAddress {spec.address}:22",
        f"ListenAddress [{spec.address6}]:22",
        "HostKey /etc/ssh/rack_host_key",
        "AuthorizedKeysFile /etc/ssh/rack_authorized_keys",
        "PidFile /run/sshd.pid",
        "PasswordAuthentication no",
        "PermitRootLogin prohibit-password",
        "StrictModes no",
        "UsePAM no",
        "MaxStartups 100",
        "MaxSessions 100",
        "LogLevel VERBOSE",
    ]
    said = {line.split()[0] for line in lines}
    return "\n".join([*lines, *(line for line in usual if line.split()[0] not in said), ""])


def _network(spec: Spec) -> None:
    # Without nodad, nobody may bind the address for a second.
    commands = (
        f"link set lo up\naddr add {spec.address}/16 dev eth0\naddr add {spec.address6}/64 dev eth0 nodad\n"
        "link set eth0 up\n"
    )
    subprocess.run(["ip", "-batch", "-"], input=commands, text=True, check=True)


def _reap(name: str) -> None:
    """Be PID 1: collect whoever ends."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(null, descriptor)
    os.closerange(3, 256)
    kernel.set_process_name(f"init {name}")
    signal.set_wakeup_fd(-1)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            pass
        # What had no parent left is reaped a second later at most, should its signal come between.
        signal.sigtimedwait({signal.SIGCHLD}, 1.0)
