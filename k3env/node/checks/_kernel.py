"""What this machine is, and its clock."""

from __future__ import annotations

from k3env.node.checks import check, fail, passed, unknown
from k3env.node.facts.clock import Clock, clock
from k3env.node.facts.kernel import Kernel, kernel
from k3env.node.facts.meta import Meta, meta
from k3env.protocol.context import CONTEXTS
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Profile

OFFSET_S = 1.0
"""By how many seconds a clock may be off. Munge refuses credentials at 300."""


@check("system.arch_page", kernel, scope="node", severity="info")
def arch_page(kernel: Kernel, profile: Profile) -> Finding:
    """CPU architecture and page size are what they are; pages of 64 KiB are Grace's usual ones, but wheels differ."""
    shown = f"{kernel.architecture}, pages of {kernel.page_size >> 10} KiB, Linux {kernel.release}"
    if kernel.page_size > 4096:
        return fail(
            expected="pages of 4 KiB, which all software copes with",
            found=shown,
            remedy="none needed with TensorRT LLM's own images; wheels from elsewhere may assume 4 KiB",
            message=shown,
        )
    return passed(shown, shown)


@check("system.clock", clock, scope="node", severity="warn")
def clock_set(clock: Clock, profile: Profile) -> Finding:
    """A time service sets the clock, and it is right to a second."""
    if clock.synchronized is None:
        return unknown("no time service can be asked: chronyc and timedatectl say nothing")
    remedy = "start chrony or systemd-timesyncd, and see that it reaches its servers: chronyc sources"
    expected = f"a clock set by a time service, off by {OFFSET_S:g} s at most"
    if not clock.synchronized:
        return fail(expected=expected, found="not synchronised", remedy=remedy)
    if clock.offset_s is not None and abs(clock.offset_s) > OFFSET_S:
        return fail(expected=expected, found=f"off by {clock.offset_s:.3f} s", remedy=remedy)
    return passed("synchronised" if clock.offset_s is None else f"off by {clock.offset_s:.6f} s")


@check("system.meta", meta, scope="node", severity="info", contexts=tuple(CONTEXTS))
def about(meta: Meta, profile: Profile) -> Finding:
    """Who says all this: host, boot, container, user, time, version."""
    where = f"in {meta.container}" if meta.container else "in no container"
    shown = f"{meta.host}, boot {meta.boot_id}, {where}, uid {meta.uid}, {meta.time}, k3env {meta.k3env}"
    return passed(shown, shown)
