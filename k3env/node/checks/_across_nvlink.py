"""across.*: one NVLink domain, and one IMEX domain, over all GPUs of a job."""

from __future__ import annotations

from typing import Union

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.checks._compared import ByHost, grouped, outliers, unread
from k3env.node.checks._fabric import NO_PARTITION, ZERO
from k3env.node.checks._platform import kind
from k3env.node.facts.gpu import Driver, Gpus, driver, gpus
from k3env.node.facts.imex import Domain, domain
from k3env.node.facts.nvlink import Fabric, fabric
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.folding import fold
from k3env.protocol.profile import Profile

ISLANDS = "no node's NVLink spans machines"
_ALLOCATE = "allocate nodes of one rack: --segment={count}, or leave these out: --exclude={hosts}"


@check("across.nvlink_domain", driver, gpus, fabric, scope="across", severity="fail")
def one_domain(drivers: ByHost[Driver], gpus: ByHost[Gpus], fabrics: ByHost[Fabric], profile: Profile) -> Finding:
    """All GPUs of all nodes are in one NVLink domain: one pair of ClusterUUID and CliqueId, which no two racks share.

    The clique alone says nothing: racks without partitions have the same number.
    """
    needing = _needing(drivers, gpus)
    if isinstance(needing, Finding):
        return needing
    pairs: dict[str, str] = {}
    silent: dict[str, Unreadable] = {}
    for host in needing:
        found = _pair(fabrics[host])
        if isinstance(found, Unreadable):
            silent[host] = found
        else:
            pairs[host] = found
    groups = grouped(pairs)
    if len(groups) > 1:
        away = sorted(host for hosts in list(groups.values())[1:] for host in hosts)
        return fail(
            expected="one pair of ClusterUUID and CliqueId over all nodes",
            found=outliers(groups),
            remedy=_ALLOCATE.format(count=len(needing), hosts=fold(away)),
        )
    if silent:
        return unread(silent) or unknown("no node told")
    only = next(iter(groups))
    note = "the number of GPUs in no partition" if only.endswith(f"clique {NO_PARTITION}") else ""
    return passed(only, f"on {len(pairs)} nodes" + (f"; {note}" if note else ""))


@check("across.imex_nodes", driver, gpus, domain, scope="across", severity="fail")
def same_imex_nodes(drivers: ByHost[Driver], gpus: ByHost[Gpus], domains: ByHost[Domain], profile: Profile) -> Finding:
    """All nodes' IMEX services list the same nodes: where the lists differ, memory can't be imported."""
    needing = _needing(drivers, gpus)
    if isinstance(needing, Finding):
        return needing
    chosen = {host: domains[host] for host in needing}
    listed = {
        host: ", ".join(sorted(peer.host for peer in item.peers))
        for host, item in chosen.items()
        if not isinstance(item, Unreadable) and item.peers
    }
    groups = grouped(listed)
    if len(groups) > 1:
        return fail(
            expected="one list of nodes in /etc/nvidia-imex/nodes_config.cfg",
            found=outliers(groups),
            remedy="write the same nodes_config.cfg to all of them, then: systemctl restart nvidia-imex",
        )
    mute = [host for host in chosen if host not in listed]
    if mute:
        return unread(chosen) or unknown(f"the IMEX service of {fold(mute)} tells of no node: see nvlink.imex_daemon")
    count = len(next(iter(groups)).split(", "))
    return passed(f"{count} nodes in the domain", f"on {len(listed)} nodes")


def _needing(drivers: ByHost[Driver], gpus: ByHost[Gpus]) -> Union[list[str], Finding]:
    """Return the nodes whose kind needs a domain over machines, or why that does not apply or can't be told."""
    needing, silent = [], {}
    for host in sorted(drivers):
        driver, seen = drivers[host], gpus[host]
        if isinstance(driver, Unreadable) or isinstance(seen, Unreadable):
            silent[host] = driver if isinstance(driver, Unreadable) else seen
            continue
        found = kind(driver, seen)
        if isinstance(found, Unreadable):
            silent[host] = found
        elif found is not None and found.has_domain:
            needing.append(host)
    if needing and not silent:
        return needing
    return unread(silent) or skip(ISLANDS)


def _pair(item: Union[Fabric, Unreadable]) -> Union[str, Unreadable]:
    """Return "CLUSTER, clique N" of a node, or why there is none."""
    if isinstance(item, Unreadable):
        return item
    pairs = {(gpu.cluster, gpu.clique) for gpu in item.gpus if gpu.cluster is not None and gpu.clique is not None}
    if len(pairs) != 1:
        return Unreadable("its GPUs tell of no domain, or of several: see nvlink.domain")
    cluster, clique = next(iter(pairs))
    if cluster == ZERO:
        return Unreadable("a ClusterUUID of zeros is no domain: see nvlink.domain")
    return f"{cluster}, clique {clique}"
