"""Ages of TensorRT LLM's build script, told by what it can do; no version and no date says that.

Source: scripts/build_wheel.py at four ages: before Kimi K3, with its bring-up (#17333), with build roots (#17524), and
with a fingerprint of its configuration (#19339).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Optional

NVRTC = "--nvrtc_dynamic_linking"
BUILD_ROOT = "--build_root"
BUILD_DIR = "--build_dir"
CONFIGURE = "--configure_cmake"
CLEAN = "--clean"
GENERATE_FMHA = "--generate_fmha"

ROOT_VARIABLE = "TRTLLM_BUILD_ROOT"
"""Where scripts with --build_root look for one that no flag gives."""

SUBMODULES = ".gitmodules"
STAMP = ".generation_complete"
VENV = "venv"
FINGERPRINT = ".cmake_configure_args"
"""Words of the script itself: that it fetches submodules, that it marks a whole generation of attention kernels, that
it makes an environment, that it notices by itself when it is to be configured in another way."""


@dataclass(frozen=True)
class Age:
    """One age of the script."""

    name: str
    flags: tuple[str, ...]
    """All of these it has."""
    words: tuple[str, ...]
    """And all of these stand in it."""
    told: str
    """What that means, for people."""


# The newest first: each has what those below have.
AGES = (
    Age("fingerprint", ("--yes",), (FINGERPRINT,), "it configures again by itself when its arguments change"),
    Age("build root", ("--yes", BUILD_ROOT), (), "it can build outside of the checkout"),
    Age("kimi k3", ("--yes",), (), "it builds what was configured first, unless it is told to configure again"),
    Age("before", (), (), "it asks when torch stands in the environment, and trusts attention kernels half generated"),
)


def recognised(flags: frozenset[str], text: str) -> Age:
    """Return the age of a script by its flags and its text."""
    return next(age for age in AGES if flags >= set(age.flags) and all(word in text for word in age.words))


def environment(version: str, checkout: str, build_root: Optional[str] = None) -> str:
    """Return where a script makes its virtual environment: in the checkout, or by another name in its build root.

    Source: scripts/build_wheel.py, create_venv; build roots: #17524.
    """
    return (
        os.path.join(checkout, f".venv-{version}")
        if build_root is None
        else os.path.join(build_root, f"venv-{version}")
    )
