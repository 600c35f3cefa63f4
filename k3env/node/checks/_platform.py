"""What kind of machine the facts tell of."""

from __future__ import annotations

from dataclasses import replace
from functools import wraps
from typing import Any, Callable, Optional, Union

from k3env.k3 import platforms
from k3env.node.checks import skip, unknown
from k3env.node.facts.gpu import Driver, Gpus
from k3env.protocol.finding import Evidence, Finding, Unreadable
from k3env.protocol.profile import Profile

Known = Union[platforms.Kind, Unreadable, None]
"""What kind of machine this is; None: none of ours; Unreadable: that can't be told."""

UNSUPPORTED = "not a machine that the recipes know: see gpu.cc"


def by_kind(judge: Callable[..., Finding]) -> Callable[..., Finding]:
    """Give a judge the kind of machine in place of the facts that tell it.

    What the finding shows as evidence is what it judges, not what the kind was told by, unless that is unknown.
    """

    @wraps(judge)
    def judged(driver: Driver, gpus: Gpus, fact: Any, profile: Profile) -> Finding:
        found = kind(driver, gpus)
        verdict = judge(found, fact, profile)
        if verdict.evidence or isinstance(found, Unreadable):
            return verdict
        source = fact.source
        return replace(verdict, evidence=(source,) if isinstance(source, Evidence) else tuple(source))

    return judged


def kind(driver: Driver, gpus: Gpus) -> Known:
    """Return what kind of machine this is; None: none of ours; Unreadable: that can't be told."""
    seen = () if isinstance(gpus.nvml, Unreadable) else gpus.nvml
    capabilities = frozenset(gpu.capability for gpu in seen if gpu.capability)
    found = platforms.kind(capabilities, driver.cpu, frozenset(gpus.device_ids.values()))
    if found is None and not capabilities:
        why = gpus.nvml.reason if isinstance(gpus.nvml, Unreadable) else "no GPU says what it is"
        return Unreadable(f"what kind of machine this is can't be told: {why}")
    return found


def not_for(found: Known, has_domain: bool, why: str) -> Optional[Finding]:
    """Return a skip where a rule is for the other kinds, unknown where the kind is; None: judge."""
    if isinstance(found, Unreadable):
        return unknown(found.reason)
    if found is None:
        return skip(UNSUPPORTED)
    return skip(f"{found.name}: {why}") if found.has_domain != has_domain else None
