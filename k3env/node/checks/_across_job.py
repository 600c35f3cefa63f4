"""across.*: whether nodes and recipe fit together."""

from __future__ import annotations

from typing import Optional

from k3env.k3 import recipes
from k3env.k3.recipes import Recipe
from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.checks._compared import ByHost, unread
from k3env.node.facts.gpu import Gpus, gpus
from k3env.node.facts.probe import Probe, probe
from k3env.node.facts.serve import Serve, serve
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.folding import fold
from k3env.protocol.profile import Profile

MIB_IN_GIB = 1024
NAMED = 5
NO_RANKS = "no serve_config says how many ranks there are"


@check("across.ranks", gpus, serve, scope="across", severity="fail")
def enough_gpus(gpus: ByHost[Gpus], serves: ByHost[Optional[Serve]], profile: Profile) -> Finding:
    """The nodes have a GPU for each rank, in a job exactly as many: a server that lacks ranks waits for ever."""
    ranks = profile.job.ranks or _ranks(serves)
    if ranks is None:
        return skip(NO_RANKS)
    counts = {host: len(item.nvml) for host, item in _seen(gpus).items() if not isinstance(item.nvml, Unreadable)}
    silent = [host for host in gpus if host not in counts]
    if silent:
        return unread(gpus) or unknown(f"the GPUs of {fold(silent)} can't be counted: see gpu.count")
    total = sum(counts.values())
    found = f"{total} GPUs on {len(counts)} nodes"
    if total < ranks or (profile.at_rank and total > ranks):
        nodes = -(-ranks // profile.gpu.count)
        return fail(
            expected=f"{ranks} GPUs, by tensor_parallel_size",
            found=found,
            remedy=f"take {nodes} nodes: --nodes={nodes}, or another recipe",
        )
    return passed(found, f"for {ranks} ranks")


@check("across.memory", gpus, serve, scope="across", severity="fail")
def enough_memory(gpus: ByHost[Gpus], serves: ByHost[Optional[Serve]], profile: Profile) -> Finding:
    """The weights of the recipe fit the memory of every GPU."""
    recipe = _recipe(serves, profile)
    if recipe is None:
        return skip("no recipe is known: see model.recipe")
    sizes = {
        host: min(gpu.memory_mib for gpu in item.nvml if gpu.memory_mib) / MIB_IN_GIB
        for host, item in _seen(gpus).items()
        if not isinstance(item.nvml, Unreadable) and any(gpu.memory_mib for gpu in item.nvml)
    }
    short = {host: size for host, size in sizes.items() if size < recipe.needs_gib}
    if short:
        fitting = [item.name for item in recipes.RECIPES if item.needs_gib <= min(sizes.values())]
        return fail(
            expected=f"{recipe.needs_gib:.0f} GiB a GPU, for {recipe.name}",
            found=f"{min(short.values()):.0f} GiB on {fold(short)}",
            remedy=f"take {' or '.join(fitting)}" if fitting else "no recipe fits these GPUs",
        )
    silent = [host for host in gpus if host not in sizes]
    if silent:
        return unread(gpus) or unknown(f"the GPU memory of {fold(silent)} is not known")
    return passed(f"{min(sizes.values()):.0f} GiB a GPU", f"{recipe.name} needs {recipe.needs_gib:.0f}")


@check("across.probe", probe, scope="across", severity="fail")
def one_directory(probes: ByHost[Optional[Probe]], profile: Profile) -> Finding:
    """The probe directory is the same one on all nodes: each saw the files that the others left there."""
    told = {host: item for host, item in probes.items() if isinstance(item, Probe)}
    if not told:
        return unread(probes) or skip("no --probe-dir")
    words = {item.own: host for host, item in told.items()}
    blind = {host: [words[word] for word in words if word not in item.seen] for host, item in told.items()}
    wrong = {host: missing for host, missing in blind.items() if missing}
    directory = next(iter(told.values())).directory
    if wrong:
        first, *_ = sorted(wrong)
        return fail(
            expected=f"{directory} as one directory of all {len(told)} nodes",
            found="; ".join(f"{host} does not see {fold(wrong[host])}" for host in sorted(wrong)[:NAMED]),
            remedy=f"see what is mounted there: findmnt --target {directory} on {first} and on {wrong[first][0]}",
            subject=directory,
        )
    return unread(probes) or passed(directory, f"each of {len(told)} nodes saw the others")


def _seen(gpus: ByHost[Gpus]) -> dict[str, Gpus]:
    return {host: item for host, item in gpus.items() if not isinstance(item, Unreadable)}


def _configured(serves: ByHost[Optional[Serve]]) -> Optional[Serve]:
    """Return the configuration of the first node that could read it; that all have the same is another check's."""
    found = (item for item in serves.values() if isinstance(item, Serve) and not item.missing and not item.problem)
    return next(found, None)


def _ranks(serves: ByHost[Optional[Serve]]) -> Optional[int]:
    found = _configured(serves)
    return found.ranks if found is not None else None


def _recipe(serves: ByHost[Optional[Serve]], profile: Profile) -> Optional[Recipe]:
    if profile.job.recipe is not None:
        try:
            return recipes.named(profile.job.recipe)
        except KeyError:
            return None
    found = _configured(serves)
    return found.recipe if found is not None else None
