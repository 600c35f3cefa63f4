"""What is wrong before the first minute of a build, instead of after the seventieth: all of it, each with its remedy.

Every rule is a function of what was read; none starts anything. Sources: scripts/build_wheel.py, the build's own
documents, and reports of TensorRT LLM: #28 and #72 (LFS), #186, #523, #1028 (memory), #3208 (cmake), #17524 (space).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from k3env.k3 import build as k3
from k3env.k3 import platforms
from k3env.node.facts.gpu import Gpu
from k3env.node.facts.script import Script
from k3env.node.facts.toolchain import Toolchain
from k3env.node.modules._room import Room
from k3env.protocol.finding import FAIL, Finding

CMAKE, NVCC = (3, 27), (13, 0)


@dataclass(frozen=True)
class Ground:
    """What was read of the place where a build is to run."""

    repo: str
    arch: str
    script: Script
    toolchain: Toolchain
    in_image: bool
    compiles: bool
    """The checkout has a CMake project: what is compiled there takes tools, room and memory."""
    node_architecture: str
    """CPU of the node."""
    gpus: tuple[Gpu, ...] = ()
    """Those of the node; none where it has none, as hosts that only build have."""
    rooms: tuple[Room, ...] = ()
    """The filesystems that the build writes to."""
    is_first: bool = True
    """Nothing was configured there before."""
    pointers: tuple[str, ...] = ()
    """Files that are Git LFS pointers."""
    submodules_missing: tuple[str, ...] = ()
    jobs: Optional[int] = None
    """As asked for; None: they follow from CPUs and memory."""
    memory_bytes: Optional[int] = None
    """Free for the build; None: unknown."""
    torch_requirement: Optional[str] = None
    """The line of requirements.txt."""
    venv_torch: bool = False
    """torch stands in the environment itself."""
    unreachable: tuple[str, ...] = ()
    """Hosts that the first configuration downloads from, and that can't be reached; a fetched directory would serve."""
    login_node: Optional[str] = None
    """Why this looks like a login node."""
    architectures: tuple[str, ...] = ()
    """Those that this checkout's CMake takes; none: it does not say."""
    requires_python: Optional[str] = None
    """What setup.py takes: ">=3.10, <4"; None: it does not say."""
    left_out: tuple[str, ...] = ()
    """Files of the commit that the build or the choice of FlashInfer needs, and that are not checked out."""
    lacking: tuple[tuple[str, str], ...] = ()
    """What the directory that serves instead of the network does not hold, each with what to do."""
    conan_home: Optional[str] = None
    """CONAN_HOME, where this user can't write to it."""
    requirements: tuple[str, ...] = ()
    """What keeps the checkout's requirement files from being read."""
    noexec: Optional[str] = None
    """The mount that the checkout is on, where nothing can be mapped as code from there."""


def problems(ground: Ground) -> tuple[Finding, ...]:
    """Return all that keeps a build from ending well, as failed findings."""
    rules = (
        _image, _python, _architectures, _gpus, _tools, _torch, _prompt, _writable, _noexec, _sources, _requirements,
        _pointers, _submodules, _space, _memory, _egress, _offline, _conan, _login,
    )  # fmt: skip
    return tuple(finding for rule in rules if (finding := rule(ground)) is not None)


def _image(ground: Ground) -> Optional[Finding]:
    there = ground.toolchain.architecture
    if not ground.in_image or there == ground.node_architecture:
        return None
    return _problem(
        "image", f"an image for {ground.node_architecture}", f"one for {there}",
        "use the image of this architecture: LLM_SBSA_DOCKER_IMAGE in jenkins/current_image_tags.properties on Grace",
    )  # fmt: skip


def _python(ground: Ground) -> Optional[Finding]:
    if not ground.toolchain.is_base:
        return _problem(
            "python", "a base interpreter first in PATH", "a virtual environment's",
            "leave that environment, or use a TensorRT LLM devel image: inside one, the build makes no .venv-X.Y",
        )  # fmt: skip
    if not ground.script.makes_venv:
        return _problem(
            "python", "a build script that makes .venv-X.Y", "one that installs into python3 itself",
            "set trtllm_commit to one with Kimi K3: this checkout is older",
        )  # fmt: skip
    if not _takes(ground.requires_python, ground.toolchain.python):
        return _problem(
            "python", f"Python {ground.requires_python}, as setup.py says", f"Python {ground.toolchain.python}",
            "put a Python of that version first in PATH, or build in a TensorRT LLM devel image",
        )  # fmt: skip
    # A stand-in of the build makes its environment by itself.
    if ground.compiles and ground.toolchain.externally_managed and ground.toolchain.packages.get("virtualenv") is None:
        return _problem(
            "python", "virtualenv beside python3, or a Python that pip may install it into",
            "neither: this Python is the distribution's (PEP 668)",
            "install virtualenv there: apt-get install python3-virtualenv",
        )  # fmt: skip
    return None


def _takes(requires: Optional[str], python: str) -> bool:
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return requires is None or SpecifierSet(requires).contains(f"{python}.99", prereleases=True)
    except InvalidSpecifier:
        return True  # What pip says of it is told when it is asked.


def _architectures(ground: Ground) -> Optional[Finding]:
    if not ground.architectures or ground.arch in ("native", "all"):
        return None
    wrong = sorted(platforms.architectures(ground.arch) - set(ground.architectures))
    if not wrong:
        return None
    return _problem(
        "arch", f"architectures that this checkout has kernels for: {' '.join(ground.architectures)}", ground.arch,
        "set trtllm_arch to 103-real (GB300, B300) or 100-real (GB200, B200)",
    )  # fmt: skip


def _gpus(ground: Ground) -> Optional[Finding]:
    if ground.arch == "native" and not ground.gpus:
        return _problem(
            "arch", "a GPU, which native asks for its architecture", "none on this host",
            "set trtllm_arch to that of the hosts that serve: 103-real (GB300, B300), 100-real (GB200, B200)",
        )  # fmt: skip
    seen = {gpu.capability for gpu in ground.gpus if gpu.capability is not None}
    built = platforms.architectures(ground.arch)
    for capability in sorted(seen):
        platform = platforms.platform(capability)
        if platform is None or platforms.digits(platform.arch) in built:
            continue
        told = [platforms.MISMATCHES.get((capability, arch)) for arch in sorted(built)]
        why = "; ".join(reason for reason in told if reason)
        return _problem(
            "arch", f"{platform.arch} for this node's GPUs ({'/'.join(platform.gpus)})", ground.arch,
            f"set trtllm_arch to {platform.arch}, or build on a host without GPUs{': ' + why if why else ''}",
        )  # fmt: skip
    return None


def _tools(ground: Ground) -> Optional[Finding]:
    if not ground.compiles:
        return None
    tools = ground.toolchain.tools
    wrong = [name for name in ("c++", "git", "patchelf") if tools.get(name) is None]
    told = [f"no {name}" for name in wrong]
    for name, least in (("cmake", CMAKE), ("nvcc", NVCC)):
        found = tools.get(name)
        if found is None:
            told.append(f"no {name}")
        elif found and _number(found) < least:
            told.append(f"{name} {found}")
    if not told:
        return None
    return _problem(
        "tools", "cmake 3.27, nvcc 13.0, a C++ compiler, git, patchelf, or later ones", ", ".join(told),
        "build in a TensorRT LLM devel image: set the variable container" if not ground.in_image
        else "use a devel image of this checkout's time: jenkins/current_image_tags.properties",
    )  # fmt: skip


def _torch(ground: Ground) -> Optional[Finding]:
    from packaging.requirements import InvalidRequirement, Requirement

    found, line = ground.toolchain.packages.get("torch"), ground.torch_requirement
    if found is None or line is None:
        return None
    try:
        needed = Requirement(line)
    except InvalidRequirement:
        return None
    # Images bring alphas and local versions, which count.
    if needed.specifier.contains(found, prereleases=True):
        return None
    return _problem(
        "torch", f"torch {needed.specifier}", f"torch {found} in the image" if ground.in_image else f"torch {found}",
        "use the image that jenkins/current_image_tags.properties of this checkout names",
    )  # fmt: skip


def _prompt(ground: Ground) -> Optional[Finding]:
    if ground.script.has("--yes") or not ground.venv_torch or ground.toolchain.ngc_pytorch is None:
        return None
    return _problem(
        "prompt", "no torch in the environment itself", "torch in .venv-X.Y, about which this checkout's script asks",
        "uninstall it there: .venv-X.Y/bin/python -m pip uninstall torch",
    )  # fmt: skip


def _writable(ground: Ground) -> Optional[Finding]:
    if ground.toolchain.writable:
        return None
    return _problem(
        "writable", f"{ground.repo} writable where the build runs", "it can't be written to from there",
        "mount it read-write, and build as the user who owns it: set k3_user",
    )  # fmt: skip


def _noexec(ground: Ground) -> Optional[Finding]:
    if ground.noexec is None:
        return None
    return _problem(
        "noexec", f"{ground.repo} on a filesystem that code may be loaded from", f"{ground.noexec} is mounted noexec",
        f"mount {ground.noexec} without noexec, or set trtllm_repo elsewhere: nothing built can be loaded there",
    )  # fmt: skip


def _sources(ground: Ground) -> Optional[Finding]:
    if not ground.left_out:
        return None
    return _problem(
        "sources", "the whole commit checked out", f"left out: {', '.join(ground.left_out)}",
        f"git -C {ground.repo} sparse-checkout disable; then git -C {ground.repo} checkout -- {ground.left_out[0]}",
    )  # fmt: skip


def _requirements(ground: Ground) -> Optional[Finding]:
    if not ground.requirements:
        return None
    file = ground.requirements[0].partition(" ")[0]
    return _problem(
        "requirements", "requirement files in plain UTF-8, none of which leads to itself or to a file that is absent",
        "; ".join(ground.requirements),
        f"git -C {ground.repo} checkout -- {file} takes the commit's back; where it is so there, write it anew and set"
        " trtllm_commit to that commit",
    )  # fmt: skip


def _pointers(ground: Ground) -> Optional[Finding]:
    if not ground.pointers:
        return None
    more = f" and {len(ground.pointers) - 3} more" if len(ground.pointers) > 3 else ""
    # In an image it is of no use: the files are pulled on the node.
    has_lfs = ground.in_image or ground.toolchain.tools.get("git-lfs") is not None
    return _problem(
        "lfs", "the files themselves", f"Git LFS pointers: {', '.join(ground.pointers[:3])}{more}",
        f"{'' if has_lfs else 'install git-lfs; '}git -C {ground.repo} lfs pull, or set lfs: true in git_checkout",
    )  # fmt: skip


def _submodules(ground: Ground) -> Optional[Finding]:
    if not ground.submodules_missing or ground.script.fetches_submodules:
        return None
    return _problem(
        "submodules", "all submodules", f"missing: {', '.join(ground.submodules_missing[:3])}",
        f"git -C {ground.repo} submodule update --init --recursive",
    )  # fmt: skip


def _space(ground: Ground) -> Optional[Finding]:
    short = [(room, found) for room in ground.rooms if (found := room.short) is not None]
    if not short or not ground.compiles:
        return None
    by_quota = all(found.startswith("a quota") for _, found in short)
    return _problem(
        "space", "; ".join(room.wanted for room, _ in short), "; ".join(found for _, found in short),
        "make room, or have the quota raised; see quota -s, or lfs quota" if by_quota
        else "make room, or take another filesystem; see df -h, df -i and your quota",
    )  # fmt: skip


def _memory(ground: Ground) -> Optional[Finding]:
    if ground.jobs is None or ground.memory_bytes is None or not ground.compiles:
        return None
    if ground.jobs * k3.JOB_BYTES <= ground.memory_bytes or ground.jobs == 1:
        return None
    fitting = max(1, ground.memory_bytes // k3.JOB_BYTES)
    return _problem(
        "memory", f"{ground.jobs * k3.JOB_BYTES // k3.GIB} GiB of memory for {ground.jobs} jobs",
        f"{ground.memory_bytes / k3.GIB:.0f} GiB free", f"set trtllm_jobs to {fitting}, or to auto",
    )  # fmt: skip


def _egress(ground: Ground) -> Optional[Finding]:
    if not ground.unreachable or not ground.is_first or not ground.script.fetches_content:
        return None
    return _problem(
        "egress", "the hosts that the first configuration downloads from",
        f"not reached: {', '.join(ground.unreachable)}",
        "set https_proxy (variable egress), or fill a directory on a host with egress: invoke fetch; then offline_dir",
    )  # fmt: skip


def _offline(ground: Ground) -> Optional[Finding]:
    if not ground.lacking:
        return None
    return _problem(
        "offline", "all that the first configuration loads, in the directory that was fetched",
        "; ".join(found for found, _ in ground.lacking),
        "; ".join(dict.fromkeys(remedy for _, remedy in ground.lacking)),
    )  # fmt: skip


def _conan(ground: Ground) -> Optional[Finding]:
    if ground.conan_home is None:
        return None
    return _problem(
        "conan", "a home of conan that the build can write to",
        f"CONAN_HOME is {ground.conan_home}, and this user can't write there",
        "unset CONAN_HOME, or see its owner: conan keeps profiles and a database there",
    )  # fmt: skip


def _login(ground: Ground) -> Optional[Finding]:
    if ground.login_node is None:
        return None
    return _problem(
        "login", "a compute node, or a host for building", ground.login_node,
        "build on a compute node, or say that this host may: trtllm_on_login_node: true",
    )  # fmt: skip


def _problem(what: str, expected: str, found: str, remedy: str) -> Finding:
    return Finding(f"trtllm.before.{what}", FAIL, expected=expected, found=found, remedy=remedy)


def _number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])
