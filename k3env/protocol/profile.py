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
    probe_dir: Optional[str] = None
    """A directory that all nodes should share, in which each leaves a file for a moment; None: none is tried."""


@dataclass(frozen=True)
class Gpu:
    """The GPUs of one node."""

    driver_min: str = "580"
    count: int = 4
    arch: str = "103-real"
    """What TensorRT LLM is built for, as CMake takes it."""
    driver: Optional[str] = None
    """The site's own driver, exactly; None: any that is late enough."""
    memory_used_mib: int = 1024
    """What may be in use on a GPU before a job; a free GB300 uses 0 to 1 MiB."""
    xid_hours: float = 24
    """How far back errors in the kernel's log count."""


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
class System:
    """What the node's network, limits and container tools must be."""

    ib_ports: tuple[str, ...] = ()
    """Ports that must be up: "mlx5_0" or "mlx5_0/1". Sites differ: some of a tray's eight are for other things."""
    ib_rate_gbps: float = 400
    """NDR, the lower of the two rates that GB300 trays are built with."""
    serve_port: int = 8000
    """trtllm-serve's in TensorRT LLM's deployment guide for Kimi K3."""
    egress_hosts: tuple[str, ...] = ("edge.urm.nvidia.com:443", "huggingface.co:443")
    """From where FlashInfer loads cubins (flashinfer/jit/cubin_loader.py), and Hugging Face's hub models."""
    nofile: int = 65536
    """TensorRT LLM's deployment guide for Kimi K3: ulimit -n 65536."""
    shm_free_gib: float = 32
    """Tens of GiB: NCCL's and the processes' own segments, four ranks a node."""
    tmp_free_gib: float = 16
    """For what has no cache directory of its own: TMPDIR, CuTe DSL, torch's inductor."""
    enroot_free_gib: float = 64
    """An unpacked image of TensorRT LLM takes tens of GiB."""
    toolkit_min: str = "1.17.8"
    """The first one without CVE-2025-23266, a way out of the container. Source: NVIDIA's bulletin of July 2025."""
    image_arch: Optional[str] = None
    """The nodes' CPU architecture; None: that of the machine which is checked."""


@dataclass(frozen=True)
class Model:
    """What the checkpoint must offer."""

    read_mib_per_s: float = 200
    """Of one node: at 200 MiB/s, four nodes that each read a fourth of 1,454 GiB take half an hour."""


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
    system: System = System()
    model: Model = Model()
    job: Job = Job()
    container: Container = Container()
    user: Optional[str] = None
    """The user who owns checkout, venv and caches; None: the connecting user."""
    severities: dict[str, str] = field(default_factory=dict)
    """Check id or glob to fail, warn or info."""
