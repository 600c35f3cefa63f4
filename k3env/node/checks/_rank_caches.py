"""cache.* of a rank: where each of its caches lies."""

from __future__ import annotations

import re
from typing import Optional

from k3env.k3 import caches as k3
from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts.mounts import AMBIGUOUS, NETWORK, UNLISTED
from k3env.node.facts.rank_caches import Cubins, RankCaches, Where, cubins, rank_caches
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Profile

_SOURCE_IT = "source <checkout>/.k3env/rank_env.sh in each rank before the server starts: it sets them all"


@check("cache.variables", rank_caches, scope="rank", severity="fail")
def jit_caches(caches: RankCaches, profile: Profile) -> Finding:
    """Triton's and FlashInfer's JIT caches of this rank are on a filesystem of the node itself."""
    return _local(tuple(item for item in caches.caches if item.is_first), profile)


@check("cache.other_variables", rank_caches, scope="rank", severity="warn")
def other_caches(caches: RankCaches, profile: Profile) -> Finding:
    """The rank's other caches are on a filesystem of the node itself too."""
    return _local(tuple(item for item in caches.caches if not item.is_first), profile)


@check("cache.noexec", rank_caches, scope="rank", severity="fail")
def executable(caches: RankCaches, profile: Profile) -> Finding:
    """What a rank compiles can be loaded from where it is kept."""
    barred = [item for item in caches.caches if not isinstance(item.mount, Unreadable) and item.mount.noexec]
    if barred:
        return fail(
            expected="caches on filesystems that are mounted with exec",
            found=_listed(barred),
            remedy=f"mount a directory of the node into the container: /dev is noexec there; {_SOURCE_IT}",
        )
    return _unread(caches.caches) or passed(f"{len(caches.caches)} caches")


@check("cache.collision", rank_caches, scope="rank", severity="warn")
def collision(caches: RankCaches, profile: Profile) -> Finding:
    """Each rank has caches of its own: two that compile the same kernel at once lose files to each other."""
    if caches.rank is None or (caches.ranks_here or 0) == 1:
        return skip("no launcher says which of several ranks this is")
    own = re.compile(rf"(?<!\d){caches.rank}(?!\d)")
    common = [item for item in caches.caches if item.is_first and not own.search(item.path)]
    if common:
        return fail(
            expected=f"a path that holds the rank's number {caches.rank}",
            found=_listed(common),
            remedy=_SOURCE_IT,
        )
    return passed(f"rank {caches.rank} has its own")


@check("cache.cubins", cubins, scope="rank", severity="warn")
def filled_cubins(cubins: Cubins, profile: Profile) -> Finding:
    """Cubins are there beforehand: a rank that has to fetch them without a way out of the cluster hangs."""
    if cubins.path is None:
        return skip(f"{k3.CUBINS} is not set: the package flashinfer-cubin serves, or they are fetched")
    if not cubins.files:
        return fail(
            expected=f"FlashInfer's cubins in {cubins.path}, about {k3.CUBIN_COUNT} files",
            found="none",
            remedy="fill it on a host with egress: invoke provision --playbook stage --tags cubins",
        )
    return passed(f"{cubins.files} files" if cubins.files < k3.CUBIN_COUNT else f"at least {cubins.files} files")


def _local(chosen: tuple[Where, ...], profile: Profile) -> Finding:
    known = [(item, item.mount) for item in chosen if not isinstance(item.mount, Unreadable)]
    shared = [item for item, mount in known if mount.kind == NETWORK]
    if shared:
        base = profile.paths.cache_base or "/local/k3env"
        exports = "; ".join(
            f"export {item.variable}={base}/rank$SLURM_LOCALID/{item.variable.lower()}" for item in shared
        )
        return fail(
            expected="directories on filesystems of the node itself",
            found=_listed(shared),
            remedy=f"{_SOURCE_IT}; or {exports}",
        )
    unsure = [item for item, mount in known if mount.kind in (AMBIGUOUS, UNLISTED)]
    told = f"{len(known)} caches" + (f"; may be local or not: {_listed(unsure)}" if unsure else "")
    return _unread(chosen) or passed(told)


def _unread(chosen: tuple[Where, ...]) -> Optional[Finding]:
    reasons = [item.mount.reason for item in chosen if isinstance(item.mount, Unreadable)]
    return unknown("; ".join(reasons)) if reasons else None


def _listed(items: list[Where]) -> str:
    return ", ".join(f"{item.variable}={item.path}{_on(item)}" for item in items)


def _on(item: Where) -> str:
    mount = item.mount
    return "" if isinstance(mount, Unreadable) else f" ({mount.fstype}{'' if item.given else ', its default'})"
