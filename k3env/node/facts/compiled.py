"""What was compiled: the architectures whose kernels a library really holds, and what its bindings were built for."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Optional, Union

from k3env.node.facts import deadline
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable
from k3env.protocol.profile import Profile

LIBRARY = "tensorrt_llm/libs/libth_common.so"
"""Of the libraries with kernels the one that is listed fastest."""
CUOBJDUMP = ("cuobjdump", "/usr/local/cuda/bin/cuobjdump")
ASK_S = 20.0
_ELF = re.compile(r"\.sm_(\d+)[a-z]?\.cubin")


@dataclass(frozen=True)
class Kernels:
    """The architectures of a library's kernels, as digits: "103"."""

    library: str
    architectures: tuple[str, ...]
    source: Evidence = Evidence("")


@dataclass(frozen=True)
class Bindings:
    """The compiled Python modules of TensorRT LLM."""

    names: tuple[str, ...]
    source: Evidence = Evidence("")


def bindings(machine: Machine, profile: Profile) -> Optional[Bindings]:
    """List tensorrt_llm/bindings.*.so; None where there is no checkout."""
    repo = profile.paths.repo
    package = os.path.join(repo or "/", "tensorrt_llm")
    if repo is None or not machine.is_dir(package):
        return None
    names = tuple(name for name in machine.list(package) if name.startswith("bindings.") and name.endswith(".so"))
    return Bindings(names, Evidence(package, excerpt=" ".join(names) or "no bindings.*.so"))


@deadline(ASK_S + 5.0)
def kernels(machine: Machine, profile: Profile) -> Union[Kernels, Unreadable, None]:
    """List the kernels; None where there is no build, or no cuobjdump.

    Source: `cuobjdump --list-elf`, whose lines end in NAME.sm_103a.cubin.
    """
    if profile.paths.repo is None:
        return None
    library = os.path.join(profile.paths.repo, LIBRARY)
    program = next((path for name in CUOBJDUMP if (path := machine.which(name)) is not None), None)
    if program is None or not machine.is_file(library):
        return None
    done = machine.run((program, "--list-elf", library), timeout_s=ASK_S)
    if not done.ok:
        why = f"no answer after {ASK_S:g} s" if done.timed_out else f"exit code {done.exit_code}"
        return Unreadable(f"{program} --list-elf: {why}", done.evidence())
    return Kernels(library, tuple(sorted(set(_ELF.findall(done.text)))), done.evidence())
