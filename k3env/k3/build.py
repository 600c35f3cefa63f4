"""How TensorRT LLM is built for Kimi K3: architectures, jobs, and what a build leaves behind.

Source of the artefacts and of the places: scripts/build_wheel.py, read at several ages (Oct 2025 to Sep 2026).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from k3env.k3.platforms import architectures

SCRIPT = "scripts/build_wheel.py"
CMAKE_DIR = "cpp/build"
CMAKE_CACHE = f"{CMAKE_DIR}/CMakeCache.txt"
CMAKE_HOME = "cpp"
CMAKE_LISTS = f"{CMAKE_HOME}/CMakeLists.txt"
CUDA_MODULE = f"{CMAKE_HOME}/cmake/modules/cuda_configuration.cmake"
FMHA = "cpp/tensorrt_llm/kernels/contextFusedMultiHeadAttention/fmha_v2_cu"
"""Generated attention kernels: a run that was cut off leaves some."""
VERSION = "tensorrt_llm/version.py"
REQUIREMENTS = "requirements.txt"
INSTALLED = ("requirements-dev.txt", REQUIREMENTS)
"""The first that is there is what the script installs, which begins with the other."""
PACKAGE = "tensorrt-llm"
IMAGES = "jenkins/current_image_tags.properties"
SWEEP = "examples/kimi_k3/perf_sweep/perf_sweep.sbatch"
GUIDES = (
    "examples/kimi_k3/README.md",
    "docs/source/deployment-guide/deployment-guide-for-kimi-k3-on-trtllm.md",
    "examples/models/core/kimi_k3/README.md",
)
"""Where a checkout says whether it needs the FlashInfer fork. Inferred: the last one, where other examples lie."""

FETCHED = ("3rdparty/fetch_content.json", "3rdparty/CMakeLists.txt")
"""Where a checkout names what CMake fetches, the newer ages in the first."""

GIB = 1 << 30
MAX_JOBS = 4096
"""Compilers at a time that may be asked for: more than any node has CPUs."""
JOB_BYTES = 4 * GIB
"""Memory of one compile job: 3 to 4 GiB. Inferred from reports of killed compilers on hosts of 32 GiB, reports #186,
#523 and #1028, whose answer is four to eight jobs."""

OBJECTS, OBJECTS_AGAIN = (53 * GIB, 320_000), (4 * GIB, 0)
PACKAGE_FIRST, PACKAGE_AGAIN = (10 * GIB, 80_000), (1 * GIB, 0)
CACHES = (2 * GIB, 10_000)
"""Bytes and inodes that a build writes: compiled objects, for the first time and again; the environment with the
libraries beside it, and the libraries alone; the caches of pip and conan, where they are new.

63 GB for a first build is what TensorRT LLM's documents say; 70,000 files of the environment, and many more objects, is
what report #17524 says. How these divide between objects and the rest is inferred.
"""


@dataclass(frozen=True)
class Artefact:
    """Something that a build leaves in the checkout."""

    pattern: str
    """A path in the checkout; its last part may be a glob, a slash at its end means a directory."""
    word: str = ""
    """Required where the checkout's build_wheel.py has this word: what is built changes with its age. "": always."""
    condition: str = ""
    """Required only where this file in the checkout is not empty; "": always."""
    alternative: str = ""
    """A pattern that serves as well."""


# What these two are built for, written by CMake; empty where they are left out.
_DEEP_EP = f"{CMAKE_DIR}/tensorrt_llm/deep_ep/cuda_architectures.txt"
_FLASH_MLA = f"{CMAKE_DIR}/tensorrt_llm/flash_mla/cuda_architectures.txt"

ARTEFACTS = (
    Artefact("tensorrt_llm/bindings.*.so"),
    Artefact("tensorrt_llm/bindings/", alternative="tensorrt_llm/bindings.pyi"),
    Artefact("tensorrt_llm/libs/libtensorrt_llm.so"),
    Artefact("tensorrt_llm/libs/libth_common.so"),
    Artefact("tensorrt_llm/libs/libdecoder_attention_0.so", "libdecoder_attention_0"),
    Artefact("tensorrt_llm/libs/libdecoder_attention_1.so", "libdecoder_attention_1"),
    Artefact("tensorrt_llm/libs/libpg_utils.so", "libpg_utils"),
    Artefact("tensorrt_llm/deep_gemm_cpp_tllm.*.so", "deep_gemm_cpp_tllm"),
    Artefact("tensorrt_llm/deep_gemm/", "deep_gemm"),
    Artefact("tensorrt_llm/include/deep_gemm/", "deep_gemm"),
    Artefact("tensorrt_llm/runtime/kv_cache_manager_v2/rawref/*.so", "rawref"),
    Artefact("tensorrt_llm/deep_ep_cpp_tllm.*.so", "deep_ep_cpp_tllm", _DEEP_EP),
    Artefact("tensorrt_llm/deep_ep/", "deep_ep", _DEEP_EP),
    Artefact("tensorrt_llm/libs/nvshmem/*.so.*", "nvshmem", _DEEP_EP),
    Artefact("tensorrt_llm/flash_mla_cpp_tllm.*.so", "flash_mla_cpp_tllm", _FLASH_MLA),
    Artefact("tensorrt_llm/flash_mla/", "flash_mla", _FLASH_MLA),
    # What the sparse attention of newer ages compiles at run time; setup.py refuses without it.
    Artefact("3rdparty/fmha_sm100/", '"3rdparty" / "fmha_sm100"'),
)

_BEYOND = 200
"""No architecture has such a number: families are 8 to 12."""

RECORDED = (
    *(item.pattern for item in ARTEFACTS if item.pattern.endswith((".so", ".*"))),
    "tensorrt_llm/libs/*.so",
    "tensorrt_llm/tensorrt_llm_transfer_agent_binding*.so",
)
"""Libraries whose size and time a manifest keeps, among them those that only some builds have: the wrappers of UCX,
NIXL and Mooncake."""


def arch_problem(arch: str) -> Optional[str]:
    """Return why CMake would refuse an architecture, which it does after minutes of pip, or None.

    Source: cpp/cmake/modules/cuda_configuration.cmake; "70-real": scripts/build_wheel.py.
    """
    items = arch.split(";")
    old = [item for item in items if re.match(r"[1-7][0-9]a?(-real)?\Z", item.strip())]
    if old:
        what = "Volta (70)" if old[0].strip().startswith("70") else f"an architecture before Ampere ({old[0].strip()})"
        return f"{what} is not supported; Kimi K3 runs on 103-real and 100-real"
    for item in items:
        if item in ("native", "all") and len(items) == 1:
            continue
        try:
            if item in ("native", "all") or item != item.strip():
                raise ValueError
            if max(map(int, architectures(item))) >= _BEYOND:
                raise ValueError
        except ValueError:
            meant = _meant(item)
            return (
                f"expected native, all, or architectures such as 103-real joined by `;`, found {item!r}"
                f"{f'; did you mean {meant}?' if meant else ''}"
            )
    return None


def _meant(item: str) -> Optional[str]:
    """Return the architecture that a compute capability or a compiler's name of one stands for: 10.3, sm_103, 103f."""
    digits = "".join(char for char in item if char in "0123456789")
    return f"{digits}-real" if 80 <= int(digits or 0) < _BEYOND else None


def build_jobs(cpus: int, *bounds: Optional[int]) -> int:
    """Return how many compile jobs fit: one for each CPU and each 4 GiB of the smallest bound, and at least one.

    `bounds` are bytes of memory that may still be used, by one account each; None where an account has no limit.
    """
    known = [bound for bound in bounds if bound is not None]
    return max(1, min([cpus, *(bound // JOB_BYTES for bound in known)]))
