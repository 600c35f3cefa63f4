"""Configure and compile the miniature: a stand-in of k3env's sandbox for CMake and what it builds.

Like CMake it keeps its answers in CMakeCache.txt, and compiling takes the architecture from there, not from the
command line. The libraries are real ones: by the C compiler where there is one, else written byte by byte.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

NOTE = "a stand-in of k3env's sandbox"
ARCHITECTURE = re.compile(r"[1-9][0-9]+a?(-real)?\Z")
TYPES = {"CMAKE_BUILD_TYPE": "STRING", "CMAKE_CUDA_ARCHITECTURES": "STRING", "NVRTC_DYNAMIC_LINKING": "BOOL"}
KERNELS = tuple(f"kernels/{family}/{family}_{part}" for family in ("mla", "kda", "moe", "mhc") for part in range(8))

# What a failure prints, by the step in which it comes. Wording: public build logs of TensorRT LLM.
FAILURES = {
    "configure": {
        "nvrtc": 'CMake Error at tensorrt_llm/CMakeLists.txt (target_link_libraries):\n  Target "tensorrt_llm" links '
        "to:\n\n    CUDA::nvrtc_static\n\n  but the target was not found.",
        "fetch": "fatal: unable to access 'https://github.com/nlohmann/json.git/': Could not resolve host: github.com\n"
        "CMake Error: Build step for json failed: 1",
    },
    "compile": {
        "oom": "c++: fatal error: Killed signal terminated program cc1plus\ncompilation terminated.",
        "disk": "fatal error: error writing to /tmp/cc0.s: No space left on device",
    },
    "link": {
        "lfs": "/usr/bin/ld: libtensorrt_llm_nvrtc_wrapper.a: file not recognized: file format not recognized\n"
        "collect2: error: ld returned 1 exit status",
    },
}


def configure(source: Path, build: Path, generator: str, values: dict[str, str]) -> None:
    """Check the architectures and write CMakeCache.txt; earlier values stay where no new one is given."""
    cache = read_cache(build)
    _check_home(source, build, cache)
    _say_version("cmake")
    if shutil.which("nvcc") is None:
        _error("CMake Error: Failed to find nvcc.\n\n  Compiler requires the CUDA toolkit.")
    _say_version("nvcc")
    _fail("configure")
    _check_architectures(values["CMAKE_CUDA_ARCHITECTURES"])
    cache.update(values)
    cache["CMAKE_GENERATOR"] = generator or cache.get("CMAKE_GENERATOR") or "Unix Makefiles"
    cache["CMAKE_HOME_DIRECTORY"] = str(source)
    (build / "CMakeFiles").mkdir(parents=True, exist_ok=True)
    lines = [f"# This is the CMakeCache file, written by {NOTE}."]
    for key, value in sorted(cache.items()):
        internal = key in ("CMAKE_GENERATOR", "CMAKE_HOME_DIRECTORY")
        lines.append(f"{key}:{'INTERNAL' if internal else TYPES.get(key, 'UNINITIALIZED')}={value}")
    (build / "CMakeCache.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    for family in ("deep_ep", "flash_mla"):
        folder = build / "tensorrt_llm" / family
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "cuda_architectures.txt").write_text(cache["CMAKE_CUDA_ARCHITECTURES"] + "\n", encoding="utf-8")
    print(f"-- Build files have been written to: {build}", flush=True)


def read_cache(build: Path) -> dict[str, str]:
    """Return what an earlier configure left."""
    path = build / "CMakeCache.txt"
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = (re.match(r"([^#/:][^:]*):[A-Z]+=(.*)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def compile_all(build: Path, libraries: Iterable[str], half_way: Callable[[], None]) -> None:
    """Compile what is missing or was compiled for another architecture; show progress as make and ninja do."""
    cache = read_cache(build)
    _check_home(Path(__file__).resolve().parent, build, cache)
    architecture = cache["CMAKE_CUDA_ARCHITECTURES"]
    is_ninja = cache["CMAKE_GENERATOR"] == "Ninja"
    names = list(libraries)
    total = len(KERNELS) + len(names)
    pause = float(os.environ.get("K3ENV_MINIATURE_SECONDS") or 3) / len(KERNELS)

    def progress(done: int, text: str) -> None:
        print(f"[{done}/{total}] {text}" if is_ninja else f"[{100 * done // total:3}%] {text}", flush=True)

    for done, kernel in enumerate(KERNELS, start=1):
        obj = build / "tensorrt_llm" / f"{kernel}.cu.o"
        if not _is_for(obj, architecture):
            progress(done, f"Building CUDA object tensorrt_llm/{kernel}.cu.o")
            time.sleep(pause)
            obj.parent.mkdir(parents=True, exist_ok=True)
            obj.write_text(f"{kernel} for {architecture}, {NOTE}\n", encoding="utf-8")
        if done == len(KERNELS) // 2:
            half_way()
            _fail("compile")
    _fail("link")
    for done, name in enumerate(names, start=len(KERNELS) + 1):
        if not _is_for(build / name, architecture):
            progress(done, f"Linking CXX shared library {name}")
            _link(build / name, f"{name} for {architecture}, {NOTE}")
    if not is_ninja:
        print("[100%] Built target build_wheel_targets", flush=True)


def _say_version(tool: str) -> None:
    done = subprocess.run([tool, "--version"], check=True, stdout=subprocess.PIPE, text=True)
    print(done.stdout.strip(), flush=True)


def _is_for(path: Path, architecture: str) -> bool:
    return path.is_file() and f" for {architecture}, ".encode() in path.read_bytes()


def _link(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        path.write_bytes(placeholder(text))
        return
    source = path.with_name(f"{path.name}.c")
    source.write_text(f'const char *k3env_stand_in(void) {{ return "{text}"; }}\n', encoding="utf-8")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", path, source], check=True)


def placeholder(text: str) -> bytes:
    """Return a shared library without a function that the loader takes: header, two segments, an empty symbol table.

    Layout: the System V ABI's chapters on ELF and dynamic linking, 64 bit; byte order and machine as in this Python.
    """
    ident = Path("/proc/self/exe").read_bytes()[:20]
    order = "<" if ident[5] == 1 else ">"
    machine = struct.unpack(f"{order}H", ident[18:20])[0]
    strings = b"\0" + text.encode() + b"\0"
    symbols_at, dynamic_at = 64 + 2 * 56, 64 + 2 * 56 + 24
    strings_at = dynamic_at + 5 * 16
    size = strings_at + len(strings)
    header = ident[:16] + struct.pack(
        f"{order}HHIQQQIHHHHHH", 3, machine, 1, 0, 64, 0, 0, 64, 56, 2, 64, 0, 0
    )  # ET_DYN, no entry, two program headers, no sections
    load = struct.pack(f"{order}IIQQQQQQ", 1, 6, 0, 0, 0, size, size, 0x10000)
    dynamic = struct.pack(f"{order}IIQQQQQQ", 2, 6, dynamic_at, dynamic_at, dynamic_at, 80, 80, 8)
    # DT_STRTAB, DT_SYMTAB, DT_STRSZ, DT_SYMENT, DT_NULL
    entries = ((5, strings_at), (6, symbols_at), (10, len(strings)), (11, 24), (0, 0))
    table = b"".join(struct.pack(f"{order}QQ", *entry) for entry in entries)
    return header + load + dynamic + bytes(24) + table + strings


def _check_home(source: Path, build: Path, cache: dict[str, str]) -> None:
    home = cache.get("CMAKE_HOME_DIRECTORY", str(source))
    if home != str(source):
        _error(
            f'CMake Error: The source "{source}" does not match the source "{home}" used to generate cache.  '
            "Re-run cmake with a different source directory."
        )


def _check_architectures(wanted: str) -> None:
    for one in wanted.split(";"):
        if one in ("native", "all"):
            continue
        if one.endswith("-virtual"):
            _error(
                "CMake Error at cmake/modules/cuda_configuration.cmake (message):\n  Including PTX in compiled "
                "binary is unsupported."
            )
        if not ARCHITECTURE.match(one):
            _error(
                f"CMake Error at cmake/modules/cuda_configuration.cmake (message):\n  Unrecognized CUDA "
                f"architecture: {one}"
            )


def _fail(step: str) -> None:
    text = FAILURES[step].get(os.environ.get("K3ENV_MINIATURE_FAIL", ""))
    if text:
        if step != "configure":
            text += "\ngmake[3]: *** [tensorrt_llm/CMakeFiles/tensorrt_llm.dir/build.make] Error 1"
        _error(text)


def _error(text: str) -> None:
    print(text, flush=True)
    raise subprocess.CalledProcessError(1, "cmake")
