"""What a build in place does to a checkout, without building: for the tests of trtllm_build.

It notes its arguments in $FAKE_CALLS. FAKE_FAIL prints that text and fails; FAKE_STOP ends it between emptying and
copying; FAKE_FORGET leaves that artefact out; FAKE_OLD makes it one of an earlier age, FAKE_ROOTS one with build roots.
While the file FAKE_WAIT is there it compiles, and heeds no SIGTERM.
"""

import argparse
import os
import shutil
import signal
import sys
import sysconfig
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = os.path.join(ROOT, "tensorrt_llm")
BUILD = os.path.join(ROOT, "cpp", "build")
TAG = sysconfig.get_config_var("EXT_SUFFIX")
ARTEFACTS = (
    *(f"libs/{name}.so" for name in ("libtensorrt_llm", "libth_common", "libdecoder_attention_0", "libpg_utils")),
    "libs/libdecoder_attention_1.so",
    "libs/libtensorrt_llm_nixl_wrapper.so",
    f"bindings{TAG}",
    f"deep_gemm_cpp_tllm{TAG}",
    "deep_gemm/__init__.py",
    "include/deep_gemm/gemm.cuh",
    "bindings/__init__.pyi",
    f"runtime/kv_cache_manager_v2/rawref/_rawref{TAG}",
)


def parsed():
    flags = argparse.ArgumentParser()
    flags.add_argument("--cuda_architectures", "-a")
    flags.add_argument("--skip_building_wheel", "-s", action="store_true")
    flags.add_argument("--configure_cmake", action="store_true")
    flags.add_argument("--clean", "-c", action="store_true")
    if "FAKE_OLD" not in os.environ:
        flags.add_argument("--yes", "-y", action="store_true")
        flags.add_argument("--job_count", "-j", type=int)
        flags.add_argument("--build_dir", default=BUILD)
    if "FAKE_ROOTS" in os.environ:
        flags.add_argument("--build_root", default=os.environ.get("TRTLLM_BUILD_ROOT"))
    return flags.parse_args()


def configure(arch, build):
    os.makedirs(build, exist_ok=True)
    with fresh(os.path.join(build, "CMakeCache.txt")) as file:
        file.write(f"CMAKE_CUDA_ARCHITECTURES:STRING={os.environ.get('FAKE_REWRITE') or arch}\n".encode())
        file.write(f"CMAKE_HOME_DIRECTORY:INTERNAL={ROOT}/cpp\n".encode())


def fresh(path):
    """Open a file that is a new one: the tests link trees to each other."""
    if os.path.exists(path):
        os.unlink(path)
    return open(path, "wb")


def main():
    args = parsed()
    with open(os.environ["FAKE_CALLS"], "a", encoding="utf-8") as file:
        file.write(" ".join(sys.argv[1:]) + "\n")
    version = "{}.{}".format(*sys.version_info)
    build_root = getattr(args, "build_root", None)
    venv = os.path.join(build_root, f"venv-{version}") if build_root else os.path.join(ROOT, f".venv-{version}")
    if not os.path.exists(venv):
        shutil.copytree(os.environ["FAKE_VENV"], venv, symlinks=True, copy_function=os.link)
    if "FAKE_FAIL" in os.environ:
        print(os.environ["FAKE_FAIL"])
        raise SystemExit(1)
    build = getattr(args, "build_dir", BUILD)
    if args.clean:
        shutil.rmtree(build)
    if args.configure_cmake or not os.path.exists(build):
        configure(args.cuda_architectures, build)
    while os.path.exists(os.environ.get("FAKE_WAIT", "")):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("[  5%] Building CUDA object", flush=True)
        time.sleep(0.2)
    for percent in (10, 50, 100):
        print(f"[{percent:3}%] Building CUDA object", flush=True)
    for folder in ("libs", "include", "deep_gemm"):
        shutil.rmtree(os.path.join(PACKAGE, folder), ignore_errors=True)
    shutil.rmtree(os.environ.get("TRTLLM_DG_CACHE_DIR") or os.path.expanduser("~/.tensorrt_llm"), ignore_errors=True)
    if "FAKE_STOP" in os.environ:
        os.abort()
    for name in ARTEFACTS:
        path = os.path.join(PACKAGE, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if name != os.environ.get("FAKE_FORGET"):
            with fresh(path) as file:
                file.write(b"\x7fELF" + str(time.time_ns()).encode())


main()
