"""What must be the same on all nodes of a job, or fit together across them.

The facts of these checks come by host; one that a node could not read, or did not tell, is Unreadable.
"""

from __future__ import annotations

from typing import Optional

from k3env.node.checks import check, fail, passed, skip
from k3env.node.checks._across_job import enough_gpus, enough_memory, one_directory
from k3env.node.checks._across_nvlink import one_domain, same_imex_nodes
from k3env.node.checks._compared import ByHost, nodes, same, unread
from k3env.node.facts import identity
from k3env.node.facts.clock import Clock, clock
from k3env.node.facts.gpu import Driver, driver
from k3env.node.facts.identity import Place
from k3env.node.facts.kernel import Kernel, kernel
from k3env.protocol.finding import PASS, Finding, Unreadable
from k3env.protocol.profile import Profile

__all__ = ("enough_gpus", "enough_memory", "one_directory", "one_domain", "same_imex_nodes")

NOTHING = "nothing there"

SKEW_WARN_S, SKEW_FAIL_S = 1.0, 60.0
"""Seconds between two clocks. Munge refuses credentials of more than 300 s; logs can't be merged long before."""


@check("across.driver", driver, scope="across", severity="fail")
def same_driver(drivers: ByHost[Driver], profile: Profile) -> Finding:
    """All nodes have loaded the same driver."""
    return same(drivers, _driver, "one driver", "bring these nodes to the driver of the others, and reboot")


@check("across.kernel", kernel, scope="across", severity="warn")
def same_kernel(kernels: ByHost[Kernel], profile: Profile) -> Finding:
    """All nodes run the same kernel, with the same page size."""
    remedy = "bring these nodes to the kernel of the others"
    return same(kernels, lambda item: f"{item.release} ({item.page_size >> 10}k pages)", "one kernel", remedy)


@check("across.image", identity.image, scope="across", severity="fail")
def same_image(images: ByHost[Optional[Place]], profile: Profile) -> Finding:
    """All nodes start the same image."""
    return same_place(images, "no image file in this play", "copy the image again, or mount the filesystem it is on")


@check("across.checkout", identity.repo, scope="across", severity="fail")
def same_checkout(repos: ByHost[Optional[Place]], profile: Profile) -> Finding:
    """The checkout's path leads all nodes to the same commit, and to a build that was made of the same.

    Nodes that share a checkout see one and the same build.
    """
    remedy = "mount the shared filesystem there, or provision these nodes too; NFS may lag by a minute: look again"
    found = same_place(repos, "no checkout in this play", remedy)
    if found.status != PASS:
        return found
    sharing: dict[tuple[str, str], dict[str, str]] = {}
    for host, item in repos.items():
        if not isinstance(item, Unreadable) and item is not None and item.kind == "network" and item.stamp:
            sharing.setdefault((item.path, item.filesystem), {})[host] = f"manifest {item.stamp}"
    compared = (same(stamps, str, "the same", remedy) for stamps in sharing.values())
    return next((differ for differ in compared if differ.status != PASS), found)


@check("across.venv", identity.environment, scope="across", severity="fail")
def same_environment(venvs: ByHost[Optional[Place]], profile: Profile) -> Finding:
    """All nodes see the same packages in the virtual environment."""
    remedy = "provision these nodes; where the environment is shared, an NFS attribute cache may be old: look again"
    return same_place(venvs, "no environment in this play", remedy)


@check("across.checkpoint", identity.checkpoint, scope="across", severity="fail")
def same_checkpoint(checkpoints: ByHost[Optional[Place]], profile: Profile) -> Finding:
    """The checkpoint's path leads all nodes to the same checkpoint."""
    return same_place(checkpoints, "no checkpoint in this play", "mount the filesystem there, or stage it again")


@check("across.serve_config", identity.serve_config, scope="across", severity="fail")
def same_serve_config(configs: ByHost[Optional[Place]], profile: Profile) -> Finding:
    """All nodes read the same configuration of the server."""
    return same_place(configs, "no serve_config in this play", "copy the configuration to these nodes, or share it")


@check("across.clock", clock, scope="across", severity="fail")
def same_clock(clocks: ByHost[Clock], profile: Profile) -> Finding:
    """The nodes' clocks agree within a minute."""
    return _skew(clocks, SKEW_FAIL_S)


@check("across.clock_drift", clock, scope="across", severity="warn")
def close_clocks(clocks: ByHost[Clock], profile: Profile) -> Finding:
    """The nodes' clocks agree within a second, so that their logs can be read together."""
    return _skew(clocks, SKEW_WARN_S)


def same_place(by_host: ByHost[Optional[Place]], absent: str, remedy: str) -> Finding:
    """Compare what a path leads to; copies on the nodes' own disks are the same if they hold the same."""
    places = {host: item for host, item in by_host.items() if not isinstance(item, Unreadable)}
    if places and all(item is None for item in places.values()):
        return unread(by_host) or skip(absent)
    whole = {host: item for host, item in places.items() if item is not None}
    shared = any(item.kind == "network" for item in whole.values())
    return same(by_host, lambda item: _place(item, shared), "the same", remedy)


def _driver(item: Driver) -> str:
    if item.version is None:
        return "no driver"
    return item.version if item.open_module else f"{item.version} (closed module)"


def _place(item: Optional[Place], shared: bool) -> str:
    if item is None or item.real is None:
        return NOTHING
    held = [f"{name} {value}" for name, value in sorted(item.content.items())]
    if item.size is not None:
        held.append(f"{item.size} bytes")
    # A path that is on a server for one node and on its own disk for another holds the same only by chance.
    where = f"{item.kind} filesystem" if shared else ""
    return ", ".join((*held, where)) if where else ", ".join(held) or item.real


def _skew(clocks: ByHost[Clock], most_s: float) -> Finding:
    silent = unread(clocks)
    lags = {host: item.lag_s for host, item in clocks.items() if not isinstance(item, Unreadable)}
    known = {host: lag for host, lag in lags.items() if lag is not None}
    if len(known) < 2:
        return silent or skip("clocks can be compared only while nodes answer")
    middle = sorted(known.values())[len(known) // 2]
    widest = max(known.values()) - min(known.values())
    if widest > most_s:
        off = {host: lag - middle for host, lag in known.items() if abs(lag - middle) > most_s}
        # Nobody is so far from the middle, but the ends are from each other.
        off = off or {
            end: known[end] - middle for end in (min(known, key=known.__getitem__), max(known, key=known.__getitem__))
        }
        told = ", ".join(f"{host} is {abs(by):.1f} s {'behind' if by > 0 else 'ahead'}" for host, by in off.items())
        return fail(
            expected=f"clocks within {most_s:g} s of each other",
            found=told,
            remedy="start chronyd there, and let it set the clock: chronyc makestep",
        )
    return silent or passed(f"within {widest:.2f} s", f"on {nodes(len(known))}")
