"""What Kimi K3 needs beside TensorRT LLM, exactly, and what no installation may move."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase

FLASHINFER = "flashinfer-python"
FLASHINFER_EXTRA = "cu13"
FLASHINFER_URL = "https://github.com/PerkzZheng/flashinfer-k3.git"
FLASHINFER_COMMIT = "b6cc594918baf76c40c3a6236fd53f0f8fb9d2dc"
"""The revision with the CuTeDSL MLA decode. Source: deployment guide for Kimi K3; examples/kimi_k3/README.md."""
FLASHINFER_ENVIRONMENT = {"BUILD_NVEP": "0", "FLASHINFER_BUILD_NO_PIP": "1"}
"""Without these a source build tries NIXL-EP, and installs NCCL wheels into the live environment.

Source: FlashInfer 0.6, build_backend.py.
"""

EXTRAS = ("fla-core", "einops")
"""What the KDA layers import where TensorRT LLM's own kernels don't serve. Source: deployment guide for Kimi K3."""

COMPANIONS = (FLASHINFER, "flashinfer-cubin", "flashinfer-jit-cache", *EXTRAS, "flash-linear-attention")
"""Packages that must fit each other: FlashInfer refuses to be imported beside another version of its cubins.

Source: FlashInfer 0.6, flashinfer/__init__.py.
"""

MATCHED = ("torch", "triton", "transformers", "nvidia-cutlass-dsl")
"""What kernels are compiled against, at import or at first use: another version fails late, or silently.

Source: requirements.txt of TensorRT LLM.
"""

RECORDED = ("torch", "triton", "transformers", FLASHINFER, "nvidia-cutlass-dsl", *EXTRAS)
"""Packages whose versions a manifest keeps."""

# The image brings these, built against each other; another version in the environment shadows them.
# Source: TensorRT LLM, requirements.txt and the warning of scripts/build_wheel.py about PyTorch from PyPI.
PROTECTED = (
    "torch",
    "torchvision",
    "torchaudio",
    "pytorch-triton",
    "triton",
    "cuda-bindings",
    "cuda-python",
    "nvidia-*",
    "tensorrt*",
)


def normalised(name: str) -> str:
    """Return a distribution's name as indexes compare it. Source: PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def is_protected(name: str) -> bool:
    """Return whether no installation may move this distribution."""
    return any(fnmatchcase(normalised(name), pattern) for pattern in PROTECTED)


def flashinfer_requirement(url: str = FLASHINFER_URL, commit: str = FLASHINFER_COMMIT) -> str:
    """Return FlashInfer's pinned revision as pip takes it."""
    return f"{FLASHINFER}[{FLASHINFER_EXTRA}] @ git+{url}@{commit}"


CUBIN, JIT_CACHE = "flashinfer-cubin", "flashinfer-jit-cache"
"""FlashInfer's companions: compiled kernels, which its import compares with itself."""


def unlike_flashinfer(flashinfer: str, versions: Mapping[str, str]) -> tuple[str, ...]:
    """Return the companions whose version FlashInfer's import refuses.

    Of the cache of compiled kernels only the beginning is compared: 0.6.16+cu130 fits 0.6.16. Source: report #4337 of
    FlashInfer.
    """
    wrong = [CUBIN] if versions.get(CUBIN, flashinfer) != flashinfer else []
    return (*wrong, *([JIT_CACHE] if not versions.get(JIT_CACHE, flashinfer).startswith(flashinfer) else []))
