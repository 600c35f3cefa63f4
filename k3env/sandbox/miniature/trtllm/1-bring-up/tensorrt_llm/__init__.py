"""A stand-in of k3env's sandbox for TensorRT LLM. Importing it loads what was built, or fails."""

from __future__ import annotations

import ctypes
from pathlib import Path

from .version import __version__

__all__ = ["__version__"]


def _load() -> None:
    here = Path(__file__).parent
    bindings = sorted(here.glob("bindings.*.so"))
    if not bindings:
        raise ModuleNotFoundError("No module named 'tensorrt_llm.bindings'")
    for library in (here / "libs" / "libtensorrt_llm.so", here / "libs" / "libth_common.so", *bindings):
        try:
            ctypes.CDLL(str(library))
        except OSError as error:
            raise ImportError(str(error)) from error


_load()
print(f"[TensorRT-LLM] TensorRT LLM version: {__version__} (a stand-in of k3env's sandbox)")
