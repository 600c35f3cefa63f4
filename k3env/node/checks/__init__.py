"""Checks judge: pure functions from facts to a finding.

`@check("gpu.driver.version", driver, scope="node", severity="fail")` declares the id, whose first word is the
file's name, and the facts that become the function's arguments, followed by the profile. A fact that could not
be read makes the finding `unknown` before the function is called. The scope says in which contexts it runs, unless
`contexts=("prolog", "job")` does.
"""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from importlib import import_module
from typing import Any, Callable, Optional

from k3env.node.names import within
from k3env.protocol.context import ON_REQUEST, of_scope
from k3env.protocol.context import severity as severity_of
from k3env.protocol.finding import FAIL, PASS, SKIP, UNKNOWN, WARN, Evidence, Finding, Unreadable
from k3env.protocol.profile import Profile

Judge = Callable[..., Finding]


@dataclass(frozen=True)
class Check:
    """A rule: what it is called, what it reads, how much it matters."""

    id: str
    facts: tuple[Callable[..., Any], ...]
    judge: Judge
    scope: str
    severity: str
    contexts: tuple[str, ...] = ()
    """In which contexts it runs; none: in those of its scope."""

    def runs_in(self, context: str) -> bool:
        """Return whether the check belongs to a context."""
        return context in (self.contexts or of_scope(self.scope))

    @property
    def is_on_request(self) -> bool:
        """Whether only its id means it, never a glob."""
        return ON_REQUEST in self.contexts

    @property
    def doc(self) -> str:
        """What the rule demands, for people."""
        return (self.judge.__doc__ or "").strip()


def check(
    id: str, *facts: Callable[..., Any], scope: str, severity: str, contexts: tuple[str, ...] = ()
) -> Callable[[Judge], Check]:
    """Declare a check; the decorated function is its judge."""
    return lambda judge: Check(id, facts, judge, scope, severity, contexts)


def passed(found: Optional[str] = None, message: str = "") -> Finding:
    """Say that the rule holds."""
    return Finding("", PASS, found=found, message=message)


def fail(*, expected: str, found: str, remedy: str, message: str = "", subject: str = "") -> Finding:
    """Say that the rule is broken, and what to do."""
    return Finding("", FAIL, expected=expected, found=found, remedy=remedy, message=message, subject=subject)


def skip(why: str, remedy: Optional[str] = None) -> Finding:
    """Say that the rule does not apply here, and how to have it judged, if there is a way."""
    return Finding("", SKIP, message=why, remedy=remedy)


def unknown(reason: str, *evidence: Evidence) -> Finding:
    """Say that the rule could not be judged."""
    return Finding("", UNKNOWN, message=reason, evidence=evidence)


def names() -> tuple[str, ...]:
    """Return the files of checks, which are the first words of their ids."""
    return within(__name__, __path__)


def select(patterns: tuple[str, ...]) -> tuple[Check, ...]:
    """Return the checks that ids or globs name, importing only the files that these can mean.

    Raises KeyError with a pattern that matches nothing.
    """
    chosen: dict[str, Check] = {}
    for pattern in patterns:
        matching = [item for name in _files(pattern.split(".", 1)[0]) for item in _of(name)]
        matching = [item for item in matching if fnmatchcase(item.id, pattern)]
        if not matching:
            raise KeyError(pattern)
        chosen.update((item.id, item) for item in matching)
    return tuple(chosen.values())


def judge(rule: Check, values: dict[Callable[..., Any], Any], profile: Profile) -> Finding:
    """Judge one rule, and complete its finding with id, severity, scope and evidence.

    A check that can't cope with what it got says `unknown`, so that the others still speak.
    """
    begun = time.perf_counter()
    found = [values[fact] for fact in rule.facts]
    verdict = _unreadable(found) or _judged(rule, found, profile)
    severity = severity_of(rule.id, rule.severity, profile.severities)
    status = verdict.status
    if status == FAIL and severity != "fail":
        status = WARN if severity == "warn" else PASS
    return dataclasses.replace(
        verdict,
        id=rule.id,
        status=status,
        severity=severity,
        scope=rule.scope,
        evidence=verdict.evidence or _evidence(found),
        duration_ms=round((time.perf_counter() - begun) * 1000, 3),
    )


def _files(first: str) -> tuple[str, ...]:
    """Return the files that the first word of a pattern means; to list them in an archive takes longer than to look."""
    if not first.isidentifier():
        return tuple(name for name in names() if fnmatchcase(name, first))
    where = f"{__name__}.{first}"
    try:
        import_module(where)
    except ModuleNotFoundError as error:
        if error.name != where:
            raise
        return ()
    return () if first.startswith("_") else (first,)


@cache
def _of(name: str) -> tuple[Check, ...]:
    return tuple(item for item in vars(import_module(f"{__name__}.{name}")).values() if isinstance(item, Check))


def _judged(rule: Check, found: list[Any], profile: Profile) -> Finding:
    try:
        verdict = rule.judge(*found, profile)
    except (Exception, SystemExit) as error:
        return unknown(f"the check itself failed: {type(error).__name__}: {error}")
    return verdict if isinstance(verdict, Finding) else unknown(f"the check itself failed: it said {verdict!r:.80}")


def _unreadable(values: list[Any]) -> Optional[Finding]:
    for value in values:
        if isinstance(value, Unreadable):
            return unknown(value.reason, *([value.evidence] if value.evidence else []))
    return None


def _evidence(values: list[Any]) -> tuple[Evidence, ...]:
    """Return where the facts were read: their `source` fields."""
    sources: list[Evidence] = []
    for value in values:
        source = getattr(value, "source", ())
        sources += [source] if isinstance(source, Evidence) else list(source)
    return tuple(dict.fromkeys(sources))
