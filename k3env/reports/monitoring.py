"""A preflight for machines that watch: JUnit XML, a Nagios line, Prometheus' text format. Pure functions.

Sources: the JUnit XSD that Jenkins' and GitLab's readers share; the Nagios plugin guidelines, "Plugin output for
Nagios" and "Performance data"; Prometheus' "Exposition formats", "Metric and label naming" and node_exporter's textfile
collector, which refuses a file that holds a series twice or has timestamps.
"""

from __future__ import annotations

from collections.abc import Iterable

from k3env.protocol.finding import FAIL, PASS, SKIP, STATUSES, UNKNOWN, WARN, Finding, printable
from k3env.protocol.line import NOTRUN, UNREACHABLE
from k3env.protocol.outcome import HostOutcome, Outcome
from k3env.reports.verdict import counted, first

OK, WARNING, CRITICAL, NOT_KNOWN = 0, 1, 2, 3
_STATES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")
_LINE = 300
"""Characters of Nagios' first line that are ours; NRPE cuts at 1,024 bytes."""
_WORST = (FAIL, UNKNOWN, WARN, PASS, SKIP)
ACROSS = "across"


def junit(outcome: Outcome, *, fail_on_warn: bool = False) -> str:
    """Return JUnit XML: a suite for each host, a case for each finding. A warning is a case with output."""
    suites = [(host.name, *_cases(host)) for host in outcome.hosts.values()]
    suites += [(ACROSS, list(outcome.across), "")] if outcome.across else []
    parts = ['<?xml version="1.0" encoding="UTF-8"?>\n']
    every = [item for _, items, _ in suites for item in items]
    parts.append(
        f'<testsuites name="k3env preflight" {_totals(every, fail_on_warn)} time="{outcome.duration_s:.3f}">\n'
    )
    for name, items, lost in suites:
        stamp = f' timestamp="{_xml(outcome.started.rstrip("Z"))}"' if outcome.started else ""
        seconds = sum(item.duration_ms or 0 for item in items) / 1000
        totals = _totals(items, fail_on_warn, int(bool(lost)))
        host = _xml(name)
        parts.append(f'  <testsuite name="{host}" hostname="{host}" {totals} time="{seconds:.3f}"{stamp}>\n')
        if lost:
            parts.append(
                f'    <testcase classname="run" name="run.reached" time="0.000">\n{_outcome("error", lost, "")}'
            )
            parts.append("    </testcase>\n")
        parts += [_case(item, fail_on_warn) for item in items]
        parts.append("  </testsuite>\n")
    parts.append("</testsuites>\n")
    return "".join(parts)


def nagios(outcome: Outcome, *, fail_on_warn: bool = False) -> str:
    """Return a line of status with performance data, and below it a line for each finding that matters."""
    found = list(outcome.findings())
    code = nagios_code(outcome, fail_on_warn=fail_on_warn)
    worst = first(outcome)
    lost = [name for name, host in outcome.hosts.items() if host.status in (UNREACHABLE, NOTRUN)]
    told = f"not reached: {', '.join(lost)}; " if lost else ""
    told += f"{_brief(worst)}; " if worst is not None else ""
    told += counted(found) or "nothing was checked"
    data = [f"{status}={sum(item.status == status for item in found)};;;0" for status in STATUSES]
    data.append(f"time={outcome.duration_s:.3f}s;;;0")
    rows = [f"PREFLIGHT {_STATES[code]} - {_plain(told)[:_LINE]} | {' '.join(data)}"]
    for name, items in (*((host.name, _cases(host)[0]) for host in outcome.hosts.values()), ("", outcome.across)):
        where = f"{name}: " if name and len(outcome.hosts) > 1 else ""
        matter = (item for item in items if item.status in (FAIL, UNKNOWN, WARN))
        rows += [_plain(f"{item.status.upper()} {where}{_brief(item)}") for item in matter]
    return "\n".join(rows) + "\n"


def nagios_code(outcome: Outcome, *, fail_on_warn: bool = False) -> int:
    """Return 0 OK, 1 WARNING, 2 CRITICAL or 3 UNKNOWN: the worst, a failure before what is not known."""
    if outcome.exit_code() == 2:
        return CRITICAL
    found = list(outcome.findings())
    warned = any(item.status == WARN for item in found)
    if warned and fail_on_warn:
        return CRITICAL
    if outcome.exit_code() or not found:
        return NOT_KNOWN
    return WARNING if warned else OK


def prometheus(outcome: Outcome, exit_code: int, ended_s: float) -> str:
    """Return metrics for node_exporter's textfile collector; `ended_s` is in seconds since 1970."""
    checks: dict[tuple[tuple[str, str], ...], str] = {}
    for name, items in (*((host.name, _cases(host)[0]) for host in outcome.hosts.values()), (ACROSS, outcome.across)):
        for item in items:
            labels = (("node", name), ("check", item.id), ("subject", item.subject), ("severity", item.severity))
            checks[labels] = min(checks.get(labels, item.status), item.status, key=_WORST.index)
    rows = _family("k3env_check_status", "Status of a check: 1 for the one that it has.")
    rows += [_sample("k3env_check_status", (*labels, ("status", status)), 1) for labels, status in checks.items()]
    rows += _family("k3env_preflight_checks", "Number of checks by status.")
    for name in outcome.hosts:
        for status in STATUSES:
            number = sum(labels[0][1] == name and have == status for labels, have in checks.items())
            rows.append(_sample("k3env_preflight_checks", (("node", name), ("status", status)), number))
    rows += _family("k3env_preflight_reached", "Whether a node was reached.")
    for name, host in outcome.hosts.items():
        reached = int(host.status not in (UNREACHABLE, NOTRUN))
        rows.append(_sample("k3env_preflight_reached", (("node", name),), reached))
    for metric, text, value in (
        ("k3env_preflight_exit_code", "Exit code of the preflight: 0 ok, 2 failed, 3 unknown.", exit_code),
        ("k3env_preflight_duration_seconds", "How long the preflight took.", round(outcome.duration_s, 3)),
        ("k3env_preflight_completion_timestamp_seconds", "When the preflight ended.", round(ended_s, 3)),
    ):
        rows += [*_family(metric, text), _sample(metric, (), value)]
    return "\n".join(rows) + "\n"


def one_line(item: Finding) -> str:
    """Return a finding as one line of plain text: what it is about, what it says, what to do."""
    remedy = f"; {item.remedy}" if item.remedy else ""
    return _plain(f"{item.status.upper()} {_brief(item)}{remedy}")


def _cases(host: HostOutcome) -> tuple[list[Finding], str]:
    """Return a host's findings, and why there may be none."""
    items = [item for task in host.tasks for item in task.findings]
    lost = host.message or host.status if host.status in (UNREACHABLE, NOTRUN) and not items else ""
    return items, lost


def _totals(items: Iterable[Finding], fail_on_warn: bool, lost: int = 0) -> str:
    statuses = [item.status for item in items]
    failures = statuses.count(FAIL) + (statuses.count(WARN) if fail_on_warn else 0)
    tests, errors = len(statuses) + lost, statuses.count(UNKNOWN) + lost
    return f'tests="{tests}" failures="{failures}" errors="{errors}" skipped="{statuses.count(SKIP)}"'


def _case(item: Finding, fail_on_warn: bool) -> str:
    name = f"{item.id} [{item.subject}]" if item.subject else item.id
    seconds = (item.duration_ms or 0) / 1000
    head = f'    <testcase classname="{_xml(item.id.partition(".")[0])}" name="{_xml(name)}" time="{seconds:.3f}"'
    message = _brief(item, named=False)
    if item.status == FAIL or (item.status == WARN and fail_on_warn):
        inner = _outcome("failure", message, _details(item))
    elif item.status == UNKNOWN:
        inner = _outcome("error", message, _details(item))
    elif item.status == SKIP:
        inner = f'      <skipped message="{_xml(message)}"/>\n'
    elif item.status == WARN:
        told = f"WARN {message}\n{_details(item)}"
        inner = f"      <system-out>{_xml(told, inside=True)}</system-out>\n"
    else:
        return head + "/>\n"
    return f"{head}>\n{inner}    </testcase>\n"


def _outcome(tag: str, message: str, details: str) -> str:
    return f'      <{tag} message="{_xml(message)}" type="{tag}">{_xml(details, inside=True)}</{tag}>\n'


def _details(item: Finding) -> str:
    rows = [
        f"{name}: {text}"
        for name, text in (("expected", item.expected), ("found", item.found), ("remedy", item.remedy))
        if text
    ]
    for evidence in item.evidence:
        code = "" if evidence.exit_code is None else f" (exit code {evidence.exit_code})"
        rows.append(f"seen: {evidence.source}{code}\n{evidence.excerpt}".rstrip())
    return "\n".join(rows)


def _brief(item: Finding, named: bool = True) -> str:
    """Return what a finding says in one line."""
    said = item.message or ", ".join(
        f"{word} {text}" for word, text in (("expected", item.expected), ("found", item.found)) if text
    )
    name = f"{item.id} [{item.subject}]" if item.subject else item.id
    return f"{name}: {said}" if named and said else said or name


def _xml(text: str, inside: bool = False) -> str:
    """Return a text for XML 1.0, which has no way to say most control characters; a newline in attributes is kept."""
    escaped = printable(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return escaped if inside else escaped.replace('"', "&quot;").replace("\n", "&#10;").replace("\t", "&#9;")


def _plain(text: str) -> str:
    """Return a text as one line without the bar that begins performance data."""
    return " ".join(printable(text).split()).replace("|", "/")


def _family(name: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} gauge"]


def _sample(name: str, labels: Iterable[tuple[str, str]], value: float) -> str:
    pairs = ",".join(f'{label}="{_label(text)}"' for label, text in labels)
    return f"{name}{{{pairs}}} {value}" if pairs else f"{name} {value}"


def _label(text: str) -> str:
    return printable(text).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
