"""Draining: nodes take no jobs while they are changed, and again only when they were found fit.

What is ours is told by its reason: it begins with `k3env:`. Another's reason, and a node that somebody else has taken
out, are never touched: such a node is changed as it is, and stays as it was.
"""

from __future__ import annotations

import shlex
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from k3env.connections.connection import Connection
from k3env.errors import K3Error, Refused, UsageError
from k3env.inventory import Host
from k3env.protocol.folding import fold
from k3env.runner import slurm
from k3env.runner.host import Target
from k3env.runner.slurm import Node, Running

OURS = "k3env:"
PAUSE_S = (1.0, 15.0)
"""Between two questions to Slurm: the longer a node is waited for, the longer, within these bounds."""
Say = Callable[[str], None]


class Drain:
    """The drained nodes of one run."""

    def __init__(self, hosts: Iterable[Host], wait_s: float, own_jobs: Sequence[str]) -> None:
        """Look which of Slurm's nodes the hosts are; `own_jobs` are not waited for.

        Raises UsageError where Slurm is not here, or does not know a host.
        """
        self._wait_s, self._own = wait_s, {job for job in own_jobs if job}
        self._reason = OURS
        self._say: Say = _print
        self._nodes = _matched(hosts, slurm.nodes())
        self._held: dict[str, str] = {}
        """Hosts that are drained by us, with their node's name."""
        self._waiting: dict[str, str] = {}
        self._known: set[str] = set()
        self._refused: dict[str, K3Error] = {}
        self._told: Mapping[str, str] = {}
        self._begun = self._asked = time.monotonic()

    def start(self, reason: str, say: Say, hosts: Sequence[str]) -> None:
        """Drain the hosts that come first, before anything is contacted.

        Raises UsageError where that is not allowed.
        """
        self._reason, self._say = f"{OURS} {reason}", say
        self._begin(hosts)

    def preview(self, say: Say) -> None:
        """Say what a run that changes something would drain."""
        self._say = say
        free = {host: node for host, node in self._nodes.items() if not _foreign(node)}
        busy = slurm.jobs([node.name for node in free.values()]) if free else {}
        if free:
            self._say(f"would be drained: {fold(free)}{_counted(busy)}")
        self._tell_foreign(host for host in self._nodes if host not in free)

    def _begin(self, hosts: Sequence[str]) -> None:
        fresh = [host for host in hosts if host not in self._known]
        if not fresh:
            return
        states = slurm.nodes()
        self._nodes.update({host: states.get(self._nodes[host].name, self._nodes[host]) for host in fresh})
        foreign = {host for host in fresh if _foreign(self._nodes[host])}
        ours = {host: self._nodes[host].name for host in fresh if host not in foreign}
        again = [host for host in ours if self._nodes[host].drained]
        if ours:
            slurm.drain(list(ours.values()), self._reason)
        self._held.update(ours)
        self._known.update(fresh)
        self._waiting.update({host: self._nodes[host].name for host in fresh})
        self._begun, self._asked, self._told = time.monotonic(), 0.0, {}
        if ours:
            self._say(f"drained {fold(ours)}: {self._reason}")
        if again:
            self._say(f"{fold(again)}: drained by an earlier run, and now by this one")
        self._tell_foreign(foreign)
        self.poll()

    def begin(self, hosts: Sequence[str]) -> None:
        """Drain the nodes of these hosts, if they are not yet; where that fails, they fail instead of being reached."""
        try:
            self._begin(hosts)
        except UsageError as error:
            self._known.update(hosts)
            self._refused.update({host: _not_drained(error) for host in hosts if host not in self._held})

    def poll(self) -> None:
        """Ask Slurm, now and then, which nodes are still waited for; say what has changed."""
        waited = time.monotonic() - self._begun
        if not self._waiting or time.monotonic() - self._asked < min(max(PAUSE_S[0], waited / 10), PAUSE_S[1]):
            return
        try:
            found = slurm.jobs(list(self._waiting.values()))
        except UsageError as error:
            found = None
            self._tell({", ".join(self._waiting): f"can't be looked at: {error}"})
        self._asked = time.monotonic()
        if found is not None:
            others = {name: [item for item in running if not self._is_own(item)] for name, running in found.items()}
            self._waiting = {host: name for host, name in self._waiting.items() if others.get(name)}
            self._tell({host: "; ".join(map(str, others[name])) for host, name in self._waiting.items()})
        if waited > self._wait_s:
            self._refused.update({host: _late(self._told.get(host, ""), self._wait_s) for host in self._waiting})
            self._waiting = {}

    def guarded(self, target: Target) -> Target:
        """Return a target that is reached once no job is on its node any more."""

        def reach() -> Connection:
            if target.host in self._refused:
                raise self._refused[target.host]
            return target.reach()

        return replace(target, reach=reach, ready=lambda: target.host not in self._waiting)

    def finish(self, unfit: Mapping[str, str]) -> dict[str, K3Error]:
        """Resume the nodes of hosts that are fit, which is those with an empty text; say why the others are not.

        Return what hindered the resuming of a fit one.
        """
        fit = [host for host, why in unfit.items() if host in self._held and not why]
        try:
            failed = self._resume(fit) if fit else {}
        except UsageError as error:
            failed = dict.fromkeys(fit, str(error))
        for host in fit:
            if host not in failed:
                self._held.pop(host)
        self._stay({host: why for host, why in {**unfit, **failed}.items() if why and host in self._held})
        return {host: _not_resumed(why) for host, why in failed.items()}

    def end(self) -> None:
        """Say which nodes are left drained; nothing is resumed that was not judged."""
        self._stay(dict.fromkeys(self._held, "the run ended before it was found fit"))

    def _resume(self, fit: Sequence[str]) -> dict[str, str]:
        """Resume nodes whose reason is still ours; return why others were not."""
        states = slurm.nodes()
        kept: dict[str, str] = {}
        for host in fit:
            node = states.get(self._held[host])
            if node is None or not node.drained or node.reason != self._reason:
                now = node.reason or "none" if node is not None else "no node any more"
                kept[host] = f"its reason is no longer ours: {now}"
            elif node.out != {"DRAIN"}:
                kept[host] = f"Slurm has it as {'+'.join(sorted(node.states))}"
        ours = [host for host in fit if host not in kept]
        if ours:
            slurm.resume([self._held[host] for host in ours])
            self._say(f"resumed {fold(ours)}: fit")
        return kept

    def _stay(self, why: Mapping[str, str]) -> None:
        """Say once of hosts that they stay drained, and how to resume them; from then on they are nobody's."""
        together: dict[str, list[str]] = {}
        for host, text in why.items():
            together.setdefault(text, []).append(host)
        for text, hosts in together.items():
            names = fold(self._held.pop(host) for host in hosts)
            command = f"scontrol update nodename={shlex.quote(names)} state=resume"
            self._say(f"{fold(hosts)} stays drained: {text}; when it is fit: {command}")

    def _tell(self, now: Mapping[str, str]) -> None:
        """Say what is waited for, hosts with the same job together, when that has changed."""
        if now == self._told:
            return
        together: dict[str, list[str]] = {}
        for host, text in now.items():
            together.setdefault(text, []).append(host)
        for text, hosts in together.items():
            if any(self._told.get(host) != text for host in hosts):
                self._say(f"{fold(hosts)}: {text if text.startswith('can') else f'waiting for {text}'}")
        self._told = now

    def _tell_foreign(self, hosts: Iterable[str]) -> None:
        for host in sorted(hosts):
            node = self._nodes[host]
            state = "+".join(sorted(node.out))
            self._say(f"{host} is {state} already ({node.reason or 'no reason'}; {node.by or 'unknown'}): it stays so")

    def _is_own(self, running: Running) -> bool:
        return bool({running.job.id, running.job.task} & self._own)


def _print(message: str) -> None:
    print(f"--- {message}", file=sys.stderr)


def _matched(hosts: Iterable[Host], nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Return each host's node: of its name, or of its address.

    Raises UsageError for hosts that Slurm does not know.
    """
    by_alias = {alias: node for node in nodes.values() for alias in node.aliases} | dict(nodes)
    found = {host.name: by_alias.get(host.name) or by_alias.get(host.address.hostname) for host in hosts}
    unknown = [name for name, node in found.items() if node is None]
    if unknown:
        raise UsageError(
            f"Slurm does not know {fold(unknown)[:200]}",
            expected="hosts that are nodes of Slurm, by name or address: --drain drains them",
            found=", ".join(sorted(nodes)[:5]) + (", …" if len(nodes) > 5 else ""),
            remedy="leave them out with --limit, or leave --drain out",
        )
    return {name: node for name, node in found.items() if node is not None}


def _foreign(node: Node) -> bool:
    """Return whether somebody else has taken a node out."""
    return bool(node.out) and not (node.drained and node.reason.startswith(OURS))


def _counted(busy: Mapping[str, Sequence[Running]]) -> str:
    ids = {item.job.id for running in busy.values() for item in running}
    return f"; {len(ids)} {'job runs' if len(ids) == 1 else 'jobs run'} there" if ids else ""


def _not_drained(error: UsageError) -> Refused:
    finding = error.finding
    return Refused(
        f"not drained: {error}", expected=finding.expected, found=finding.found, remedy=finding.remedy, id="run.drain"
    )


def _late(waited_for: str, seconds: float) -> Refused:
    return Refused(
        f"its jobs did not end within {seconds:g} s",
        expected="no job on the node",
        found=waited_for or "Slurm did not say",
        remedy="see: squeue; --drain-timeout gives them longer",
        id="run.drain",
    )


def _not_resumed(why: str) -> Refused:
    return Refused(
        f"fit, but not resumed: {why}",
        expected="a node that is drained by this run, and by nothing else",
        found=why,
        remedy="see: scontrol show node",
        id="run.drain",
    )
