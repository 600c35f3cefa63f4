"""invoke leases: who works in a shared checkout, and what a dead owner left locked."""

from __future__ import annotations

from typing import Any

from k3env.cli.command import command
from k3env.cli.options import PLAYING, REACHING, SHOWING, TARGETING, Option, parse
from k3env.errors import UsageError

_OWN = (
    Option(
        "list",
        "show each lease beside the checkout and the caches: who, since when, whether alive (the default)",
        False,
    ),
    Option("break_", "remove those whose owner is dead; a living one is refused, with how to cancel it", False),
)
_PLAYING = tuple(option for option in PLAYING if option.name in ("extra_vars", "check", "diff"))


@command(*_OWN, *TARGETING, *_PLAYING, *REACHING, *SHOWING)
def leases(**raw: Any) -> int:
    """Show the leases beside the paths of the main job, or remove those of dead owners."""
    from k3env.cli.play import play

    listing, breaking = raw.pop("list"), raw.pop("break_")
    if listing and breaking:
        raise UsageError(
            "--list and --break exclude each other",
            expected="one of them",
            found="both",
            remedy="see first: invoke leases --list",
        )
    # To look, nothing is claimed: the run that has a lease goes on meanwhile. To break, no job is disturbed.
    how = {"tags": "break", "allow_busy": True} if breaking else {"tags": "list", "check": True, "v": True}
    return play(parse({**raw, "playbook": "leases", **how}))


TASKS = (leases,)
