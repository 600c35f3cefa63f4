"""Write what was built, from which commit and how, then build: a stand-in of k3env's sandbox for FlashInfer."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
SWITCHES = ("BUILD_NVEP", "FLASHINFER_BUILD_NO_PIP")


def commit() -> str:
    """Return the commit of this checkout, "unknown" outside of one."""
    done = subprocess.run(["git", "rev-parse", "HEAD"], cwd=HERE, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"


version = (HERE / "version.txt").read_text(encoding="utf-8").strip()
switches = {name: os.environ.get(name) for name in SWITCHES}
(HERE / "flashinfer" / "_build_meta.py").write_text(
    f'__version__ = "{version}"\n__git_commit__ = "{commit()}"\n__build_switches__ = {switches!r}\n', encoding="utf-8"
)
setup()
