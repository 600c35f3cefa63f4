"""The verdict of a preflight: what speaks against hosts, and whether they are fit, in words that never say too much."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Optional

from k3env.protocol.context import CONTEXTS, DEFAULT, NEEDS_STEP, STEP
from k3env.protocol.finding import FAIL, PASS, SKIP, STATUSES, UNKNOWN, WARN, Finding, printable
from k3env.protocol.folding import fold
from k3env.protocol.line import FAILED, NOTRUN, UNREACHABLE
from k3env.protocol.outcome import HostOutcome, Outcome
from k3env.reports import text
from k3env.reports.styled import Styled, join, line

_ORDER = (FAIL, UNKNOWN, WARN, SKIP, PASS)
_WORDS = {FAIL: "failed", UNKNOWN: "unknown", WARN: "warned", SKIP: "skipped", PASS: "passed"}
_SEVERE = "fail"
_TEXTS = ("subject", "message", "expected", "found", "remedy")


def report(outcome: Outcome, context: str, *, verbose: bool = False, width: int = text.WIDTH) -> Styled:
    """Return the findings, told once for all hosts that say the same, a line for each kind of host, the verdict."""
    several = len(outcome.hosts) > 1
    parts: list[Styled] = []
    before: list[str] = []
    for item, hosts in _folded(outcome, verbose):
        if several and hosts != before:
            parts.append(line((f"{_named(hosts)}:", "header")))
        parts += [text.finding(item, indent=2 * several, width=width), line()]
        before = hosts
    for item in (item for item in outcome.across if verbose or _matters(item)):
        parts += [text.finding(item, width=width), line()]
    parts += [_hosts(outcome), line()] if several else []
    return join((*parts, sentence(outcome, context), text.simulated(outcome, width=width)))


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
        parts.append(line((f"not checked: {_named(lost)}", "")))
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
    """Return the findings of hosts, worst first, with who says the same; evidence is that of the first one.

    A host that names itself, as in the path of a directory of its own, still says the same as the next one.
    """
    alike: dict[Finding, list[str]] = {}
    first: dict[Finding, Finding] = {}
    for name, host in outcome.hosts.items():
        for item in (item for task in host.tasks for item in task.findings if verbose or _matters(item)):
            own = replace(item, subject="" if item.subject == name else item.subject)
            key = _nameless(own, name)
            first.setdefault(key, own)
            hosts = alike.setdefault(key, [])
            if name not in hosts:
                hosts.append(name)
    told = [(first[key] if len(hosts) == 1 else _shared(key, first[key]), hosts) for key, hosts in alike.items()]
    return sorted(told, key=lambda pair: (_rank(pair[0]), -len(pair[1]), pair[1]))


def _nameless(item: Finding, host: str) -> Finding:
    """Return what a finding says, whoever says it."""
    texts: dict[str, Any] = {name: _without(getattr(item, name), host) for name in _TEXTS}
    return replace(item, **texts, evidence=(), duration_ms=None)


def _without(said: Optional[str], host: str) -> Optional[str]:
    return said and re.sub(rf"(?<![\w.-]){re.escape(host)}(?![\w-])", "<host>", said)


def _shared(key: Finding, first: Finding) -> Finding:
    """Return what several hosts say: in the words of the first one, where all have the same."""
    return replace(key, evidence=first.evidence, duration_ms=first.duration_ms)


def _named(hosts: Iterable[str]) -> str:
    """Return hosts as one text, on one line."""
    return " ".join(printable(fold(hosts)).split("\n"))


def _hosts(outcome: Outcome) -> Styled:
    """Return a line for all hosts with the same counts."""
    alike: dict[tuple[str, str], list[str]] = {}
    for name, host in outcome.hosts.items():
        alike.setdefault(_state(host), []).append(name)
    rows = {_named(names): state for state, names in alike.items()}
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
