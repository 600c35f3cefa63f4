"""What it means when what is compiled, or linked, does not fit."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import IMAGE, IMAGE_ARCH, Diagnosis

GIVEN = (
    Diagnosis(
        "build.too_large",
        r"relocation truncated to fit|relocation overflow|section .* exceeds",
        "the library grew too large to be linked: kernels for too many GPUs",
        "set trtllm_arch to this GPU's alone: 103-real or 100-real",
        "GNU ld's own words",
    ),
    Diagnosis(
        "build.driver_library",
        r"lib(cuda|nvidia-ml)\.so\.1: cannot open shared object file|cannot find -lcuda\b"
        r"|No rule to make target .*libcuda\.so"
        r"|undefined reference to .cu(Mem|Get|Ctx|Device|Module|Launch|Init|Func|Stream|Tensor)\w*'",
        "the CUDA driver's library is not found, to link with or to load: neither a driver nor CUDA's stubs are there",
        "build on a GPU node, or in an image with $CUDA_HOME/lib64/stubs",
        "scripts/build_wheel.py, generate_python_stubs_linux; #2757",
    ),
    Diagnosis(
        "build.fmha",
        r"FMHA generation produced no|fmha_v2_cu.*No such file",
        "the attention kernels were not generated, or only in part",
        "remove cpp/tensorrt_llm/kernels/contextFusedMultiHeadAttention/fmha_v2_cu, and build again",
        "scripts/build_wheel.py, generate_fmha_cu",
    ),
    Diagnosis(
        "build.cubin",
        r"\bcubin\S*\.(cpp|cu|h): No such file or directory|'\S+\.(cpp|cuh?|cc?|h|hpp|cubin"
        r"|o)', needed by .*missing and no known rule to make it"
        r"|No rule to make target '\S+\.(cpp|cuh?|cc?|h|hpp|cubin|o)', needed",
        "the build directory names files that another commit had",
        "build by hand with --clean, or remove cpp/build",
        "#625",
    ),
    Diagnosis(
        "build.image_arch",
        r"file in wrong format|Relocations in generic ELF|unrecognized command-line option .-m(avx|sse|arch=(x86"
        r"|native))",
        "objects of two processors are mixed: GB200 and GB300 hosts are aarch64",
        f"{IMAGE_ARCH}; if the checkout was built on another processor, remove cpp/build",
        "GNU ld's own words",
    ),
    Diagnosis(
        "build.abi",
        r"undefined reference to .*std::(string|__cxx11::)|pre_cxx11\.a\(.*in function",
        "libraries of two C++ ABIs are linked: PyTorch, TensorRT and the checkout were not built alike",
        IMAGE,
        "#277; triton-inference-server/tensorrtllm_backend#542",
    ),
    Diagnosis(
        "build.not_found",
        r"variables are used in this project, but they are set to NOTFOUND",
        "CMake does not find libraries that the build links with",
        IMAGE,
        "CMake's own words; NVIDIA/TensorRT#700",
    ),
    Diagnosis(
        "build.library",
        r"cannot find (-l\w+|/\S+\.(a|so))",
        "a library to link with is not installed: the image is no devel image",
        IMAGE,
        "GNU ld's own words",
    ),
    Diagnosis(
        "build.compiler_crash",
        r"internal compiler error|(nvcc|cicc|ptxas|cudafe\+\+).*died (due|with)|Please submit a full bug report"
        r"|: internal error: |PLEASE submit a bug report|LLVM ERROR: |fatal error: error in backend"
        r"|Internal compiler error",
        "a compiler crashed: memory ran short, or it has a fault",
        "build again with a lower trtllm_jobs; if it stays, with the image's own compiler",
        "GCC's and nvcc's own words",
    ),
    Diagnosis(
        "build.compiler_broken",
        r"is not able to compile a simple test program|compiler identification is unknown",
        "the compiler can't compile a test program",
        f"see CMakeFiles/CMakeConfigureLog.yaml (CMakeError.log before CMake 3.26) in cpp/build; {IMAGE}",
        "CMake, CMakeTestCUDACompiler",
        follows=True,
    ),
    Diagnosis(
        "build.launcher",
        r"Command '\['\S*(gcc|cc|clang)',.*(cuda_utils|launcher|main\.c)",
        "Triton can't compile its launcher: headers of Python, or a libcuda to link with, are not there",
        "run it on a GPU node, in a devel or release-style image; TRITON_LIBCUDA_PATH names another directory of "
        "libcuda.so",
        "luka-group/mDPO#14; state-spaces/mamba#123",
    ),
    Diagnosis(
        "build.pic",
        r"recompile with -fPIC|can not be used when making a shared object",
        "a static library that is linked into a shared one was not built for that",
        "use the image's own libraries; build the named one with -fPIC (CMAKE_POSITION_INDEPENDENT_CODE=ON)",
        "GNU ld's own words",
    ),
    Diagnosis(
        "build.object_broken",
        r"\.o: file (not recognized|truncated)|file not recognized: file truncated|malformed archive"
        r"|error adding symbols: (file truncated|bad value|archive has no index)",
        "a file that was compiled before is damaged: a build that was cut off, a full disk, or a cache",
        "remove cpp/build, and what ccache kept (`ccache -C`); see `df -h`",
        "GNU ld's own words",
    ),
    Diagnosis(
        "build.option",
        r"unrecogni[sz]ed command[- ]line option|unrecogni[sz]ed argument in option"
        r"|clang\S*: error: unknown argument|error: unknown (target CPU|value .* for .-m)",
        "the compiler does not know an option: it is older than the sources expect, or for another processor",
        "have the image's own compiler first in PATH; see CC, CXX, CFLAGS and CXXFLAGS",
        "GCC's and clang's own words",
        near=r"(?i)\b(gcc|g\+\+|cc1|cc1plus|c\+\+|clang\S*|nvcc|compil\w+|\.cp?p?|\.cu)\b",
    ),
    Diagnosis(
        "build.x86",
        r"(immintrin|x86intrin|emmintrin|xmmintrin|cpuid|nmmintrin|smmintrin)\.h: No such file"
        r"|only meant to be used on x86",
        "the sources are written for x86-64 processors: GB200 and GB300 hosts are aarch64",
        "ask for a version of the package that knows aarch64",
        "GCC's own words",
    ),
    Diagnosis(
        "build.libc",
        r"cannot find (S?crt1|crti|crtbegin\w*)\.o|fatal error: (stdio|stdlib|bits/\S+|features|sys/cdefs"
        r"|linux/\S+|asm/\S+|string|cstdint|iostream|cmath|assert)(\.h)?: No such file",
        "the headers of the C library are not installed: the image is no devel image",
        "build in the devel image; else apt-get install build-essential (libc6-dev, linux-libc-dev)",
        "GCC's own words",
    ),
    Diagnosis(
        "build.cuda_symbols",
        r"undefined (reference to|symbol: ?) ?.(nccl[A-Z]\w+|cublas\w+|cudnn\w+|cusparse\w+|cufft\w+|curand\w+"
        r"|cusolver\w+|nvrtc\w+|nvJitLink\w+|cudaGraph\w+|cudaMem\w+|cudaLaunch\w+|__cuda\w+)",
        "a library of CUDA or NCCL is not linked, or is of another version than its headers",
        "have one CUDA alone in PATH, LIBRARY_PATH and LD_LIBRARY_PATH, the image's own; nothing of conda or of "
        "pip's nvidia-* before it",
        "GNU ld's own words; pytorch#10442",
        follows=True,
    ),
    Diagnosis(
        "build.nvlink",
        r"nvlink (error|fatal)",
        "device code can not be linked: a library of kernels was built with other options, or for another GPU, "
        "than what calls it",
        "build the named library anew, with the same nvcc and architectures (NVSHMEM needs IBGDA for DeepEP)",
        "nvlink's own words; deepseek-ai/DeepEP#55",
    ),
    Diagnosis(
        "build.header",
        r"fatal error: \S+\.(h|hpp|cuh|hh): No such file|cannot open source file \"[^\"]+\"|\S+\.(h|hpp"
        r"|cuh)\'? file not found",
        "a header is not found: its package is not installed, or its submodule was not fetched",
        "see what the header belongs to; for one of third parties run `git submodule update --init "
        "--recursive`, for one of the system build in the devel image",
        "GCC's and nvcc's own words",
        follows=True,
    ),
)
