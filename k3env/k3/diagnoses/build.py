"""What the output of a failed build of TensorRT LLM means."""

from __future__ import annotations

from k3env.k3.diagnoses.cmake import CMAKE
from k3env.k3.diagnoses.compile import LACKING
from k3env.k3.diagnoses.conan import CONAN
from k3env.k3.diagnoses.diagnosis import EGRESS, IMAGE, Diagnosis
from k3env.k3.diagnoses.link import GIVEN
from k3env.k3.diagnoses.torch import TORCH

BUILD = (
    *LACKING,
    *TORCH,
    *CMAKE,
    *CONAN,
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
        "build.arch",
        r"Un(?:recognized|supported) CUDA architecture|Including PTX in compiled binary|Volta architecture is depr"
        r"|CUDA architecture \d+ is not supported by TensorRT"
        r"|Unsupported gpu architecture 'compute_(?!\d)",
        "CMake refuses the CUDA architecture",
        "set trtllm_arch to 103-real (GB300, B300) or 100-real (GB200, B200)",
        "cpp/cmake/modules/cuda_configuration.cmake",
    ),
    Diagnosis(
        "build.moved",
        r"does not match the source .* used to generate cache|CMakeCache\.txt directory .* is different than",
        "the build directory was configured at another path: the checkout was moved or copied",
        "keep the checkout at the path that jobs use, and remove cpp/build, or build by hand with --clean",
        "CMake, cmCacheManager",
    ),
    Diagnosis(
        "build.generator",
        r"does not match the generator used previously",
        "the build directory was configured for another generator (make, ninja)",
        "remove cpp/build, or build by hand with --clean",
        "CMake's own words",
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
        "build.no_cache",
        r"^Error: could not load cache|loading 'build\.ninja': No such file|no makefile found\. +Stop"
        r"|is not a directory: \S*cpp/build",
        "the build directory was never configured to its end",
        "see what failed while it was configured; then build by hand with --configure_cmake, or remove cpp/build",
        "#184, #359",
        follows=True,
    ),
    Diagnosis(
        "build.patchelf",
        r"patchelf:? ?(command )?(: )?not found|No such file or directory: 'patchelf'",
        "patchelf is missing, which the build sets run paths with",
        "install patchelf (apt-get install patchelf), or build in the devel image",
        "scripts/build_wheel.py",
    ),
    Diagnosis(
        "build.certificate",
        r"certificate verif(y|ication) failed|CERTIFICATE_VERIFY_FAILED|SSL certificate problem"
        r"|SSL peer certificate .* not OK",
        "a server's certificate is not trusted here",
        "let SSL_CERT_FILE, GIT_SSL_CAINFO and PIP_CERT name the site's certificate bundle in the task's environment",
        "git's, pip's and CMake's own words",
        passes=True,
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
        r"Failed to clone repository|FetchContent.*(failed|Failed)"
        r"|Each download failed"
        r"|error: downloading '.*' failed|Unknown CMake command \"rapids_|ucxx build failed|fetching \S+ failed"
        r"|status_code: [1-9]\d*$"
        r"|file DOWNLOAD cannot",
        "CMake could not fetch a third-party source",
        f"{EGRESS}; GITHUB_MIRROR redirects github.com",
        "#2826, #434, #715; ArmDeveloperEcosystem/arm-learning-paths#2239",
        passes=True,
    ),
    Diagnosis(
        "build.torch",
        r"Incompatible NVIDIA PyTorch container|cannot find PyTorch installation"
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
        passes=True,
    ),
    Diagnosis(
        "build.bindings",
        r"bindings`? module does not exist|No module named '(tensorrt_llm\.)?bindings'"
        r"|execute `?scripts/build_wheel\.py",
        "the package was not built before it is installed, or its stubs are missing",
        "build first: the task trtllm_build; a build with --skip-stubs can't be installed",
        "#1065, #1912, #2162, #2599, #4458; setup.py",
        follows=True,
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
        near=r"build_wheel",
    ),
    Diagnosis(
        "build.prompt",
        r"EOFError: EOF when reading a line",
        "build_wheel.py asked a question, and this checkout's has no --yes: a PyTorch from PyPI lies in .venv-X.Y",
        "move that environment aside, and build again",
        "scripts/build_wheel.py, setup_venv",
        near=r"build_wheel\.py|setup_venv|\.venv-|\[[yY]/[nN]\]",
    ),
    *GIVEN,
)
