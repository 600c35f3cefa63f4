"""invoke provision, and its parts by tag."""

from __future__ import annotations

from typing import Any

from k3env.cli.command import command
from k3env.cli.options import (
    DEFAULT_PLAYBOOK,
    DETACHING,
    EXPLAINING,
    PLAYING,
    REACHING,
    SHOWING,
    TARGETING,
    WHEN,
    parse,
)

STAGING = "stage"
PARTS = {
    "verify": "Check the driver and the finished environment, change nothing",
    "build": "Check out TensorRT LLM and build it in place",
    "deps": "Install fla-core, einops and the pinned FlashInfer",
    "caches": "Make the node-local caches and the ranks' environment",
}
"""Tags of the trtllm playbook that are tasks of their own."""


@command(*TARGETING, *PLAYING, *WHEN, *EXPLAINING, *DETACHING, *REACHING, *SHOWING)
def provision(**raw: Any) -> int:
    """Bring hosts into the state that a playbook describes (default: trtllm)."""
    from k3env.cli.play import play

    return play(parse(raw))


def _part(tag: str, summary: str) -> Any:
    def run(**raw: Any) -> int:
        from k3env.cli.play import play

        tags = ",".join(filter(None, (tag, raw.get("tags"))))
        return play(parse({**raw, "playbook": raw.get("playbook") or DEFAULT_PLAYBOOK, "tags": tags}))

    run.__name__ = tag
    run.__doc__ = f"{summary}: provision --playbook {DEFAULT_PLAYBOOK} --tags {tag}."
    return command(*TARGETING, *PLAYING, *WHEN, *EXPLAINING, *DETACHING, *REACHING, *SHOWING)(run)


@command(*TARGETING, *PLAYING, *WHEN, *EXPLAINING, *DETACHING, *REACHING, *SHOWING)
def stage(**raw: Any) -> int:
    """Fetch weights, image, cubins and data, on a host with egress: provision --playbook stage."""
    from k3env.cli.play import play

    return play(parse({**raw, "playbook": raw.get("playbook") or STAGING}))


TASKS = (provision, stage, *(_part(tag, summary) for tag, summary in PARTS.items()))

__all__ = ["TASKS"]
