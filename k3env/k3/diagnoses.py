"""What the output of a failed build, pip or git means, and what to do: pattern, cause, remedy, source.

Rows are tried in their order, and the special ones stand first. A build runs pip and git, and pip runs git, so a
failed build is looked up in all three tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Diagnosis:
    """What a line of output means."""

    id: str
    """The id of the finding; its first word is the tool."""
    pattern: str
    """A regular expression, searched in each line."""
    cause: str
    remedy: str
    source: str
    """Where the wording was read, or who reported it; issues are TensorRT LLM's unless said otherwise."""


@dataclass(frozen=True)
class Match:
    """A diagnosis, with the line that it was made by."""

    diagnosis: Diagnosis
    line: str


def diagnose(tool: str, output: str) -> Optional[Match]:
    """Return what the output of a failed `build`, `pip` or `git` means, or None."""
    lines = [_plain(line) for line in output.splitlines()]
    for row in (row for name in _LOOKED_UP[tool] for row in TABLES[name]):
        pattern = re.compile(row.pattern)
        for line in lines:
            if pattern.search(line):
                return Match(row, line.strip())
    return None


def _plain(line: str) -> str:
    """Return a line without the terminal's colours."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line)


_IMAGE = "build in the image that jenkins/current_image_tags.properties names, or a TensorRT LLM devel image"
_LFS = "run `git lfs install && git lfs pull` in the checkout, or set `lfs: true` in git_checkout"
_DISK = "make room: a build needs about 63 GB, its temporary files more; see `df -h` and `df -i`"
_EGRESS = "see that this node reaches it: DNS, proxy (`https_proxy`), or name a mirror that it reaches"

BUILD = (
    Diagnosis(
        "build.lfs_pointer",
        r"file format not recognized|version https://git-lfs\.github\.com/spec/v1",
        "a library or source in the checkout is a Git LFS pointer, not the file itself",
        _LFS,
        "#28, #72; triton-inference-server/tensorrtllm_backend#38, #44",
    ),
    Diagnosis(
        "build.memory",
        r"Killed signal terminated program|died due to signal 9|\bcc1plus\b.*\bKilled\b|virtual memory exhausted"
        r"|cc1plus: out of memory|died with <Signals\.SIGKILL: 9>|^Killed$",
        "the kernel ended a compiler because memory ran out",
        "set trtllm_jobs lower (4 GiB for each job), or build where there is more memory",
        "#186, #523, #1028",
    ),
    Diagnosis(
        "build.disk",
        r"No space left on device|Disk quota exceeded|Errno 28\b|Errno 122\b",
        "the disk or the quota is full",
        _DISK,
        "public build logs; docs/source/installation/build-from-source-linux.md",
    ),
    Diagnosis(
        "build.nvrtc_static",
        r"CUDA::nvrtc_static|nvrtc_static.*not found|cannot find -lnvrtc_static|libnvrtc_static\.a",
        "this image has no static NVRTC, as NGC's PyTorch images",
        f"{_IMAGE}; or build by hand with --nvrtc_dynamic_linking",
        "#5741; docker/Makefile",
    ),
    Diagnosis(
        "build.arch",
        r"Unrecognized CUDA architecture|Including PTX in compiled binary is unsupported|Volta architecture is depr",
        "CMake refuses the CUDA architecture",
        "set trtllm_arch to 103-real (GB300, B300) or 100-real (GB200, B200)",
        "cpp/cmake/modules/cuda_configuration.cmake",
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
        r"CMake [\d.]+ or higher is required|CMake Error.*CMAKE_CUDA_ARCHITECTURES.*not (valid|supported)"
        r"|cmake:? (command )?not found|No such file or directory: 'cmake'",
        "cmake is missing or too old",
        f"have cmake 3.27 or later first in PATH; {_IMAGE}",
        "#3173, #3208",
    ),
    Diagnosis(
        "build.compiler",
        r"No CMAKE_(CUDA|CXX|C)_COMPILER could be found|Failed to find nvcc|nvcc: (command )?not found"
        r"|Could not find .*CUDA_TOOLKIT|CUDA_HOME environment variable is not set|Could not find nvcc",
        "the CUDA or C++ compiler is missing",
        f"{_IMAGE}; never build on a login node",
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
        r"conan.*(remote add|profile detect|install).*returned non-zero|Failed to locate conan executable"
        r"|ERROR: Missing prebuilt package|No module named '_sqlite3'|ConanException",
        "conan could not prepare the C++ dependencies; its home or a remote may be out of reach",
        "see that CONAN_HOME is writable, that Python has sqlite3, and that edge.urm.nvidia.com is reached where the "
        "checkout asks for it",
        "#3081; scripts/build_wheel.py",
    ),
    Diagnosis(
        "build.fetch",
        r"Build step for \S+ failed|Failed to clone repository|FetchContent.*(failed|Failed)|Each download failed"
        r"|error: downloading '.*' failed",
        "CMake could not fetch a third-party source",
        f"{_EGRESS}; GITHUB_MIRROR redirects github.com",
        "#2826, #434, #715",
    ),
    Diagnosis(
        "build.torch",
        r"Incompatible NVIDIA PyTorch container|cannot find PyTorch installation|current_image_tags\.properties"
        r"|libth_common\.so: undefined symbol",
        "the PyTorch that is seen is not the one that this checkout is built against",
        f"{_IMAGE}; where a PyTorch from PyPI lies in .venv-X.Y, move that environment aside",
        "#808, #7665, #4275, #15087",
    ),
    Diagnosis(
        "build.no_torch",
        r"No module named 'torch'",
        "there is no PyTorch: the base interpreter is not that of a TensorRT LLM image",
        _IMAGE,
        "scripts/build_wheel.py, stub generation",
    ),
    Diagnosis(
        "build.driver_library",
        r"libcuda\.so\.1: cannot open shared object file|libnvidia-ml\.so\.1: cannot open shared object file",
        "the bindings can't be loaded for their stubs: neither a driver nor CUDA's stubs are there",
        "build on a GPU node, or in an image with $CUDA_HOME/lib64/stubs",
        "scripts/build_wheel.py, generate_python_stubs_linux",
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

PIP = (
    Diagnosis(
        "pip.externally_managed",
        r"externally-managed-environment",
        "the system's Python refuses pip: it is managed by the distribution (PEP 668)",
        "build in a TensorRT LLM image (`container`); or, on a machine of your own, set PIP_BREAK_SYSTEM_PACKAGES=1 in "
        "the task's environment",
        "PEP 668",
    ),
    Diagnosis(
        "pip.no_venv",
        r"ensurepip is not available|No module named (venv|virtualenv|ensurepip)",
        "the base interpreter can't make a virtual environment",
        "install its venv package (apt-get install python3-venv)",
        "Debian's python3-venv",
    ),
    Diagnosis(
        "pip.missing",
        r"No module named pip\b",
        "the environment has no pip",
        "move the environment aside and build it anew",
        "pip's own words",
    ),
    Diagnosis(
        "pip.certificate",
        r"CERTIFICATE_VERIFY_FAILED|certificate verify failed",
        "the index's certificate is not trusted here",
        "set PIP_CERT to the site's certificate bundle in the task's environment",
        "pip's own words",
    ),
    Diagnosis(
        "pip.network",
        r"Failed to establish a new connection|Temporary failure in name resolution|Name or service not known"
        r"|Network is unreachable|Max retries exceeded|NewConnectionError|ConnectTimeoutError|Read timed out",
        "the package index is out of reach",
        f"{_EGRESS}; offline, set no_index and find_links",
        "pip's own words",
    ),
    Diagnosis(
        "pip.index_refused",
        r"\b(401|403) Client Error",
        "the package index refuses us",
        "see the index's URL and its credentials (a netrc file, or index_url as a secret)",
        "pip's own words",
    ),
    Diagnosis(
        "pip.conflict",
        r"ResolutionImpossible|conflicting dependencies",
        "the requirements contradict each other, or a constraint of this machine's pip",
        "loosen one of the named requirements, or install with no_deps",
        "pip's own words",
    ),
    Diagnosis(
        "pip.no_match",
        r"No matching distribution found for|Could not find a version that satisfies the requirement",
        "the index has no such package or version for this Python and processor",
        "see name and version, index_url and find_links, and the environment's Python",
        "pip's own words",
    ),
    Diagnosis(
        "pip.hash",
        r"DO NOT MATCH THE HASHES|hash mismatch",
        "a download is not what it should be",
        "run it again with no_cache; if it stays, the mirror is wrong",
        "pip's own words",
    ),
    Diagnosis(
        "pip.no_record",
        r"uninstall-no-record-file|RECORD file was not found|uninstall-distutils-installed-package",
        "an installed package has no list of its files, so pip can't remove it",
        "remove its files and its .dist-info by hand, then run it again",
        "pip's own words",
    ),
    Diagnosis(
        "pip.build_requirement",
        r"BackendUnavailable|Cannot import '[\w.]+'|ModuleNotFoundError: No module named '(setuptools|wheel|packaging"
        r"|tvm_ffi|apache_tvm_ffi|hatchling|scikit_build_core|pybind11)'|invalid command 'bdist_wheel'",
        "with no_build_isolation, what the package is built with must be in the environment, and is not",
        "install its build requirements first (for FlashInfer: setuptools>=77, packaging>=24, apache-tvm-ffi)",
        "pip's own words; FlashInfer, pyproject.toml",
    ),
    Diagnosis(
        "pip.not_writable",
        r"Permission denied: '/[^']*/(site|dist)-packages|\[Errno 13\]",
        "this user may not write there",
        "run as the owner of the environment (k3_user); in a container, use one whose Python this user may write, or "
        "that has virtualenv>=20.29.1 installed",
        "pip's own words",
    ),
    Diagnosis(
        "pip.disk",
        r"No space left on device|Disk quota exceeded|Errno 28\b|Errno 122\b",
        "the disk or the quota is full",
        "make room there, and in pip's temporary directory (TMPDIR)",
        "pip's own words",
    ),
    Diagnosis(
        "pip.stale_handle",
        r"Stale file handle|Errno 116\b",
        "a file on a shared filesystem vanished while it was used",
        "see that nothing else writes into this environment, then run it again",
        "pytorch#173679",
    ),
    Diagnosis(
        "pip.option",
        r"no such option: ",
        "the environment's pip is too old for an option",
        "upgrade it: `python -m pip install -U 'pip>=23'` with the environment's python",
        "pip's own words",
    ),
)

GIT = (
    Diagnosis(
        "git.ownership",
        r"detected dubious ownership|unsafe repository",
        "the checkout belongs to another user, so git does not trust it",
        "run as its owner (k3_user), or, as this user, name it: git config --global --add safe.directory",
        "git, safe.directory",
    ),
    Diagnosis(
        "git.host_key",
        r"Host key verification failed|REMOTE HOST IDENTIFICATION HAS CHANGED",
        "the git server's host key is unknown here, or has changed",
        "compare it with what the server's owner publishes, then add it to this user's ~/.ssh/known_hosts",
        "OpenSSH's own words",
    ),
    Diagnosis(
        "git.auth",
        r"Permission denied \(.*(publickey|password)|could not read (Username|Password)|terminal prompts disabled"
        r"|Authentication failed|Invalid username or (password|token)|requested URL returned error: 40[13]"
        r"|Repository not found|repository '.*' not found|requested URL returned error: 404",
        "the git server does not let us in, or has no such repository",
        "see the URL, and this user's key or credential helper; nobody is asked for a password",
        "git's own words; git hosts answer 'not found' to those who may not look",
    ),
    Diagnosis(
        "git.no_commit",
        r"not our ref|couldn't find remote ref|unadvertised object|reference is not a tree"
        r"|did not match any file\(s\) known to git|bad object [0-9a-f]{40}|Could not parse object",
        "the repository has no such commit",
        "see commit and URL: a commit of a fork or of a pull request is not in the upstream repository; for a "
        "submodule, `git submodule sync --recursive`",
        "git's own words",
    ),
    Diagnosis(
        "git.certificate",
        r"certificate verification failed|SSL certificate problem",
        "the git server's certificate is not trusted here",
        "set GIT_SSL_CAINFO to the site's certificate bundle in the task's environment",
        "git's own words",
    ),
    Diagnosis(
        "git.lfs_missing",
        r"git-lfs: (command )?not found|'lfs' is not a git command|git-lfs filter-process: .*not found",
        "git-lfs is not installed",
        "install the package git-lfs (apt-get install git-lfs, dnf install git-lfs)",
        "git's own words",
    ),
    Diagnosis(
        "git.lfs_quota",
        r"over its data quota|exceeded its LFS budget",
        "the repository has used up its LFS quota",
        "use a mirror of the repository",
        "github's own words",
    ),
    Diagnosis(
        "git.lfs_object",
        r"Object does not exist on the server|error downloading object|Smudge error",
        "the server does not have an LFS file",
        "see that the mirror has the LFS files too (`git lfs push --all`)",
        "git-lfs's own words",
    ),
    Diagnosis(
        "git.network",
        r"Could not resolve (host|hostname|proxy)|Failed to connect to|Connection (timed out|refused|reset)"
        r"|Network is unreachable|No route to host|early EOF|unexpected disconnect|RPC failed|the remote end hung up",
        "the git server is out of reach, or the connection broke",
        f"{_EGRESS}; then run it again",
        "git's own words",
    ),
    Diagnosis(
        "git.not_a_repository",
        r"does not appear to be a git repository|Could not read from remote repository|not a git repository",
        "there is no git repository at the URL",
        "see the URL",
        "git's own words",
    ),
    Diagnosis(
        "git.lock",
        r"Unable to create '.*\.lock': File exists|Another git process seems to be running|cannot lock ref",
        "another git works in this checkout, or one was cut off",
        "see that no git runs there on any node, then remove the lock file",
        "git's own words",
    ),
    Diagnosis(
        "git.untracked",
        r"untracked working tree files would be (overwritten|removed)|The following (untracked|ignored) .*overwritten",
        "files that git does not track stand where the wanted commit has its own",
        "move them away",
        "git's own words",
    ),
    Diagnosis(
        "git.local_changes",
        r"Your local changes to the following files would be overwritten|commit your changes or stash them",
        "local changes stand where the wanted commit changes something",
        "commit or stash them",
        "git's own words",
    ),
    Diagnosis(
        "git.transport",
        r"transport '\w+' not allowed",
        "git does not allow this kind of URL, here or in a submodule",
        "use https or ssh",
        "git, protocol.allow",
    ),
    Diagnosis(
        "git.disk",
        r"No space left on device|Disk quota exceeded",
        "the disk or the quota is full",
        "make room; see `df -h` and `df -i`",
        "git's own words",
    ),
    Diagnosis(
        "git.not_writable",
        r"Permission denied|Read-only file system|insufficient permission",
        "this user may not write there",
        "run as the owner of the checkout (k3_user)",
        "git's own words",
    ),
)

TABLES = {"build": BUILD, "pip": PIP, "git": GIT}
_LOOKED_UP = {"build": ("build", "pip", "git"), "pip": ("pip", "build", "git"), "git": ("git",)}
