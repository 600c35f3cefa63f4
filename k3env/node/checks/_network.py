"""What the network must be for the ranks."""

from __future__ import annotations

from k3env.node.checks import check, fail, passed, skip
from k3env.node.facts.network import Egress, Infiniband, Listening, Port, egress, infiniband, listening
from k3env.node.facts.slurm import Shape, shape
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile


@check("system.net_ib", infiniband, scope="node", severity="fail")
def net_ib(infiniband: Infiniband, profile: Profile) -> Finding:
    """The InfiniBand or RoCE ports that the site file lists are up, at their rate."""
    wanted = profile.system.ib_ports
    if not wanted:
        seen = ", ".join(_shown(port) for port in infiniband.ports) or "none"
        return skip(f"the site file lists no ports (system: ib_ports); here: {seen}")
    rate = profile.system.ib_rate_gbps
    known = {port.name: port for port in infiniband.ports}
    wrong = []
    for name in wanted:
        full = name if "/" in name else f"{name}/1"
        port = known.get(full)
        if port is None:
            wrong.append(f"{full} is not there")
        elif port.state != "ACTIVE" or port.physical not in ("LinkUp", "") or (port.rate_gbps or 0) < rate:
            wrong.append(_shown(port))
    if wrong:
        return fail(
            expected=f"{len(wanted)} ports ACTIVE at {rate:g} Gb/s or more: {' '.join(wanted)}",
            found="; ".join(wrong),
            remedy="see ibstat and the cables, or mend system: ib_ports and ib_rate_gbps of the site file",
        )
    return passed(f"{len(wanted)} ports ACTIVE at {rate:g} Gb/s or more")


@check("system.net_rank0_port", listening, shape, scope="rank", severity="fail")
def net_rank0_port(listening: Listening, shape: Shape, profile: Profile) -> Finding:
    """On the first rank's node nothing listens yet on the port of trtllm-serve."""
    if shape.node not in (None, 0):
        return skip("trtllm-serve listens on the job's first node")
    port = profile.system.serve_port
    if port in listening.ports:
        return fail(
            expected=f"nothing listens on TCP port {port}",
            found="something does",
            remedy=f"see who: ss -ltnp 'sport = :{port}'; end it, or serve on another port and set system: serve_port",
        )
    return passed(f"port {port} is free")


@check("system.net_egress", egress, scope="rank", severity="warn")
def net_egress(egress: Egress, profile: Profile) -> Finding:
    """Ranks reach what they would load from outside, where it was not filled beforehand."""
    if egress.needless is not None:
        return skip(f"nothing is loaded from outside: {egress.needless}")
    if egress.failed:
        return fail(
            expected=f"a connection to {', '.join((*egress.failed, *egress.reached))}",
            found="; ".join(f"{target}: {why}" for target, why in egress.failed.items()),
            remedy="fill FLASHINFER_CUBIN_DIR beforehand and set HF_HUB_OFFLINE=1: without cubins ranks hang"
            " fetching them",
        )
    return passed(", ".join(egress.reached))


def _shown(port: Port) -> str:
    rate = f"{port.rate_gbps:g} Gb/s" if port.rate_gbps is not None else "no rate"
    return f"{port.name} {port.state or 'no state'} {port.physical} {rate}".replace("  ", " ")
