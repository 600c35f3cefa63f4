"""Who is meant: the inventory of a command, its hosts, and the trays that have to be started for them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TextIO

from k3env.cli.options import DEFAULT_PLAYBOOK, Options
from k3env.documents import shipped
from k3env.documents.nodes import Node, Position
from k3env.errors import InventoryError, UsageError, nearest
from k3env.inventory import Address, Host, Inventory, slurm
from k3env.inventory.variables import extra
from k3env.protocol.finding import printable
from k3env.protocol.folding import fold

SANDBOX = "k3env_sandbox"
"""The variable that makes a host a tray of the sandbox."""
_DESCRIPTOR = re.compile(r"/dev/(fd/|stdin$)|/proc/(self|[0-9]+)/fd/")

_SHOWN = 120
"""Characters of a list of hosts in a message."""

_LAST = re.compile(r"(?<![^,&!\s])run:last(?![^,:\s])")


@dataclass(frozen=True)
class Who:
    """The hosts of a command."""

    inventory: Inventory
    hosts: tuple[Host, ...]
    builders: tuple[Host, ...] = ()
    """Hosts that build for these, and are not among them."""

    @property
    def all(self) -> tuple[Host, ...]:
        """All that may be contacted."""
        return (*self.builders, *self.hosts)

    @property
    def simulated(self) -> bool:
        """Whether all hosts are trays of the sandbox."""
        return all(SANDBOX in host.variables for host in self.all)


def who(options: Options) -> Who:
    """Read the inventories and select the hosts; nothing is contacted.

    Within a Slurm job its hosts are meant where no --hosts is given.

    Raises UsageError without --hosts outside of jobs, InventoryError for an unknown name.
    """
    allocation = slurm.allocation()
    if options.hosts is None and allocation is None:
        raise UsageError(
            "no --hosts",
            expected="which hosts are meant",
            found="none, and no Slurm job around us",
            remedy="for example --hosts 'gb300-[01-04]' --inventory site.yml, or --hosts sandbox",
        )
    inventory = load(options, playbook_dir(options.playbook or DEFAULT_PLAYBOOK))
    if options.hosts is None and allocation is not None:
        hosts = inventory.select_allocated(allocation, options.limit)
    else:
        hosts = inventory.select(options.hosts or "", options.limit)
    return Who(inventory, tuple(replace(host, address=_address(host.address, options)) for host in hosts))


def with_builders(chosen: Who, names: Iterable[str], options: Options) -> Who:
    """Return the hosts of a command with those that build for them.

    Raises InventoryError for a builder that neither the inventory nor --hosts names.
    """
    here = {host.name for host in chosen.hosts}
    found = [_builder(chosen, name, options) for name in names if name not in here]
    return replace(chosen, builders=tuple(replace(host, address=_address(host.address, options)) for host in found))


def _builder(chosen: Who, name: str, options: Options) -> Host:
    inventory = chosen.inventory
    if name in inventory.hosts and name not in inventory.groups:
        return inventory.select(name)[0]
    # Before --limit: who builds need not be one of those that are asked for.
    named = list(inventory.select(options.hosts)) if inventory.adhoc_allowed and options.hosts else []
    for host in named:
        if host.name == name:
            return host
    here = dict.fromkeys([*inventory.hosts, *(host.name for host in (*named, *chosen.hosts))])
    close = nearest(name, list(here))
    group = inventory.groups.get(name)
    raise InventoryError(
        f"the builder {name} is no host of the inventory" if not inventory.adhoc_allowed
        else f"the builder {name} is named by neither --hosts nor an inventory",
        subject="builder",
        expected=f"the name of one host: {_some(here)}",
        found=name if group is None else f"{name}, a group of {_some(group)}",
        remedy=f"did you mean {close}? set the variable builder to it" if close
        else "set the variable builder to one of these, or add the host to the inventory"
        + (", or to --hosts" if inventory.adhoc_allowed else ""),
    )  # fmt: skip


def _some(names: Iterable[str]) -> str:
    """Return names for one message, folded; of very many the first."""
    text = fold(names) or "none"
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN].rpartition(',')[0] or text[:_SHOWN]}, …"


def load(options: Options, beside_playbook: Path | None = None) -> Inventory:
    """Read the inventories of a command; without any there are the sandbox and hosts that --hosts names.

    Raises UsageError and InventoryError for what can't be read.
    """
    given = _given(options)
    paths = [_inventory(name) for name in given] or [shipped.find(shipped.INVENTORIES, "sandbox")]
    inventory = Inventory.load(paths, not given, extra(options.extra_vars), beside_playbook)
    return replace(inventory, earlier=_failed_in)


def _failed_in(run: str) -> Sequence[str]:
    from k3env.runner.failures import failed_in

    return failed_in(run)


def _given(options: Options) -> list[str]:
    return list(options.inventory) or [name for name in os.environ.get("K3ENV_INVENTORY", "").split(",") if name]


def as_recorded(options: Options) -> Options:
    """Return options that mean the same from another directory and another environment, for `attach` and `cancel`."""
    inventory = tuple(_absolute(name) if Path(name).exists() else name for name in _given(options))
    extra_vars = tuple(f"@{_absolute(word[1:])}" if word.startswith("@") else word for word in options.extra_vars)
    key = _absolute(str(Path(options.private_key).expanduser())) if options.private_key else None
    hosts, limit = _pinned(options.hosts), _pinned(options.limit)
    return replace(options, hosts=hosts, limit=limit, inventory=inventory, extra_vars=extra_vars, private_key=key)


def _pinned(pattern: str | None) -> str | None:
    """Return a pattern that means the same run when this one has become the last."""
    if pattern is None or not _LAST.search(pattern):
        return pattern
    from k3env.runner.failures import last

    return _LAST.sub(f"run:{last().directory.name}", pattern)


def _absolute(name: str) -> str:
    # What a descriptor of this process leads to, such as the pipe of a shell's <(…), has no path of its own.
    return name if _DESCRIPTOR.match(name) else str(Path(name).resolve())


def playbook_dir(name: str | None) -> Path | None:
    """Return the directory of a playbook, where its group_vars and host_vars lie; None: none was named.

    Raises UsageError for a playbook that is not there.
    """
    from k3env.playbook.plays import find_playbook

    return find_playbook(name)[0].parent if name is not None else None


def warn(inventory: Inventory, stream: TextIO) -> None:
    """Print what is odd about the inventories."""
    for warning in inventory.warnings:
        print(printable(f"warning: {warning.subject}: {warning.message}; {warning.remedy}"), file=stream)


def _inventory(name: str) -> Path:
    path = Path(name)
    if path.exists():
        return path
    # A shipped inventory is named by the path that it has in a checkout, from wherever k3env was started.
    if path.parent.name in ("", shipped.INVENTORIES) and path.stem in shipped.names(shipped.INVENTORIES):
        return shipped.find(shipped.INVENTORIES, path.stem)
    known = ", ".join(f"inventories/{item}.yml" for item in shipped.names(shipped.INVENTORIES))
    remedy = f"did you mean {meant}?" if (meant := _near(path)) else f"shipped are {known}"
    if "," in name:
        remedy = "name hosts with --hosts, and give --inventory again for each further file"
    raise InventoryError(
        f"there is no inventory {name}",
        expected="a YAML file, a program that prints --list, or a directory of them",
        found="nothing there",
        remedy=remedy,
        subject=name,
    )


def _near(path: Path) -> Path | None:
    """Return the path beside a misspelt one that was meant, or None."""
    try:
        close = nearest(path.name, [entry.name for entry in path.parent.iterdir()])
    except (OSError, ValueError):
        return None
    return path.parent / close if close else None


def _address(address: Address, options: Options) -> Address:
    address = replace(address, user=options.user or address.user, connection=options.connection or address.connection)
    if options.private_key:
        address = replace(address, options={**address.options, "private_key": options.private_key})
    return address


@contextmanager
def trays(chosen: Who) -> Iterator[Who]:
    """Run the trays among these hosts while the command lasts; they bring their address and defaults."""
    wanted = {host.name: host.variables[SANDBOX].plain for host in chosen.all if SANDBOX in host.variables}
    if not wanted:
        yield chosen
        return
    from k3env.sandbox import Endpoint, Rack

    source = Position("the sandbox")

    def moved(host: Host, end: Endpoint) -> Host:
        options = {"private_key": end.private_key, "host_key": end.host_key, "overlay": end.overlay}
        address = Address(end.hostname, "ssh", end.port, end.user, options=options)
        defaults = {name: Node.of(value, source) for name, value in end.variables.items()}
        return replace(host, address=address, variables={**defaults, **host.variables})

    with Rack() as rack:
        ends = rack.start(wanted)
        hosts, builders = (
            tuple(moved(host, ends[host.name]) if host.name in ends else host for host in group)
            for group in (chosen.hosts, chosen.builders)
        )
        yield replace(chosen, hosts=hosts, builders=builders)


def listed(names: Sequence[str]) -> str:
    """Return host names as `--list-hosts` prints them."""
    return "\n".join([f"  hosts ({len(names)}):", *(f"    {name}" for name in names)])
