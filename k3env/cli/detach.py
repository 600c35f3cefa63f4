"""--detach: which work can be left to itself, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence

from k3env.cli.options import Options
from k3env.errors import UsageError
from k3env.playbook import Play, Ready
from k3env.protocol.folding import fold as folded
from k3env.protocol.plan import STOP

_ENDS_WITH_US = ("slurm",)
"""Connections whose far end ends with this command: srun ends its step."""


def refuse_attended(
    options: Options,
    plays: Sequence[Play],
    ready: Ready,
) -> None:
    """Make sure that each node can go through its plan by itself.

    Raises UsageError naming what needs the command that began it.
    """
    if options.drain:
        raise _refused("--drain: nobody would resume the nodes", "leave one of the two out")
    hosts, plans = ready.hosts, ready.plans
    at_work = [number for number, made in enumerate(plans) if made]
    if len(at_work) > 1:
        raise _refused(f"{len(at_work)} plays, one after another", "begin them one by one")
    for number in at_work:
        play, builders = plays[number], ready.builders[number]
        # Who waits for a builder is not begun at all.
        begun = [host for host in hosts[number] if host.name not in builders.of]
        names = [host.name for host in begun]
        if len(list(play.batches([host for host in begun if host.name not in builders.names]))) > 1:
            raise _refused(f"serial, in play {play.name}", "begin the hosts of one batch after another with --limit")
        if len(names) > 1 and (play.any_errors_fatal or play.max_fail_percentage is not None):
            raise _refused(f"a rule for failures across hosts, in play {play.name}", "leave --detach out")
        if any(plans[number][name].plan.when_unfollowed == STOP for name in names if name in plans[number]):
            raise _refused("a plan that changes nothing: it stops when nobody follows it", "leave --detach out")
        bound = [host.name for host in begun if host.address.connection in _ENDS_WITH_US]
        if bound:
            raise _refused(
                f"--connection slurm: srun's step ends with this command ({folded(bound)})",
                "use ssh, or run this command itself within the job",
            )


def _refused(found: str, remedy: str) -> UsageError:
    return UsageError(
        "--detach can't leave this to itself",
        expected="one play that each host goes through by itself",
        found=found,
        remedy=remedy,
    )


def told(run: str, names: Sequence[str], options: Options, waiting: Sequence[str] = ()) -> list[str]:
    """Return what to say of the hosts that are at work, of those that wait for them, and how to find them again."""
    if not names:
        return [f"run {run} is at work on no host"]
    lines = [
        f"run {run} goes on without this command on {folded(names)}",
        "what it has not told so far counts as notrun below",
        f"see it:     invoke runs --hosts '{folded(names) if waiting else options.hosts or folded(names)}'",
        f"follow it:  invoke attach {run}",
        f"end it:     invoke cancel {run}",
        "from another controller or account, add --hosts, and --inventory, to these",
    ]
    if waiting:
        lines += [
            f"not begun:  {folded(waiting)}: the builder comes first",
            "when it has finished well, this command without --detach goes on with them",
        ]
    return lines
