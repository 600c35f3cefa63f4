"""Diagnosis: what a line of output means; and the advice that several share."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Diagnosis:
    """What a line of output means."""

    id: str
    """The id of the finding; its first word is the tool."""
    pattern: str
    """A regular expression, searched in each line."""
    cause: str
    remedy: str
    source: str
    """Where the wording was read, or who reported it; issues are TensorRT LLM's unless said otherwise."""
    also: str = ""
    """What another line must say too; only then a warning counts, such as pip's of a connection that it tries again."""
    near: str = ""
    """What a line around must say too, unless the row's own tool was called: the pattern's words are many programs'."""
    passes: bool = False
    """It may pass by itself: where work went on behind it, and something else failed then, it is not the cause."""
    follows: bool = False
    """It mostly follows from something else: it counts where no other row fits."""


IMAGE = "build in the image that jenkins/current_image_tags.properties names, or a TensorRT LLM devel image"
LFS = "run `git lfs install && git lfs pull` in the checkout, or set `lfs: true` in git_checkout"
IMAGE_ARCH = "use the image for this processor (sbsa for aarch64)"
DISK = "make room: a build needs about 63 GB, its temporary files more; see `df -h` and `df -i`"
EGRESS = (
    "see that this node reaches it: DNS, proxy (`https_proxy`); or name a mirror that it reaches; or fill a "
    "directory on a host with egress, invoke fetch, and let offline_dir name it"
)
# What is said around the words of a tool that another one calls.
BY_GIT = (
    r"(?i)^(fatal|remote|error): |\bgit\b|git[@/]|\.git\b|cloning into|submodule|\blfs\b|smudge|\bcurl \d+|kex_exchange"
    r"|promisor|GnuTLS"
)
BY_PIP = (
    r"(?i)\bpip\d?\b|\buv\b|setup\.py|pyproject|wheel|^collecting |requirement already|^looking in indexes|pypi|\begg_"
    r"|setuptools|/simple/|matching distribution|distribution cache|metadata"
)
BY_CONAN = r"(?i)conan|^=+ (computing|installing|input)|profile"
