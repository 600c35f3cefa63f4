"""The network as ranks need it: InfiniBand ports, TCP ports that are taken, a way out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional, Union
from urllib.parse import urlsplit

from k3env.node.facts import deadline
from k3env.node.facts import egress as ways
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt
from k3env.protocol.profile import Profile

INFINIBAND = "/sys/class/infiniband"
TCP_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
CONNECT_S = 3.0
"""A host that has not accepted a connection after this many seconds is out of reach."""
MOST_HOSTS = 3
CUBIN_HOST = "edge.urm.nvidia.com:443"
"""From where FlashInfer loads cubins, unless told otherwise. Source: flashinfer/jit/cubin_loader.py."""

_LISTEN = "0A"
# Opens a connection and says nothing. The words come as arguments, none is read as code.
_CONNECT = 'exec 3<>"/dev/tcp/$1/$2"'
_CUBINS = "FLASHINFER_CUBIN_DIR"
_MIRROR = "FLASHINFER_CUBINS_REPOSITORY"
_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


@dataclass(frozen=True)
class Port:
    """One port of an InfiniBand or RoCE device."""

    name: str
    """"mlx5_0/1"."""
    state: str
    """"ACTIVE", "DOWN"; "" where the kernel has none."""
    physical: str = ""
    """"LinkUp", "Polling"."""
    rate_gbps: Optional[float] = None
    """None where the kernel's text has no number."""
    layer: str = ""
    """"InfiniBand" or "Ethernet"."""


@dataclass(frozen=True)
class Infiniband:
    """The ports of all InfiniBand and RoCE devices."""

    ports: tuple[Port, ...]
    source: Evidence


@dataclass(frozen=True)
class Listening:
    """TCP ports that something listens on, in this process's network namespace."""

    ports: tuple[int, ...]
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Egress:
    """Whether this process reaches hosts outside."""

    needless: Optional[str] = None
    """Why nothing outside is needed, in which case nothing was tried; None: it is."""
    failed: dict[str, str] = field(default_factory=dict)
    """HOST:PORT to why no connection came about."""
    reached: tuple[str, ...] = ()
    source: tuple[Evidence, ...] = ()


@deadline(3.0)
def infiniband(machine: Machine) -> Infiniband:
    """Read the ports of InfiniBand and RoCE devices.

    Source: /sys/class/infiniband/*/ports/*/{state,phys_state,rate,link_layer}: "4: ACTIVE", "5: LinkUp",
    "800 Gb/sec (4X XDR)", "InfiniBand".
    """
    where = f"{INFINIBAND}/*/ports/*"
    try:
        devices = machine.list(INFINIBAND)
    except (FileNotFoundError, NotADirectoryError):
        return Infiniband((), Evidence(where, excerpt="no such directory"))
    found = [
        _port(machine, device, number) for device in devices for number in machine.list(f"{INFINIBAND}/{device}/ports")
    ]
    told = "\n".join(f"{port.name}: {port.state} {port.physical} {port.rate_gbps} Gb/s {port.layer}" for port in found)
    return Infiniband(tuple(found), Evidence(where, excerpt=excerpt(told.encode())))


@deadline(3.0)
def listening(machine: Machine) -> Listening:
    """Read which TCP ports are listened on; one of them can't be bound by another process.

    Source: /proc/net/tcp and tcp6, state 0A. A kernel without IPv6 has no tcp6.
    """
    ports: set[int] = set()
    sources = []
    for path in TCP_TABLES:
        try:
            lines = machine.text(path, 8 << 20).splitlines()[1:]
        except FileNotFoundError:
            if path == TCP_TABLES[0]:
                raise
            continue
        rows = [line.split() for line in lines if line.strip()]
        if any(len(row) < 4 for row in rows):
            raise ValueError(f"{path} has a row that is cut")
        found = {int(row[1].rpartition(":")[2], 16) for row in rows if row[3] == _LISTEN}
        sources.append(Evidence(path, excerpt=f"{len(rows)} sockets, listening on {_shown(found)}"))
        ports |= found
    return Listening(tuple(sorted(ports)), tuple(sources))


@deadline(MOST_HOSTS * CONNECT_S + 1)
def egress(machine: Machine, profile: Profile) -> Union[Egress, Unreadable]:
    """Try to connect to the hosts from which ranks would load what was not filled beforehand.

    Nothing is tried where nothing is needed. What goes through a proxy is tried as far as the proxy.
    """
    reason = _needless(machine, profile)
    if reason is not None:
        return Egress(reason, {}, ())
    if machine.which("bash") is None:
        return Unreadable("no bash to open a connection with")
    targets = list(dict.fromkeys(_through(host, machine.environment) for host in _hosts(machine, profile)))
    failed, reached, sources = {}, [], []
    for target in targets[:MOST_HOSTS]:
        host, _, port = target.rpartition(":")
        done = machine.run(("bash", "-c", _CONNECT, "bash", host.strip("[]"), port), timeout_s=CONNECT_S)
        sources.append(Evidence(f"connect {target}", done.exit_code, excerpt(done.stderr)))
        if done.timed_out:
            failed[target] = f"no answer after {CONNECT_S:g} s"
        elif done.exit_code != 0:
            failed[target] = excerpt(done.stderr).partition("\n")[0].rpartition(": ")[2] or "no connection"
        else:
            reached.append(target)
    return Egress(None, failed, tuple(reached), tuple(sources))


def _port(machine: Machine, device: str, number: str) -> Port:
    directory = f"{INFINIBAND}/{device}/ports/{number}"

    def word(name: str) -> str:
        try:
            return machine.text(f"{directory}/{name}", 256).strip()
        except OSError:
            return ""

    rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", word("rate"))
    return Port(
        f"{device}/{number}",
        word("state").partition(": ")[2],
        word("phys_state").partition(": ")[2],
        float(rate.group(1)) if rate else None,
        word("link_layer"),
    )


def _needless(machine: Machine, profile: Profile) -> Optional[str]:
    if not profile.system.egress_hosts:
        return "the site file asks for no host"
    offline = next((name for name in _OFFLINE if machine.environment.get(name, "0").lower() in ("1", "true")), None)
    if offline is not None:
        return f"{offline} is set"
    filled = machine.environment.get(_CUBINS)
    if filled and machine.is_dir(filled) and machine.list(filled):
        return f"{_CUBINS} is filled: {filled}"
    return None


def _hosts(machine: Machine, profile: Profile) -> list[str]:
    """Return what ranks connect to: of cubins the mirror, where one is set."""
    mirror = machine.environment.get(_MIRROR)
    cubins = _address(mirror, 443) if mirror else CUBIN_HOST
    return list(dict.fromkeys(cubins if host == CUBIN_HOST else host for host in profile.system.egress_hosts))


def _through(host: str, environment: Mapping[str, str]) -> str:
    """Return what ranks connect to for a host, HOST:PORT: the proxy, unless no_proxy takes the host out.

    They are Requests, which is urllib3. Raises ValueError for a proxy that is none.
    """
    proxy = ways.of_environment("https", environment)
    if proxy is None or ways.bypasses(host.rpartition(":")[0].strip("[]"), environment):
        return host
    address = ways.proxy_address(proxy[0], ways.URLLIB3_PORTS, 80)
    if address is None:
        raise ValueError(f"{proxy[1]} is no proxy's URL: {proxy[0].rpartition('@')[2]}")
    return address


def _address(url: str, port: int) -> str:
    """Return HOST:PORT of a URL.

    Raises ValueError for a port that is none, and for no host.
    """
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if not parts.hostname:
        raise ValueError(f"{url.rpartition('@')[2]} names no host")
    usual = 80 if port == 443 and parts.scheme == "http" else port
    return f"{parts.hostname}:{parts.port or usual}"


def _shown(ports: set[int]) -> str:
    return " ".join(map(str, sorted(ports)[:40])) or "none"
