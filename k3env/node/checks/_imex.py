"""What IMEX must be for Kimi K3, whose ranks share GPU memory over several nodes. The checks are nvlink.py's."""

from __future__ import annotations

from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.checks._driver import number
from k3env.node.checks._platform import Known, by_kind, kind, not_for
from k3env.node.facts.gpu import Driver, Gpus, driver, gpus
from k3env.node.facts.imex import CHANNELS, Channels, Daemon, Domain, channels, daemon, domain
from k3env.protocol.context import CONTEXTS
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile

_CHANNEL_REMEDY = (
    "load the driver with NVreg_CreateImexChannel0=1, or let Slurm make one a job (SwitchType=switch/nvidia_imex)"
)
_CONTAINER_REMEDY = "in a container: enroot 4 or later, and NVIDIA_DRIVER_CAPABILITIES with compute"
_HIDDEN = "in a container the node's IMEX service can't be seen: run it outside of it"
_ISLAND = "its NVLink ends at the machine, so it needs no IMEX"


@check("nvlink.imex_channel", driver, gpus, channels, scope="rank", severity="fail")
@by_kind
def imex_channel(found: Known, channels: Channels, profile: Profile) -> Finding:
    """The job's user can open an IMEX channel, in its container."""
    other = not_for(found, True, _ISLAND)
    if other is not None:
        return other
    opened = [channel for channel in channels.tried if channel.error is None]
    if opened:
        return passed(opened[0].path)
    expected = f"a channel in {CHANNELS} that can be opened"
    if channels.tried:
        first = channels.tried[0]
        return fail(
            expected=expected, found=f"{first.path}: {first.error}", remedy=f"{_CHANNEL_REMEDY}; {_CONTAINER_REMEDY}"
        )
    if channels.is_known is False:
        return fail(
            expected=expected, found="a driver without IMEX channels", remedy="use a driver of branch 580 or later"
        )
    lacking = channels.capabilities is not None and not {"compute", "all"} & set(channels.capabilities.split(","))
    why = f", NVIDIA_DRIVER_CAPABILITIES is {channels.capabilities}" if lacking else ""
    remedy = _CONTAINER_REMEDY if lacking else f"{_CHANNEL_REMEDY}; {_CONTAINER_REMEDY}"
    return fail(expected=expected, found=f"none{why}", remedy=remedy)


@check("nvlink.imex_daemon", driver, gpus, daemon, scope="node", severity="fail")
@by_kind
def imex_daemon(found: Known, daemon: Daemon, profile: Profile) -> Finding:
    """The node's IMEX service is ready; before a job it may rest, where the site starts it with each job."""
    other = not_for(found, True, _ISLAND)
    if other is not None:
        return other
    if daemon.is_hidden:
        return skip(_HIDDEN)
    if daemon.state == "READY":
        return passed("READY")
    said = daemon.state or (daemon.said or "no answer" if daemon.is_installed else "nvidia-imex is not installed")
    if CONTEXTS[profile.context].fail_open and daemon.state in (None, "UNAVAILABLE"):
        return skip(f"not running ({said}), which is normal before a job where the site starts it with each job")
    if CONTEXTS[profile.context].fail_open:
        return unknown(f"it is {said}: where the site starts it with each job, it may be on its way")
    if daemon.state is None and daemon.is_installed and not _is_refusal(daemon.said):
        return unknown(f"nvidia-imex-ctl said what is not known: {said}")
    return fail(
        expected="READY",
        found=said,
        remedy="see /var/log/nvidia-imex.log and /etc/nvidia-imex/nodes_config.cfg, then: systemctl restart nvidia-imex"
        if daemon.is_installed
        else "install nvidia-imex of the driver's version, and start it: systemctl enable --now nvidia-imex",
    )


@check("nvlink.imex_domain", driver, gpus, domain, scope="node", severity="fail", contexts=("job",))
@by_kind
def imex_domain(found: Known, domain: Domain, profile: Profile) -> Finding:
    """The IMEX domain is up, as this node sees it."""
    other = not_for(found, True, _ISLAND)
    if other is not None:
        return other
    if domain.is_hidden:
        return skip(_HIDDEN)
    if domain.status is None:
        return unknown(f"the IMEX service does not answer: {domain.said}; see nvlink.imex_daemon")
    if domain.status == "DOWN":
        return fail(
            expected="UP", found=f"DOWN{_lost(domain)}", remedy="start nvidia-imex on the nodes that are not READY"
        )
    if domain.status not in ("UP", "DEGRADED"):
        return unknown(f"a status that is not known: {domain.status}")
    return passed(domain.status, "see nvlink.imex_peers" if domain.status == "DEGRADED" else "")


@check("nvlink.imex_peers", driver, gpus, domain, scope="node", severity="warn", contexts=("job",))
@by_kind
def imex_peers(found: Known, domain: Domain, profile: Profile) -> Finding:
    """Every node of the IMEX domain is ready and connected; nodes that are not in the job are no matter to it."""
    other = not_for(found, True, _ISLAND)
    if other is not None:
        return other
    if domain.is_hidden:
        return skip(_HIDDEN)
    if domain.status is None or not domain.peers:
        return unknown(f"the IMEX service tells of no node: {domain.said or domain.status}")
    lost = _lost(domain)
    if lost or domain.status != "UP":
        remedy = "start nvidia-imex there, or take these nodes out of /etc/nvidia-imex/nodes_config.cfg"
        return fail(expected="every node READY and connected", found=f"{domain.status}{lost}", remedy=remedy)
    return passed(f"{len(domain.peers)} nodes" if len(domain.peers) != 1 else "1 node")


@check("nvlink.imex_version", driver, gpus, domain, scope="node", severity="fail", contexts=("job",))
def imex_version(driver: Driver, gpus: Gpus, domain: Domain, profile: Profile) -> Finding:
    """IMEX is of the driver's version on every node of its domain."""
    other = not_for(kind(driver, gpus), True, _ISLAND)
    if other is not None:
        return other
    if domain.is_hidden:
        return skip(_HIDDEN)
    if driver.version is None:
        return skip("no driver loaded")
    versions = {peer.host: peer.version for peer in domain.peers if peer.version and peer.version[:1].isdigit()}
    wrong = {host: version for host, version in versions.items() if number(version) != number(driver.version)}
    if wrong:
        return fail(
            expected=driver.version,
            found="; ".join(f"{host} has {version}" for host, version in wrong.items()),
            remedy="install nvidia-imex of the driver's version there, and restart it",
        )
    if not versions:
        return unknown(f"the IMEX service tells no version: {domain.said or domain.status}")
    return passed(driver.version)


def _lost(domain: Domain) -> str:
    """Return the nodes that are not there: ": 10.0.0.2 UNAVAILABLE; 10.0.0.3 has no connection to 10.0.0.2"."""
    told = [f"{peer.host} {peer.status}" for peer in domain.peers if peer.status != "READY"]
    told += [
        f"{peer.host} has no connection to {', '.join(peer.unconnected)}"
        for peer in domain.peers
        if peer.status == "READY" and peer.unconnected
    ]
    return f": {'; '.join(told)}" if told else ""


def _is_refusal(said: str) -> bool:
    """Return whether nvidia-imex-ctl says that it has no connection to the service, rather than nothing we know."""
    return any(word in said.lower() for word in ("connect", "not running", "refused", "unavailable", "failed"))
