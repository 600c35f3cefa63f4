"""invoke runs, attach, cancel: runs that go on, or have ended, apart from the command that began them."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from k3env.cli.command import command
from k3env.cli.options import PLAYING, REACHING, SHOWING, TARGETING, Option, Options, parse
from k3env.errors import EXIT_FAILED, EXIT_OK, EXIT_UNREACHABLE, UsageError

if TYPE_CHECKING:
    from k3env.cli.kept import Asked
    from k3env.protocol.finding import Finding
    from k3env.protocol.kept import KeptRun
    from k3env.runner.record import Record

SCHEMA = "k3env.runs/1"
OPEN = "open"
"""Of a record here: a host may be at work, or its end was not seen."""

_RUN = Option("run", "a run's name, or its beginning; see: invoke runs")
_ELSEWHERE = (
    Option("hosts", "ask these nodes: for runs that were begun by another user, or on another machine"),
    *(option for option in TARGETING if option.name in ("limit", "inventory")),
    *(option for option in PLAYING if option.name == "extra_vars"),
    *REACHING,
)


@dataclass(frozen=True)
class Line:
    """A run as it is listed."""

    run: str
    state: str
    """running, ended, lost; of this controller's own records: open, ended."""
    since: str
    owner: str
    what: str
    check: bool
    hosts: Mapping[str, str]
    """Host to what it does, or how it ended."""


@command(*_ELSEWHERE, *(option for option in SHOWING if option.name == "output"))
def runs(**raw: Any) -> int:
    """List the runs that were begun from here; with --hosts those that these nodes know, whoever began them."""
    options = parse(raw)
    problems: Mapping[str, Finding] = {}
    code = EXIT_OK
    if options.hosts is None and options.limit is not None:
        raise UsageError(
            "--limit narrows --hosts, and there are none",
            expected="--hosts, whose runs are listed",
            found=f"--limit {options.limit}",
            remedy="see all runs that were begun from here: invoke runs; or those of nodes: --hosts",
        )
    if options.hosts is None:
        lines = list(_recorded())
    else:
        from k3env.cli.kept import ask_nodes
        from k3env.cli.secrets import check_key
        from k3env.cli.who import trays, who

        options = check_key(options)
        with trays(who(options)) as reached:
            asked = ask_nodes(options, reached)
        lines, problems = list(_kept(asked)), asked.answers.problems
        if problems:
            code = EXIT_UNREACHABLE if set(problems) <= asked.answers.unreachable else EXIT_FAILED
    _print(options, lines, problems)
    return code


@command(_RUN, *_ELSEWHERE, *SHOWING, positional=["run"])
def attach(**raw: Any) -> int:
    """Follow a run that goes on without its controller, or tell how it ended; with --hosts, begun from anywhere."""
    from k3env.cli.follow import follow

    return follow(raw, "follow")


@command(_RUN, *_ELSEWHERE, *SHOWING, positional=["run"])
def cancel(**raw: Any) -> int:
    """End the work of a run on every host; what is done stays done."""
    from k3env.cli.follow import follow

    return follow(raw, "cancel")


def _print(options: Options, lines: list[Line], problems: Mapping[str, Finding]) -> None:
    from k3env.protocol import codec
    from k3env.reports import text

    if options.output != "text":
        told = {"schema": SCHEMA, "runs": [asdict(line) for line in lines]}
        print(json.dumps({**told, "problems": {host: codec.encode(item) for host, item in problems.items()}}))
        return
    for line in lines:
        print(_text(line))
    if not lines:
        where = f"on {options.hosts}" if options.hosts else "begun from here; for those of others, add --hosts"
        print(f"no runs {where}")
    for finding in problems.values():
        print(text.finding(finding), file=sys.stderr)


def _text(line: Line) -> str:
    """Return a run's lines: what it is, and what its hosts do; hosts that do the same share one."""
    from k3env.protocol.finding import printable
    from k3env.protocol.folding import fold

    alike: dict[str, list[str]] = {}
    for host, said in line.hosts.items():
        alike.setdefault(said, []).append(host)
    mode = ", check" if line.check else ""
    by = f" by {line.owner}" if line.owner else ""
    rows = [f"{line.run}  {line.state}, begun {line.since}{by}{mode}", f"    {line.what}"]
    rows += [f"    {fold(hosts)}: {said}" for said, hosts in alike.items()]
    return "\n".join(" ".join(printable(row).splitlines()) for row in rows if row.strip())


def _kept(asked: Asked) -> Iterator[Line]:
    from k3env.protocol.kept import ENDED, LOST, RUNNING
    from k3env.protocol.plan import CHECK
    from k3env.reports.document import timestamp
    from k3env.runner.kept import oldest

    for name in asked.answers.names():
        last: dict[str, KeptRun] = {}
        for hosts in asked.answers.of(name).values():
            last.update(hosts)
        states = [run.state for run in last.values()]
        state = next(state for state in (RUNNING, LOST, ENDED) if state in states)
        first = oldest(last.values())
        hosts_said = {host: _doing(run) for host, run in last.items()}
        what = "; ".join(dict.fromkeys(run.what for run in last.values()))
        yield Line(name, state, timestamp(first.since), first.owner, what, first.mode == CHECK, hosts_said)


def _doing(run: KeptRun) -> str:
    from k3env.protocol.kept import ENDED, LOST

    if run.state == ENDED:
        at = "" if run.status == "ok" else f" at {min(run.done + 1, run.count)}/{run.count} {run.task}"
        return f"{run.status}{at}" if run.task else run.status
    share = f" {run.fraction:.0%}" if run.fraction is not None else ""
    told = f"{min(run.done + 1, run.count)}/{run.count} {run.task}{':' if run.text or share else ''}{share} {run.text}"
    lost = "its worker is gone, without an end, at " if run.state == LOST else ""
    return f"{lost}{told.rstrip()}"


def _recorded() -> Iterator[Line]:
    from k3env.protocol.finding import printable
    from k3env.runner.record import records

    for record in records():
        try:
            yield _record(record)
        except UsageError as error:
            print(printable(f"{record.name}  {error}; {error.finding.remedy}"), file=sys.stderr)


def _record(record: Record) -> Line:
    from k3env.protocol.line import NOTRUN

    header, outcome = record.header(), record.outcome()
    said = {name: host.status for name, host in outcome.hosts.items()}
    said.update({name: OPEN for name in record.unfinished() if said.get(name) == NOTRUN})
    what = "; ".join(stage.play for stage in header.stages)
    return Line(header.run, "ended" if record.ended else OPEN, header.started, "", what, header.check, said)


TASKS = (runs, attach, cancel)
