"""verify: judge the node, and change nothing."""

from __future__ import annotations

import dataclasses
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from k3env.errors import nearest
from k3env.node.modules import Module
from k3env.protocol.context import CONTEXTS, NEEDS_STEP, STEP
from k3env.protocol.finding import Finding

if TYPE_CHECKING:
    from k3env.node.checks import Check
    from k3env.node.facts import Facts
    from k3env.node.machine import Machine
    from k3env.protocol.profile import Profile


@dataclass(frozen=True)
class Verify(Module):
    """Judge the node by checks; one that fails, fails the task."""

    checks: tuple[str, ...]
    """Ids of checks, or globs: `gpu.driver.version`, `gpu.*`, `*`. A glob means those of the run's context."""

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError("checks names none; `*` means all")
        # `*` names something; to see that, all checks and facts would be imported.
        self._selected(tuple(pattern for pattern in self.checks if pattern != "*"))

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Read the facts of all selected checks side by side, within the context's time, and judge each."""
        from k3env.node.facts import Facts, deadline_of

        seconds = CONTEXTS[profile.context].seconds
        asked = [deadline_of(fact) for rule in self.rules(profile) if rule.is_on_request for fact in rule.facts]
        ends = time.monotonic() + max((seconds, *asked))
        return self.told(Facts(machine, profile, ends), machine, profile)

    def told(self, facts: Facts, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Judge, and tell of this node what is compared with others, if somebody compares."""
        compared = self.across(profile) if machine.compared else ()
        facts.collect(tuple(fact for rule in (*self.rules(profile), *compared) for fact in rule.facts))
        if compared:
            from k3env.node.across import telling

            machine.tell(telling(compared, facts.collect(tuple(fact for rule in compared for fact in rule.facts))))
        return self.judged(facts, profile)

    def judged(self, facts: Facts, profile: Profile) -> tuple[Finding, ...]:
        """Judge by facts that may have been read already."""
        from k3env.node.checks import judge

        rules = self.rules(profile)
        values = facts.collect(tuple(fact for rule in rules for fact in rule.facts))
        return tuple(judge(rule, values, profile) for rule in rules)

    def rules(self, profile: Profile) -> tuple[Check, ...]:
        """Return what is judged on a node: what isn't of the context only if its id stands there, as a skip.

        Checks across nodes are left out: who has the facts of all nodes judges them.
        """
        found = []
        for rule in self._selected(self.checks):
            if rule.scope == "across":
                continue
            if not rule.runs_in(profile.context) and rule.id not in self.checks:
                continue
            if not rule.runs_in(profile.context) and not rule.is_on_request:
                rule = _skipped(rule, f"not part of the context {profile.context}")
            elif rule.scope == "rank" and not profile.at_rank:
                rule = _skipped(rule, NEEDS_STEP, f"run it in the job: {STEP}")
            found.append(rule)
        return tuple(found)

    def across(self, profile: Profile) -> tuple[Check, ...]:
        """Return what is judged by who has the facts of all nodes."""
        chosen = self._selected(self.checks)
        return tuple(rule for rule in chosen if rule.scope == "across" and rule.runs_in(profile.context))

    def _selected(self, patterns: tuple[str, ...]) -> tuple[Check, ...]:
        """Return the checks that are named.

        Raises ValueError, with the nearest right name, for a pattern that names none.
        """
        from k3env.node.checks import select

        try:
            return select(patterns)
        except KeyError as error:
            pattern = str(error.args[0])
        meant = nearest(pattern, [rule.id for rule in select(("*",))])
        raise ValueError(f"no check is called {pattern!r}" + (f"; did you mean {meant}?" if meant else ""))


def _skipped(rule: Check, why: str, remedy: Optional[str] = None) -> Check:
    """Return a check that reads nothing and says why."""
    from k3env.node.checks import skip

    return dataclasses.replace(rule, facts=(), judge=lambda profile: skip(why, remedy))
