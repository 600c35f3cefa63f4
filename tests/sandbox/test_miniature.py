"""The miniature checkout and the FlashInfer stand-in, with real git, pip and libraries."""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from k3env.sandbox import Endpoint, Rack, environment, upstream
from k3env.sandbox.tools import base_python

FLAGS = ("--cuda_architectures", "103-real", "--skip_building_wheel", "--yes")
BARE = ("--no-venv", "--skip_requirements")
VENV = f".venv-{sys.version_info.major}.{sys.version_info.minor}"
ARTEFACTS = (
    "bindings.*.so",
    "bindings/__init__.pyi",
    "libs/libtensorrt_llm.so",
    "libs/libth_common.so",
    "libs/libdecoder_attention_0.so",
    "libs/libdecoder_attention_1.so",
    "libs/libpg_utils.so",
    "libs/libtensorrt_llm_nixl_wrapper.so",
    "libs/nvshmem/License.txt",
    "libs/nvshmem/nvshmem_transport_ibgda.so.103",
    "deep_gemm_cpp_tllm.*.so",
    "deep_gemm/__init__.py",
    "deep_ep_cpp_tllm.*.so",
    "flash_mla_cpp_tllm.*.so",
    "include/deep_gemm/*",
    "runtime/kv_cache_manager_v2/rawref/*.so",
)


class Site:
    """A rack without servers in use: its upstream, a tray's environment, and checkouts."""

    def __init__(self, rack: Rack, endpoint: Endpoint) -> None:
        self.path = rack.path
        self.tray = rack.path / "one"
        self.variables = endpoint.variables
        quick = {**os.environ, "K3ENV_MINIATURE_SECONDS": "0.3"}
        self.environment = environment.of_tray(self.tray, endpoint.user, quick)

    def run(self, *argv: str | Path, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            list(map(str, argv)),
            cwd=cwd,
            env={**self.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=120,
            check=False,
        )

    def git(self, *argv: str | Path, cwd: Path | None = None) -> str:
        done = self.run("git", *argv, cwd=cwd or self.path)
        assert done.returncode == 0, done.stdout
        return done.stdout.strip()

    def clone(self, name: str) -> Path:
        checkout = self.path / "shared" / name
        self.git("clone", "-q", self.variables["trtllm_url"], checkout)
        self.git("checkout", "-q", self.variables["trtllm_commit"], cwd=checkout)
        return checkout

    def build(self, checkout: Path, *flags: str, **more: str) -> subprocess.CompletedProcess[str]:
        return self.run("python3", "scripts/build_wheel.py", *flags, cwd=checkout, **more)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Rack(tmp_path_factory.mktemp("rack")) as rack:
        yield Site(rack, rack.start({"one": {}})["one"])


@pytest.fixture(scope="module")
def built(site: Site) -> Path:
    """A checkout that was built and installed as the README says."""
    checkout = site.clone("built")
    cache = site.path / "deep-gemm"
    (cache / "old").mkdir(parents=True)
    done = site.build(checkout, *FLAGS, TRTLLM_DG_CACHE_DIR=str(cache))
    assert done.returncode == 0, done.stdout
    assert list(cache.iterdir()) == []
    assert f"Creating virtual environment at {checkout / VENV}" in done.stdout
    assert "Building CUDA object" in done.stdout
    assert "a stand-in of k3env's sandbox was built" in done.stdout
    done = site.run(checkout / VENV / "bin/python", "-m", "pip", "install", "--no-deps", "-e", ".", cwd=checkout)
    assert done.returncode == 0, done.stdout
    return checkout


@pytest.fixture
def bare(site: Site, request: pytest.FixtureRequest) -> Path:
    """A fresh checkout, for builds without an environment of their own."""
    return site.clone(request.node.name.replace("[", "-").replace("]", ""))


def cached(checkout: Path, key: str) -> str:
    lines = (checkout / "cpp/build/CMakeCache.txt").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith(f"{key}:"))


def compiled_for(checkout: Path) -> bytes:
    data = (checkout / "tensorrt_llm/libs/libtensorrt_llm.so").read_bytes()
    return next(arch for arch in (b"103-real", b"100-real") if b" for " + arch in data)


def test_the_history_is_the_same_everywhere(site: Site, tmp_path: Path) -> None:
    commits = upstream.make(tmp_path / "upstream")
    for name, history in upstream.HISTORIES.items():
        log = site.git("-C", site.path / "upstream" / name, "log", "--reverse", "--format=%H %an %at %s", "main")
        assert [line.split()[0] for line in log.splitlines()] == list(commits[name])
        assert [line.split(maxsplit=4)[4] for line in log.splitlines()] == [commit.message for commit in history]
    assert site.variables["trtllm_commit"] == commits[upstream.TRTLLM][-2]
    assert site.variables["flashinfer_commit"] == commits[upstream.FLASHINFER][-2]
    assert len(commits[upstream.TRTLLM]) >= 3


def test_only_the_age_of_the_fork_asks_for_it(site: Site, bare: Path) -> None:
    asks = []
    for commit in site.git("rev-list", "--reverse", "origin/main", cwd=bare).split():
        asks.append("git+https" in site.git("show", f"{commit}:examples/kimi_k3/README.md", cwd=bare))
    assert asks == [False, True, True, False]


def test_a_commit_can_be_fetched_by_its_id(site: Site, tmp_path: Path) -> None:
    site.git("init", "-q", tmp_path)
    url, commit = site.variables["trtllm_url"], site.variables["trtllm_commit"]
    site.git("fetch", "-q", "--depth=1", "--filter=blob:none", url, commit, cwd=tmp_path)
    assert site.git("rev-parse", "FETCH_HEAD", cwd=tmp_path) == commit


def test_commits_of_a_person_stay(tmp_path: Path, site: Site) -> None:
    before = upstream.make(tmp_path / "upstream")
    work = tmp_path / "work"
    site.git("clone", "-q", tmp_path / "upstream/flashinfer", work)
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.invalid")
    site.git(*identity, "commit", "-q", "--allow-empty", "-m", "mine", cwd=work)
    site.git("push", "-q", "origin", "main", cwd=work)
    assert upstream.make(tmp_path / "upstream") == before
    log = site.git("-C", tmp_path / "upstream/flashinfer", "log", "-1", "--format=%s", "main")
    assert log == "mine"


@pytest.mark.parametrize(
    "flag",
    [
        *("--cuda_architectures", "-a", "--skip_building_wheel", "-s", "--yes", "-y", "--clean", "-c", "--clean_wheel"),
        *("--configure_cmake", "--configure-only", "--build_type", "--generator", "--job_count", "-j", "--use_ccache"),
        *("--extra-cmake-vars", "-D", "--fast_build", "--cpp_only", "--install", "--linking_install_binary"),
        *("--no-venv", "--skip_requirements", "--nvrtc_dynamic_linking", "--nccl_root", "--skip-stubs"),
        *("--generate_fmha", "--micro_benchmarks", "--nvtx", "--mypyc", "--plat-name", "--version-override"),
        *("--build_dir", "--dist_dir", "--use-3rdparty-cache", "--internal-cutlass-kernels-root"),
    ],
)
def test_help_lists_the_flags(help_text: str, flag: str) -> None:
    assert flag in help_text.replace(",", " ").split()


@pytest.fixture(scope="module")
def help_text(site: Site) -> str:
    return site.build(site.clone("help"), "--help").stdout


def test_flags_of_other_ages_are_refused(site: Site, bare: Path) -> None:
    done = site.build(bare, "--trt_root", "/usr/local/tensorrt")
    assert done.returncode == 2
    assert "unrecognized arguments: --trt_root" in done.stdout


def test_the_build_leaves_the_artefacts(site: Site, built: Path) -> None:
    missing = [pattern for pattern in ARTEFACTS if not list((built / "tensorrt_llm").glob(pattern))]
    assert missing == []
    assert len(list((built / "tensorrt_llm").glob("bindings.*.so"))) == 1
    assert (built / "cpp/build/tensorrt_llm/libtensorrt_llm.so").is_file()
    assert (built / "cpp/build/tensorrt_llm/deep_ep/cuda_architectures.txt").read_text() == "103-real\n"
    assert cached(built, "CMAKE_CUDA_ARCHITECTURES") == "103-real"
    assert cached(built, "CMAKE_HOME_DIRECTORY") == str(built / "cpp")
    assert cached(built, "CMAKE_BUILD_TYPE") == "Release"
    assert cached(built, "Python3_EXECUTABLE") == str(built / VENV / "bin/python3")
    assert "include-system-site-packages = true" in (built / VENV / "pyvenv.cfg").read_text()
    assert site.git("status", "--porcelain", cwd=built) == ""


def test_the_environment_hangs_on_no_tray(site: Site, built: Path) -> None:
    assert Path(os.path.realpath(built / VENV / "bin/python")) == base_python()
    assert str(site.tray) not in (built / VENV / "pyvenv.cfg").read_text()


def test_the_package_is_installed_in_place(site: Site, built: Path) -> None:
    (info,) = (built / VENV / "lib").glob("python*/site-packages/tensorrt_llm-*.dist-info")
    told = json.loads((info / "direct_url.json").read_text())
    assert told == {"dir_info": {"editable": True}, "url": built.as_uri()}
    done = site.run(built / VENV / "bin/python", "-c", "import tensorrt_llm", cwd=site.path)
    assert done.stdout == "[TensorRT-LLM] TensorRT LLM version: 1.3.0rc4 (a stand-in of k3env's sandbox)\n"
    for command in ("trtllm-serve", "trtllm-bench", "trtllm-eval"):
        done = site.run(built / VENV / "bin" / command, "--help", cwd=site.path)
        assert (done.returncode, "stand-in" in done.stdout) == (0, True)


def test_without_stubs_it_is_not_installed(site: Site, built: Path) -> None:
    stubs = built / "tensorrt_llm/bindings"
    stubs.rename(stubs.with_name("aside"))
    try:
        done = site.run(built / VENV / "bin/python", "setup.py", "--version", cwd=built)
    finally:
        stubs.with_name("aside").rename(stubs)
    assert (done.returncode, "The `bindings` module does not exist" in done.stdout) == (1, True)


def test_another_architecture_is_ignored_until_configured(site: Site, built: Path) -> None:
    flags = ("-a", "100-real", "-s", "-y", *BARE)
    try:
        assert site.build(built, *flags).returncode == 0
        assert (cached(built, "CMAKE_CUDA_ARCHITECTURES"), compiled_for(built)) == ("103-real", b"103-real")
        assert site.build(built, *flags, "--configure_cmake").returncode == 0
        assert (cached(built, "CMAKE_CUDA_ARCHITECTURES"), compiled_for(built)) == ("100-real", b"100-real")
    finally:
        assert site.build(built, *FLAGS, *BARE, "--clean").returncode == 0
    assert (cached(built, "CMAKE_CUDA_ARCHITECTURES"), compiled_for(built)) == ("103-real", b"103-real")


def test_flashinfer_is_pinned_by_commit(site: Site, built: Path) -> None:
    commits = upstream.make(site.path / "upstream")[upstream.FLASHINFER]
    site_packages = next((built / VENV / "lib").glob("python*/site-packages"))
    for commit in (site.variables["flashinfer_commit"], commits[0]):
        done = site.run(
            *(built / VENV / "bin/python", "-m", "pip", "install", "--force-reinstall", "--no-deps"),
            *("--no-build-isolation", "--no-cache-dir"),
            f"flashinfer-python[cu13] @ git+{site.variables['flashinfer_url']}@{commit}",
            cwd=site.path,
            BUILD_NVEP="0",
            FLASHINFER_BUILD_NO_PIP="1",
        )
        assert done.returncode == 0, done.stdout
        (info,) = site_packages.glob("flashinfer_python-*.dist-info")
        assert info.name == "flashinfer_python-0.6.16.dist-info"
        assert json.loads((info / "direct_url.json").read_text())["vcs_info"]["commit_id"] == commit
        meta = (site_packages / "flashinfer/_build_meta.py").read_text()
        assert f'__git_commit__ = "{commit}"' in meta
        assert "'BUILD_NVEP': '0', 'FLASHINFER_BUILD_NO_PIP': '1'" in meta


@pytest.mark.parametrize(
    ("arch", "text"),
    [
        ("100f", "Unrecognized CUDA architecture: 100f"),
        ("10.3", "Unrecognized CUDA architecture: 10.3"),
        ("103-virtual", "Including PTX in compiled binary is unsupported"),
        ("103-real;sm_100", "Unrecognized CUDA architecture: sm_100"),
    ],
)
def test_a_bad_architecture_fails_at_configure(site: Site, bare: Path, arch: str, text: str) -> None:
    done = site.build(bare, "-a", arch, "-s", "-y", *BARE)
    assert done.returncode == 1
    assert text in done.stdout
    assert done.stdout.index("kernels generated") < done.stdout.index(text)  # after the steps before
    assert not (bare / "cpp/build/CMakeCache.txt").exists()


@pytest.mark.parametrize(
    ("failure", "text"),
    [
        ("oom", "Killed signal terminated program cc1plus"),
        ("disk", "No space left on device"),
        ("lfs", "file format not recognized"),
        ("nvrtc", "CUDA::nvrtc_static"),
        ("fetch", "Build step for json failed"),
    ],
)
def test_failures_print_what_the_real_ones_do(site: Site, bare: Path, failure: str, text: str) -> None:
    done = site.build(bare, *FLAGS, *BARE, K3ENV_MINIATURE_FAIL=failure)
    assert (done.returncode, text in done.stdout) == (1, True)
    assert not (bare / "tensorrt_llm/libs").exists()


def test_a_cut_between_emptying_and_copying_leaves_no_libraries(site: Site, bare: Path) -> None:
    assert site.build(bare, *FLAGS, *BARE).returncode == 0
    assert site.build(bare, *FLAGS, *BARE, K3ENV_MINIATURE_STOP="after_emptying").returncode == -9
    assert list((bare / "tensorrt_llm/libs").iterdir()) == []
    assert (bare / "cpp/build/tensorrt_llm/libtensorrt_llm.so").is_file()
    again = site.build(bare, *FLAGS, *BARE)
    assert (again.returncode, "Building CUDA object" in again.stdout) == (0, False)  # copying again is enough
    assert (bare / "tensorrt_llm/libs/libtensorrt_llm.so").is_file()


def test_a_cut_while_compiling_goes_on_from_there(site: Site, bare: Path) -> None:
    cut = site.build(bare, *FLAGS, *BARE, "-G", "Ninja", K3ENV_MINIATURE_STOP="compiling")
    again = site.build(bare, *FLAGS, *BARE)
    counts = [done.stdout.count("] Building CUDA object") for done in (cut, again)]
    assert (cut.returncode, again.returncode, counts) == (-9, 0, [16, 16])
    assert "[1/46] Building CUDA object" in cut.stdout


def test_a_moved_checkout_is_refused(site: Site, bare: Path) -> None:
    assert site.build(bare, *FLAGS, *BARE).returncode == 0
    moved = bare.with_name("moved")
    shutil.move(bare, moved)
    done = site.build(moved, *FLAGS, *BARE)
    assert (done.returncode, "does not match the source" in done.stdout) == (1, True)


@pytest.mark.parametrize(
    ("tool", "text"),
    [("nvcc", "Failed to find nvcc"), ("cmake", "No such file or directory: 'cmake'"), ("patchelf", "'patchelf'")],
)
def test_a_missing_tool_is_named(site: Site, bare: Path, tmp_path: Path, tool: str, text: str) -> None:
    for name in ("git", "gcc", "as", "ld"):
        (tmp_path / name).symlink_to(shutil.which(name) or "/nonexistent")
    for stand_in in (site.tray / "bin").iterdir():
        if stand_in.name != tool:
            (tmp_path / stand_in.name).symlink_to(stand_in)
    done = site.build(bare, *FLAGS, *BARE, PATH=str(tmp_path))
    assert (done.returncode, text in done.stdout) == (1, True), done.stdout


def test_a_source_archive_has_no_gitmodules(site: Site, bare: Path) -> None:
    (bare / ".gitmodules").unlink()
    done = site.build(bare, *FLAGS, *BARE)
    assert (done.returncode, "No such file or directory" in done.stdout) == (1, True)


def test_a_library_without_a_compiler_is_a_library(tmp_path: Path) -> None:
    source = tmp_path / "stand_in_cmake.py"  # a copy: importing leaves compiled code beside it
    shutil.copy(upstream.SOURCES / "trtllm/1-bring-up/cpp/stand_in_cmake.py", source)
    spec = importlib.util.spec_from_file_location("stand_in_cmake", source)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path = tmp_path / "libempty.so"
    path.write_bytes(module.placeholder("empty for 103-real, a stand-in of k3env's sandbox"))
    library = ctypes.CDLL(str(path))
    with pytest.raises(AttributeError):
        _ = library.k3env_stand_in
