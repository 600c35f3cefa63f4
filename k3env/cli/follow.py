"""Follow a run that goes on without the command that began it, or end it."""

from __future__ import annotations

import getpass
import socket
import time
from dataclasses import dataclass, field, replace
from typing import Any

from k3env.cli.options import Options, parse
from k3env.cli.play import finish, limits, watcher
from k3env.cli.secrets import ask_become_pass, ask_passphrase
from k3env.cli.view import View
from k3env.cli.who import trays, who
from k3env.connections.road import Road
from k3env.node import across
from k3env.protocol.folding import fold as folded
from k3env.protocol.line import END, FAILED, HELLO
from k3env.protocol.outcome import Fold
from k3env.runner.policy import Policy
from k3env.runner.record import Header, Record
from k3env.runner.run import Run
from k3env.runner.targets import Targets, become


def follow(raw: dict[str, Any], action: str) -> int:
    """Follow what a run left open (`follow`), or end it (`cancel`); return the exit code.

    Raises UsageError for a run that is not known.
    """

    record = Record.find(str(raw.pop("run") or ""))
    asked, header = parse(raw), record.header()
    options = _as_begun(header, asked)
    begun = time.time()
    with trays(who(options)) as reached:
        fold = Fold(header.run, header.started, header.tasks(), check=header.check)
        view = View(fold, output=asked.output, verbose=asked.v)
        left = _left(record, fold)
        stage = max(left.play, 1)
        plans = header.stages[stage - 1].plans
        hosts = [host for host in reached.hosts if host.name in left.hosts]
        _tell(view, header, left, [name for name in plans if name not in left.begun])
        view.play(header.stages[stage - 1].play, {host.name: plans[host.name].tasks for host in hosts})
        road, password = Road(ask=ask_passphrase, accept_new=options.accept_new_host_keys), ask_become_pass(options)
        targets = Targets(header.run, f"{getpass.getuser()}@{socket.gethostname()}", road)
        running = Run(record, fold, limits(options, reached), options.forks, watcher(view, asked, header.run))
        running.stage(
            [
                targets.make(
                    host,
                    plans[host.name],
                    stage,
                    len(plans),
                    left.hosts[host.name].state_dir,
                    become=become(host, plans[host.name], options, password),
                    after=left.hosts[host.name].after,
                    action=action,
                )
                for host in hosts
            ],
            Policy(),
            may_stop=False,
            play=stage,
        )
        view.end_play()
        road.close()
        for reached_stage in header.stages[: left.play]:
            fold.across += across.findings(reached_stage.plans, fold)
        confirmed = action == "cancel" and not _left(record, fold).hosts
        return finish(fold, view, asked, header, time.time() - begun, cancelled=confirmed)


@dataclass
class _Host:
    """A host whose worker may still be at work."""

    state_dir: str | None = None
    """Where it said that it keeps its runs."""
    after: int = 0
    """The newest event that is known."""


@dataclass
class _Left:
    """What a record leaves open: the play that was reached, its hosts that had begun, those that have not ended."""

    play: int = 0
    begun: set[str] = field(default_factory=set)
    hosts: dict[str, _Host] = field(default_factory=dict)


def _left(record: Record, fold: Fold) -> _Left:
    """Read a record into a fold, and return what it leaves open; a host that was lost may still be at work."""
    left = _Left()
    known = fold.live
    for host, play, event in record.events():
        if host not in known:
            continue
        fold.add(host, event)
        if play > left.play:
            left = _Left(play)
        if event.kind == HELLO:
            left.begun.add(host)
            left.hosts.setdefault(host, _Host()).state_dir = str(event.data.get("state_dir"))
        elif event.kind in (END, FAILED):
            left.hosts.pop(host, None)
        elif host in left.hosts:
            left.hosts[host].after = max(left.hosts[host].after, event.seq)
    return left


def _tell(view: View, header: Header, left: _Left, waiting: list[str]) -> None:
    """Say what will not be followed, and why."""
    if not left.hosts:
        view.notice(f"run {header.run} has no host left that is at work")
    if waiting:
        view.notice(f"never begun, and not begun now: {folded(waiting)}")
    later = [stage.play for stage in header.stages[max(left.play, 1) :]]
    if later:
        view.notice(f"never begun, and not begun now: play {', '.join(later)}")


def _as_begun(header: Header, asked: Options) -> Options:
    """Return the options by which the run found its hosts, with the new command's patience."""
    kept: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in header.options.items()
    }
    begun = replace(Options(**kept), timeout=asked.timeout, reconnect_timeout=asked.reconnect_timeout)
    # Which hosts failed in an earlier run may have changed since; those that this run is for are known.
    return replace(begun, limit=None) if "run:" in (begun.limit or "") else begun
