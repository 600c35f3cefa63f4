"""Ages of TensorRT LLM's build script, told by what it can do; no version and no date says that.

Source: scripts/build_wheel.py at four ages: before Kimi K3, with its bring-up (#17333), with build roots (#17524), and
with a fingerprint of its configuration (#19339).
"""

from __future__ import annotations

from dataclasses import dataclass

NVRTC = "--nvrtc_dynamic_linking"
BUILD_ROOT = "--build_root"
CONFIGURE = "--configure_cmake"
GENERATE_FMHA = "--generate_fmha"

SUBMODULES = ".gitmodules"
STAMP = ".generation_complete"
FINGERPRINT = ".cmake_configure_args"
"""Words of the script itself: that it fetches submodules, that it marks a whole generation of attention kernels, that
it notices by itself when it is to be configured in another way."""


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
    Age("build root", ("--yes", BUILD_ROOT), (), "it can build outside of the checkout, and fetches no submodules"),
    Age("kimi k3", ("--yes",), (), "it builds what was configured first, unless it is told to configure again"),
    Age("before", (), (), "it asks when torch stands in the environment, and trusts attention kernels half generated"),
)


def recognised(flags: frozenset[str], text: str) -> Age:
    """Return the age of a script by its flags and its text."""
    return next(age for age in AGES if flags >= set(age.flags) and all(word in text for word in age.words))
