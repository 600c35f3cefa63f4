"""Where the parts of Kimi K3's stack keep what they compile and fetch, and by which variable that is moved.

Sources: each library's documents and the code that reads the variable; reports of caches that were shared by ranks:
Triton #2688 and #11512, FlashInfer #3777 and #993, TensorRT LLM #17233 and #18278, transformers #27421.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Cache:
    """One cache."""

    owner: str
    """Who fills it, for people."""
    variable: str
    default: str
    """A path; `~` is the home directory, `$NAME` another variable, `{user}` the user's name."""
    compiled: bool
    """Whether ranks load code from there that they, or others, compiled."""
    first: bool = False
    """Whether a shared one is known to stop a server of Kimi K3."""
    below: str = ""
    """What the owner appends to the variable's value."""


CACHES = (
    Cache("Triton", "TRITON_CACHE_DIR", "~/.triton/cache", True, True),
    Cache("FlashInfer", "FLASHINFER_WORKSPACE_BASE", "~", True, True, ".cache/flashinfer"),
    Cache("Hugging Face's modules", "HF_MODULES_CACHE", "$HF_HOME/modules", True),
    Cache("torch's inductor", "TORCHINDUCTOR_CACHE_DIR", "/tmp/torchinductor_{user}", True),  # noqa: S108 - its default
    Cache("torch's extensions", "TORCH_EXTENSIONS_DIR", "~/.cache/torch_extensions", True),
    Cache("CUDA", "CUDA_CACHE_PATH", "~/.nv/ComputeCache", True),
    Cache("CuTe DSL", "CUTE_DSL_CACHE_DIR", "$TMPDIR/{user}/cutlass_python_cache", True),
    Cache("DeepGEMM", "DG_JIT_CACHE_DIR", "~/.deep_gemm", True),
    Cache("TensorRT LLM's DeepGEMM", "TRTLLM_DG_CACHE_DIR", "~/.tensorrt_llm", True),
    Cache("TileLang", "TILELANG_CACHE_DIR", "~/.tilelang/cache", True),
    Cache("TVM FFI", "TVM_FFI_CACHE_DIR", "~/.cache/tvm-ffi", True),
)

DEFAULTS = {"HF_HOME": "~/.cache/huggingface", "TMPDIR": "/tmp"}  # noqa: S108 - what the libraries take
CUBINS = "FLASHINFER_CUBIN_DIR"
CUBIN_COUNT = 23_008
"""Files of the whole pool of FlashInfer 0.6, 4.3 GiB."""
