"""verify: judge the node, and change nothing."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from k3env.errors import nearest
from k3env.node.modules import Module
from k3env.protocol.finding import Finding

if TYPE_CHECKING:
    from k3env.node.checks import Check
    from k3env.node.machine import Machine
    from k3env.protocol.profile import Profile

_JOB = "job"
"""The context in which a process has what a rank has: its limits, its container, its devices."""


@dataclass(frozen=True)
class Verify(Module):
    """Judge the node by checks; one that fails, fails the task."""

    checks: tuple[str, ...]
    """Ids of checks, or globs: `gpu.driver.version`, `gpu.*`, `*`."""

    def __post_init__(self) -> None:
        if not self.checks:
            raise ValueError("checks names none; `*` means all")
        # `*` names something; to see that, all checks and facts would be imported.
        self._selected(tuple(pattern for pattern in self.checks if pattern != "*"))

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Read the facts of all selected checks side by side, and judge each."""
        from k3env.node.checks import judge, skip
        from k3env.node.facts import Facts

        rules = tuple(
            dataclasses.replace(rule, facts=(), judge=lambda profile: skip("needs the job's context"))
            if rule.scope == "rank" and profile.context != _JOB
            else rule
            for rule in self._selected(self.checks)
        )
        values = Facts(machine, profile).collect(tuple(fact for rule in rules for fact in rule.facts))
        return tuple(judge(_guarded(rule), values, profile) for rule in rules)

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


def _guarded(rule: Check) -> Check:
    """Let a check that can't cope with what it got say `unknown`, so that the others still speak."""

    def judge(*arguments: Any) -> Finding:
        from k3env.node.checks import unknown

        try:
            return rule.judge(*arguments)
        except Exception as error:
            return unknown(f"the check itself failed: {type(error).__name__}: {error}")

    return dataclasses.replace(rule, judge=judge)
