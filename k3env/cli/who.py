"""Who is meant: the inventory of a command, its hosts, and the trays that have to be started for them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from k3env.cli.options import Options
from k3env.documents import shipped
from k3env.documents.nodes import Node, Position
from k3env.errors import InventoryError, UsageError
from k3env.inventory import Address, Host, Inventory
from k3env.inventory.variables import extra

SANDBOX = "k3env_sandbox"
"""The variable that makes a host a tray of the sandbox."""


@dataclass(frozen=True)
class Who:
    """The hosts of a command."""

    inventory: Inventory
    hosts: tuple[Host, ...]

    @property
    def simulated(self) -> bool:
        """Whether all hosts are trays of the sandbox."""
        return all(SANDBOX in host.variables for host in self.hosts)


def who(options: Options) -> Who:
    """Read the inventories and select the hosts; nothing is contacted.

    Raises UsageError without --hosts, InventoryError for an unknown name.
    """
    if options.hosts is None:
        raise UsageError(
            "no --hosts",
            expected="which hosts are meant",
            found="none",
            remedy="for example --hosts 'gb300-[01-04]' --inventory site.yml, or --hosts sandbox",
        )
    given = list(options.inventory) or [name for name in os.environ.get("K3ENV_INVENTORY", "").split(",") if name]
    paths = [_inventory(name) for name in given] or [shipped.find(shipped.INVENTORIES, "sandbox")]
    inventory = Inventory.load(paths, adhoc_allowed=not given, extra=extra(options.extra_vars))
    hosts = inventory.select(options.hosts, options.limit)
    return Who(inventory, tuple(replace(host, address=_address(host.address, options)) for host in hosts))


def _inventory(name: str) -> Path:
    path = Path(name)
    if path.exists():
        return path
    # A shipped inventory is named by the path that it has in a checkout, from wherever k3env was started.
    if path.parent.name in ("", shipped.INVENTORIES) and path.stem in shipped.names(shipped.INVENTORIES):
        return shipped.find(shipped.INVENTORIES, path.stem)
    raise InventoryError(
        f"there is no inventory {name}",
        expected="a file in Ansible's YAML format",
        found="nothing there",
        remedy="shipped are " + ", ".join(f"inventories/{item}.yml" for item in shipped.names(shipped.INVENTORIES)),
        subject=name,
    )


def _address(address: Address, options: Options) -> Address:
    address = replace(address, user=options.user or address.user, connection=options.connection or address.connection)
    if options.private_key:
        address = replace(address, options={**address.options, "private_key": options.private_key})
    return address


@contextmanager
def trays(chosen: Who) -> Iterator[Who]:
    """Run the trays among these hosts while the command lasts; they bring their address and defaults."""
    wanted = {host.name: host.variables[SANDBOX].plain for host in chosen.hosts if SANDBOX in host.variables}
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
        hosts = tuple(moved(host, ends[host.name]) if host.name in ends else host for host in chosen.hosts)
        yield replace(chosen, hosts=hosts)


def listed(names: Sequence[str]) -> str:
    """Return host names as `--list-hosts` prints them."""
    return "\n".join([f"  hosts ({len(names)}):", *(f"    {name}" for name in names)])
