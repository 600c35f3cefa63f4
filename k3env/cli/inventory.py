"""invoke inventory: who is in the inventories, in the shape that ansible-inventory prints."""

from __future__ import annotations

import sys
from typing import Any

from k3env.cli.command import command
from k3env.cli.options import PLAYING, TARGETING, Option, parse
from k3env.errors import UsageError

_OWN = (
    Option("list", "print all hosts, groups and variables as JSON", False),
    Option("graph", "print the groups and what is in them as a tree", False),
    Option("host", "print the variables of one host as JSON"),
    Option("group", "begin the graph at this group"),
    Option("vars", "print variables in the graph", False),
    Option("playbook_dir", "read group_vars and host_vars there too"),
)
_SHARED = tuple(option for option in (*TARGETING, *PLAYING) if option.name in ("inventory", "limit", "extra_vars"))


@command(*_OWN, *_SHARED)
def inventory(**raw: Any) -> int:
    """Print the inventories as --list, --graph or --host NAME, as ansible-inventory does."""
    from pathlib import Path

    from k3env.cli.who import load, warn
    from k3env.inventory import shown

    own = {option.name: raw.pop(option.name) for option in _OWN}
    wanted = [name for name in ("list", "graph", "host") if own[name]]
    if len(wanted) != 1:
        raise UsageError(
            "what is to be printed?",
            expected="one of --list, --graph, --host NAME",
            found=", ".join(f"--{name}" for name in wanted) or "none of them",
        )
    _only_for_graph(own)
    options = parse(raw)
    directory = Path(own["playbook_dir"]) if own["playbook_dir"] else None
    if directory is not None and not directory.is_dir():
        raise UsageError("--playbook-dir is no directory", expected="a directory", found=str(directory))
    found = load(options, directory)
    warn(found, sys.stderr)
    if own["host"]:
        print(shown.dumps(shown.of_host(found, own["host"])))
    elif own["graph"]:
        print(shown.graph(found, own["group"] or "all", own["vars"]))
    else:
        hosts = found.select("all", options.limit) if found.hosts else []
        print(shown.dumps(shown.listing(found, [host.name for host in hosts])))
    return 0


def _only_for_graph(own: dict[str, Any]) -> None:
    for name in ("group", "vars"):
        if own[name] and not own["graph"]:
            raise UsageError(f"--{name} goes with --graph", expected="--graph", found=f"--{name} alone")


TASKS = (inventory,)
