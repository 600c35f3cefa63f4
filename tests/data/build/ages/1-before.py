"""A stand-in of TensorRT LLM's scripts/build_wheel.py before Kimi K3: its flags, telling words, and steps."""

import argparse

import steps

MODULES = ".gitmodules"


def parser() -> argparse.ArgumentParser:
    flags = argparse.ArgumentParser()
    flags.add_argument("--build_type", "-b", default="Release", choices=["Release", "RelWithDebInfo", "Debug"])
    flags.add_argument("--generator", "-G", default="")
    flags.add_argument("--cuda_architectures", "-a")
    flags.add_argument("--install", "-i", action="store_true")
    flags.add_argument("--clean", "-c", action="store_true")
    flags.add_argument("--clean_wheel", action="store_true")
    flags.add_argument("--configure_cmake", action="store_true")
    flags.add_argument("--use_ccache", action="store_true")
    flags.add_argument("--fast_build", "-f", action="store_true")
    flags.add_argument("--job_count", "-j", type=int, nargs="?", const=1)
    flags.add_argument("--cpp_only", "-l", action="store_true")
    flags.add_argument("--extra-cmake-vars", "-D", action="append", default=[])
    flags.add_argument("--skip_building_wheel", "-s", action="store_true")
    flags.add_argument("--linking_install_binary", action="store_true")
    flags.add_argument("--no-venv", action="store_true")
    flags.add_argument("--trt_root")
    flags.add_argument("--nccl_root")
    flags.add_argument("--benchmarks", action="store_true")
    flags.add_argument("--build_dir")
    flags.add_argument("--dist_dir")
    flags.add_argument("--extra-make-targets", nargs="+", default=[])
    flags.add_argument("--micro_benchmarks", action="store_true")
    flags.add_argument("--nvtx", action="store_true")
    flags.add_argument("--internal-cutlass-kernels-root")
    return flags


if __name__ == "__main__":
    steps.run(parser().parse_args(), __file__, submodules=MODULES)
