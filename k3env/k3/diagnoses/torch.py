"""What it means when extensions of PyTorch, and Triton's kernels, can't be compiled."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import Diagnosis

TORCH = (
    Diagnosis(
        "build.torch_arch",
        r"Unknown CUDA arch \(|Unknown CUDA Architecture Name|Unknown CUDA arch",
        "PyTorch does not know a GPU that is asked for, or was asked for none",
        "set TORCH_CUDA_ARCH_LIST in the task's environment: 10.3 for GB300 and B300, 10.0 for GB200 and "
        "B200; or use a newer PyTorch",
        "torch/utils/cpp_extension.py; pytorch/vision#7198",
    ),
    Diagnosis(
        "build.torch_no_arch",
        r"IndexError: list index out of range",
        "an extension of PyTorch is built where no GPU is seen, and it is not told for which",
        "set TORCH_CUDA_ARCH_LIST in the task's environment: 10.3 for GB300 and B300, 10.0 for GB200 and B200",
        "torch/utils/cpp_extension.py",
        also=r"_get_cuda_arch_flags|arch_list\[",
    ),
    Diagnosis(
        "build.standard",
        r"C\+\+(14|17|20|23) (or later )?(compatible )?compiler is required|You need C\+\+(14|17|20)"
        r"|requires (at least )?C\+\+(14|17|20)|C\+\+ versions less than C\+\+(14|17|20) are not supported",
        "the sources are compiled for an older C++ than the headers ask for",
        "build a version of the package that fits this PyTorch and CUDA, or name the standard: "
        "CXXFLAGS=-std=c++17, NVCC_APPEND_FLAGS=-std=c++17 (c++20)",
        "torch, c10/util/C++17.h; CCCL",
    ),
    Diagnosis(
        "build.nvcc_option",
        r"nvcc fatal +: (Unknown option|A single input file|Value '[^']*' is not defined for option"
        r"|No input files|redefinition of|'[^']*': expected a number|Don't know what to do with|Stopping)"
        r"|nvcc fatal: Unknown option",
        "nvcc does not take the options that it is called with: it is older, or newer, than who calls it expects",
        "have the nvcc first in PATH, and CUDA_HOME, of the image's CUDA; see NVCC_PREPEND_FLAGS and "
        "NVCC_APPEND_FLAGS; remove the cache of an older version",
        "nvcc's own words",
    ),
    Diagnosis(
        "build.packs",
        r"parameter packs not expanded with|std_function\.h:\d+:\d+: error",
        "nvcc does not understand the headers of this host compiler: the compiler is newer than it",
        "let CUDAHOSTCXX (CC, CXX) name an older g++, or have the image's nvcc first in PATH",
        "CUDA 11 with GCC 11",
    ),
    Diagnosis(
        "build.ninja",
        r"Ninja is required to load C\+\+ extensions"
        r"|unable to find a build program corresponding to \"?Ninja|No such file or directory: 'ninja'"
        r"|ninja: (command )?not found",
        "ninja is missing",
        "install it (`pip install ninja`, apt-get install ninja-build), or build in the devel image",
        "torch/utils/cpp_extension.py; CMake",
    ),
    Diagnosis(
        "build.make_program",
        r"unable to find a build program corresponding to|CMAKE_MAKE_PROGRAM is not set"
        r"|^make: (command )?not found|sh: (\d+: )?make: not found",
        "make is missing",
        "install it (apt-get install build-essential), or build in the devel image",
        "CMake",
        follows=True,
    ),
    Diagnosis(
        "build.ptxas_version",
        r"ptxas fatal +: (?!Memory)",
        "ptxas does not take what nvcc, or Triton, gives it: they are of different CUDA versions",
        "let TRITON_PTXAS_PATH name the image's own ptxas (/usr/local/cuda/bin/ptxas), and have its nvcc first in PATH",
        "triton-lang/triton#8539; ptxas' own words",
        follows=True,
    ),
    Diagnosis(
        "build.triton_cuda",
        r"Triton only support CUDA",
        "this Triton is older than the CUDA that is found",
        "use the Triton that belongs to this PyTorch; let TRITON_PTXAS_PATH name a ptxas that it knows",
        "triton, backends/nvidia/compiler.py",
    ),
)
