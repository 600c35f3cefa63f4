"""The verdict of a preflight: what speaks against hosts, and whether they are fit, in words that never say too much."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Optional

from k3env.protocol.context import CONTEXTS, DEFAULT, NEEDS_STEP, STEP
from k3env.protocol.finding import FAIL, PASS, SKIP, STATUSES, UNKNOWN, WARN, Finding
from k3env.protocol.folding import fold
from k3env.protocol.line import FAILED, NOTRUN, UNREACHABLE
from k3env.protocol.outcome import HostOutcome, Outcome
from k3env.reports import text
from k3env.reports.styled import Styled, join, line

_ORDER = (FAIL, UNKNOWN, WARN, SKIP, PASS)
_WORDS = {FAIL: "failed", UNKNOWN: "unknown", WARN: "warned", SKIP: "skipped", PASS: "passed"}
_SEVERE = "fail"


def report(outcome: Outcome, context: str, *, verbose: bool = False, width: int = text.WIDTH) -> Styled:
    """Return the findings, told once for all hosts that say the same, a line for each kind of host, the verdict."""
    several = len(outcome.hosts) > 1
    parts = [_told(hosts, item, several, width) for item, hosts in _folded(outcome, verbose)]
    parts += [text.finding(item, width=width) for item in outcome.across if verbose or _matters(item)]
    spaced = [part for told in parts for part in (told, line())]
    hosts = [_hosts(outcome), line()] if several else []
    return join((*spaced, *hosts, sentence(outcome, context)))


def sentence(outcome: Outcome, context: str) -> Styled:
    """Return the verdict, and what it does not cover with the line that checks it."""
    found = list(outcome.findings())
    failed = [item for item in found if item.status == FAIL]
    unknown = [item for item in found if item.status == UNKNOWN and item.severity == _SEVERE]
    left = [item for item in found if item.status == SKIP and item.message == NEEDS_STEP]
    lost = [name for name, host in outcome.hosts.items() if host.status in (UNREACHABLE, NOTRUN)]
    broken = [name for name, host in outcome.hosts.items() if host.status == FAILED]
    whole = context == DEFAULT and any(item.scope == "rank" and item.status == PASS for item in found) and not left
    counts = counted(found)
    if failed or broken:
        said, style = "not fit for Kimi K3", "fail"
    elif lost or unknown:
        said, style = "not known to be fit for Kimi K3", "unknown"
    elif whole:
        said, style = "fit for Kimi K3", "pass"
    else:
        said, style = "nothing found against it", "pass"
    parts = [line((said, style), (f": {counts}" if counts else ": nothing was checked", ""))]
    if lost:
        parts.append(line((f"not checked: {fold(lost)}", "")))
    if CONTEXTS[context].name != DEFAULT:
        parts.append(line((f"checked was what belongs to the context {context}; the rest in a job: {STEP}", "")))
    elif not whole:
        ids = len({item.id for item in left})
        named = f"{ids} {'check' if ids == 1 else 'checks'} of" if ids else "what belongs to"
        parts.append(line((f"not checked: {named} a rank; in the job: {STEP}", "")))
    return join(parts)


def counted(findings: Iterable[Finding]) -> str:
    """Return "1 failed, 2 warned, 30 passed", the worst in front."""
    number = dict.fromkeys(STATUSES, 0)
    for item in findings:
        number[item.status] += 1
    return ", ".join(f"{number[status]} {_WORDS[status]}" for status in _ORDER if number[status])


def first(outcome: Outcome) -> Optional[Finding]:
    """Return the finding that matters most."""
    return min((item for item in outcome.findings() if _matters(item)), key=_rank, default=None)


def _matters(item: Finding) -> bool:
    return item.status in (FAIL, UNKNOWN, WARN)


def _rank(item: Finding) -> int:
    return _ORDER.index(item.status)


def _folded(outcome: Outcome, verbose: bool) -> list[tuple[Finding, list[str]]]:
    """Return the findings of hosts, worst first, with who says the same; evidence is that of the first one."""
    alike: dict[Finding, list[str]] = {}
    whole: dict[Finding, Finding] = {}
    for name, host in outcome.hosts.items():
        for item in (item for task in host.tasks for item in task.findings if verbose or _matters(item)):
            subject = "" if item.subject == name else item.subject
            key = replace(item, subject=subject, evidence=(), duration_ms=None)
            whole.setdefault(key, replace(item, subject=subject))
            hosts = alike.setdefault(key, [])
            if name not in hosts:
                hosts.append(name)
    return sorted(((whole[key], hosts) for key, hosts in alike.items()), key=lambda pair: _rank(pair[0]))


def _told(hosts: list[str], item: Finding, several: bool, width: int) -> Styled:
    if not several:
        return text.finding(item, width=width)
    return join((line((f"{fold(hosts)}:", "header")), text.finding(item, indent=2, width=width)))


def _hosts(outcome: Outcome) -> Styled:
    """Return a line for all hosts with the same counts."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, host in outcome.hosts.items():
        alike.setdefault(_state(host), []).append(name)
    rows = {fold(names): state for state, names in alike.items()}
    column, wide = max(map(len, rows)), max(len(label) for label, _ in rows.values())
    return join(
        line((f"{names:<{column}}  {label:<{wide}}", _STYLES[label]), (f"  {told}" if told else "", ""))
        for names, (label, told) in rows.items()
    )


_STYLES: Mapping[str, str] = {"not fit": "fail", "unknown": "unknown", "no fault": "pass", "not reached": "unreachable"}


def _state(host: HostOutcome) -> tuple[str, str]:
    if host.status in (UNREACHABLE, NOTRUN):
        return "not reached", host.message
    found = [item for task in host.tasks for item in task.findings]
    counts = counted(found) or host.message
    if host.status == FAILED:
        return "not fit", counts
    unknown = any(item.status == UNKNOWN and item.severity == _SEVERE for item in found)
    return ("unknown" if unknown else "no fault"), counts
