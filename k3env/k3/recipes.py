"""Recipes: how Kimi K3 is spread over GPUs, and what that takes of each.

Source: TensorRT LLM's deployment guide for Kimi K3, examples/kimi_k3/perf_sweep and its README; memory as measured on
GB200 and GB300 there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

GIB = 1 << 30
EXPERTS = 896
"""Routed experts of the model: what they are divided by must divide this. Source: config.json, text_config."""
SA_BATCH = 8
"""Most requests at once with suffix-automaton speculation. Source: README of examples/kimi_k3."""
TOKENS_PER_BLOCK = 64
"""The guide calls it a hard constraint; a configuration without it takes the default, which is the same."""
ABOVE_WEIGHTS_GIB = 20.0
"""Activations, graphs and the least KV cache: on GB200, 106.67 GiB of weights peak at 125.96 GiB."""


@dataclass(frozen=True)
class Recipe:
    """One way to serve it."""

    name: str
    ranks: int
    """One GPU each."""
    expert_ranks: int
    attention_dp: bool
    weights_gb: float
    """Of one rank, 10^9 bytes."""
    batch: int
    """As the sweep has it; of each rank with attention_dp, else of all together."""

    @property
    def needs_gib(self) -> float:
        """GiB of GPU memory that a rank takes at least."""
        return self.weights_gb * 1e9 / GIB + ABOVE_WEIGHTS_GIB


RECIPES = (
    Recipe("dep16", 16, 16, True, 210, 64),
    Recipe("tep16", 16, 16, False, 115, 16),
    Recipe("tep8", 8, 8, False, 213, 16),
)


def named(name: str) -> Recipe:
    """Return a recipe by its name, in any case.

    Raises KeyError.
    """
    return {item.name: item for item in RECIPES}[name.lower()]


def recognised(ranks: int, expert_ranks: int, attention_dp: bool) -> Optional[Recipe]:
    """Return the recipe of a configuration, or None."""
    shape = (ranks, expert_ranks, attention_dp)
    return next((item for item in RECIPES if (item.ranks, item.expert_ranks, item.attention_dp) == shape), None)


@dataclass(frozen=True)
class Identity:
    """What makes a checkpoint that of Kimi K3."""

    model_type: str = "kimi_k3"
    architecture: str = "KimiK3ForConditionalGeneration"
    text: tuple[tuple[str, int], ...] = (
        ("num_hidden_layers", 93),
        ("hidden_size", 7168),
        ("vocab_size", 163840),
    )
    """Of text_config: a checkpoint that was cut short for tests has fewer layers."""
    total_bytes: int = 1_560_936_091_448
    """Of all tensors, as the index of revision 9f62e4e has it."""


CHECKPOINT = Identity()
TOKENIZER = ("tokenizer_config.json", "tiktoken.model")
REMOTE_CODE = ("configuration_kimi_k3.py", "modeling_kimi_k3.py", "modeling_kimi_linear.py")
"""Loaded by trust_remote_code; the configuration's auto_map names the first two."""
