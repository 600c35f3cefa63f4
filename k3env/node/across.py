"""What nodes tell of themselves for the checks across them, and those checks.

A node sends facts, not verdicts; whoever has heard all nodes judges: the controller of a run, or `reduce` in a job.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Union

from k3env.node.checks import Check
from k3env.node.checks import judge as _judge
from k3env.node.facts import Fact
from k3env.node.facts.clock import Clock
from k3env.node.modules.verify import Verify
from k3env.protocol import codec
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.outcome import Fold
from k3env.protocol.plan import Plan, Task
from k3env.protocol.profile import Profile


@dataclass(frozen=True)
class Told:
    """What one node told."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    """A fact's name to its JSON form."""
    lag_s: Optional[float] = None
    """Seconds that its clock is behind the judge's, and what the road took; None where that could not be seen."""


def name_of(fact: Fact) -> str:
    """Return a fact's name on the wire: "gpu.driver" for node/facts/gpu.py's driver."""
    return f"{fact.__module__.rpartition('.')[2]}.{fact.__name__}"


def telling(rules: Iterable[Check], values: Mapping[Fact, Any]) -> dict[str, Any]:
    """Return what a node tells for some checks, as JSON by the facts' names."""
    wanted = dict.fromkeys(fact for rule in rules for fact in rule.facts)
    return {name_of(fact): _encoded(values[fact]) for fact in wanted}


def judge(rules: Iterable[Check], told: Mapping[str, Told], profile: Profile) -> tuple[Finding, ...]:
    """Judge what the nodes told, by host; one that told nothing counts as a node that could not be read."""
    decoded: dict[Fact, dict[str, Any]] = {}
    findings = []
    for rule in rules:
        for fact in rule.facts:
            if fact not in decoded:
                decoded[fact] = {host: _decoded(fact, item) for host, item in sorted(told.items())}
        findings.append(_judge(rule, decoded, profile))
    return tuple(findings)


def findings(plans: Mapping[str, Plan], fold: Fold) -> tuple[Finding, ...]:
    """Return what the checks across nodes say of a play; none where fewer than two hosts told anything.

    A host that was lost or has failed before is told of elsewhere, and is left out here.
    """
    found: list[Finding] = []
    for task, hosts in _tasks(plans):
        told = {host: Told(facts, fold.lag_s(host)) for host in hosts if (facts := fold.facts(host, task.id))}
        if len(told) > 1:
            profile: Profile = codec.decode(Profile, plans[next(iter(told))].profile)
            module: Verify = codec.decode(Verify, task.parameters)
            found += judge(module.across(profile), told, profile)
    return tuple(found)


def _tasks(plans: Mapping[str, Plan]) -> Iterable[tuple[Task, list[str]]]:
    """Return each task that verifies, with the hosts that have it."""
    hosts: dict[str, list[str]] = {}
    tasks: dict[str, Task] = {}
    for host, plan in plans.items():
        for task in plan.tasks:
            if task.module == "verify" and task.skip is None:
                tasks.setdefault(task.id, task)
                hosts.setdefault(task.id, []).append(host)
    return [(task, hosts[id]) for id, task in tasks.items()]


def _encoded(value: Any) -> Any:
    return {"unreadable": codec.encode(value)} if isinstance(value, Unreadable) else {"value": codec.encode(value)}


def _decoded(fact: Fact, told: Told) -> Any:
    """Return a fact as a node told it; what another k3env, or nobody, sent can't be read."""
    found = told.facts.get(name_of(fact))
    if not isinstance(found, dict) or not found.keys() & {"value", "unreadable"}:
        return Unreadable("the node told nothing of it")
    try:
        if "unreadable" in found:
            value: Any = codec.decode(Unreadable, found["unreadable"])
        else:
            kind = codec.hints(fact)["return"]
            value = codec.decode(Union[kind, Unreadable], found["value"])
    except codec.DecodeError as error:
        return Unreadable(f"the node told something else: {error}")
    if isinstance(value, Clock) and told.lag_s is not None:
        return dataclasses.replace(value, lag_s=told.lag_s)
    return value
