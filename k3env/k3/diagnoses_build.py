"""What the output of a failed build of TensorRT LLM means."""

from __future__ import annotations

from k3env.k3.diagnosis import DISK, EGRESS, IMAGE, IMAGE_ARCH, LFS, Diagnosis

BUILD = (
    Diagnosis(
        "build.disk",
        r"(?i:no space left on device)|Disk quota exceeded|Errno 28\b|Errno 122\b",
        "the disk or the quota is full",
        DISK,
        "public build logs; docs/source/installation/build-from-source-linux.md",
    ),
    Diagnosis(
        "build.stale_handle",
        r"Stale file handle|Errno 116\b",
        "a file on a shared filesystem vanished while it was used",
        "see that no other node works in this checkout, and that CCACHE_DIR and TRITON_CACHE_DIR are the node's own; "
        "then run it again",
        "ccache#68; pytorch#173679",
    ),
    Diagnosis(
        "build.lfs_pointer",
        r"file format not recognized|treating as linker script|version https://git-lfs\.github\.com/spec/v1",
        "a library or source in the checkout is a Git LFS pointer, not the file itself",
        LFS,
        "#28, #72; triton-inference-server/tensorrtllm_backend#38, #44",
    ),
    Diagnosis(
        "build.memory",
        r"Killed signal terminated program|died due to signal 9|\bcc1plus\b.*\bKilled\b|virtual memory exhausted"
        r"|cc1plus: out of memory|died with <Signals\.SIGKILL: 9>|^Killed$|std::bad_alloc|Cannot allocate memory"
        r"|ld terminated with signal 9|\bKilled +\S*(nvcc|cicc|ptxas|cudafe|c\+\+|g\+\+|gcc|ld|python|cmake|ninja)\b"
        r"|oom[-_]kill|Out Of Memory|collect2: fatal error: ld terminated with signal 9",
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
        "let TMPDIR in the task's environment name a directory on a local disk with 10 GB free, and run it again",
        "#1412",
    ),
    Diagnosis(
        "build.processes",
        r"fork.*Resource temporarily unavailable|pthread_create.*Resource temporarily|can't start new thread"
        r"|posix_spawn.*Resource temporarily unavailable",
        "the limit of processes and threads was reached",
        "raise `ulimit -u` and the pids limit of the container or job; for a build, or set trtllm_jobs lower",
        "fork(2), EAGAIN",
    ),
    Diagnosis(
        "build.files",
        r"Too many open files|Errno 24\b",
        "the limit of open files was reached",
        "raise it: `ulimit -n 65536`, or the container's --ulimit nofile",
        "open(2), EMFILE",
    ),
    Diagnosis(
        "build.venv_gone",
        r"\.venv-\d+\.\d+/bin/[\w.-]+: (not found|No such file)|No such file or directory: '[^']*\.venv-\d+\.\d+/bin/"
        r"|bad interpreter: No such file",
        "a program of the environment leads to a Python that is not there: the image changed, or the checkout "
        "was moved",
        "keep the checkout at the path that jobs use, and run the tag `build`: it mends the environment, or makes it "
        "anew",
        "scripts/build_wheel.py, setup_venv, which keeps whatever directory is there",
    ),
    Diagnosis(
        "build.nvrtc_static",
        r"CUDA::nvrtc_static|nvrtc_static.*not found|cannot find -lnvrtc_static|libnvrtc_static\.a",
        "this image has no static NVRTC, as NGC's PyTorch images",
        f"{IMAGE}; or build by hand with --nvrtc_dynamic_linking",
        "#5741; docker/Makefile",
    ),
    Diagnosis(
        "build.arch",
        r"Un(?:recognized|supported) CUDA architecture|CUDA architecture \d+ is not supported by TensorRT"
        r"|Including PTX in compiled binary|Volta architecture is depr",
        "CMake refuses the CUDA architecture",
        "set trtllm_arch to 103-real (GB300, B300) or 100-real (GB200, B200)",
        "cpp/cmake/modules/cuda_configuration.cmake",
    ),
    Diagnosis(
        "build.nvcc",
        r"Unsupported gpu architecture 'compute_1\d\d|Value 'sm_1\d\d\w?' is not defined for option",
        "this nvcc does not know the GPU: 103 needs CUDA 12.9 or later, and Kimi K3's checkouts CUDA 13",
        f"have CUDA 13's nvcc first in PATH; {IMAGE}",
        "nvcc's own words",
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
        r"unsupported (GNU|clang) version|The minimum required GCC version",
        "nvcc does not take this host compiler",
        IMAGE,
        "CUDA, crt/host_config.h",
    ),
    Diagnosis(
        "build.moved",
        r"does not match the source .* used to generate cache",
        "the build directory was configured at another path: the checkout was moved or copied",
        "keep the checkout at the path that jobs use, and remove cpp/build, or build by hand with --clean",
        "CMake, cmCacheManager",
    ),
    Diagnosis(
        "build.cmake",
        r"CMake [\d.]+ or higher is required|CMAKE_CUDA_ARCHITECTURES.*must be valid|followed by '-real' or '-virtual'"
        r"|cmake:? (command )?not found|No such file or directory: 'cmake'",
        "cmake is missing or too old",
        f"have cmake 3.27 or later first in PATH; {IMAGE}",
        "#3173, #3208",
    ),
    Diagnosis(
        "build.compiler",
        r"No CMAKE_(CUDA|CXX|C)_COMPILER could be found|Failed to find nvcc|nvcc: (command )?not found"
        r"|No CUDA compiler found"
        r"|Could not find .*CUDA_TOOLKIT|CUDA_HOME environment variable is not set|Could not find nvcc"
        r"|Specify CUDA_TOOLKIT_ROOT_DIR|No such file or directory: '\S*nvcc'|Could NOT find CUDA(Toolkit)? "
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
        r"|class nvinfer1::\S+ has no member|cannot find -lnvinfer|(TensorRT|nvinfer) (library )?not found",
        "TensorRT is not there, or is of another version than this checkout is written for",
        IMAGE,
        "#1716, #2469",
    ),
    Diagnosis(
        "build.conda",
        r"/compiler_compat/ld: |undefined reference to .__libc_single_threaded'",
        "conda's linker is used, whose libraries are older than the system's",
        "leave conda (`conda deactivate`), and build with the base python of the image",
        "#106, #2405, #2475",
    ),
    Diagnosis(
        "build.no_cache",
        r"^Error: could not load cache",
        "the build directory was never configured to its end",
        "see what failed while it was configured; then build by hand with --configure_cmake, or remove cpp/build",
        "#184, #359",
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
    Diagnosis(
        "build.patchelf",
        r"patchelf:? ?(command )?(: )?not found|'patchelf'",
        "patchelf is missing, which the build sets run paths with",
        "install patchelf (apt-get install patchelf), or build in the devel image",
        "scripts/build_wheel.py",
    ),
    Diagnosis(
        "build.conan",
        r"\bconan[\"']* (remote add|profile detect|install)\b.*returned non-zero|Failed to locate conan executable"
        r"|ERROR: Missing prebuilt package|No module named '_sqlite3'|ConanException",
        "conan could not prepare the C++ dependencies; its home or a remote may be out of reach",
        "see that CONAN_HOME is writable, that Python has sqlite3, and that edge.urm.nvidia.com is reached where the "
        "checkout asks for it",
        "#3081; scripts/build_wheel.py",
    ),
    Diagnosis(
        "build.conan_remote",
        r"Unable to connect to (remote )?\S+=http|ERROR: .*Package '\S+' not resolved|No remote defined"
        r"|Unable to find '\S+/\S+' in remotes"
        r"|ERROR: HTTPSConnectionPool|ERROR: .*Permission denied: '\S*\.conan2?|conan\S*: .*(sqlite3"
        r"|database is locked)"
        r"|ERROR: Conan.*cache",
        "conan does not reach a remote, or can't write its home",
        f"{EGRESS}; CONAN_HOME must name a directory that this user may write",
        "conan's own words",
    ),
    Diagnosis(
        "build.certificate",
        r"certificate verif(y|ication) failed|CERTIFICATE_VERIFY_FAILED|SSL certificate problem"
        r"|SSL peer certificate .* not OK",
        "a server's certificate is not trusted here",
        "let SSL_CERT_FILE, GIT_SSL_CAINFO and PIP_CERT name the site's certificate bundle in the task's environment",
        "git's, pip's and CMake's own words",
    ),
    Diagnosis(
        "build.sources",
        r"MSA package missing|missing.*\bfmha_sm100\b|No module named 'fmha_sm100'",
        "sources that CMake fetches from gitlab.com (msa) are not there",
        f"{EGRESS}; then build by hand with --configure_cmake, or remove cpp/build",
        "scripts/build_wheel.py; setup.py",
    ),
    Diagnosis(
        "build.fetch",
        r"(Build|CMake) step for \S+ failed|Failed to clone repository|FetchContent.*(failed|Failed)"
        r"|Each download failed"
        r"|error: downloading '.*' failed|Unknown CMake command \"rapids_|ucxx build failed|fetching \S+ failed"
        r"|status_code: [1-9]\d*$"
        r"|file DOWNLOAD (cannot|HASH mismatch)|HASH mismatch for",
        "CMake could not fetch a third-party source",
        f"{EGRESS}; GITHUB_MIRROR redirects github.com",
        "#2826, #434, #715; ArmDeveloperEcosystem/arm-learning-paths#2239",
    ),
    Diagnosis(
        "build.torch",
        r"Incompatible NVIDIA PyTorch container|cannot find PyTorch installation|current_image_tags\.properties"
        r"|lib(th_common|tensorrt_llm)\.so: undefined symbol",
        "the PyTorch that is seen is not the one that this checkout is built against",
        f"{IMAGE}; where a PyTorch from PyPI lies in .venv-X.Y, move that environment aside",
        "#808, #7665, #4275, #15087",
    ),
    Diagnosis(
        "build.isolated",
        r"No module named 'torch'",
        "a package needs PyTorch while it is built, and pip builds it where there is none",
        "set no_build_isolation: true in pip_packages, so that the environment's PyTorch is seen",
        "NVIDIA-NeMo/Evaluator#579; kaistAI/SelFee#6",
        also=r"metadata-generation-failed|(egg_info|requirements to build \w+|metadata \S+"
        r"|Building wheel .*) did not run successfully"
        r"|when getting requirements to build",
    ),
    Diagnosis(
        "build.no_torch",
        r"No module named 'torch'",
        "there is no PyTorch: the base interpreter is not that of a TensorRT LLM image",
        IMAGE,
        "scripts/build_wheel.py, stub generation",
    ),
    Diagnosis(
        "build.driver_library",
        r"lib(cuda|nvidia-ml)\.so\.1: cannot open shared object file"
        r"|undefined reference to .cu(Mem|Get|Ctx|Device|Module|Launch|Init|Func|Stream|Tensor)\w*'",
        "the CUDA driver's library is not found, to link with or to load: neither a driver nor CUDA's stubs are there",
        "build on a GPU node, or in an image with $CUDA_HOME/lib64/stubs",
        "scripts/build_wheel.py, generate_python_stubs_linux; #2757",
    ),
    Diagnosis(
        "build.bindings",
        r"bindings`? module does not exist|No module named 'tensorrt_llm\.bindings'|execute `?scripts/build_wheel\.py",
        "the package was not built before it is installed, or its stubs are missing",
        "build first: the task trtllm_build; a build with --skip-stubs can't be installed",
        "#1065, #1912, #2162, #2599, #4458; setup.py",
    ),
    Diagnosis(
        "build.submodules",
        r"No such file or directory: .*\.gitmodules",
        "the checkout is a source archive, without .gitmodules",
        "clone it with git: the task git_checkout",
        "#2325",
    ),
    Diagnosis(
        "build.flags",
        r"error: unrecognized arguments: ",
        "this checkout's build_wheel.py does not know a flag",
        "see `python3 scripts/build_wheel.py --help` in the checkout",
        "flags of older guides: --trt_root, --benchmarks",
    ),
    Diagnosis(
        "build.prompt",
        r"EOFError: EOF when reading a line",
        "build_wheel.py asked a question, and this checkout's has no --yes: a PyTorch from PyPI lies in .venv-X.Y",
        "move that environment aside, and build again",
        "scripts/build_wheel.py, setup_venv",
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
        r"\bcubin\S*\.(cpp|cu|h): No such file or directory",
        "the build directory names kernel files that another commit had",
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
)
