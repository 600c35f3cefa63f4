"""Why a task had nothing to do: what its module looked at and found right."""

from __future__ import annotations

from typing import TYPE_CHECKING

from k3env.errors import K3Error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from k3env.node.machine import Machine
    from k3env.node.modules import Module
    from k3env.protocol.finding import Finding


def told(module: Module, machine: Machine, findings: Sequence[Finding]) -> str:
    """Return a module's reasons in one line; where its findings say all there is to say, "".

    What is read again may be gone by now: that is no failure of a task that was well.
    """
    try:
        reasons = module.reasons(machine)
    except (K3Error, OSError) as error:
        return f"nothing differed; why can't be told any more: {error}"
    if reasons:
        return "; ".join(reasons)
    if findings:
        return ""
    places = ", ".join(module.writes())
    return f"nothing differs{f' in {places}' if places else ''}"
