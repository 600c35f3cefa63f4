"""What the stand-ins of the build script do, beside their flags: where things go, and when they configure.

Nothing is compiled. A CMakeCache.txt is written as CMake would, and the last line says as JSON what was done.
"""

import argparse
import configparser
import hashlib
import json
import os
import shutil
import sys
from pathlib import Path

ROOT_VARIABLE = "TRTLLM_BUILD_ROOT"
FMHA = "cpp/tensorrt_llm/kernels/contextFusedMultiHeadAttention/fmha_v2_cu"


def run(args: argparse.Namespace, script: str, *, submodules: str = "", stamp: str = "", fingerprint: str = "") -> None:
    """Go through the steps; a word that an age does not have is empty."""
    root = Path(script).resolve().parent.parent
    has_roots = hasattr(args, "build_root")
    build_root = (args.build_root or os.environ.get(ROOT_VARIABLE)) if has_roots else None
    if has_roots and args.out_of_tree:
        refuse_out_of_tree(args, build_root)
    if submodules:
        modules = configparser.ConfigParser()
        with (root / submodules).open(encoding="utf-8") as file:
            modules.read_file(file)
    venv = environment(args, root, build_root)
    build = build_dir(args, root, build_root)
    build.mkdir(parents=True, exist_ok=True)
    if args.clean:
        for item in build.iterdir():
            shutil.rmtree(item) if item.is_dir() else item.unlink()
    generated = generate(root / FMHA, stamp, args.clean or getattr(args, "generate_fmha", False))
    values = {
        "CMAKE_BUILD_TYPE": args.build_type,
        "CMAKE_CUDA_ARCHITECTURES": args.cuda_architectures or "all",
        "CMAKE_HOME_DIRECTORY": str(root / "cpp"),
        "NVRTC_DYNAMIC_LINKING": "ON" if getattr(args, "nvrtc_dynamic_linking", False) else "OFF",
        "Python3_EXECUTABLE": f"{venv}/bin/python3",
    }
    now = hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
    marker = build / (fingerprint or "none")
    is_other = bool(fingerprint) and not (marker.exists() and marker.read_text() == now)
    is_first = not (build / "CMakeFiles").exists()
    configured = is_first or args.clean or args.configure_cmake or is_other
    if configured:
        configure(build, values)
        if fingerprint:
            marker.write_text(now)
    print(json.dumps({"venv": venv, "build": str(build), "configured": configured, "generated": generated}))


def refuse_out_of_tree(args: argparse.Namespace, build_root: str | None) -> None:
    if not build_root:
        raise RuntimeError("--out-of-tree requires --build_root")
    for name in ("skip_building_wheel", "linking_install_binary", "install"):
        if getattr(args, name):
            raise RuntimeError(f"--out-of-tree can't be combined with --{name}")


def environment(args: argparse.Namespace, root: Path, build_root: str | None) -> str:
    """Make the environment where the age makes it, unless it is there, whatever it is."""
    if args.no_venv or sys.prefix != sys.base_prefix:
        return sys.prefix
    version = "{}.{}".format(*sys.version_info)
    venv = Path(build_root) / f"venv-{version}" if build_root else root / f".venv-{version}"
    venv.mkdir(parents=True, exist_ok=True)
    return str(venv)


def build_dir(args: argparse.Namespace, root: Path, build_root: str | None) -> Path:
    kind = "" if args.build_type == "Release" else f"_{args.build_type}"
    if args.build_dir:
        return Path(args.build_dir)
    if build_root:
        return Path(build_root) / f"cpp-build{kind}{'-oot' if args.out_of_tree else ''}"
    return root / "cpp" / f"build{kind}"


def generate(output: Path, stamp: str, force: bool) -> bool:
    """Generate the attention kernels; without a stamp, a directory is believed to hold all of them."""
    if not force and ((output / stamp).exists() if stamp else output.exists()):
        return False
    output.mkdir(parents=True, exist_ok=True)
    (output / (stamp or "kernel_sm103.cu")).touch()
    return True


def configure(build: Path, values: dict[str, str]) -> None:
    """Write the cache, in which what was said before stays; CMake refuses one of another source directory."""
    cache = build / "CMakeCache.txt"
    before = (
        dict(line.replace(":STRING", "").split("=", 1) for line in cache.read_text().splitlines())
        if (cache.exists())
        else {}
    )
    if before and before["CMAKE_HOME_DIRECTORY"] != values["CMAKE_HOME_DIRECTORY"]:
        raise RuntimeError("CMake Error: the source does not match the source used to generate cache")
    (build / "CMakeFiles").mkdir(exist_ok=True)
    cache.write_text("".join(f"{name}:STRING={value}\n" for name, value in {**before, **values}.items()))
