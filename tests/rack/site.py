"""A site of its own for one row: nodes, what they share, and a person with a home who types commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.rack import roots
from tests.rack.bed import CHECKOUT, Bed, Node, keygen, public, wait_until
from tests.rack.processes import Process, all_processes, environment_of
from tests.sandbox.cli import Said

DISK_MIB = 32 << 10
"""More than a node needs; memory is used only by what is written."""
HOME_SSH = ".ssh"


class Site:
    """Some nodes and a controller; use as a context manager."""

    def __init__(
        self,
        bed: Bed,
        directory: Path,
        nodes: Sequence[str] | Mapping[str, str] = ("a",),
        *,
        disk_mib: int = DISK_MIB,
        sshd: Sequence[str] = (),
    ) -> None:
        """Name the nodes, or say which root each lies over; this machine's is taken where nothing is said."""
        self.bed, self.directory = bed, directory
        self._roots = dict(nodes) if isinstance(nodes, Mapping) else dict.fromkeys(nodes, roots.HOST)
        self._disk_mib, self._sshd = disk_mib, sshd
        self.nodes: dict[str, Node] = {}

    def __enter__(self) -> Site:
        """Start the nodes; make the home with a key, known hosts and an inventory."""
        for name in ("shared", "home/.ssh", "home/etc_ssh"):
            (self.directory / name).mkdir(parents=True)
        specs = [
            self.bed.spec(name, self.directory, root, self._disk_mib, self._sshd) for name, root in self._roots.items()
        ]
        self.nodes = {node.name: node for node in self.bed.start(specs)}
        key = self.home / HOME_SSH / "id_ed25519"
        key.touch(mode=0o600)
        key.write_bytes(self.bed.key.read_bytes())
        self.known_hosts.write_text(
            "".join(
                f"{node.spec.address} {public(Path(node.spec.directory) / 'host_key')}\n"
                for node in self.nodes.values()
            )
        )
        (self.home / "passwd").write_text(f"root:x:0:0::{self.home}:/bin/sh\nsshd:x:100:65534::/run/sshd:/bin/false\n")
        self.inventory({name: {} for name in self.nodes})
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Take the nodes away; nothing that the person began may still run."""
        try:
            if kind is None:
                wait_until(lambda: not self._begun_here(), 5, f"left on the controller: {self._begun_here()}")
        finally:
            self.bed.forget(list(self.nodes.values()))

    def _begun_here(self) -> list[Process]:
        """Return the processes that have this person's home, on this machine."""
        home = f"HOME={self.home}\0".encode()
        return [item for item in all_processes() if home in environment_of(item.pid)]

    # Files

    @property
    def home(self) -> Path:
        """The person's home."""
        return self.directory / "home"

    @property
    def shared(self) -> Path:
        """What the nodes see as /shared."""
        return self.directory / "shared"

    @property
    def known_hosts(self) -> Path:
        """The person's known_hosts."""
        return self.home / HOME_SSH / "known_hosts"

    @property
    def etc_ssh(self) -> Path:
        """What the person sees as /etc/ssh."""
        return self.home / "etc_ssh"

    def ssh_config(self, *lines: str) -> None:
        """Write the person's ssh_config."""
        (self.home / HOME_SSH / "config").write_text("\n".join([*lines, ""]))

    def key(self, name: str) -> str:
        """Make a key in the person's .ssh; return its public half."""
        keygen(self.home / HOME_SSH / name)
        return public(self.home / HOME_SSH / name)

    @property
    def node(self) -> Node:
        """The first node."""
        return next(iter(self.nodes.values()))

    def inventory(self, hosts: Mapping[str, Mapping[str, Any]], **variables: Any) -> None:
        """Write the inventory: hosts with what is said of each; a node brings its address."""
        rows = {
            name: {**({"ansible_host": self.nodes[name].spec.address} if name in self.nodes else {}), **said}
            for name, said in hosts.items()
        }
        everywhere = {"ansible_user": "root", **variables}
        text = json.dumps({"all": {"hosts": rows, "vars": everywhere}}, indent=1)
        (self.home / "site.yml").write_text(text)  # JSON is YAML

    def playbook(self, *tasks: Mapping[str, Any], name: str = "play", **play: Any) -> str:
        """Write a playbook; return its path."""
        path = self.home / f"{name}.yml"
        numbered = [{"name": f"Task {number}", **task} for number, task in enumerate(tasks, 1)]
        path.write_text(json.dumps([{"name": "A play", "hosts": "all", **play, "tasks": numbered}], indent=1))
        return str(path)

    def build(self, seconds: float, *, alone: bool = True, name: str = "work") -> str:
        """Write a playbook whose one task is a build in the shared checkout; return its path.

        It writes down on which nodes it began; `alone`: it fails where another one is still at work.
        """
        checkout = self.shared / name
        checkout.mkdir(exist_ok=True)
        script = self.shared / f"{name}.sh"
        lock = _LOCK.format(checkout=f"/shared/{name}") if alone else ""
        script.write_text(_BUILD.format(checkout=f"/shared/{name}", tenths=round(seconds * 10), lock=lock))
        task = {"argv": ["sh", f"/shared/{name}.sh"], "creates": f"/shared/{name}/done", "checkout": f"/shared/{name}"}
        return self.playbook({"name": "Build", "command": task}, name=name)

    def begun(self, name: str = "work") -> list[str]:
        """Return the nodes on which a build began, in order."""
        path = self.shared / name / "begun"
        return path.read_text().split() if path.exists() else []

    # Commands

    def environment(self) -> dict[str, str]:
        """Return a person's environment."""
        return {"PATH": os.environ["PATH"], "HOME": str(self.home), "LANG": "C.UTF-8", "USER": "root"}

    def argv(self, *words: str) -> list[str]:
        """Return the words that type a command of k3env."""
        return self.as_person(sys.executable, "-m", "k3env.cli", *words)

    def as_person(self, *argv: str) -> list[str]:
        """Return the words that run a command as the person whose home this is.

        OpenSSH asks the password file where that is, not $HOME.
        """
        return self.bed.argv(
            "unshare", "--mount", "--propagation", "private", "sh", "-c", _AT_HOME, "sh", str(self.home), *argv
        )

    def provision(self, playbook: str, *options: str, hosts: str = "all") -> list[str]:
        """Return the words of a run on hosts, for its document."""
        inventory = str(self.home / "site.yml")
        words = ["provision", "--hosts", hosts, "--inventory", inventory, "--playbook", playbook]
        return self.argv(*words, "--output", "json", *options)

    def run(self, playbook: str, *options: str, hosts: str = "all", timeout_s: float = 120.0) -> Said:
        """Run a playbook to its end."""
        return self.start(playbook, *options, hosts=hosts).end(timeout_s)

    def start(self, playbook: str, *options: str, hosts: str = "all") -> Running:
        """Begin to run a playbook."""
        return self.type(self.provision(playbook, *options, hosts=hosts))

    def type(self, argv: Sequence[str], environment: Mapping[str, str] | None = None, **keywords: Any) -> Running:
        """Begin a command; `environment` is added to the person's."""
        out, err = (self.home / f"{name}-{time.monotonic_ns()}" for name in ("out", "err"))
        with out.open("wb") as stdout, err.open("wb") as stderr:
            # Of its own group, as a shell starts it: a signal for the tests is none for it.
            usual = {"stdin": subprocess.DEVNULL, "stdout": stdout, "stderr": stderr, "process_group": 0}
            together = {**self.environment(), **(environment or {})}
            process = subprocess.Popen(argv, env=together, cwd=CHECKOUT, **{**usual, **keywords})
        return Running(process, out, err)

    def type_secret(self, argv: Sequence[str], question: str, secret: str) -> Running:
        """Begin a command in a terminal, and answer the first question that it asks there."""
        ours, its = os.openpty()
        # Without a session of its own, it would ask at the terminal of the tests.
        running = self.type(argv, stdin=its, start_new_session=True, process_group=None)
        os.close(its)
        running.until(question)
        os.write(ours, f"{secret}\n".encode())
        running.terminal = ours
        return running

    def quiet(self, within_s: float = 5.0) -> None:
        """Look for processes that were left behind on a node."""
        for node in self.nodes.values():
            left = node.at_work
            wait_until(lambda left=left: not left(), within_s, f"{node.name} still runs {left()}")  # type: ignore[misc]


@dataclass
class Running:
    """A command that runs."""

    process: subprocess.Popen[bytes]
    out: Path
    err: Path
    terminal: int | None = None
    """Our end of the terminal that it was begun in."""

    @property
    def said(self) -> str:
        """What it has said to the person so far."""
        return self.err.read_text("utf-8", "replace")

    def until(self, words: str, timeout_s: float = 30.0) -> None:
        """Wait until it has said something."""
        wait_until(
            lambda: words in self.said or self.process.poll() is not None, timeout_s, f"{words!r} in {self.said}"
        )
        assert words in self.said, self.said

    def signal(self, number: int = signal.SIGINT) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def end(self, timeout_s: float = 120.0) -> Said:
        """Wait for its end; it must not have shown a traceback."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"it did not end within {timeout_s:g} s: {self.said}") from None
        finally:
            if self.terminal is not None:
                os.close(self.terminal)
                self.terminal = None
        said = Said(code, self.out.read_text("utf-8", "replace"), self.said)
        assert "Traceback" not in said.out + said.err, said.err
        return said


_AT_HOME = 'mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/etc_ssh" /etc/ssh && shift && exec "$@"'
_BUILD = """
echo "$(hostname)" >> {checkout}/begun
{lock}
i=0
while [ $i -lt {tenths} ]; do sleep 0.1; i=$((i + 1)); done
hostname > {checkout}/done
"""
# It goes with its owner, whatever became of that one.
_LOCK = """
exec 9>> {checkout}/lock
flock -n 9 || {{ hostname >> {checkout}/twice; exit 1; }}
"""
