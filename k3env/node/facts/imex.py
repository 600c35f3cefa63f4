"""IMEX: the service that lets GPUs of several nodes share memory over NVLink, and the channels that its users open."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any, Optional, Union

from k3env.node.facts.inside import inside
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable

CTL = "nvidia-imex-ctl"
CHANNELS = "/dev/nvidia-caps-imex-channels"
PARAMS = "/proc/driver/nvidia/params"
DEVICES = "/proc/devices"
STATES = (
    *("INITIALIZING", "STARTING_AUTH_SERVER", "WAITING_FOR_PEERS", "WAITING_FOR_RECOVERY", "INIT_GPU"),
    *("READY", "SHUTTING_DOWN", "UNAVAILABLE"),
)
ANSWER_S = 3.0
_TRIED = 16


@dataclass(frozen=True)
class Channel:
    """A channel's device node."""

    path: str
    error: Optional[str]
    """Why it could not be opened for reading and writing; None: it could."""


@dataclass(frozen=True)
class Channels:
    """The channels that this process sees: all of them until one could be opened, and 16 at most."""

    tried: tuple[Channel, ...]
    is_known: Optional[bool] = None
    """Whether the kernel knows of such devices; None where that can't be read."""
    capabilities: Optional[str] = None
    """NVIDIA_DRIVER_CAPABILITIES, by which a container's runtime decides what to let in."""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Daemon:
    """The node's own IMEX service."""

    is_installed: bool
    state: Optional[str] = None
    """READY and so on; None: it does not answer."""
    said: str = ""
    is_hidden: bool = False
    """Whether this is a container without its tool: it tells nothing of the node's service."""
    source: tuple[Evidence, ...] = ()


@dataclass(frozen=True)
class Peer:
    """A node of the IMEX domain, as this node's service sees it."""

    host: str
    status: str
    version: Optional[str] = None
    unconnected: tuple[str, ...] = ()
    """The nodes that it has no connection to."""


@dataclass(frozen=True)
class Domain:
    """The IMEX domain as this node's service sees it."""

    status: Optional[str]
    """UP, DEGRADED or DOWN; None: the service does not answer."""
    peers: tuple[Peer, ...] = ()
    said: str = ""
    is_hidden: bool = False
    """As of a daemon."""
    source: tuple[Evidence, ...] = ()


def channels(machine: Machine) -> Channels:
    """Try the IMEX channels as the user that runs this.

    Source: /dev/nvidia-caps-imex-channels/channelN, opened for reading and writing; /proc/devices.
    """
    try:
        names = [name for name in machine.list(CHANNELS) if re.fullmatch(r"channel\d+", name)]
    except (FileNotFoundError, NotADirectoryError):
        names = []
    tried: list[Channel] = []
    for name in sorted(names, key=lambda name: int(name[len("channel") :]))[:_TRIED]:
        path = f"{CHANNELS}/{name}"
        tried.append(Channel(path, _refusal(machine, path)))
        if tried[-1].error is None:
            break
    shown = "\n".join(f"{channel.path}: {channel.error or 'opened'}" for channel in tried) or "no channel"
    capabilities = machine.environment.get("NVIDIA_DRIVER_CAPABILITIES")
    return Channels(tuple(tried), _is_known(machine), capabilities, (Evidence(CHANNELS, None, shown),))


def daemon(machine: Machine) -> Union[Daemon, Unreadable]:
    """Read the state of the node's IMEX service.

    Source: nvidia-imex-ctl -q, which prints one word, or why it can't ask.
    """
    if machine.which(CTL) is None:
        return Daemon(False, is_hidden=inside(machine).container is not None, source=(Evidence(CTL, 127, "not found"),))
    done = machine.run((CTL, "-q"), timeout_s=ANSWER_S)
    if done.timed_out or done.exit_code is None:
        return Unreadable(f"{CTL} gave no answer in {ANSWER_S:g} s", done.evidence())
    words = [word for word in re.split(r"\W+", done.text) if word in STATES]
    said = (done.text.strip() or done.stderr.decode("utf-8", "replace").strip()).partition("\n")[0]
    return Daemon(True, words[0] if len(set(words)) == 1 else None, said, source=(done.evidence(),))


def domain(machine: Machine) -> Union[Domain, Unreadable]:
    """Read the state of the IMEX domain, and of each node that is configured to be in it.

    Source: nvidia-imex-ctl -N -j: {"status": "UP", "nodes": {"0": {"status", "host", "version", "connections": {…}}}}.
    """
    if machine.which(CTL) is None:
        hidden = inside(machine).container is not None
        return Domain(None, said="not installed", is_hidden=hidden, source=(Evidence(CTL, 127, "not found"),))
    done = machine.run((CTL, "-N", "-j"), timeout_s=ANSWER_S)
    if done.timed_out or done.exit_code is None:
        return Unreadable(f"{CTL} -N gave no answer in {ANSWER_S:g} s", done.evidence())
    text = done.text[done.text.find("{") :] if "{" in done.text else ""
    if not text:
        said = (done.text.strip() or done.stderr.decode("utf-8", "replace").strip()).partition("\n")[0]
        return Domain(None, said=said or f"{CTL} -N says nothing", source=(done.evidence(),))
    try:
        found = json.loads(text)
        peers = tuple(_peer(node) for node in found["nodes"].values())
        return Domain(str(found["status"]), peers, source=(done.evidence(),))
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        return Unreadable(f"{CTL} -N -j: {type(error).__name__}: {error}", done.evidence())


def _peer(node: Any) -> Peer:
    connections = (node.get("connections") or {}).values()
    return Peer(
        str(node.get("hostName") or node["host"]),
        str(node["status"]),
        str(node["version"]) if node.get("version") else None,
        tuple(str(item.get("host")) for item in connections if item.get("status") != "CONNECTED"),
    )


def _refusal(machine: Machine, path: str) -> Optional[str]:
    try:
        machine.try_open(path)
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror}"
    return None


def _is_known(machine: Machine) -> Optional[bool]:
    try:
        return "nvidia-caps-imex-channels" in machine.text(DEVICES)
    except OSError:
        return None
