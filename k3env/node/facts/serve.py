"""The configuration that trtllm-serve is started with."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional, Union

from k3env.k3 import recipes
from k3env.k3.recipes import Recipe
from k3env.node import plainyaml
from k3env.node.facts import deadline
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable
from k3env.protocol.profile import Profile

READ_BYTES = 1 << 20
PREFIXES = ("KIMI_K3_", "TLLM_", "TRTLLM_")


@dataclass(frozen=True)
class Serve:
    """A configuration, as far as what it says decides whether Kimi K3 can be served."""

    path: str
    values: dict[str, Any] = field(default_factory=dict)
    missing: bool = False
    problem: Optional[str] = None
    """Why it can't be what a server reads."""
    source: Evidence = Evidence("")

    def get(self, *keys: str) -> Any:
        """Return the value below some keys; None where nothing is said."""
        found: Any = self.values
        for key in keys:
            found = found.get(key) if isinstance(found, dict) else None
        return found

    def number(self, *keys: str) -> Optional[int]:
        """Return a whole number below some keys; None where there is none."""
        found = self.get(*keys)
        return found if isinstance(found, int) and not isinstance(found, bool) else None

    @property
    def ranks(self) -> Optional[int]:
        """Return how many GPUs it is for; None where the command line says it."""
        return self.number("tensor_parallel_size")

    @property
    def experts(self) -> int:
        """Return over how many GPUs the experts are spread."""
        return self.number("moe_expert_parallel_size") or 1

    @property
    def attention_dp(self) -> bool:
        """Return whether attention is data parallel."""
        return self.get("enable_attention_dp") is True

    @property
    def recipe(self) -> Optional[Recipe]:
        """Return the recipe that it is one of; None where it is of none, or the command line decides."""
        return recipes.recognised(self.ranks, self.experts, self.attention_dp) if self.ranks is not None else None


@dataclass(frozen=True)
class Switches:
    """Variables of this process's environment that change how Kimi K3 computes, by name."""

    values: dict[str, str] = field(default_factory=dict)
    source: Evidence = Evidence("")


def switches(machine: Machine) -> Switches:
    """Read the environment that a rank would start with."""
    found = {name: value for name, value in machine.environment.items() if name.startswith(PREFIXES)}
    told = "\n".join(f"{name}={value}" for name, value in sorted(found.items()))
    return Switches(found, Evidence("environment", excerpt=told))


@deadline(5.0)
def serve(machine: Machine, profile: Profile) -> Union[Serve, Unreadable, None]:
    """Read the configuration that the profile names; None where it names none."""
    path = profile.paths.serve_config
    if path is None:
        return None
    try:
        text = machine.text(path, READ_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        return Serve(path, missing=True, source=Evidence(path, excerpt="no such file"))
    source = Evidence(path)
    try:
        values = plainyaml.loads(text)
    except plainyaml.NotPlain as error:
        return Unreadable(f"{path}, {error}", source)
    if not isinstance(values, dict):
        return Serve(path, problem=f"expected a mapping, found {type(values).__name__}", source=source)
    return Serve(path, values, source=source)
