"""What it means when compilers and linkers fail: first what they lack, last what is wrong with what they are given."""

from __future__ import annotations

from k3env.k3.diagnoses.diagnosis import DISK, IMAGE, LFS, Diagnosis

LACKING = (
    Diagnosis(
        "build.disk",
        r"(?i:no space left on device|disk quota exceeded)|Errno 28\b|Errno 122\b",
        "the disk or the quota is full",
        DISK,
        "public build logs; docs/source/installation/build-from-source-linux.md",
    ),
    Diagnosis(
        "build.stale_handle",
        r"(?i:stale (nfs )?file handle)|Errno 116\b",
        "a file on a shared filesystem vanished while it was used",
        "see that no other node works in this checkout, and that CCACHE_DIR and TRITON_CACHE_DIR are the node's own; "
        "then run it again",
        "ccache#68; pytorch#173679",
    ),
    Diagnosis(
        "build.lfs_pointer",
        r"(?<!\.o: file not recognized: )file format not recognized|treating as linker script"
        r"|version https://git-lfs\.github\.com/spec/v1",
        "a library or source in the checkout is a Git LFS pointer, not the file itself",
        LFS,
        "#28, #72; triton-inference-server/tensorrtllm_backend#38, #44",
    ),
    Diagnosis(
        "build.memory",
        r"Killed signal terminated program|died due to signal 9|\bcc1plus\b.*\bKilled\b|virtual memory exhausted"
        r"|cc1plus: out of memory|std::bad_alloc"
        r"|(?i:cannot allocate memory(?! in static))"
        r"|ld terminated with signal 9|\bKilled +\S*(nvcc|cicc|ptxas|cudafe|c\+\+|g\+\+|gcc|ld)\b"
        r"|oom[-_]kill|Out Of Memory|internal compiler error: Killed|LLVM ERROR: out of memory|ptxas fatal +: Memory"
        r"|collect2: fatal error: ld terminated with signal 9",
        "the kernel ended a compiler because memory ran out",
        "set trtllm_jobs lower (4 GiB for each job), or build where there is more memory",
        "#186, #523, #824, #1028",
    ),
    Diagnosis(
        "build.temporary",
        r"cannot open source file \"/tmp/|/tmp/tmpxft_\S+.*(No such file|cannot open)"
        r"|error: unable to open output file '/tmp"
        r"|/tmp/cc\w+\.(s|o|res)\b.*(No such file|can't open)|Error: can't open /tmp/cc",
        "a compiler's temporary file is gone: something empties the directory, or it is full",
        "let TMPDIR in the task's environment name a directory on a local disk with room, and run it again",
        "#1412",
    ),
    Diagnosis(
        "build.processes",
        r"fork.*Resource temporarily unavailable|pthread_create.*Resource temporarily|can't start new thread"
        r"|posix_spawn.*Resource temporarily unavailable",
        "the limit of processes and threads was reached",
        "raise `ulimit -u` and the pids limit of the container or job; or, for a build, set trtllm_jobs lower",
        "fork(2), EAGAIN",
    ),
    Diagnosis(
        "build.files",
        r"(?i:too many open files)|Errno 24\b",
        "the limit of open files was reached",
        "raise it: `ulimit -n 65536`, or the container's --ulimit nofile",
        "open(2), EMFILE",
    ),
    Diagnosis(
        "build.nvrtc_static",
        r"CUDA::nvrtc_static|nvrtc_static.*not found|cannot find -lnvrtc_static|libnvrtc_static\.a",
        "this image has no static NVRTC, as NGC's PyTorch images",
        f"{IMAGE}; or build by hand with --nvrtc_dynamic_linking",
        "#5741; docker/Makefile",
    ),
    Diagnosis(
        "build.nvcc",
        r"Unsupported gpu architecture 'compute_([89]|1\d)\d|Value 'sm_([89]|1\d)\d\w?' is not defined for option",
        "this nvcc is too old for the GPU: 103 needs CUDA 12.9 or later, and Kimi K3's checkouts CUDA 13",
        f"have CUDA 13's nvcc first in PATH; {IMAGE}",
        "nvcc's own words",
    ),
    Diagnosis(
        "build.old_arch",
        r"Unsupported gpu architecture 'compute_[1-7]\d\D|Value 'sm_[1-7]\d' is not defined for option",
        "this nvcc no longer knows an old GPU that is asked for",
        "set trtllm_arch to 103-real (GB300, B300) or 100-real (GB200, B200); for another package TORCH_CUDA_ARCH_LIST",
        "nvcc's own words; gadgetron/gadgetron#6",
    ),
    Diagnosis(
        "build.ptxas",
        r"(Instruction|Feature|Modifier) '[^']*' not supported on \.target 'sm_\d+",
        "a kernel of Blackwell's data centre GPUs is compiled for another GPU too, which lacks its instructions",
        "set trtllm_arch to 103-real or 100-real alone: the checkout's list of all architectures is too wide for it",
        "report #17085",
    ),
    Diagnosis(
        "build.host_compiler",
        r"unsupported (GNU|clang) version|The minimum required GCC version|dialect \"?C(XX|UDA)\d\d",
        "nvcc does not take this host compiler",
        IMAGE,
        "CUDA, crt/host_config.h",
    ),
    Diagnosis(
        "build.cuda_mismatch",
        r"detected CUDA version .* mismatches the version",
        "nvcc is of another CUDA than PyTorch was built with",
        "have the nvcc first in PATH, and CUDA_HOME, that PyTorch names (CUDA 13 in the images)",
        "torch/utils/cpp_extension.py",
    ),
    Diagnosis(
        "build.compiler",
        r"No CMAKE_(CUDA|CXX|C)_COMPILER could be found|Failed to find nvcc|nvcc: (command )?not found"
        r"|No CUDA compiler found"
        r"|Could not find .*CUDA_TOOLKIT|CUDA_HOME environment variable is not set|Could not find nvcc"
        r"|Specify CUDA_TOOLKIT_ROOT_DIR|nvcc was not found|No such file or directory: '\S*nvcc'"
        r"|Could NOT find CUDA(Toolkit)? "
        r"|cannot execute .cc1plus.|No such file or directory: '(gcc|g\+\+|c\+\+|cc)'|unable to execute '\S*(gcc"
        r"|g\+\+|nvcc)'",
        "the CUDA or C++ compiler is missing",
        f"{IMAGE}; never build on a login node",
        "CMake, CMakeDetermineCUDACompiler; #752; locuslab/open-unlearning#50",
    ),
    Diagnosis(
        "build.tensorrt",
        r"NvInferVersion\.h\"? cannot be|NvInfer\w*\.h: No such file|has no member named .*\bnvinfer"
        r"|nvinfer1::\S+ has no member"
        r"|class nvinfer1::\S+ has no member|cannot find -lnvinfer|Could NOT find T(?:ensor|ENSOR)RT"
        r"|No module named 'tensorrt'|(TensorRT"
        r"|nvinfer) (library )?not found",
        "TensorRT is not there, or is of another version than this checkout is written for",
        IMAGE,
        "#1716, #1839, #2469",
        passes=True,
    ),
    Diagnosis(
        "build.conda",
        r"/compiler_compat/ld: |undefined reference to .__libc_single_threaded'",
        "conda's linker is used, whose libraries are older than the system's",
        "leave conda (`conda deactivate`), and build with the base python of the image",
        "#106, #2405, #2475",
    ),
    Diagnosis(
        "build.ccache",
        r"ccache: (error|FATAL|fatal): ",
        "ccache can't use its directory",
        "let CCACHE_DIR in the task's environment name a directory of this user on the node's own disk; see its owner "
        "and "
        "room",
        "ccache/ccache #68, #154, #703, #1044; OP-TEE/optee_os#3505",
    ),
    Diagnosis(
        "build.cuda_old",
        r"CUtensorMap\w*. has not been declared|cuda_fp[48]\.h: No such file|__nv_fp[48]\w*\W.*(is undefined"
        r"|not been declared|does not name)",
        "this CUDA toolkit is older than the code: it lacks types of newer GPUs",
        f"have CUDA 13's nvcc first in PATH; {IMAGE}",
        "#2527, #3546",
    ),
    Diagnosis(
        "build.headers",
        r"fatal error: (mpi|nccl|cudnn\w*|numa|infiniband/\w+|Python|curand\w*|cublas\w*|cuda\w*|nvtx3?/\S+"
        r"|nvml)(_\w+)?\.h(pp)?:"
        r" No such file|Could NOT find (MPI|NCCL|CUDNN|Python3?|nvtx3)\w* ",
        "headers that the build needs are not installed: the image is no devel image",
        IMAGE,
        "#1647; flashinfer-ai/flashinfer#4410",
    ),
    Diagnosis(
        "build.submodule_empty",
        r"(fatal error: (cutlass|cute|nlohmann|cxxopts|NVTX|xgrammar|pybind11|nanobind)/\S+: No such file)"
        r"|source directory \S*3rdparty\S* does not contain a CMakeLists|The source directory\s+\S*3rdparty"
        r"|does not contain a CMakeLists\.txt file",
        "third-party sources are not in the checkout: its submodules are missing, or were not fetched",
        "run `git submodule update --init --recursive` in the checkout, or set `submodules: true` in git_checkout",
        "CMake, add_subdirectory; docs/source/installation/build-from-source-linux.md",
    ),
)
