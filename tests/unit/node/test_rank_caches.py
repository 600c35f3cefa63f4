"""Caches of a rank, as its environment says and as each library would take it."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.k3 import caches as k3
from k3env.node import checks
from k3env.node.facts import rank_caches as facts
from k3env.node.facts.mounts import Mount
from k3env.node.facts.rank_caches import RankCaches, Where, path_of
from k3env.node.machine import Machine
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Paths, Profile

EXT4 = Mount("/local", "ext4", "/dev/md0")
NFS = Mount("/home", "nfs4", "nas:/home")
NOEXEC = Mount("/dev/shm", "tmpfs", "shm", ("rw", "noexec"))
OVERLAY = Mount("/", "overlay", "overlay")
BY_VARIABLE = {cache.variable: cache for cache in k3.CACHES}


@pytest.mark.parametrize(
    ("variable", "environment", "path", "given"),
    [
        ("TRITON_CACHE_DIR", {}, "/home/u/.triton/cache", False),
        ("TRITON_CACHE_DIR", {"TRITON_CACHE_DIR": ""}, "/home/u/.triton/cache", False),
        ("TRITON_CACHE_DIR", {"TRITON_CACHE_DIR": "/t/x"}, "/t/x", True),
        ("FLASHINFER_WORKSPACE_BASE", {}, "/home/u/.cache/flashinfer", False),
        ("FLASHINFER_WORKSPACE_BASE", {"FLASHINFER_WORKSPACE_BASE": "/l"}, "/l/.cache/flashinfer", True),
        ("HF_MODULES_CACHE", {}, "/home/u/.cache/huggingface/modules", False),
        ("HF_MODULES_CACHE", {"HF_HOME": "/s/hf"}, "/s/hf/modules", False),
        ("HF_MODULES_CACHE", {"HF_HOME": "/s/hf", "HF_MODULES_CACHE": "/l/m"}, "/l/m", True),
        ("TORCHINDUCTOR_CACHE_DIR", {}, "/tmp/torchinductor_u", False),
        ("CUTE_DSL_CACHE_DIR", {"TMPDIR": "/job/tmp"}, "/job/tmp/u/cutlass_python_cache", False),
        ("CUDA_CACHE_PATH", {}, "/home/u/.nv/ComputeCache", False),
    ],
)
def test_where_a_library_looks(variable: str, environment: dict[str, str], path: str, given: bool) -> None:
    assert path_of(BY_VARIABLE[variable], environment, "u", "/home/u") == (path, given)


def test_rank_env_sets_every_cache() -> None:
    """What the table knows, the script that ranks source moves."""
    from k3env.node.modules._rank_env_sh import SCRIPT

    assert [name for name in (*BY_VARIABLE, k3.CUBINS) if f"export {name}=" not in SCRIPT] == []


def judged(id: str, mounts: dict[str, Mount | Unreadable], paths: dict[str, str] | None = None, **more: int) -> Finding:
    """Judge caches that all lie on ext4, but for some."""
    found = tuple(
        Where(
            cache.owner,
            cache.variable,
            (paths or {}).get(cache.variable, f"/local/{cache.variable}/rank3"),
            True,
            mounts.get(cache.variable, EXT4),
            cache.first,
        )
        for cache in k3.CACHES
    )
    (rule,) = checks.select((id,))
    return checks.judge(rule, {facts.rank_caches: RankCaches(found, **more)}, Profile())


@pytest.mark.parametrize(
    ("id", "mounts", "status", "told"),
    [
        ("cache.variables", {}, "pass", "2 caches"),
        ("cache.variables", {"TRITON_CACHE_DIR": NFS}, "fail", "TRITON_CACHE_DIR=/local/TRITON_CACHE_DIR/rank3 (nfs4)"),
        ("cache.variables", {"FLASHINFER_WORKSPACE_BASE": NFS}, "fail", "FLASHINFER_WORKSPACE_BASE"),
        ("cache.variables", {"CUDA_CACHE_PATH": NFS}, "pass", ""),
        ("cache.variables", {"TRITON_CACHE_DIR": OVERLAY}, "pass", "may be local or not"),
        ("cache.variables", {"TRITON_CACHE_DIR": Unreadable("stale")}, "unknown", "stale"),
        ("cache.other_variables", {"CUDA_CACHE_PATH": NFS}, "warn", "CUDA_CACHE_PATH"),
        ("cache.other_variables", {"TRITON_CACHE_DIR": NFS}, "pass", ""),
        ("cache.noexec", {"CUDA_CACHE_PATH": NOEXEC}, "fail", "(tmpfs)"),
        ("cache.noexec", {}, "pass", ""),
        ("cache.noexec", {"CUDA_CACHE_PATH": Unreadable("stale")}, "unknown", "stale"),
    ],
)
def test_filesystems(id: str, mounts: dict[str, Mount | Unreadable], status: str, told: str) -> None:
    finding = judged(id, mounts)
    assert finding.status == status and told in f"{finding.found} {finding.message}", finding


@pytest.mark.parametrize(
    ("path", "rank", "here", "status"),
    [
        ("/l/rank3/triton", 3, 4, "pass"),
        ("/l/rank13/triton", 3, 4, "warn"),
        ("/l/triton", 3, 4, "warn"),
        ("/l/triton", 3, None, "warn"),
        ("/l/triton", 0, 1, "skip"),
        ("/l/triton", None, None, "skip"),
    ],
)
def test_two_ranks_in_one_directory(path: str, rank: int | None, here: int | None, status: str) -> None:
    paths = {cache.variable: path for cache in k3.CACHES}
    finding = judged("cache.collision", {}, paths, rank=rank, ranks_here=here)  # type: ignore[arg-type]
    assert finding.status == status


def test_this_process_is_read_as_a_rank_would_be(tmp_path: Path) -> None:
    own = {"TRITON_CACHE_DIR": str(tmp_path), "SLURM_LOCALID": "2", "SLURM_NTASKS_PER_NODE": "4(x2)"}
    found = facts.rank_caches(Machine(environment={**own, "CUDA_CACHE_PATH": "relative"}))
    by_variable = {item.variable: item for item in found.caches}
    assert (found.rank, found.ranks_here) == (2, 4)
    assert by_variable["TRITON_CACHE_DIR"].path == str(tmp_path) and by_variable["TRITON_CACHE_DIR"].given
    assert isinstance(by_variable["TRITON_CACHE_DIR"].mount, Mount)
    assert isinstance(by_variable["CUDA_CACHE_PATH"].mount, Unreadable)


def cubins(environment: dict[str, str], repo: Path | None = None) -> Finding:
    (rule,) = checks.select(("cache.cubins",))
    profile = Profile(paths=Paths(repo=str(repo) if repo else None))
    found = facts.cubins(Machine(environment=environment), profile)
    return checks.judge(rule, {facts.cubins: found}, profile)


def test_cubins(tmp_path: Path) -> None:
    assert cubins({}).status == "skip"
    assert cubins({k3.CUBINS: str(tmp_path / "none")}).status == "warn"
    staged = tmp_path / ".k3env" / "cubins" / "a"
    staged.mkdir(parents=True)
    assert cubins({}, tmp_path).status == "warn", "an empty directory hides the package's cubins"
    (staged / "x.cubin").touch()
    assert (cubins({}, tmp_path).status, cubins({}, tmp_path).found) == ("pass", "1 files")
