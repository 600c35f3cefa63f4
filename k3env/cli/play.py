"""Run a playbook: from options to an exit code."""

from __future__ import annotations

import getpass
import socket
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from k3env.cli import jobs
from k3env.cli.asked import asked
from k3env.cli.detach import refuse_attended, told
from k3env.cli.drain import NoDrain, draining, first_batch, unfit
from k3env.cli.options import DEFAULT_PLAYBOOK, Options
from k3env.cli.secrets import ask_become_pass, ask_passphrase, check_key, resolve
from k3env.cli.view import View
from k3env.cli.who import Who, as_recorded, listed, trays, warn, who, with_builders
from k3env.cli.words import shown
from k3env.connections.road import Road
from k3env.errors import EXIT_INTERRUPTED, EXIT_OK, UsageError
from k3env.inventory import Host
from k3env.node import across
from k3env.playbook import Builders, Compiled, Play, Ready, load, make_ready, named_builders
from k3env.protocol.event import Event
from k3env.protocol.finding import FAIL
from k3env.protocol.outcome import Fold, Outcome
from k3env.protocol.plan import STOP, Task
from k3env.reports import document
from k3env.runner.drain import Drain
from k3env.runner.host import Limits
from k3env.runner.policy import Policy
from k3env.runner.record import Header, Record, Stage, new_run
from k3env.runner.run import Run, Watcher
from k3env.runner.targets import Targets, become

SANDBOX_RECONNECT_S, RECONNECT_S = 20.0, 300.0


class Finish(Protocol):
    """How a run is told when it has ended; returns the exit code."""

    def __call__(
        self, fold: Fold, view: View, options: Options, header: Header, duration_s: float, meant: bool = False
    ) -> int: ...


@dataclass(frozen=True)
class Style:
    """How a run is told."""

    view: type[View]
    finish: Finish
    refuse: Callable[[Iterable[Task]], None] = lambda tasks: None
    """Raises UsageError for tasks that this command does not do."""


def play(options: Options, style: Style | None = None) -> int:
    """Run the playbook on the hosts; return the exit code.

    Everything is read and checked before a host is contacted. Raises K3Error.
    """
    style = style or Style(View, finish)
    playbook = load(options.playbook or DEFAULT_PLAYBOOK)
    options = as_recorded(options)
    options = check_key(options)
    chosen = who(options)
    warn(chosen.inventory, sys.stderr)
    wanted = asked(options)
    chosen = with_builders(chosen, named_builders(playbook, chosen.hosts, wanted), options)
    with trays(chosen) as reached:
        hosts = playbook.targets(reached.inventory, reached.hosts)
        ready = make_ready(playbook, hosts, {host.name: host for host in reached.builders}, wanted)
        plans = ready.plans
        _refuse_nothing(plans, options)
        style.refuse(task for each in plans for made in each.values() for task in made.plan.tasks)
        if options.detach:
            refuse_attended(options, playbook.plays, ready)
        if options.list_hosts:
            return _list(options, plans)
        with draining(options, hosts, ready.judged) as drain:
            return _run(options, reached, playbook.plays, ready, style, drain)


def _list(options: Options, plans: Sequence[Mapping[str, Compiled]]) -> int:
    """Print the hosts that a run would be for; contact none."""
    header = _header(new_run(), time.time(), options, [], plans)
    if options.output == "text":
        print(listed(list(header.tasks())))
    else:
        fold = Fold(header.run, header.started, header.tasks(), check=options.check)
        print(document.dumps(document.document(fold.outcome(), header.command, exit_code=EXIT_OK)))
    return EXIT_OK


def _refuse_nothing(plans: Sequence[Mapping[str, Compiled]], options: Options) -> None:
    """Doing nothing is never ok."""
    if any(task.skip is None for play in plans for made in play.values() for task in made.plan.tasks):
        return
    raise UsageError(
        "no task is left to run",
        expected="at least one task",
        found=" ".join(f"--{name} {','.join(words)}" for name, words in _narrowing(options) if words) or "none",
        remedy="see the tags and conditions in the playbook",
    )


def _narrowing(options: Options) -> tuple[tuple[str, tuple[str, ...]], ...]:
    start = (options.start_at_task,) if options.start_at_task else ()
    return (("tags", options.tags), ("skip-tags", options.skip_tags), ("start-at-task", start))


def _run(
    options: Options,
    reached: Who,
    plays: Sequence[Play],
    ready: Ready,
    style: Style,
    drain: Drain | NoDrain,
) -> int:
    plans = ready.plans
    secrets = resolve(made.plan for play in plans for made in play.values())
    password = ask_become_pass(options)
    begun = time.time()
    header = _header(new_run(), begun, options, plays, plans, secrets.values())
    fold = Fold(header.run, header.started, header.tasks(), check=options.check)
    view = style.view(fold, output=options.output, diff=options.diff, verbose=options.v)
    drain.start(f"run {header.run} of {owner()}", view.notice, first_batch(plays, ready))
    record = Record.begin(header)
    road = Road(ask=ask_passphrase, accept_new=options.accept_new_host_keys)
    targets = Targets(header.run, owner(), road, secrets, jobs.allowed(options), detached=options.detach)
    running = Run(record, fold, limits(options, reached), options.forks, watcher(view, options, header.run, drain.poll))
    waiting: dict[str, str] = {}
    for number, (item, play_hosts, made, builders) in enumerate(
        zip(plays, ready.hosts, plans, ready.builders, strict=True), 1
    ):
        batches = builders.batches(item, play_hosts)
        for batch in batches:
            alive = [host for host in batch if fold.host(host.name).status not in ("failed", "unreachable")]
            if not running.over:
                waiting.update(_unbuilt(alive, builders, made, fold, options.detach))
                for host in alive:
                    if host.name in waiting:
                        running.leave_out([host.name], waiting[host.name])
                alive = [host for host in alive if host.name not in waiting]
            if running.over:
                running.leave_out(host.name for host in alive)
            if running.over or not alive:
                continue
            drain.begin(_own(alive, builders))
            # Who builds first is one of the hosts all the same: it is compared with those that come after it.
            peers = len(_own(play_hosts, builders)) if builders.of else len(alive)
            before = 0 if alive[0].name in builders.names else len(builders.names - builders.only)
            view.play(item.name, {host.name: made[host.name].plan.tasks for host in alive})
            running.stage(
                [
                    (drain if host.name not in builders.only else NoDrain()).guarded(
                        targets.make(
                            host,
                            made[host.name].plan,
                            number,
                            peers,
                            made[host.name].settings.variables.k3env_state_dir,
                            become=become(host, made[host.name].plan, options, password),
                            what=f"{Path(options.playbook or DEFAULT_PLAYBOOK).stem}: {item.name}",
                            number=before + place,
                        )
                    )
                    for place, host in enumerate(alive)
                ],
                _policy(item, builders, alive),
                may_stop=all(made[host.name].plan.when_unfollowed == STOP for host in alive),
                play=number,
            )
            view.end_play()
            if batch is not batches[-1]:
                _resume(drain, running, fold, _own(alive, builders), plans[number:])
        judged = across.findings({name: each.plan for name, each in made.items()}, fold)
        fold.across += judged
        if any(finding.status == FAIL for finding in judged):
            running.stop("the hosts do not fit together")
        if batches:
            _resume(drain, running, fold, _own(batches[-1], builders), plans[number:])
    road.close()
    running.close()
    if options.detach:
        for line in told(header.run, sorted({host for _, host in running.at_work}), options, sorted(waiting)):
            view.notice(line)
    left = options.detach and not fold.interrupted
    return style.finish(fold, view, options, header, time.time() - begun, meant=left)


def _own(hosts: Iterable[Host], builders: Builders) -> list[str]:
    return [host.name for host in hosts if host.name not in builders.only]


def _unbuilt(
    hosts: Iterable[Host], builders: Builders, made: Mapping[str, Compiled], fold: Fold, detached: bool
) -> dict[str, str]:
    """Return the hosts whose builder has not finished well in this play, with what is said of them."""
    why = {}
    for name in builders.names:
        status = fold.host(name).status
        done = (fold.task(name, task.id).status for task in made[name].plan.tasks)
        if status in ("failed", "unreachable"):
            why[name] = "failed" if status == "failed" else f"is {status}"
        elif any(item in ("notrun", "cancelled") for item in done):
            why[name] = "is left to itself, and comes first" if detached else "did not finish"
    return {
        host.name: f"its builder {builders.of[host.name]} {why[builders.of[host.name]]}"
        for host in hosts
        if builders.of.get(host.name) in why
    }


def _policy(play: Play, builders: Builders, hosts: Iterable[Host]) -> Policy:
    """Return when a play ends early; what a builder's failure means, those say whom it builds for."""
    if any(host.name in builders.names for host in hosts):
        return Policy(play.any_errors_fatal, 100.0)
    return Policy(play.any_errors_fatal, play.max_fail_percentage)


def _resume(
    drain: Drain | NoDrain,
    running: Run,
    fold: Fold,
    hosts: Sequence[str],
    later: Sequence[Mapping[str, Compiled]],
) -> None:
    """Resume those of some hosts that no later play is for, if they are fit."""
    done = [host for host in hosts if not any(host in plans for plans in later)]
    across = next((f"{item.id} is {item.status}" for item in fold.across if item.status == FAIL), "")
    for host, error in drain.finish({host: unfit(fold.host(host), across) for host in done}).items():
        running.fail(host, error)


def _header(
    run: str,
    begun: float,
    options: Options,
    plays: Sequence[Play],
    plans: Sequence[Mapping[str, Compiled]],
    secrets: Iterable[str] = (),
) -> Header:
    """Return what is kept of a run; it lies on a disk for long, so that no secret may be in it."""
    names = [item.name for item in plays] or ["" for _ in plans]
    stages = [
        Stage(name, {host: made.plan for host, made in plan.items()}) for name, plan in zip(names, plans, strict=True)
    ]
    hidden = tuple(secrets)
    options = replace(options, extra_vars=shown(options.extra_vars, hidden))
    kept = {name: list(value) if isinstance(value, tuple) else value for name, value in vars(options).items()}
    return Header(run, document.timestamp(begun), shown(sys.argv, hidden), kept, options.check, tuple(stages))


def owner() -> str:
    """Return who begins a run, as the nodes tell others."""
    return f"{getpass.getuser()}@{socket.gethostname()}"


def finish(fold: Fold, view: View, options: Options, header: Header, duration_s: float, meant: bool = False) -> int:
    """Print how it ended; return the exit code. `meant`: that work was stopped, or left, is what was asked for."""
    outcome: Outcome = fold.outcome(duration_s)
    view.recap()
    code = outcome.exit_code(detailed=options.detailed_exitcode)
    if meant and code == EXIT_INTERRUPTED:
        code = EXIT_OK
    if options.output in ("json", "jsonl"):
        print(document.dumps(document.document(outcome, header.command, exit_code=code)), flush=True)
    return code


def limits(options: Options, reached: Who | None) -> Limits:
    """Return how long the road may take; None: none is taken."""
    default = SANDBOX_RECONNECT_S if reached is not None and reached.simulated else RECONNECT_S
    return Limits(options.timeout, options.reconnect_timeout or default)


def watcher(view: View, options: Options, run: str, poll: Callable[[], None] = lambda: None) -> Watcher:
    """Return who is told: the view, and stdout where it takes JSON lines."""

    def event(host: str, happened: Event) -> None:
        view.event(host, happened)
        if options.output == "jsonl":
            print(document.event_line(run, host, happened), flush=True)

    def tick() -> None:
        view.tick()
        poll()

    return Watcher(event, tick, view.notice, lambda: view.gone)
