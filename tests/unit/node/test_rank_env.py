"""rank_env: the file, and what it does to a shell that sources it."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from k3env.errors import Refused, TaskFailed
from k3env.node.machine import Machine
from k3env.node.modules.rank_env import RankEnv
from k3env.protocol.container import Container
from k3env.protocol.finding import Change
from tests.unit.node.namespaces import noexec

FORK = {"url": "https://example.org/fi.git", "vcs_info": {"vcs": "git", "commit_id": "b" * 40}}
CACHES = [
    "TRITON_CACHE_DIR",
    "FLASHINFER_WORKSPACE_BASE",
    "HF_MODULES_CACHE",
    "TORCHINDUCTOR_CACHE_DIR",
    "TORCH_EXTENSIONS_DIR",
    "CUDA_CACHE_PATH",
    "CUTE_DSL_CACHE_DIR",
    "DG_JIT_CACHE_DIR",
    "TRTLLM_DG_CACHE_DIR",
    "TILELANG_CACHE_DIR",
    "TVM_FFI_CACHE_DIR",
]
SHELLS = [name for name in ("dash", "bash") if shutil.which(name)]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkout with a virtual environment, to be copied by links."""
    repo = tmp_path_factory.mktemp("template") / "repo"
    venv.create(repo / f".venv-{sys.version_info[0]}.{sys.version_info[1]}", with_pip=False, symlinks=True)
    return repo


class Rank:
    """A checkout with a blank and a quote in its name, a base, and ranks that source the file."""

    def __init__(self, directory: Path, template: Path) -> None:
        self.repo = directory / "it's a repo"
        self.base = directory / "base of $HOME"
        shutil.copytree(template, self.repo, symlinks=True)
        self.base.mkdir(mode=0o700)
        (self.repo / ".git/refs/heads").mkdir(parents=True)
        (self.repo / ".git/HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
        (self.repo / ".git/refs/heads/main").write_text("a" * 40 + "\n", encoding="utf-8")
        self.venv = next(self.repo.glob(".venv-*"))
        self.package("flashinfer_python", "0.6.16", FORK)
        self.package("triton", "3.6.0")
        self.write()

    @property
    def site(self) -> Path:
        return next(self.venv.glob("lib/python3*/site-packages"))

    def package(self, name: str, version: str, url: object = None) -> None:
        for old in self.site.glob(f"{name}-*.dist-info"):
            shutil.rmtree(old)
        info = self.site / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
        if url is not None:
            (info / "direct_url.json").write_text(json.dumps(url), encoding="utf-8")

    def module(self, image: str = "trtllm.sqsh", open_files: int = 64) -> RankEnv:
        container = Container("enroot", image)
        return RankEnv(str(self.repo), str(self.base), container=container, open_files=open_files)

    def write(self, **rest: object) -> None:
        module = self.module(**rest)  # type: ignore[arg-type]
        module.apply(Machine(), module.changes(Machine()))

    def run(self, shell: str, after: str, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
        script = f'{before}\n. "$RANK_ENV"\n{after}'
        around = {"PATH": os.environ["PATH"], "HOME": str(self.repo), "RANK_ENV": str(self.repo / ".k3env/rank_env.sh")}
        return subprocess.run(
            [shell, "-c", script],
            env={**around, **environment},
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )

    def sourced(self, shell: str = "dash", **environment: str) -> dict[str, str]:
        """Return the environment of a rank."""
        done = self.run(shell, "exec env -0", **environment)
        assert done.returncode == 0, done.stderr
        return dict(item.split("=", 1) for item in done.stdout.split("\0") if item)

    def fingerprint(self, **environment: str) -> str:
        return Path(self.sourced(**environment)["TRITON_CACHE_DIR"]).parts[-3]


@pytest.fixture
def rank(tmp_path: Path, template: Path) -> Rank:
    return Rank(tmp_path, template)


def test_both_shells_are_tested() -> None:
    assert "bash" in SHELLS


@pytest.mark.parametrize("shell", SHELLS)
def test_four_ranks_of_a_node(rank: Rank, shell: str) -> None:
    found = [rank.sourced(shell, SLURM_LOCALID=str(local)) for local in range(4)]
    for local, environment in enumerate(found):
        own = Path(environment["TRITON_CACHE_DIR"]).parent
        assert own.name == f"rank{local}"
        assert own.parent.parent == rank.base
        for name in CACHES:
            path = Path(environment[name])
            assert path.parent == own, name
            assert path.is_dir(), name
            assert path.stat().st_mode & 0o777 == 0o700, name
        assert len({environment[name] for name in CACHES}) == len(CACHES)
        assert environment["PYTHONNOUSERSITE"] == "1"
        assert environment["TLLM_LOG_LEVEL"] == "info"
        assert environment["PATH"].startswith(f"{rank.venv}/bin:")
        assert environment["PYTHONPATH"] == str(rank.repo)
    assert len({environment["TRITON_CACHE_DIR"] for environment in found}) == 4
    assert len({environment["FLASHINFER_CUBIN_DIR"] for environment in found}) == 1, "cubins are shared"


@pytest.mark.parametrize("shell", SHELLS)
def test_nothing_else_is_left_in_the_shell(rank: Rank, shell: str) -> None:
    done = rank.run(shell, "set | grep ^k3env_ || echo none")
    assert done.stdout == "none\n", done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("options", ["set -eu", "set -euf", ""])
def test_a_strict_shell_sources_it_twice(rank: Rank, shell: str, options: str) -> None:
    done = rank.run(shell, '. "$RANK_ENV"\necho "$PATH|$PYTHONPATH|$?|$-"', options)
    path, python_path, status, flags = done.stdout.strip().split("|")
    assert (path.count(str(rank.venv)), python_path, status) == (1, str(rank.repo), "0"), done.stderr
    assert set(options.partition("-")[2]) <= set(flags)


def test_what_the_user_set_is_kept_where_it_is_theirs(rank: Rank) -> None:
    found = rank.sourced(TLLM_LOG_LEVEL="debug", PYTHONPATH="/mine", FLASHINFER_CUBIN_DIR="/cubins", HF_HOME="/hf")
    assert found["TLLM_LOG_LEVEL"] == "debug"
    assert found["PYTHONPATH"] == f"{rank.repo}:/mine"
    assert found["FLASHINFER_CUBIN_DIR"] == "/cubins"
    assert found["HF_HOME"] == "/hf"


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        ({"SLURM_LOCALID": "3", "SLURM_PROCID": "11", "OMPI_COMM_WORLD_LOCAL_RANK": "1"}, "rank3"),
        ({"OMPI_COMM_WORLD_LOCAL_RANK": "2", "OMPI_COMM_WORLD_RANK": "6"}, "rank2"),
        ({"MPI_LOCALRANKID": "1", "PMI_RANK": "9"}, "rank1"),
        ({"PMI_LOCAL_RANK": "2"}, "rank2"),
        ({"SLURM_PROCID": "13"}, "rank13"),
        ({"PMIX_RANK": "5"}, "rank5"),
        ({"PMI_RANK": "7"}, "rank7"),
        ({}, "rank0"),
    ],
)
def test_which_rank(rank: Rank, environment: dict[str, str], name: str) -> None:
    assert Path(rank.sourced(**environment)["TRITON_CACHE_DIR"]).parent.name == name


# What the caches belong to


def test_a_replaced_flashinfer_of_the_same_version_has_other_caches(rank: Rank) -> None:
    before = rank.fingerprint()
    assert rank.fingerprint() == before
    rank.package("flashinfer_python", "0.6.16", {**FORK, "vcs_info": {"vcs": "git", "commit_id": "c" * 40}})
    other = rank.fingerprint()
    rank.package("flashinfer_python", "0.6.16")
    stock = rank.fingerprint()
    assert len({before, other, stock}) == 3
    rank.package("flashinfer_python", "0.6.16", FORK)
    assert rank.fingerprint() == before


def test_flashinfers_own_word_about_its_commit_counts(rank: Rank) -> None:
    rank.package("flashinfer_python", "0.6.16")
    before = rank.fingerprint()
    (rank.site / "flashinfer").mkdir()
    (rank.site / "flashinfer/_build_meta.py").write_text('__git_commit__ = "b6cc594"\n', encoding="utf-8")
    assert rank.fingerprint() != before


def test_triton_checkout_and_image_count(rank: Rank) -> None:
    seen = {rank.fingerprint()}
    rank.package("triton", "3.7.0")
    seen.add(rank.fingerprint())
    (rank.repo / ".git/refs/heads/main").write_text("d" * 40 + "\n", encoding="utf-8")
    seen.add(rank.fingerprint())
    seen.add(rank.fingerprint(NVIDIA_BUILD_ID="1"))
    rank.write(image="other.sqsh")
    seen.add(rank.fingerprint())
    assert len(seen) == 5


def test_the_commit_is_found_however_git_keeps_it(rank: Rank) -> None:
    before = rank.fingerprint()
    git = rank.repo / ".git"
    (git / "refs/heads/main").unlink()
    (git / "packed-refs").write_text(f"# pack-refs with: peeled\n{'a' * 40} refs/heads/main\n", encoding="utf-8")
    assert rank.fingerprint() == before
    (git / "HEAD").write_text("a" * 40 + "\n", encoding="utf-8")
    assert rank.fingerprint() == before
    common = rank.repo.parent / "main.git"
    git.rename(common)
    (common / "worktrees/w").mkdir(parents=True)
    (common / "worktrees/w/HEAD").write_text("ref: refs/heads/main\n", encoding="utf-8")
    (common / "worktrees/w/commondir").write_text("../..\n", encoding="utf-8")
    git.write_text(f"gitdir: {common}/worktrees/w\n", encoding="utf-8")
    assert rank.fingerprint() == before


# Cubins


def test_cubins_that_were_filled_beforehand(rank: Rank) -> None:
    (rank.repo / ".k3env/cubins").mkdir()
    assert rank.sourced()["FLASHINFER_CUBIN_DIR"].startswith(str(rank.base)), "an empty directory would hide others"
    (rank.repo / ".k3env/cubins/a.cubin").write_text("", encoding="utf-8")
    assert rank.sourced()["FLASHINFER_CUBIN_DIR"] == f"{rank.repo}/.k3env/cubins"


def test_cubins_of_the_package_are_not_hidden(rank: Rank) -> None:
    rank.package("flashinfer_cubin", "0.6.16")
    assert "FLASHINFER_CUBIN_DIR" not in rank.sourced()


# What it refuses, without ending the shell


def refused(rank: Rank, told: str, **environment: str) -> None:
    """Check that every shell is told, goes on, and has not half an environment."""
    for shell in SHELLS:
        done = rank.run(shell, 'echo "status $?, ${TRITON_CACHE_DIR:-no caches}"; set | grep -c ^k3env_', **environment)
        assert done.stdout == "status 1, no caches\n0\n", shell
        assert told in done.stderr, done.stderr
        assert "Traceback" not in done.stderr


def test_a_base_that_is_not_mounted(rank: Rank) -> None:
    rank.base.rmdir()
    refused(rank, f"{rank.base} is missing: run 'invoke caches' on this node, and mount it")


def test_a_base_that_is_a_link(rank: Rank) -> None:
    rank.base.rename(rank.base.with_name("real"))
    rank.base.symlink_to(rank.base.with_name("real"))
    refused(rank, "is a symbolic link")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
def test_a_base_of_somebody_else(rank: Rank) -> None:
    os.chown(rank.base, 65534, 65534)
    refused(rank, "belongs to somebody else than root")


def test_a_rank_that_is_no_number(rank: Rank) -> None:
    refused(rank, "the launcher's rank is no number: ../x", SLURM_LOCALID="../x")


def test_open_files_beyond_the_hard_limit(rank: Rank) -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if hard == resource.RLIM_INFINITY:
        pytest.skip("there is no hard limit here")
    rank.write(open_files=hard + 1)
    refused(rank, f"open files: expected {hard + 1}, found a hard limit of {hard}; raise LimitNOFILE")


@pytest.mark.parametrize("shell", SHELLS)
def test_open_files_are_raised_and_never_lowered(rank: Rank, shell: str) -> None:
    rank.write(open_files=300)
    assert rank.run(shell, "ulimit -Sn", "ulimit -Sn 200").stdout == "300\n"
    assert rank.run(shell, "ulimit -Sn", "ulimit -Sn 400").stdout == "400\n"
    assert rank.run(shell, "ulimit -Hn", "ulimit -Sn 200").stdout != "300\n"


def test_no_virtual_environment(rank: Rank) -> None:
    shutil.rmtree(rank.venv)
    refused(rank, f"there is no virtual environment in {rank.repo}: run 'invoke build'")


def test_a_python_that_dangles(rank: Rank) -> None:
    for path in (rank.venv / "bin").glob("python*"):
        path.unlink()
    (rank.venv / "bin/python").symlink_to("/nowhere/python3")
    refused(rank, "has no Python that runs here; was it made in another image?")


def test_a_python_that_fails(rank: Rank) -> None:
    for path in (rank.venv / "bin").glob("python*"):
        path.unlink()
    (rank.venv / "bin/python").write_text("#!/bin/sh\nexit 3\n", encoding="utf-8")
    (rank.venv / "bin/python").chmod(0o755)
    refused(rank, "can't tell what is installed")


def test_a_base_in_which_nothing_can_be_made(rank: Rank) -> None:
    (rank.base / rank.fingerprint()).rename(rank.base / "gone")
    fingerprint = rank.fingerprint()
    shutil.rmtree(rank.base / fingerprint)
    (rank.base / fingerprint).write_text("in the way", encoding="utf-8")
    refused(rank, "can't be made; run 'invoke caches' on this node")


@pytest.mark.parametrize("shell", SHELLS)
def test_a_base_that_is_mounted_noexec(rank: Rank, shell: str) -> None:
    argv = [shell, "-c", '. "$0"; echo "status $?"', str(rank.repo / ".k3env/rank_env.sh")]
    done = noexec(str(rank.base), argv)
    assert done.stdout == "status 1\n"
    assert "is mounted noexec: compiled kernels can't be loaded from there" in done.stderr


def test_several_environments_the_one_of_the_containers_python(rank: Rank) -> None:
    shutil.copytree(rank.venv, rank.repo / ".venv-3.99", symlinks=True)
    pythons = rank.repo.parent / "bin"
    pythons.mkdir()
    (pythons / "python3").symlink_to(sys.executable)
    found = rank.sourced(PATH=f"{pythons}:{os.environ['PATH']}")
    assert found["PATH"].startswith(f"{rank.venv}/bin:")


def test_the_environment_that_was_named(rank: Rank) -> None:
    named = rank.repo.parent / "venv"
    rank.venv.rename(named)
    module = RankEnv(str(rank.repo), str(rank.base), venv=f"{named}/", open_files=64)
    module.apply(Machine(), module.changes(Machine()))
    assert rank.sourced()["PATH"].startswith(f"{named}/bin:")


# The file


def test_it_is_written_once(rank: Rank) -> None:
    assert rank.module().changes(Machine()) == ()
    path = rank.repo / ".k3env/rank_env.sh"
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.read_text(encoding="utf-8") == rank.module().text()


@pytest.mark.parametrize("shell", SHELLS)
def test_it_is_a_posix_script(rank: Rank, shell: str) -> None:
    done = subprocess.run([shell, "-n", str(rank.repo / ".k3env/rank_env.sh")], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_an_edit_is_one_change_that_shows_the_first_line(rank: Rank) -> None:
    path = rank.repo / ".k3env/rank_env.sh"
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("PYTHONNOUSERSITE=1", "PYTHONNOUSERSITE=0"), encoding="utf-8")
    (change,) = rank.module().changes(Machine())
    line = next(number for number, row in enumerate(text.splitlines(), 1) if "PYTHONNOUSERSITE=1" in row)
    assert change.what == str(path)
    assert f"line {line}:     export PYTHONNOUSERSITE=0" in change.before
    assert f"line {line}:     export PYTHONNOUSERSITE=1" in change.after
    rank.module().apply(Machine(), (change,))
    assert path.read_text(encoding="utf-8") == text


def test_what_is_cut_off_shows_the_first_line_that_lacks(rank: Rank) -> None:
    path = rank.repo / ".k3env/rank_env.sh"
    lines = path.read_text(encoding="utf-8").splitlines()
    path.write_text("\n".join(lines[:5]) + "\n", encoding="utf-8")
    (change,) = rank.module().changes(Machine())
    assert change.before.endswith("line 6: (none)")


def test_a_lacking_line_end_is_a_change(rank: Rank) -> None:
    path = rank.repo / ".k3env/rank_env.sh"
    path.write_text(path.read_text(encoding="utf-8").rstrip("\n"), encoding="utf-8")
    assert len(rank.module().changes(Machine())) == 1


def test_without_a_checkout_the_whole_file_is_the_change(tmp_path: Path) -> None:
    module = RankEnv(f"{tmp_path}/none", "/local/k3")
    (change,) = module.changes(Machine())
    assert isinstance(change, Change)
    assert (change.what, change.before) == (f"{tmp_path}/none/.k3env/rank_env.sh", "absent")
    with pytest.raises(TaskFailed, match="there is no checkout") as caught:
        module.apply(Machine(), (change,))
    assert "invoke build" in (caught.value.finding.remedy or "")
    assert not (tmp_path / "none").exists()


def test_a_link_for_its_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "repo").mkdir()
    (tmp_path / "repo/.k3env").symlink_to(tmp_path)
    with pytest.raises(Refused, match="symbolic link"):
        RankEnv(f"{tmp_path}/repo", "/local/k3").changes(Machine())


def test_a_link_for_the_file_is_replaced_not_followed(rank: Rank) -> None:
    path = rank.repo / ".k3env/rank_env.sh"
    victim = rank.repo / "victim"
    victim.write_text("untouched", encoding="utf-8")
    path.unlink()
    path.symlink_to(victim)
    rank.write()
    assert not path.is_symlink()
    assert victim.read_text(encoding="utf-8") == "untouched"


def test_equal_parameters_give_equal_bytes() -> None:
    one, other = (RankEnv("/repo", "/base", container=Container("docker", "x:1")) for _ in range(2))
    assert one.text() == other.text()
    assert one.writes() == ("/repo",)


@pytest.mark.parametrize("value", ["repo", "/a:b", "/a\nb", ""])
@pytest.mark.parametrize("name", ["repo", "base", "venv"])
def test_paths_that_no_container_can_mount(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must be an absolute path"):
        replace(RankEnv("/repo", "/base"), **{name: value})  # type: ignore[arg-type]


def test_a_home_is_that_of_the_rank() -> None:
    text = RankEnv("/repo", "~/a b").text()
    assert "k3env_base=\"$HOME\"/'a b'\n" in text
    with pytest.raises(ValueError, match="base must be an absolute path"):
        RankEnv("/repo", "~other/cache")
