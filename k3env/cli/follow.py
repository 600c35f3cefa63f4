"""Follow a run that goes on without the command that began it, or end it.

What is known of it comes from the controller's own record, or from the nodes of --hosts. It is told again play by
play; then the hosts that are still at work are followed, and it ends as it would have for who began it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from k3env.cli.options import Options, parse
from k3env.cli.play import finish, limits, owner, watcher
from k3env.cli.secrets import ask_become_pass, ask_passphrase, check_key
from k3env.cli.view import View
from k3env.cli.who import Who, trays, who, with_builders
from k3env.cli.words import shown
from k3env.connections.road import Road
from k3env.errors import UsageError
from k3env.node import across
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.finding import Finding
from k3env.protocol.folding import fold as folded
from k3env.protocol.line import END, FAILED, HELLO, NOTRUN, ROAD, UNREACHABLE
from k3env.protocol.outcome import Fold
from k3env.runner.become import Become
from k3env.runner.policy import Policy
from k3env.runner.record import Header, Record, Remembered, Stage
from k3env.runner.run import Run
from k3env.runner.targets import Targets, become

_ROAD_ENDS = (ROAD, UNREACHABLE, NOTRUN)
_ROAD = (
    "forks",
    "connection",
    "user",
    "private_key",
    "accept_new_host_keys",
    "become",
    "become_user",
    "ask_become_pass",
)
_ALL = Policy(max_fail_percentage=100)
"""A host that can't be followed must not keep us from the others."""


@dataclass
class _Host:
    """A host whose worker may still be at work."""

    state_dir: str | None = None
    """Where it said that it keeps its runs."""
    after: int = 0
    """The newest event that is known."""
    known_as: str | None = None
    """Its name where the run was begun; None: the same."""
    become: Become | None = None


@dataclass
class _Trail:
    """What is known of a run."""

    header: Header
    record: Record
    options: Options
    """By which its hosts are found."""
    left: dict[int, dict[str, _Host]] = field(default_factory=dict)
    """Play to the hosts that may be at work in it."""
    begun: dict[int, set[str]] = field(default_factory=dict)
    reached: Who | None = None


def follow(raw: dict[str, Any], action: str) -> int:
    """Follow what a run left open (`follow`), or end it (`cancel`); return the exit code.

    Raises UsageError for a run that is not known, Unreachable where the nodes that may know it can't be asked.
    """
    run, asked = str(raw.pop("run") or ""), check_key(parse(raw))
    if asked.hosts is not None:
        with trays(who(asked)) as reached:
            return _go_on(_from_nodes(run, asked, reached), asked, action)
    trail = _from_record(Record.find(run), asked)
    if asked.limit is not None:
        trail.header = _narrowed(trail, asked.limit)
    meant = trail.header.tasks()
    names = {name for hosts in trail.left.values() for name in hosts if name in meant}
    if names:
        trail.options = check_key(trail.options)
    chosen = who(trail.options) if names else None
    if chosen is not None:
        # A builder may be none of the hosts that were asked for.
        known = [name for name in sorted(names) if name in chosen.inventory.hosts or chosen.inventory.adhoc_allowed]
        chosen = with_builders(chosen, known, trail.options)
        chosen = replace(chosen, hosts=chosen.all, builders=())
        chosen = replace(chosen, hosts=tuple(host for host in chosen.hosts if host.name in names))
    with trays(chosen) if chosen is not None else nullcontext() as found:
        password = ask_become_pass(trail.options) if found else None
        for number, hosts in trail.left.items():
            for host in found.hosts if found else ():
                if host.name in hosts and host.name in trail.header.stages[number - 1].plans:
                    plan = trail.header.stages[number - 1].plans[host.name]
                    hosts[host.name].become = become(host, plan, trail.options, password)
        trail.reached = found
        return _go_on(trail, asked, action)


def _go_on(trail: _Trail, asked: Options, action: str) -> int:
    """Tell what is known, follow what is left, tell how it ended."""
    header, record, begun = trail.header, trail.record, time.time()
    fold = Fold(header.run, header.started, header.tasks(), check=header.check)
    view = View(fold, output=asked.output, diff=asked.diff, verbose=asked.v)
    road = Road(ask=ask_passphrase, accept_new=trail.options.accept_new_host_keys)
    told = watcher(view, asked, header.run)
    running = Run(record, fold, limits(trail.options, trail.reached), trail.options.forks, told, live=False)
    running.at_work = {(number, name) for number, hosts in trail.left.items() for name in hosts}
    _tell(view, trail)
    record.hold()
    known = list(record.events())
    targets = Targets(header.run, owner(), road)
    for number, stage in enumerate(header.stages, 1):
        left = trail.left.get(number, {})
        events = [(host, event) for host, play, event in known if play == number and host in fold.live]
        if not left and not events:
            continue
        view.play(stage.play, {host: plan.tasks for host, plan in stage.plans.items()})
        for host, event in events:
            fold.add(host, event)
            if event.kind not in _ROAD_ENDS or host not in left:
                view.replay(host, event)
        hosts = [host for host in (trail.reached.hosts if trail.reached else ()) if host.name in left]
        running.stage(
            [
                targets.make(
                    host,
                    stage.plans[host.name],
                    number,
                    len(stage.plans),
                    left[host.name].state_dir,
                    become=left[host.name].become,
                    after=left[host.name].after,
                    action=action,
                    known_as=left[host.name].known_as,
                )
                for host in hosts
            ],
            _ALL,
            may_stop=False,
            play=number,
        )
        view.end_play()
        fold.across += _across(stage, fold)
    road.close()
    running.close()
    confirmed = action == "cancel" and not any(name in fold.live for _, name in running.at_work)
    shown = replace(asked, detailed_exitcode=trail.options.detailed_exitcode)
    return finish(fold, view, shown, header, time.time() - begun, meant=confirmed)


def _narrowed(trail: _Trail, limit: str) -> Header:
    """Return what a part of a run's hosts were asked for; the others are not followed, nor ended.

    Raises UsageError where that part is none of the run's.
    """
    chosen = {host.name for host in who(replace(trail.options, limit=limit)).hosts}
    stages = tuple(
        replace(stage, plans={name: plan for name, plan in stage.plans.items() if name in chosen})
        for stage in trail.header.stages
    )
    narrowed = replace(trail.header, stages=stages)
    if not narrowed.tasks():
        raise UsageError(
            f"run {trail.header.run} is not for --limit {limit}",
            expected=f"hosts of {folded(trail.header.tasks())}",
            found=folded(chosen),
            remedy="see: invoke runs",
        )
    return narrowed


def _across(stage: Stage, fold: Fold) -> tuple[Finding, ...]:
    try:
        return across.findings(stage.plans, fold)
    except codec.DecodeError:
        return ()  # a node of another k3env has told of its plan


def _from_record(record: Record, asked: Options) -> _Trail:
    """Read a record for what it leaves open; a host that was lost may still be at work."""
    header = record.header()
    trail = _Trail(header, record, _as_begun(header, asked))
    for host, play, event in record.events():
        if not 0 < play <= len(header.stages) or host not in header.stages[play - 1].plans:
            continue
        left = trail.left.setdefault(play, {})
        if event.kind == HELLO:
            trail.begun.setdefault(play, set()).add(host)
            left.setdefault(host, _Host()).state_dir = str(event.data.get("state_dir"))
        elif event.kind in (END, FAILED):
            left.pop(host, None)
        elif host in left:
            left[host].after = max(left[host].after, event.seq)
    trail.left = {play: hosts for play, hosts in trail.left.items() if hosts}
    return trail


def _from_nodes(run: str, options: Options, reached: Who) -> _Trail:
    """Ask nodes what they know; one that gives no answer may know more, and counts as unreachable."""
    from k3env.cli import kept

    asked = kept.ask_nodes(options, reached, run)
    name = kept.choose(run, asked)
    header = kept.header(name, asked, options, shown(sys.argv))
    silent = asked.answers.problems
    if silent:
        first = header.stages[0]
        empty = {host: replace(next(iter(first.plans.values())), tasks=()) for host in silent}
        header = replace(header, stages=(replace(first, plans={**first.plans, **empty}), *header.stages[1:]))
    trail = _Trail(header, Remembered(header), options, reached=reached)
    for play, hosts in asked.answers.of(name).items():
        trail.begun[play] = set(hosts)
        trail.left[play] = {
            host: _Host(asked.places[host].state_dir, known_as=found.host, become=asked.places[host].become)
            for host, found in hosts.items()
        }
    for host, finding in silent.items():
        kind = UNREACHABLE if host in asked.answers.unreachable else FAILED
        told = {"message": finding.message, "finding": codec.encode(finding)}
        trail.record.append(host, 1, Event(kind, time=time.time(), data=told))
    return trail


def _tell(view: View, trail: _Trail) -> None:
    """Say what will not be followed, and why."""
    header = trail.header
    if not trail.left:
        view.notice(f"run {header.run} has no host left that is at work")
    reached = max(trail.begun, default=1)
    waiting = [name for name in header.stages[reached - 1].plans if name not in trail.begun.get(reached, set())]
    if waiting and not isinstance(trail.record, Remembered):
        view.notice(f"never begun, and not begun now: {folded(waiting)}")
    later = [stage.play for stage in header.stages[reached:]]
    if later:
        view.notice(f"never begun, and not begun now: play {', '.join(later)}")


def _as_begun(header: Header, asked: Options) -> Options:
    """Return the options by which the run found its hosts, with the new command's patience, and its road where told."""
    kept: Mapping[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in header.options.items()
    }
    road = {name: value for name in _ROAD if (value := getattr(asked, name)) != getattr(Options(), name)}
    if asked.inventory:
        road["inventory"] = asked.inventory
    begun = replace(Options(**kept), timeout=asked.timeout, reconnect_timeout=asked.reconnect_timeout, **road)
    begun = replace(begun, extra_vars=(*begun.extra_vars, *asked.extra_vars))
    # Which hosts failed in an earlier run may have changed since; those that this run is for are known.
    return replace(begun, limit=None) if "run:" in (begun.limit or "") else begun
