"""Where trtllm-eval would be."""

from __future__ import annotations

from tensorrt_llm.commands import stand_in


def main() -> int:
    """Say that this is a stand-in."""
    return stand_in("trtllm-eval")
