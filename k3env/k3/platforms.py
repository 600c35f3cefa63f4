"""GPUs by compute capability: what TensorRT LLM is built for on each, and whether Kimi K3 runs there."""

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

OPEN_MODULE_SINCE: Capability = (10, 0)
"""GPUs from here on are driven by NVIDIA's open kernel module alone. Source: NVIDIA's driver README, open modules."""

_ARCH = re.compile(r"(\d{2,})a?(?:-real)?\Z")


def platform(capability: Capability) -> Optional[Platform]:
    """Return what is known of a compute capability, or None."""
    return next((item for item in PLATFORMS if item.capability == capability), None)


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
