"""invoke runs, attach, cancel: runs that go on, or have ended, apart from the command that began them."""

from __future__ import annotations

import getpass
import socket
import time
from dataclasses import replace
from typing import Any

from k3env.cli.command import command
from k3env.cli.options import REACHING, SHOWING, Option, Options, parse
from k3env.errors import EXIT_INTERRUPTED, EXIT_OK
from k3env.runner.record import Header, Record

_RUN = Option("run", "a run's name, or its beginning; see: invoke runs")
_ROAD = tuple(option for option in REACHING if option.name in ("timeout", "reconnect_timeout"))


@command(*(option for option in SHOWING if option.name == "output"))
def runs(**raw: Any) -> int:
    """List the runs that this user has begun from here, the newest last."""
    from k3env.cli.play import all_tasks
    from k3env.protocol.outcome import fold
    from k3env.reports import document
    from k3env.runner.record import records

    options = parse(raw)
    for record in records():
        header = record.header()
        outcome = fold(header.run, header.started, all_tasks(header), record.events(), check=header.check)
        if options.output == "text":
            print(_line(header, [host.status for host in outcome.hosts.values()]))
        else:
            print(document.dumps(document.document(outcome, header.command)))
    return 0


@command(_RUN, *_ROAD, *SHOWING, positional=["run"])
def attach(**raw: Any) -> int:
    """Follow a run that goes on without its controller, from where its record ends."""
    return _follow(raw, "follow")


@command(_RUN, *_ROAD, *SHOWING, positional=["run"])
def cancel(**raw: Any) -> int:
    """End the work of a run on every host; what is done stays done."""
    return _follow(raw, "cancel")


def _line(header: Header, statuses: list[str]) -> str:
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(sorted(statuses)))
    plays = "; ".join(stage.play for stage in header.stages)
    return f"{header.run}  {'check' if header.check else 'apply'}  {counts:<32}  {plays}"


def _follow(raw: dict[str, Any], action: str) -> int:
    from k3env.cli.play import all_tasks, finish, limits, watcher
    from k3env.cli.view import View
    from k3env.cli.who import trays, who
    from k3env.connections.road import Road
    from k3env.protocol.outcome import Fold
    from k3env.runner.policy import Policy
    from k3env.runner.run import Run
    from k3env.runner.targets import Targets

    record = Record.find(str(raw.pop("run") or ""))
    asked, header = parse(raw), record.header()
    options = _as_begun(header, asked)
    begun = time.time()
    with trays(who(options)) as reached:
        fold = Fold(header.run, header.started, all_tasks(header), check=header.check)
        after: dict[tuple[int, str], int] = {}
        stage = 1
        for host, event in record.events():
            fold.add(host, event)
            stage = int(event.task.partition(".")[0]) if event.task else stage
            after[stage, host] = max(after.get((stage, host), 0), event.seq)
        plans = header.stages[stage - 1].plans
        left = [host for host in reached.hosts if host.name in plans and fold.live[host.name].phase != "done"]
        view = View(fold, output=asked.output, verbose=asked.v)
        if not left:
            view.notice(f"run {header.run} has ended on all its hosts")
        view.play(header.stages[stage - 1].play, {host.name: plans[host.name].tasks for host in left})
        targets = Targets(header.run, f"{getpass.getuser()}@{socket.gethostname()}", Road())
        running = Run(record, fold, limits(options, reached), options.forks, watcher(view, asked, header.run))
        running.stage(
            [
                targets.make(
                    host,
                    plans[host.name],
                    stage,
                    len(plans),
                    _state_dir(record, host.name),
                    after=after.get((stage, host.name), 0),
                    action=action,
                )
                for host in left
            ],
            Policy(),
            may_stop=False,
        )
        view.end_play()
        code = finish(fold, view, asked, header, time.time() - begun)
        # What was to be cancelled is: that every host has confirmed it is this command's success.
        stopped = action == "cancel" and all(live.phase == "done" for live in fold.live.values())
        return EXIT_OK if stopped and code == EXIT_INTERRUPTED else code


def _as_begun(header: Header, asked: Options) -> Options:
    """Return the options by which the run found its hosts, with the new command's patience."""
    kept: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in header.options.items()
    }
    return replace(Options(**kept), timeout=asked.timeout, reconnect_timeout=asked.reconnect_timeout)


def _state_dir(record: Record, host: str) -> str | None:
    """Return where a host said that it keeps its runs."""
    for name, event in record.events():
        if name == host and event.kind == "hello":
            return str(event.data["state_dir"])
    return None


TASKS = (runs, attach, cancel)
