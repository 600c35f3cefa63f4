"""invoke fetch: fill a directory, on a host with egress, from which nodes without any are provisioned."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from k3env.cli.command import command
from k3env.cli.options import PLAYING, TARGETING, Option, parse
from k3env.errors import EXIT_FAILED, UsageError

if TYPE_CHECKING:
    from k3env.fetching import Asked, Filled, Target
    from k3env.k3.variables import Variables

_NAMES = ("playbook", "extra_vars")
_OPTIONS = (
    Option("directory", "the directory to fill; variable offline_dir names it on the nodes"),
    Option("arch", "the nodes' processor: aarch64 (GB300, GB200; default) or x86_64"),
    Option("python", "the Python that builds on the nodes (default 3.12)"),
    Option("glibc", "the C library there, or in their image (default 2.39)"),
    Option("gcc", "the compiler there, for conan's packages (default 13)"),
    Option("image_packages", "fetch also torch and what else the image brings", False),
    *(option for option in TARGETING if option.name != "list_hosts"),
    *(option for option in PLAYING if option.name in _NAMES),
)


@command(*_OPTIONS)
def fetch(**raw: Any) -> int:
    """Fill a directory with wheels, git mirrors and sources for nodes without the internet; no node is contacted."""
    from k3env.fetching import fill

    directory = raw.pop("directory")
    if not directory:
        raise UsageError(
            "no directory to fill", expected="--directory DIR", found="none",
            remedy="for example --directory /shared/k3env-offline",
        )  # fmt: skip
    target = _target(raw.pop("arch"), raw.pop("python"), raw.pop("glibc"), raw.pop("gcc"))
    image_packages = bool(raw.pop("image_packages"))
    options = parse(raw)
    asked = replace(_asked(_variables(options), target), image_packages=image_packages)
    filled = fill(os.path.abspath(str(directory)), asked, lambda text: print(text, file=sys.stderr))
    print("\n".join(_rows(str(directory), target, filled)))
    return EXIT_FAILED if filled.missing else 0


def _target(arch: Any, python: Any, glibc: Any, gcc: Any) -> Target:
    from k3env.fetching import Target

    given = {"arch": arch, "python": python, "glibc": glibc, "gcc": gcc}
    try:
        return Target(**{name: str(value) for name, value in given.items() if value})
    except ValueError as error:
        raise UsageError(
            f"no such target: {error}", expected="--arch aarch64 --python 3.12", found=str(error)
        ) from None


def _variables(options: Any) -> list[Variables]:
    """Return the shipped variables of the hosts, each set of values once; of no host where none is named."""
    from k3env.cli.asked import asked
    from k3env.cli.options import DEFAULT_PLAYBOOK
    from k3env.cli.who import trays, warn, who
    from k3env.node.preflight.bundle import USER
    from k3env.playbook import compile_playbook, load, variables_alone

    playbook, wanted = load(options.playbook or DEFAULT_PLAYBOOK), asked(options)
    if options.hosts is None:
        return [variables_alone(wanted, USER)]
    chosen = who(options)
    warn(chosen.inventory, sys.stderr)
    with trays(chosen) as reached:
        plans = compile_playbook(playbook, playbook.targets(reached.inventory, reached.hosts), wanted)
    found = [made.settings.variables for by_host in plans for made in by_host.values()]
    return [item for at, item in enumerate(found) if item not in found[:at]]


def _asked(variables: list[Variables], target: Target) -> Asked:
    """Return what the nodes will ask for.

    Raises UsageError where nobody says which TensorRT LLM.
    """
    from k3env.fetching import Asked

    repositories: list[tuple[str, str]] = []
    pinned: dict[str, list[tuple[str, str]]] = {"fork": [], "auto": []}
    packages: list[str] = []
    for given in variables:
        if given.trtllm_commit is None:
            raise UsageError(
                "nothing says which TensorRT LLM to fetch", expected="trtllm_commit", found="it is not set",
                remedy="--hosts and --inventory of the site, or --extra-vars trtllm_commit=COMMIT",
            )  # fmt: skip
        repositories.append((given.trtllm_url, given.trtllm_commit))
        if given.flashinfer_step in pinned:
            pinned[given.flashinfer_step].append((given.flashinfer_url, given.flashinfer_commit))
        for name, version in (("fla-core", given.fla_core_version), ("einops", given.einops_version)):
            packages.append(f"{name}=={version}" if version else name)
    return Asked(
        target,
        repositories=tuple(dict.fromkeys(repositories)),
        pinned=tuple(dict.fromkeys(pinned["fork"])),
        if_asked=tuple(dict.fromkeys(pinned["auto"])),
        packages=tuple(dict.fromkeys(packages)),
    )


def _rows(directory: str, target: Target, filled: Filled) -> list[str]:
    house, fetched = filled.house, filled.fetched
    size = sum(wheel.size for wheel in house.wheels) / (1 << 20)
    rows = [
        f"{directory}: for {target.arch}, Python {target.python}, glibc {target.glibc}",
        f"  wheels    {len(house.wheels)}, {size:.1f} MiB",
        f"  mirrors   {len(fetched.mirrors)}, with {sum(len(mirror.commits) for mirror in fetched.mirrors)} commits",
        f"  archives  {len(fetched.archives)}",
        f"  new       {len(filled.new)} files",
    ]
    if filled.conan is not None and filled.conan.archive is not None:
        rows.insert(4, f"  conan     {', '.join(filled.conan.packages)}, for gcc {filled.conan.gcc}")
    if house.image:
        rows.append(f"  left to the image: {', '.join(house.image)}")
    rows += [f"  as source, to be built on the node: {name}: {why}" for name, why in house.source.items()]
    rows += [f"  MISSING {name}: {why}" for name, why in filled.missing.items()]
    return rows


TASKS = (fetch,)
