"""Package the miniature TensorRT LLM, a stand-in of k3env's sandbox."""

from __future__ import annotations

import runpy
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "tensorrt_llm"
COMMANDS = {"trtllm-serve": "serve", "trtllm-bench": "bench", "trtllm-eval": "evaluate"}


def check_bindings() -> None:
    """Refuse a checkout that was not built, by the stubs, as the real one does: it does not look at the libraries."""
    if not (PACKAGE / "bindings").exists() and not (PACKAGE / "bindings.pyi").exists():
        raise ImportError(
            "The `bindings` module does not exist. Please check the package integrity. If you are attempting to use "
            "the pip development mode (editable installation), please execute `scripts/build_wheel.py` first, and "
            "then run `pip install -e .`."
        )


def requirements() -> list[str]:
    """Return the requirements proper, without comments and options."""
    lines = (line.strip() for line in (HERE / "requirements.txt").read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith(("#", "-", "pip>"))]


check_bindings()
setup(
    name="tensorrt_llm",
    version=runpy.run_path(str(PACKAGE / "version.py"))["__version__"],
    description="A stand-in of k3env's sandbox for TensorRT LLM",
    packages=["tensorrt_llm", "tensorrt_llm.commands"],
    python_requires=">=3.10",
    install_requires=requirements(),
    entry_points={
        "console_scripts": [f"{name}=tensorrt_llm.commands.{module}:main" for name, module in COMMANDS.items()]
    },
)
