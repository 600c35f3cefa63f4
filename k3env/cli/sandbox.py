"""invoke sandbox.path and sandbox.reset."""

from __future__ import annotations

from k3env.cli.command import command


@command()
def path() -> int:
    """Print the directory of the sandbox's rack: its trays' files and the shared checkout."""
    from k3env.sandbox import Rack

    print(Rack().path)
    return 0


@command()
def reset() -> int:
    """End what runs on the sandbox's trays and remove all their files."""
    from k3env.sandbox import Rack

    rack = Rack()
    rack.reset()
    print(f"{rack.path} is empty; the next run makes new trays")
    return 0


TASKS = (path, reset)
