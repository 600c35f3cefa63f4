"""Asked: what a checkout asks for beside its build: versions, the image of its time, the environment of each mode."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field

from k3env.k3 import build
from k3env.k3.pins import EXTRAS, FLASHINFER, MATCHED
from k3env.node import git, git_content, requirements
from k3env.node.machine import Machine

_IMAGES = {"LLM_SBSA_DOCKER_IMAGE": "aarch64", "LLM_DOCKER_IMAGE": "x86_64"}
_MODE_ENV = re.compile(r"(?:^|(?<=[\s;)]))MODE_ENV\+?=(?:\"([^\"]*)\"|'([^']*)'|([^\s;]*))")


@dataclass(frozen=True)
class Asked:
    """What a checkout asks for."""

    pins: dict[str, str] = field(default_factory=dict)
    """Lines of requirements.txt that hold on this CPU, of what Kimi K3's kernels are compiled against."""
    images: dict[str, str] = field(default_factory=dict)
    """The image that it was built in upstream, by CPU."""
    architectures: tuple[str, ...] = ()
    """Those that its CMake takes; none: it does not say."""
    modes: dict[str, dict[str, str]] = field(default_factory=dict)
    """The environment that its performance sweep gives a server, by mode: dep16, tep16, tep8."""
    submodules: tuple[str, ...] = ()
    """By their path."""
    absent: tuple[str, ...] = ()
    """Those that are not there."""
    is_sparse: bool = False
    """Whether git was told to leave files out."""


def asked(machine: Machine, root: str) -> Asked:
    """Read what a checkout asks for, from its files alone."""
    pins = _text(machine, root, build.REQUIREMENTS)
    names = (*MATCHED, FLASHINFER, *EXTRAS, "flash-linear-attention")
    lines = {name: requirements.line_of(machine, pins, name) for name in names}
    found = git.directories(machine, root)
    return Asked(
        {name: line for name, line in lines.items() if line is not None},
        images(_text(machine, root, build.IMAGES)),
        architectures(_text(machine, root, build.CUDA_MODULE)),
        modes(_text(machine, root, build.SWEEP)),
        tuple(git_content.submodule_paths(machine, root)),
        git_content.absent_submodules(machine, root),
        found is not None and machine.is_file(os.path.join(found[0], "info", "sparse-checkout")),
    )


def images(text: str) -> dict[str, str]:
    """Return the images that a file of properties names, by CPU. Source: jenkins/current_image_tags.properties."""
    pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith("#"))
    return {_IMAGES[name.strip()]: value.strip().strip("\"'") for name, _, value in pairs if name.strip() in _IMAGES}


def architectures(module: str) -> tuple[str, ...]:
    """Return the architectures that a checkout's CMake takes; none where it takes what its compiler knows.

    Newer ages refuse what they have no kernels for. Source: cpp/cmake/modules/cuda_configuration.cmake.
    """
    listed = re.search(r"\bset\(\s*ARCHITECTURES_WITH_KERNELS\s+([\d\s]+)\)", module)
    refuses = re.search(r"is\s+not\s+supported\s+by\s+TensorRT", module)
    return tuple(listed[1].split()) if listed and refuses else ()


def modes(script: str) -> dict[str, dict[str, str]]:
    """Return the environment of each mode, from the branches of the sweep's script; the script is not run.

    What such a setting takes from elsewhere can't be told, and is left out. Source: examples/kimi_k3/perf_sweep.
    """
    found: dict[str, dict[str, str]] = {}
    labels: tuple[str, ...] = ()
    for line in script.splitlines():
        if line.lstrip().startswith("#"):
            continue
        label = re.match(r"\s*\(?([\w|-]+)\)", line)
        if label:
            labels = tuple(label[1].split("|"))
        for setting in _MODE_ENV.finditer(line):
            words = [word.partition("=") for word in "".join(setting.groups("")).split()]
            kept = {key: value for key, sign, value in words if sign and "$" not in value and "`" not in value}
            for name in labels:
                found.setdefault(name, {}).update(kept)
        if line.strip().endswith(";;"):
            labels = ()
    return found


def _text(machine: Machine, root: str, name: str) -> str:
    try:
        return machine.text(os.path.join(root, name))
    except (FileNotFoundError, NotADirectoryError):
        return ""
