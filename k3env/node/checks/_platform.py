"""What kind of machine the facts tell of."""

from __future__ import annotations

from typing import Optional, Union

from k3env.k3 import platforms
from k3env.node.checks import skip, unknown
from k3env.node.facts.gpu import Driver, Gpus
from k3env.protocol.finding import Finding, Unreadable

UNSUPPORTED = "not a machine that the recipes know: see gpu.cc"


def kind(driver: Driver, gpus: Gpus) -> Union[platforms.Kind, Unreadable, None]:
    """Return what kind of machine this is; None: none of ours; Unreadable: that can't be told."""
    seen = () if isinstance(gpus.nvml, Unreadable) else gpus.nvml
    capabilities = frozenset(gpu.capability for gpu in seen if gpu.capability)
    found = platforms.kind(capabilities, driver.cpu, frozenset(gpus.device_ids.values()))
    if found is None and not capabilities:
        why = gpus.nvml.reason if isinstance(gpus.nvml, Unreadable) else "no GPU says what it is"
        return Unreadable(f"what kind of machine this is can't be told: {why}")
    return found


def not_for(found: Union[platforms.Kind, Unreadable, None], has_domain: bool, why: str) -> Optional[Finding]:
    """Return a skip where a rule is for the other kinds, unknown where the kind is; None: judge."""
    if isinstance(found, Unreadable):
        return unknown(found.reason)
    if found is None:
        return skip(UNSUPPORTED)
    return skip(f"{found.name}: {why}") if found.has_domain != has_domain else None
