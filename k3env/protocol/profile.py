"""Profile: what a fit node is here."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from k3env.protocol.container import Container
from k3env.protocol.context import DEFAULT


@dataclass(frozen=True)
class Paths:
    """Where things are; None where the play names none."""

    repo: Optional[str] = None
    """The TensorRT LLM checkout."""
    venv: Optional[str] = None
    """Its virtual environment; None: found in the checkout by its interpreter's version."""
    cache_base: Optional[str] = None
    checkpoint: Optional[str] = None
    serve_config: Optional[str] = None


@dataclass(frozen=True)
class Gpu:
    """The GPUs of one node."""

    driver_min: str = "580"
    count: int = 4
    arch: str = "103-real"
    """What TensorRT LLM is built for, as CMake takes it."""


@dataclass(frozen=True)
class Pins:
    """What is installed, exactly; None where any version will do."""

    trtllm_commit: Optional[str] = None
    flashinfer_step: str = "auto"
    flashinfer_commit: Optional[str] = None
    fla_core_version: Optional[str] = None
    einops_version: Optional[str] = None


@dataclass(frozen=True)
class Cache:
    """What the node-local cache base must offer."""

    free_gib: float = 20
    free_inodes: int = 100_000


@dataclass(frozen=True)
class Job:
    """The job that the node is checked for."""

    recipe: Optional[str] = None
    nodes: Optional[int] = None
    ranks: Optional[int] = None
    memory_gib: Optional[float] = None


@dataclass(frozen=True)
class Profile:
    """Wanted values by topic. Checks compare facts with it; nothing else holds a wanted value."""

    context: str = DEFAULT
    """hc, prolog, job, login or image: see protocol/context.py."""
    at_rank: bool = False
    """Whether the checks run where a rank does: in the job's step, with its limits, its devices, its container."""
    paths: Paths = Paths()
    gpu: Gpu = Gpu()
    pins: Pins = Pins()
    cache: Cache = Cache()
    job: Job = Job()
    container: Container = Container()
    user: Optional[str] = None
    """The user who owns checkout, venv and caches; None: the connecting user."""
    severities: dict[str, str] = field(default_factory=dict)
    """Check id or glob to fail, warn or info."""
