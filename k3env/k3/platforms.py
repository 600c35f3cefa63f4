"""GPUs by compute capability, and the machines that carry them: what Kimi K3 is built for, and what must be there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

Capability = tuple[int, int]

CUDA_TABLE = "CUDA's table of GPUs and compute capabilities"
README = "TensorRT LLM, examples/kimi_k3/README.md"
CMAKE = "TensorRT LLM, cpp/cmake/modules/cuda_configuration.cmake"


@dataclass(frozen=True)
class Platform:
    """The GPUs of one compute capability."""

    capability: Capability
    gpus: tuple[str, ...]
    """Products, for people. A check never looks at a name: samples print "NVIDIA Graphics Device"."""
    arch: str
    """What TensorRT LLM is built for, as build_wheel.py takes it."""
    supported: bool
    """Whether the recipes of Kimi K3 run on it."""
    sources: tuple[str, ...]


PLATFORMS = (
    Platform((8, 0), ("A100",), "80-real", False, (CUDA_TABLE, CMAKE)),
    Platform((8, 6), ("A10", "A40", "RTX 30xx"), "86-real", False, (CUDA_TABLE, CMAKE)),
    Platform((8, 9), ("L4", "L40S", "RTX 40xx"), "89-real", False, (CUDA_TABLE, CMAKE)),
    Platform((9, 0), ("H100", "H200", "GH200"), "90-real", False, (CUDA_TABLE, CMAKE)),
    Platform((10, 0), ("B200", "GB200"), "100-real", True, (CUDA_TABLE, README)),
    Platform((10, 3), ("B300", "GB300"), "103-real", True, (CUDA_TABLE, README)),
    Platform((11, 0), ("Thor",), "110-real", False, (CUDA_TABLE,)),
    Platform((12, 0), ("RTX PRO Blackwell", "RTX 50xx"), "120-real", False, (CUDA_TABLE, CMAKE)),
    Platform((12, 1), ("GB10",), "121-real", False, (CUDA_TABLE,)),
)

# What a build for one of the two supported architectures means on the other one's GPUs.
MISMATCHES = {
    ((10, 0), "103"): "a build for 103 starts on B200 and GB200, but lacks the batched GEMM kernels of sm100a",
    ((10, 3), "100"): "a build for 100 is not known to run on B300 and GB300",
}


@dataclass(frozen=True)
class Kind:
    """A kind of machine, and what belongs to it."""

    name: str
    capability: Capability
    cpu: str
    """As the kernel module names it: Grace is aarch64."""
    device_ids: frozenset[str]
    """PCI device ids of its GPUs, as far as they are known."""
    gpus: int
    links: int
    """NVLinks of each GPU."""
    has_domain: bool
    """Whether its NVLink domain spans machines; then it needs IMEX, and the fabric's managers are on the switch trays.
    Else it has NVSwitches of its own, which a Fabric Manager on the machine itself must have set up."""
    is_validated: bool
    """Whether the recipes below were seen to run on it."""
    recipes: tuple[str, ...]
    """Those whose weights fit its memory."""
    sources: tuple[str, ...]


PCI_IDS = "DCGM's list of PCI ids, and the device filters of NVIDIA/mig-parted"
DATA_SHEETS = "NVIDIA's data sheets"
MEMORY = "weights of each recipe in TensorRT LLM's examples/kimi_k3 against the GPU's memory"

_SOURCES = (PCI_IDS, DATA_SHEETS, MEMORY)


def _tray(name: str, capability: Capability, device_ids: set[str], recipes: tuple[str, ...]) -> Kind:
    return Kind(name, capability, "aarch64", frozenset(device_ids), 4, 18, True, True, recipes, _SOURCES)


def _hgx(name: str, capability: Capability, device_ids: set[str], recipes: tuple[str, ...]) -> Kind:
    return Kind(name, capability, "x86_64", frozenset(device_ids), 8, 18, False, False, recipes, _SOURCES)


KINDS = (
    _tray("GB300 NVL72 tray", (10, 3), {"0x31c2", "0x31a1"}, ("dep16", "tep16", "tep8")),
    _tray("GB200 NVL72 tray", (10, 0), {"0x2941"}, ("tep16",)),
    _hgx("HGX B300", (10, 3), {"0x3182"}, ("dep16", "tep16", "tep8")),
    _hgx("HGX B200", (10, 0), {"0x2901"}, ("tep16",)),
)

OPEN_MODULE_SINCE: Capability = (10, 0)
"""GPUs from here on are driven by NVIDIA's open kernel module alone. Source: NVIDIA's driver README, open modules."""

_ARCH = re.compile(r"([1-9][0-9]+)a?(?:-real)?\Z")


def platform(capability: Capability) -> Optional[Platform]:
    """Return what is known of a compute capability, or None."""
    return next((item for item in PLATFORMS if item.capability == capability), None)


def kind(capabilities: frozenset[Capability], cpu: Optional[str], device_ids: frozenset[str]) -> Optional[Kind]:
    """Return what kind of machine this is, or None: none of those that Kimi K3 is served on.

    It is told by compute capability and CPU, of which one may be missing; a PCI id that another kind has speaks against
    it, and one that nobody knows is no matter. A product's name is never asked.
    """
    known = frozenset[str]().union(*(item.device_ids for item in KINDS)) & device_ids
    found = [
        item
        for item in KINDS
        if (capabilities == {item.capability} if capabilities else bool(known))
        and cpu in (None, item.cpu)
        and known <= item.device_ids
    ]
    return found[0] if len(found) == 1 else None


def supported() -> tuple[Platform, ...]:
    """Return the platforms on which Kimi K3 runs."""
    return tuple(item for item in PLATFORMS if item.supported)


def architectures(arch: str) -> frozenset[str]:
    """Return the architectures, as digits, that a value of CMAKE_CUDA_ARCHITECTURES names.

    `native` and `all` name those of every supported platform: which GPU `native` saw is not written anywhere.

    Raises ValueError for a value that TensorRT LLM's CMake refuses, which it does after minutes.
    """
    if arch in ("native", "all"):
        return frozenset(digits(item.arch) for item in supported())
    return frozenset(digits(item) for item in arch.split(";"))


def digits(arch: str) -> str:
    """Return "103" of "103-real".

    Raises ValueError for anything that is no architecture.
    """
    found = _ARCH.match(arch.strip())
    if found is None:
        raise ValueError(f"{arch!r} is no CUDA architecture; expected one such as 103-real or 100-real")
    return found.group(1)
