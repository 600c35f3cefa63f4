"""--drain: which hosts a run drains, and when one of them is fit for jobs again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from k3env.cli.jobs import allowed
from k3env.cli.options import Options
from k3env.errors import K3Error, UsageError
from k3env.inventory import Host
from k3env.playbook import Compiled, Play, Ready
from k3env.protocol.finding import FAIL, UNKNOWN
from k3env.protocol.outcome import HostOutcome
from k3env.runner.drain import Drain, Say
from k3env.runner.host import Target

_JUDGING = "verify"


class NoDrain:
    """Nothing is drained."""

    def start(self, reason: str, say: Say, hosts: Sequence[str]) -> None:
        """Do nothing."""

    def begin(self, hosts: Sequence[str]) -> None:
        """Do nothing."""

    def poll(self) -> None:
        """Do nothing."""

    def guarded(self, target: Target) -> Target:
        """Return the target as it is."""
        return target

    def finish(self, unfit: Mapping[str, str]) -> dict[str, K3Error]:
        """Do nothing."""
        return {}


class Preview(NoDrain):
    """Check mode: say what would be drained."""

    def __init__(self, drain: Drain) -> None:
        """Hold what would drain."""
        self._drain = drain

    def start(self, reason: str, say: Say, hosts: Sequence[str]) -> None:
        """Say it, of all hosts."""
        self._drain.preview(say)


@contextmanager
def draining(
    options: Options, hosts: Sequence[Sequence[Host]], plans: Sequence[Mapping[str, Compiled]]
) -> Iterator[Drain | NoDrain]:
    """Make ready to drain; at the end say which nodes stay drained.

    Raises UsageError where Slurm is not here, or does not know a host; and for a run that would not judge what it has
    changed.
    """
    if not options.drain:
        yield NoDrain()
        return
    _refuse_unjudged(plans)
    every = {host.name: host for play in hosts for host in play}
    drain = Drain(every.values(), options.drain_timeout, allowed(options).split(","))
    if options.check:
        yield Preview(drain)
        return
    try:
        yield drain
    finally:
        drain.end()


def first_batch(plays: Sequence[Play], ready: Ready) -> list[str]:
    """Return the hosts that a run begins with, builders that are no hosts of the play left out."""
    together = zip(plays, ready.hosts, ready.builders, strict=True)
    batches = (batch for play, members, builders in together for batch in builders.batches(play, members))
    only = frozenset[str]().union(*(builders.only for builders in ready.builders))
    return [host.name for host in next(batches, []) if host.name not in only]


def unfit(host: HostOutcome, across: str) -> str:
    """Return why a host is not fit for jobs, or an empty text; `across` says what is wrong between hosts.

    What could not be judged is not fit.
    """
    if host.status not in ("ok", "changed"):
        return host.status
    for finding in (finding for task in host.tasks for finding in task.findings):
        if finding.status == FAIL or (finding.status == UNKNOWN and finding.severity == FAIL):
            return f"{finding.id} is {finding.status}"
    return across


def _refuse_unjudged(plans: Sequence[Mapping[str, Compiled]]) -> None:
    """Refuse a run whose last word on a host is not a verify's."""
    last: dict[str, str] = {}
    for play in plans:
        for name, made in play.items():
            done = [task.module for task in made.plan.tasks if task.skip is None]
            last.update({name: done[-1]} if done else {})
    unjudged = [name for name, module in last.items() if module != _JUDGING]
    if unjudged:
        raise UsageError(
            "--drain resumes what was found fit, and this run's last task judges nothing",
            expected=f"a {_JUDGING} task after all others, which tags and conditions leave in",
            found=f"{last[unjudged[0]]} on {unjudged[0]}",
            remedy=f"add one at the end of the last play, or name its tag: --tags …,{_JUDGING}",
        )
