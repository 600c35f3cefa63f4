#!/usr/bin/env python3
"""Build the miniature in place: a stand-in of k3env's sandbox for TensorRT LLM's scripts/build_wheel.py.

It has the flags, the order of steps, the places and the pitfalls of Kimi K3's time. Real are the virtual environment,
pip and the shared libraries; what those contain is a line each. Two variables make it fail:

K3ENV_MINIATURE_FAIL=oom|disk|lfs|nvrtc|fetch       print what the real build prints then, exit 1
K3ENV_MINIATURE_STOP=compiling|after_emptying       kill this process there
K3ENV_MINIATURE_SECONDS=3                           how long compiling takes
"""

from __future__ import annotations

import argparse
import configparser
import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "cpp"))

import stand_in_cmake  # noqa: E402

PACKAGE = ROOT / "tensorrt_llm"
FMHA = ROOT / "cpp" / "kernels" / "fmha_v2"
FMHA_OUTPUT = ROOT / "cpp" / "tensorrt_llm" / "kernels" / "contextFusedMultiHeadAttention" / "fmha_v2_cu"
FMHA_STAMP = FMHA_OUTPUT / ".generation_complete"
FOLDERS = ("deep_gemm", "deep_ep", "flash_mla")
TAG = sysconfig.get_config_var("EXT_SUFFIX")
# Path in the build directory under tensorrt_llm, and folder in the package.
LIBRARIES = {
    "libtensorrt_llm.so": "libs",
    "thop/libth_common.so": "libs",
    "kernels/attention/libdecoder_attention_0.so": "libs",
    "kernels/attention/libdecoder_attention_1.so": "libs",
    "runtime/utils/libpg_utils.so": "libs",
    "executor/libtensorrt_llm_ucx_wrapper.so": "libs",
    "executor/libtensorrt_llm_nixl_wrapper.so": "libs",
    "deep_ep/nvshmem/nvshmem_bootstrap_uid.so.3": "libs/nvshmem",
    "deep_ep/nvshmem/nvshmem_transport_ibgda.so.103": "libs/nvshmem",
    f"nanobind/bindings{TAG}": ".",
    f"deep_gemm/deep_gemm_cpp_tllm{TAG}": ".",
    f"deep_ep/deep_ep_cpp_tllm{TAG}": ".",
    f"flash_mla/flash_mla_cpp_tllm{TAG}": ".",
    f"rawref/_rawref{TAG}": "runtime/kv_cache_manager_v2/rawref",
}


def say(text: str) -> None:
    print(text, flush=True)


def run(argv: list[str | Path], cwd: Path = ROOT) -> None:
    """Run a step. Its failure is a traceback and exit code 1, as in the real script."""
    say("-- " + " ".join(map(str, argv)))
    subprocess.run(argv, cwd=cwd, check=True)


def stop_at(point: str) -> None:
    """Die here without a word where the environment asks for it."""
    if os.environ.get("K3ENV_MINIATURE_STOP") == point:
        os.kill(os.getpid(), signal.SIGKILL)


def clear(folder: Path) -> None:
    """Empty a folder and keep it, so that a mount survives."""
    for item in folder.iterdir() if folder.is_dir() else ():
        if item.is_dir() and not item.is_symlink():
            shutil.rmtree(item)
        else:
            item.unlink()


def update_submodules() -> None:
    """Fetch submodules that are not there. A source archive has no .gitmodules: FileNotFoundError."""
    modules = configparser.ConfigParser()
    with (ROOT / ".gitmodules").open(encoding="utf-8") as file:
        modules.read_file(file)
    if any(not (ROOT / modules[name]["path"] / ".git").exists() for name in modules.sections()):
        run(["git", "submodule", "update", "--init", "--recursive"])


def environment(no_venv: bool) -> Path:
    """Return the interpreter to build with: the current environment's, or that of .venv-X.Y, made where missing."""
    if no_venv or sys.prefix != sys.base_prefix:
        say(f"-- Already inside virtual environment {sys.prefix}")
        return Path(sys.executable)
    venv = ROOT / f".venv-{sys.version_info.major}.{sys.version_info.minor}"
    if venv.exists():
        say(f"-- Virtual environment already exists at {venv}")
    else:
        say(f"-- Creating virtual environment at {venv} (the venv module stands in for virtualenv)")
        run([sys.executable, "-m", "venv", "--system-site-packages", venv])
    return venv / "bin" / "python3"


def generate_fmha(force: bool) -> None:
    """Generate the attention kernels unless an earlier run got to its end."""
    if FMHA_STAMP.exists() and not force:
        return
    shutil.rmtree(FMHA_OUTPUT, ignore_errors=True)
    run(["python3", "setup.py"], cwd=FMHA)
    FMHA_OUTPUT.mkdir(parents=True)
    for source in sorted((FMHA / "generated").glob("*_sm*.cu")):
        shutil.copy(source, FMHA_OUTPUT)
    FMHA_STAMP.touch()


def configure(args: argparse.Namespace, build: Path, python: Path) -> None:
    """Configure, with what the command line says now."""
    values = {
        "CMAKE_BUILD_TYPE": args.build_type,
        "CMAKE_CUDA_ARCHITECTURES": args.cuda_architectures or "all",
        "NVRTC_DYNAMIC_LINKING": "ON" if args.nvrtc_dynamic_linking else "OFF",
        "Python_EXECUTABLE": str(python),
        "Python3_EXECUTABLE": str(python),
    }
    for pairs in args.extra_cmake_vars:
        values.update(pair.partition("=")[::2] for pair in pairs.split(";"))
    stand_in_cmake.configure(ROOT / "cpp", build, args.generator, values)


def copy(build: Path, link: bool) -> None:
    """Put what was compiled into the package."""
    clear(PACKAGE / "libs")
    clear(PACKAGE / "include")
    (ROOT / "ATTRIBUTIONS.md").unlink(missing_ok=True)
    clear(Path(os.environ.get("TRTLLM_DG_CACHE_DIR") or Path.home() / ".tensorrt_llm"))
    stop_at("after_emptying")
    for built, folder in LIBRARIES.items():
        source = build / "tensorrt_llm" / built
        target = PACKAGE / folder / source.name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        if link:
            target.symlink_to(source)
        else:
            shutil.copy(source, target)
    for wrapper in ("ucx", "nixl"):
        run(["patchelf", "--set-rpath", "$ORIGIN", PACKAGE / "libs" / f"libtensorrt_llm_{wrapper}_wrapper.so"])
    note = "a stand-in of k3env's sandbox\n"
    (PACKAGE / "libs" / "nvshmem" / "License.txt").write_text(note, encoding="utf-8")
    for folder in FOLDERS:
        (PACKAGE / folder).mkdir(exist_ok=True)
        (PACKAGE / folder / "__init__.py").write_text(f'"""{note.strip()}"""\n', encoding="utf-8")
    include = PACKAGE / "include" / "deep_gemm"
    include.mkdir(parents=True)
    (include / "deep_gemm.cuh").write_text(f"// {note}", encoding="utf-8")


def write_stubs() -> None:
    """Write the stubs of the bindings, which an editable install asks for."""
    stubs = PACKAGE / "bindings"
    stubs.mkdir(exist_ok=True)
    (stubs / "__init__.pyi").write_text("# a stand-in of k3env's sandbox\n", encoding="utf-8")


def main(args: argparse.Namespace) -> None:
    """Go through the steps in the order of the real script."""
    if args.build_type != "Release" and args.cuda_architectures is None:
        raise RuntimeError(f"Building with {args.build_type} needs --cuda_architectures: all of them are too large")
    if args.cuda_architectures and "70-real" in args.cuda_architectures:
        raise RuntimeError("Volta architecture is deprecated support.")
    if args.install:
        raise RuntimeError("--install writes into the launching Python; this stand-in does not: pip install -e .")
    update_submodules()
    python = environment(args.no_venv)
    if not args.skip_requirements:
        run([python, "-m", "pip", "install", "-r", "requirements-dev.txt"])
    name = "build" if args.build_type == "Release" else f"build_{args.build_type}"
    build = Path(args.build_dir or ROOT / "cpp" / name).resolve()
    dist = Path(args.dist_dir or ROOT / "build").resolve()
    if args.clean:
        clear(build)
    if args.clean or args.clean_wheel:
        clear(dist)
    generate_fmha(args.clean or args.generate_fmha)
    is_first = not (build / "CMakeFiles").exists()
    if args.clean or is_first or args.configure_cmake or args.configure_only:
        configure(args, build, python)
    if args.configure_only:
        return
    say(f"-- cmake --build {build} --parallel {args.job_count}: one by one in this stand-in")
    stand_in_cmake.compile_all(build, (f"tensorrt_llm/{name}" for name in LIBRARIES), lambda: stop_at("compiling"))
    if args.cpp_only:
        return
    copy(build, link=args.linking_install_binary and args.skip_building_wheel)
    if not args.skip_stubs:
        write_stubs()
    if not args.skip_building_wheel:
        run([python, "-m", "pip", "wheel", "--no-deps", "--wheel-dir", dist, "."])
    say("-- Done: a stand-in of k3env's sandbox was built")


def parser() -> argparse.ArgumentParser:
    """Return the flags of the real script, and none besides."""
    cores = len(os.sched_getaffinity(0))
    flags = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    flags.add_argument("--build_type", "-b", default="Release", choices=["Release", "RelWithDebInfo", "Debug"])
    flags.add_argument("--generator", "-G", default="", help="CMake generator, such as Ninja")
    flags.add_argument("--cuda_architectures", "-a", help="CUDA architectures, such as 103-real")
    flags.add_argument("--install", "-i", action="store_true", help="install in editable mode")
    flags.add_argument("--clean", "-c", action="store_true", help="empty the build directory first")
    flags.add_argument("--clean_wheel", action="store_true", help="empty the directory of wheels first")
    flags.add_argument("--configure_cmake", action="store_true", help="configure again")
    flags.add_argument("--configure-only", action="store_true", help="configure and stop")
    flags.add_argument("--use_ccache", action="store_true", help="compile through ccache")
    flags.add_argument("--use-3rdparty-cache", action="store_true", help="keep fetched sources in a cache")
    flags.add_argument("--fast_build", "-f", action="store_true", help="leave kernels out")
    flags.add_argument("--job_count", "-j", type=int, nargs="?", const=cores, default=cores, help="parallel jobs")
    flags.add_argument("--cpp_only", "-l", action="store_true", help="build C++ only")
    flags.add_argument("--extra-cmake-vars", "-D", action="append", default=[], help="more CMake variables")
    flags.add_argument("--extra-make-targets", nargs="+", default=[], help="more targets")
    flags.add_argument("--skip_building_wheel", "-s", action="store_true", help="build no wheel")
    flags.add_argument("--linking_install_binary", action="store_true", help="link libraries instead of copying")
    flags.add_argument("--no-venv", dest="no_venv", action="store_true", help="use the current interpreter")
    flags.add_argument("--skip_requirements", action="store_true", help="install no requirements")
    flags.add_argument("--nvrtc_dynamic_linking", action="store_true", help="link NVRTC dynamically")
    for name in ("nccl", "nixl", "mooncake"):
        flags.add_argument(f"--{name}_root", help=f"directory of {name}")
    flags.add_argument("--internal-cutlass-kernels-root", help="directory of kernel sources")
    flags.add_argument("--skip-stubs", action="store_true", help="write no stubs")
    flags.add_argument("--generate_fmha", action="store_true", help="generate the attention kernels again")
    flags.add_argument("--micro_benchmarks", action="store_true", help="build micro benchmarks")
    flags.add_argument("--nvtx", action="store_true", help="build with NVTX")
    flags.add_argument("--mypyc", action="store_true", help="compile Python with mypyc")
    flags.add_argument("--plat-name", help="platform of the wheel")
    flags.add_argument("--require_dynamic_attributions", action="store_true", help="fail without attributions")
    flags.add_argument("--version-override", help="another version")
    flags.add_argument("--build_dir", help="build directory")
    flags.add_argument("--dist_dir", help="directory of wheels")
    flags.add_argument("--yes", "-y", action="store_true", help="ask nothing")
    return flags


if __name__ == "__main__":
    main(parser().parse_args())
