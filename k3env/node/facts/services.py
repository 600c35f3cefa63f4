"""Services of the node, as systemd keeps them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union

from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable

ANSWER_S = 2.0
_STATES = ("active", "reloading", "inactive", "failed", "activating", "deactivating", "maintenance", "unknown")


@dataclass(frozen=True)
class Service:
    """One unit of systemd."""

    unit: str
    state: str
    """active, inactive, failed, activating and so on; of a unit that there is not, inactive or unknown."""
    source: Evidence

    @property
    def is_active(self) -> bool:
        """Whether it runs."""
        return self.state == "active"


def service(machine: Machine, unit: str) -> Union[Service, Unreadable]:
    """Read the state of a service.

    Source: systemctl is-active, one word; its exit code differs from release to release.
    """
    done = machine.run(("systemctl", "is-active", f"{unit}.service"), timeout_s=ANSWER_S)
    word = done.text.strip()
    if done.timed_out or word not in _STATES:
        said = "no answer" if done.timed_out else word.partition("\n")[0] or "systemd can't be asked here"
        return Unreadable(f"systemctl: {said}", done.evidence())
    return Service(unit, word, done.evidence())
