"""invoke runs, attach, cancel: runs that go on, or have ended, apart from the command that began them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from k3env.cli.command import command
from k3env.cli.options import REACHING, SHOWING, Option, parse
from k3env.errors import EXIT_OK, UsageError

if TYPE_CHECKING:
    from k3env.runner.record import Header

_RUN = Option("run", "a run's name, or its beginning; see: invoke runs")
_ROAD = tuple(option for option in REACHING if option.name in ("timeout", "reconnect_timeout"))


@command(*(option for option in SHOWING if option.name == "output"))
def runs(**raw: Any) -> int:
    """List the runs that this user has begun from here, the newest last."""
    from k3env.protocol.finding import printable
    from k3env.reports import document
    from k3env.runner.record import records

    options = parse(raw)
    for record in records():
        try:
            header, outcome = record.header(), record.outcome()
        except UsageError as error:
            print(printable(f"{record.directory.name}  {error}; {error.finding.remedy}"), file=sys.stderr)
            continue
        if options.output == "text":
            print(printable(_line(header, [host.status for host in outcome.hosts.values()])))
        else:
            print(document.dumps(document.document(outcome, header.command)))
    return EXIT_OK


@command(_RUN, *_ROAD, *SHOWING, positional=["run"])
def attach(**raw: Any) -> int:
    """Follow a run that goes on without its controller, from where its record ends."""
    from k3env.cli.follow import follow

    return follow(raw, "follow")


@command(_RUN, *_ROAD, *SHOWING, positional=["run"])
def cancel(**raw: Any) -> int:
    """End the work of a run on every host; what is done stays done."""
    from k3env.cli.follow import follow

    return follow(raw, "cancel")


def _line(header: Header, statuses: list[str]) -> str:
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in dict.fromkeys(sorted(statuses)))
    plays = "; ".join(stage.play for stage in header.stages)
    return f"{header.run}  {'check' if header.check else 'apply'}  {counts:<32}  {plays}"


TASKS = (runs, attach, cancel)
