"""What the output of a failed build of TensorRT LLM means."""

from __future__ import annotations

from k3env.k3.diagnosis import DISK, EGRESS, IMAGE, LFS, Diagnosis

BUILD = (
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
        r"|cc1plus: out of memory|died with <Signals\.SIGKILL: 9>|^Killed$|std::bad_alloc|Cannot allocate memory",
        "the kernel ended a compiler because memory ran out",
        "set trtllm_jobs lower (4 GiB for each job), or build where there is more memory",
        "#186, #523, #1028",
    ),
    Diagnosis(
        "build.disk",
        r"No space left on device|Disk quota exceeded|Errno 28\b|Errno 122\b",
        "the disk or the quota is full",
        DISK,
        "public build logs; docs/source/installation/build-from-source-linux.md",
    ),
    Diagnosis(
        "build.processes",
        r"fork.*Resource temporarily unavailable|pthread_create.*Resource temporarily|can't start new thread"
        r"|posix_spawn.*Resource temporarily unavailable",
        "the limit of processes and threads was reached",
        "set trtllm_jobs lower, or raise `ulimit -u` and the pids limit of the container or job",
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
        r"Un(?:recognized|supported) CUDA architecture|Including PTX in compiled binary|Volta architecture is depr",
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
        r"|Could not find .*CUDA_TOOLKIT|CUDA_HOME environment variable is not set|Could not find nvcc",
        "the CUDA or C++ compiler is missing",
        f"{IMAGE}; never build on a login node",
        "CMake, CMakeDetermineCUDACompiler",
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
        r"Build step for \S+ failed|Failed to clone repository|FetchContent.*(failed|Failed)|Each download failed"
        r"|error: downloading '.*' failed|Unknown CMake command \"rapids_|ucxx build failed",
        "CMake could not fetch a third-party source",
        f"{EGRESS}; GITHUB_MIRROR redirects github.com",
        "#2826, #434, #715",
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
        "build.stale_handle",
        r"Stale file handle|Errno 116\b",
        "a file on a shared filesystem vanished while it was used",
        "see that no other node works in this checkout, and that CCACHE_DIR and TRITON_CACHE_DIR are the node's own; "
        "then run it again",
        "ccache#68; pytorch#173679",
    ),
    Diagnosis(
        "build.image_arch",
        r"Exec format error|exec format error",
        "a program is for another processor: GB200 and GB300 hosts are aarch64",
        "use the image for this processor (sbsa for aarch64)",
        "jenkins/current_image_tags.properties",
    ),
    Diagnosis(
        "build.engine",
        r"(Cannot connect to the Docker daemon|permission denied while trying to connect to the Docker daemon)",
        "docker does not answer this user",
        "start docker, add the user to its group, or use enroot or podman",
        "docker's own words",
    ),
    Diagnosis(
        "build.image",
        r"Unable to find image|manifest unknown|pull access denied|No such file or directory: .*\.sqsh"
        r"|\[ERROR\] No such (file or directory|container)",
        "the container image is not there",
        "see that `container.image` names an image that this node can pull, or a .sqsh path that it sees",
        "docker's, podman's and enroot's own words",
    ),
)
