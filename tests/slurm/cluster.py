"""A real Slurm on the rack: slurmctld beside the person who types, munged and slurmd on each node.

The person's commands find it by SLURM_CONF; see `environment`. Facts about Slurm 22.05 as Debian 12 has it stand at
the lines that they explain.
"""

from __future__ import annotations

import itertools
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.rack.bed import Node, wait_until
from tests.rack.holder import CONTROLLER
from tests.rack.site import Running, Site
from tests.sandbox.cli import Said

PROGRAMS = ("munged", "slurmctld", "slurmd", "scontrol")
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
CONF = "/etc/slurm/slurm.conf"
"""Where a node has it."""
SOMEBODY = "daemon"
"""A user whose jobs are not ours."""
START_S = 20.0
_PORTS = itertools.count(6820)
"""Clusters beside one another share the controller's address."""

_CONF = """\
ClusterName=rack
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
SlurmctldPidFile={state}/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
StateSaveLocation={state}
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldLogFile={state}/slurmctld.log
SlurmdLogFile=/var/log/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
ReturnToService=2
SchedulerParameters=batch_sched_delay=0,sched_interval=2,bf_interval=2
SlurmctldTimeout=10
SlurmdTimeout=30
MessageTimeout=5
KillWait=2
InactiveLimit=0
# More CPUs than this machine has are `Low CPUs` otherwise; and two files differ by where munged listens.
SlurmdParameters=config_overrides
DebugFlags=NO_CONF_HASH
"""
_NODE = "CPUs=4 Boards=1 SocketsPerBoard=1 CoresPerSocket=4 ThreadsPerCore=1 RealMemory=500 State=UNKNOWN"
# slurmd asks for a cgroup plugin even where nothing uses one; v1 is content with no filesystem of its own.
_CGROUP = "CgroupPlugin=cgroup/v1\n"
# munged takes a key that nobody else can read; without an origin it waits for a name server.
_START = """
set -e
install -d -m 755 /run/munge
install -d -m 711 /var/lib/munge /var/log/munge
install -d -m 700 /etc/munge /var/spool/slurmd
cp /shared/slurm/munge.key /etc/munge/munge.key
chown root:root /etc/munge /etc/munge/munge.key /run/munge /var/lib/munge /var/log/munge
chmod 400 /etc/munge/munge.key
mkdir -p /etc/slurm
cp /shared/slurm/*.conf /etc/slurm/
munged --force --origin="$(awk -v me="$(hostname)" '$2 == me {print $1}' /etc/hosts)" </dev/null >/dev/null 2>&1
slurmd -N "$(hostname)" </dev/null >/dev/null 2>&1
"""


def missing() -> str:
    """Return why there can be no cluster here, or an empty text."""
    if os.geteuid() != 0:
        return "a Slurm cluster of its own needs root"
    absent = [program for program in PROGRAMS if not shutil.which(program, path=PATH)]
    return f"not installed: {', '.join(absent)} (invoke test installs them)" if absent else ""


class Cluster:
    """Slurm on all nodes of a site; use as a context manager, its processes go at its end, or with the tests."""

    def __init__(self, site: Site, lines: Sequence[str] = ()) -> None:
        """`lines` go into slurm.conf, in place of those that set the same."""
        self.site = site
        self._port = next(_PORTS)
        self._secret = secrets.token_bytes(128)
        said = {line.partition("=")[0].strip().lower() for line in lines}
        usual = [line for line in _CONF.splitlines() if line.partition("=")[0].lower() not in said]
        self._lines = [*usual, *lines]
        self._daemons: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Cluster:
        """Start it; return once every node is idle."""
        # A socket's path must be short, and other users must come to it.
        self._run = Path(tempfile.mkdtemp(prefix="k3s-"))
        self._run.chmod(0o755)
        self._state.mkdir(parents=True)
        shared = self.site.shared / "slurm"
        shared.mkdir()
        self._files(shared)
        self._files(self._run, f"AuthInfo=socket={self._run}/socket")
        # The person's Slurm programs name users by the password file that they see.
        with (self.site.home / "passwd").open("a") as passwd:
            passwd.write(f"{SOMEBODY}:x:{pwd.getpwnam(SOMEBODY).pw_uid}:1::/:/bin/false\n")
        self._key(shared / "munge.key")
        self._key(self._run / "key")
        try:
            self._start()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the daemons that are not the nodes'; those go with their nodes."""
        for daemon in reversed(self._daemons):
            daemon.kill()
            daemon.wait()
        self._daemons = []
        shutil.rmtree(self._run, ignore_errors=True)

    def _start(self) -> None:
        self._daemon(
            *("munged", "--force", "--foreground", f"--socket={self._run}/socket", f"--key-file={self._run}/key"),
            *(f"--pid-file={self._run}/pid", f"--log-file={self._run}/log", f"--seed-file={self._run}/seed"),
            f"--origin={CONTROLLER}",
        )
        wait_until((self._run / "socket").exists, START_S, "munged listens")
        self._daemon("slurmctld", "-D", "-f", str(self.conf))
        for node in self.site.nodes.values():
            self.start_slurmd(node)
        self.wait_for("idle", *self.site.nodes, timeout_s=START_S)

    # Files

    @property
    def _state(self) -> Path:
        return self.site.directory / "slurmctld"

    @property
    def conf(self) -> Path:
        """The person's slurm.conf."""
        return self._run / "slurm.conf"

    def _files(self, directory: Path, *more: str) -> None:
        nodes = [f"NodeName={node.name} NodeAddr={node.spec.address} {_NODE}" for node in self.site.nodes.values()]
        names = ",".join(self.site.nodes)
        ends = [
            f"SlurmctldHost=controller({CONTROLLER})",
            f"SlurmctldPort={self._port}",
            *more,
            *nodes,
            f"PartitionName=main Nodes={names} Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO",
        ]
        text = "\n".join([*self._lines, *ends, ""])
        (directory / "slurm.conf").write_text(text.replace("{state}", str(self._state)))
        (directory / "cgroup.conf").write_text(_CGROUP)

    def _key(self, path: Path) -> None:
        path.touch(mode=0o400)
        path.write_bytes(self._secret)

    # Daemons

    @property
    def daemons(self) -> list[int]:
        """The pids of munged and slurmctld beside the person."""
        return [daemon.pid for daemon in self._daemons]

    def _daemon(self, *argv: str) -> None:
        with (self._state / f"{argv[0]}.said").open("wb") as said:
            words = self.site.bed.argv(*argv)
            self._daemons.append(
                subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=self._root())
            )

    def start_slurmd(self, node: Node) -> None:
        """Start munged and slurmd on a node."""
        node.run("sh", "-c", _START)

    def stop_controller(self) -> None:
        """Kill slurmctld: nobody answers any more."""
        self._daemons[-1].kill()
        self._daemons.pop().wait()

    def hang_controller(self, hang: bool = True) -> None:
        """Stop slurmctld, so that it is connected to and never answers; or let it go on."""
        self._daemons[-1].send_signal(signal.SIGSTOP if hang else signal.SIGCONT)

    def start_controller(self) -> None:
        """Start slurmctld again."""
        self._daemon("slurmctld", "-D", "-f", str(self.conf))
        wait_until(lambda: self.slurm("scontrol", "ping", check=False).returncode == 0, START_S, "slurmctld answers")

    # Commands

    def environment(self) -> dict[str, str]:
        """Return what a person's command needs to find this cluster."""
        return {"SLURM_CONF": str(self.conf)}

    def _root(self) -> dict[str, str]:
        return {"PATH": PATH, "LANG": "C.UTF-8", **self.environment()}

    def slurm(self, *argv: str, user: str = "root", check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run one of Slurm's programs as a user beside slurmctld."""
        words = self.site.bed.argv(*(("runuser", "-u", user, "--") if user != "root" else ()), *argv)
        done = subprocess.run(words, env=self._root(), cwd="/", capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 or not check, f"{argv}: {done.stdout}{done.stderr}"
        return done

    def k3env(self, *words: str, timeout_s: float = 120.0, **environment: str) -> Said:
        """Run a command of k3env to its end, as the site's person on the login node."""
        return self.start(*words, **environment).end(timeout_s)

    def start(self, *words: str, **environment: str) -> Running:
        """Begin a command of k3env."""
        return self.site.type(self.site.argv(*words), {**self.environment(), **environment})

    # Jobs and nodes

    def submit(self, *nodes: str, script: str = "sleep 600", user: str = "root", wait: bool = True) -> str:
        """Submit a job for these nodes, each wholly; return its number, once it runs."""
        words = [f"--nodelist={','.join(nodes)}", f"--nodes={len(nodes)}", "--exclusive", "--chdir=/"]
        words += ["--output=/dev/null", f"--wrap={script}", "--job-name=serve"]
        job = self.slurm("sbatch", "--parsable", *words, user=user).stdout.strip()
        if wait:
            wait_until(lambda: self.job(job) == "RUNNING", START_S, f"job {job} runs")
        return job

    def job(self, job: str) -> str:
        """Return a job's state, empty for one that is forgotten."""
        return self.slurm("squeue", "--noheader", "--format=%T", f"--jobs={job}", check=False).stdout.strip()

    def cancel(self, *jobs: str) -> None:
        """End jobs, and wait until they are gone from their nodes."""
        self.slurm("scancel", *jobs, check=False)
        wait_until(lambda: not any(self.job(job) for job in jobs), START_S, f"{jobs} end")

    def state(self, node: str) -> str:
        """Return a node's state as sinfo writes it: idle, allocated, drained, draining.

        A "*" behind it, of a node that has just been resumed and has not answered yet, is left out.
        """
        return self.slurm("sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%T").stdout.strip().rstrip("*")

    def reason(self, node: str) -> str:
        """Return the reason why a node is drained, or "none"."""
        return self.slurm("sinfo", "--noheader", "--Node", f"--nodes={node}", "--format=%E").stdout.strip()

    def drain(self, node: str, reason: str) -> None:
        """Drain a node as its administrator."""
        self.slurm("scontrol", "update", f"nodename={node}", "state=drain", f"reason={reason}")

    def resume(self, node: str) -> None:
        """Resume a node as its administrator."""
        self.slurm("scontrol", "update", f"nodename={node}", "state=resume")

    def wait_for(self, state: str, *nodes: str, timeout_s: float = START_S) -> None:
        """Wait until nodes are in a state."""
        seen: dict[str, str] = {}

        def there() -> bool:
            said = self.slurm("sinfo", "--noheader", "--Node", "--format=%N %T", check=False).stdout
            seen.update(line.split() for line in said.splitlines())
            ended = [daemon.args for daemon in self._daemons if daemon.poll() is not None]
            assert not ended, f"ended: {ended}"
            return all(seen.get(node) == state for node in nodes)

        try:
            wait_until(there, timeout_s)
        except AssertionError:
            raise AssertionError(f"{nodes} not {state} but {seen}\n{self._log()}") from None

    def clear(self) -> None:
        """Cancel all jobs and resume all nodes, for the next test."""
        self.slurm("scancel", "--state=PENDING,RUNNING,SUSPENDED", "--user=root", check=False)
        jobs = self.slurm("squeue", "--noheader", "--format=%i").stdout.split()
        if jobs:
            self.cancel(*jobs)
        for node in self.site.nodes:
            if self.state(node) != "idle":
                self.slurm("scontrol", "update", f"nodename={node}", "state=resume", check=False)
        self.wait_for("idle", *self.site.nodes)

    def _log(self) -> str:
        path = self._state / "slurmctld.log"
        return path.read_text("utf-8", "replace")[-1500:] if path.exists() else ""
