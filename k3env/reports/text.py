"""A run as text for people: tasks as they settle, findings, the recap."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from k3env.protocol.finding import FAIL, PASS, SKIP, STATUSES, UNKNOWN, WARN, Change, Evidence, Finding, printable
from k3env.protocol.folding import fold
from k3env.protocol.host_outcome import OK
from k3env.protocol.line import FAILED, NOTRUN, UNREACHABLE
from k3env.protocol.outcome import HostOutcome, Outcome, TaskOutcome
from k3env.reports.styled import Span, Styled, join, line

WIDTH = 80
RULE = 72
"""How far the stars of a heading reach, as in Ansible's output."""

COUNTS = ("ok", "changed", "unreachable", "failed", "skipped", "rescued", "ignored", "notrun")
"""The recap's fields: Ansible's, in its order, and `notrun`."""
_TOLD = (FAIL, UNKNOWN, WARN)
_EVIDENCE_LINES = 12
_NAMED = 4
"""Changes that a result's line names; the others are counted."""
_CHANGES = 4


def report(
    outcome: Outcome,
    plays: Sequence[str] = (),
    *,
    diff: bool = False,
    verbose: bool = False,
    width: Optional[int] = None,
) -> Styled:
    """Return the whole run: each play, each of its tasks, what lies across hosts, the recap.

    `width` is the terminal's; None stands for a file or a program, which gets one line for each host of the recap.
    """
    parts: list[Styled] = []
    wide = width or WIDTH
    last = ""
    for id, tasks in _by_task(outcome.hosts.values()):
        play = id.partition(".")[0]
        if play != last:
            parts.append(heading("PLAY", _play_name(play, plays)))
            last = play
        told = results(tasks, diff=diff, verbose=verbose, width=wide)
        if told:
            parts += [heading("TASK", next(iter(tasks.values())).name), told]
    parts.append(across(outcome.across, verbose=verbose, width=wide))
    parts.append(recap(outcome, width=width))
    return join(parts)


def heading(kind: str, name: str = "") -> Styled:
    """Return "TASK [name] ****" behind an empty line."""
    text = f"{kind} [{_one_line(name)}] " if name else f"{kind} "
    return join((line(), line((text.ljust(RULE, "*"), "header"))))


def results(
    tasks: Mapping[str, TaskOutcome], *, diff: bool = False, verbose: bool = False, width: int = WIDTH
) -> Styled:
    """Return what became of one task on hosts; hosts of which the same is told share a line: "ok: [tray-[01-04]]".

    A host on which it did not run has no line, unless that host was lost there.
    """
    alike: dict[_Told, list[str]] = {}
    for host, task in tasks.items():
        if task.status != NOTRUN or task.findings:
            alike.setdefault(_tell(host, task, diff, verbose, width), []).append(host)
    return join(_result(hosts, told) for told, hosts in alike.items())


def changes(items: Iterable[Change]) -> Styled:
    """Return each change with what is there and what is wanted, as a diff."""
    parts: list[Styled] = []
    for item in items:
        parts.append(line((f"    {_one_line(item.what)}", "")))
        for sign, style, text in (("-", "removed", item.before), ("+", "added", item.after)):
            parts += [line((f"      {sign} {row}", style)) for row in printable(text).splitlines()]
    return join(parts)


def finding(item: Finding, *, indent: int = 0, width: int = WIDTH) -> Styled:
    """Return what was expected, what was found, what to do, and where that was seen."""
    inner = indent + 2
    if item.scope == "static" and item.duration_ms is None and item.status in (FAIL, WARN):
        # About an input, and no check's: a person looks for the place in the file first.
        told = ": ".join(part for part in (item.subject, item.message) if part)
        parts = _paragraph("ERROR ", told, indent, width, label_style=item.status)
    else:
        named = " ".join(part for part in (item.id, item.subject and f"[{item.subject}]") if part)
        parts = [line((" " * indent + item.status.upper(), item.status), (f" {_one_line(named)}", ""))]
        parts += _paragraph("", item.message, inner, width)
    for name, text in (("expected", item.expected), ("found", item.found), ("remedy", item.remedy)):
        parts += _paragraph(f"{name + ':':<10}", text or "", inner, width)
    for evidence in item.evidence:
        parts += _evidence(evidence, inner, width)
    return join(parts)


def note(item: Finding, hosts: Sequence[str], *, width: int = WIDTH) -> Styled:
    """Return a finding about whole hosts, under the names of those of which the same is told."""
    named = line((_COUNTED[item.status], item.status), (f": [{_one_line(fold(hosts))}]", ""))
    return join((named, finding(item, indent=2, width=width)))


def across(items: Iterable[Finding], *, verbose: bool = False, width: int = WIDTH) -> Styled:
    """Return the findings about several hosts together, under a heading if there are any to tell."""
    found = list(items)
    if not found:
        return Styled()
    told = [finding(item, width=width) for item in found if verbose or item.status in _TOLD]
    return join((heading("ACROSS HOSTS"), *told, line((_counted(found), ""))))


def recap(outcome: Outcome, *, width: Optional[int] = None) -> Styled:
    """Return one entry for every targeted host, with Ansible's fields and `notrun`.

    With a width, fields that don't fit go on, aligned, in the next line; without one, an entry is one line.
    """
    column = max((len(_one_line(name)) for name in outcome.hosts), default=0)
    parts = [heading("PLAY RECAP")]
    parts += [_entry(host, column, width) for host in outcome.hosts.values()]
    parts.append(simulated(outcome, width=width))
    return join(parts)


def simulated(outcome: Outcome, *, width: Optional[int] = None) -> Styled:
    """Return what is to be known about nodes of the sandbox, if there are any."""
    names = [name for name, host in outcome.hosts.items() if host.simulated]
    if not names:
        return Styled()
    told = f"simulated: {fold(names)}: nodes of the sandbox; their driver, GPUs and free space are made up"
    return join(_paragraph("", told, 0, width or len(told)))


def _by_task(hosts: Iterable[HostOutcome]) -> list[tuple[str, dict[str, TaskOutcome]]]:
    """Return the tasks of all hosts in the order of their ids."""
    tasks: dict[str, dict[str, TaskOutcome]] = {}
    for host in hosts:
        for task in host.tasks:
            tasks.setdefault(task.id, {})[host.name] = task
    return sorted(tasks.items(), key=lambda item: [int(part) if part.isdigit() else 0 for part in item[0].split(".")])


def _play_name(play: str, plays: Sequence[str]) -> str:
    at = int(play) - 1 if play.isdigit() else -1
    return plays[at] if 0 <= at < len(plays) else play


@dataclass(frozen=True)
class _Told:
    """What is told of a task on a host, without the host's name."""

    label: str
    style: str
    summary: str
    below: Styled


def _tell(host: str, task: TaskOutcome, diff: bool, verbose: bool, width: int) -> _Told:
    lost = task.status == NOTRUN and any(item.status == FAIL for item in task.findings)
    status = UNREACHABLE if lost else task.status
    told = [item for item in task.findings if verbose or item.status in _TOLD]
    below = [changes(task.changes)] if diff else []
    if task.status == OK and task.message:
        below += _paragraph("", task.message, 2, width)
    # A finding about the host itself is the same finding on the next one.
    below += [
        finding(replace(item, subject="") if item.subject == host else item, indent=2, width=width) for item in told
    ]
    return _Told(f"{status} (ignored)" if task.ignored else status, status, _summary(task, told), join(below))


def _result(hosts: list[str], told: _Told) -> Styled:
    named = f": [{_one_line(fold(hosts))}]{': ' if told.summary else ''}{told.summary}"
    return join((line((told.label, told.style), (named, "")), told.below))


def _summary(task: TaskOutcome, told: list[Finding]) -> str:
    """Return what a result's line says beside its hosts; not the message that stands in a finding below it."""
    if task.message and task.status != OK and all(task.message != item.message for item in told):
        return _one_line(task.message)
    parts = [_several([_one_line(item.what) for item in task.changes])] if task.changes else []
    if task.findings and task.status not in (FAILED, NOTRUN):
        parts.append(_counted(task.findings))
    return ", ".join(parts)


def _counted(findings: Sequence[Finding]) -> str:
    """Return "13 passed, 2 skipped"."""
    counts = {status: sum(item.status == status for item in findings) for status in STATUSES}
    return ", ".join(f"{count} {_COUNTED[status]}" for status, count in counts.items() if count)


def _several(names: list[str]) -> str:
    left = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {left} more" if left > 0 else "")


_COUNTED = {PASS: "passed", WARN: "warned", FAIL: "failed", SKIP: "skipped", UNKNOWN: "unknown"}


def _entry(host: HostOutcome, column: int, width: Optional[int]) -> Styled:
    style = "failed" if host.status == FAILED else host.status
    fields = [(name, int(getattr(host, name))) for name in COUNTS]
    # As wide as Ansible's, which leaves four places for a number.
    spans = [(f"{name}={count:<4} ", name if count else "") for name, count in fields]
    name = _one_line(host.name).ljust(column)
    rows = _rows(spans, None if width is None else width - column - 3)
    if len(rows) == 1 or width is None or width - column - 3 >= _WIDEST:
        indent, parts = " " * (column + 3), [((name, style), (" : ", ""), *rows[0])]
    else:
        # A name so long that nothing fits beside it has a line of its own.
        rows = _rows(spans, width - 4)
        indent, parts = " " * 4, [((name.rstrip(), style), (" :", "")), ((" " * 4, ""), *rows[0])]
    parts += [((indent, ""), *row) for row in rows[1:]]
    return join(line(*_stripped(row)) for row in parts)


_WIDEST = max(len(name) for name in COUNTS) + 5


def _rows(spans: list[Span], width: Optional[int]) -> list[list[Span]]:
    """Break fields into lines that fit; a field alone may be too long."""
    rows: list[list[Span]] = [[]]
    for span in spans:
        if width is not None and rows[-1] and sum(len(text) for text, _ in rows[-1]) + len(span[0].rstrip()) > width:
            rows.append([])
        rows[-1].append(span)
    return rows


def _stripped(row: Iterable[Span]) -> list[Span]:
    *first, (text, style) = row
    return [*first, (text.rstrip(), style)]


def _evidence(item: Evidence, indent: int, width: int) -> list[Styled]:
    source = item.source if item.exit_code is None else f"{item.source} (exit code {item.exit_code})"
    rows = printable(item.excerpt).splitlines()
    if len(rows) > _EVIDENCE_LINES:
        rows = [f"… {len(rows) - _EVIDENCE_LINES} lines before", *rows[-_EVIDENCE_LINES:]]
    if len(rows) == 1:
        return _paragraph(f"{'seen:':<10}", f"{source}: {rows[0]}", indent, width, "detail")
    shown = [line((f"{' ' * (indent + 2)}{row}", "detail")) for row in rows]
    return [*_paragraph(f"{'seen:':<10}", source, indent, width, "detail"), *shown]


def _paragraph(
    label: str, text: str, indent: int, width: int, style: str = "", label_style: Optional[str] = None
) -> list[Styled]:
    """Return text behind a label, its further lines below its first; a word that is too long stays whole."""
    margin = " " * (indent + len(label))
    room = max(width - len(margin), 20)
    rows = [
        part
        for row in printable(text).splitlines()
        for part in textwrap.wrap(row, room, break_long_words=False, break_on_hyphens=False)
    ]
    labels = [(" " * indent + label, style if label_style is None else label_style)] + [(margin, "")] * len(rows)
    return [line(first, (row, style)) for first, row in zip(labels, rows)]


def _one_line(text: str) -> str:
    return " ".join(printable(text).split()) if "\n" in text or "\t" in text else printable(text)
