"""Target: the processor, Python and C library that wheels are fetched for."""

from __future__ import annotations

import re
from dataclasses import dataclass

ARCHITECTURES = ("aarch64", "x86_64")
GLIBC = "2.39"
"""Of the images of TensorRT LLM for Kimi K3, which are Ubuntu 24.04. Source: jenkins/current_image_tags.properties."""
PYTHON = "3.12"
"""Of these images."""
GCC = "13"
"""Of Ubuntu 24.04: what conan's packages are told apart by."""
_OLDEST = {"aarch64": 17, "x86_64": 5}
"""The oldest glibc 2.x with a tag. Source: PEP 600; PEP 599 for aarch64."""
_LEGACY = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True)
class Target:
    """What wheels must run on."""

    arch: str = "aarch64"
    python: str = PYTHON
    glibc: str = GLIBC
    gcc: str = GCC

    def __post_init__(self) -> None:
        if self.arch not in ARCHITECTURES:
            raise ValueError(f"expected {' or '.join(ARCHITECTURES)}, found {self.arch!r}")
        if not re.fullmatch(r"3\.\d{1,2}", self.python):
            raise ValueError(f"expected a Python such as 3.12, found {self.python!r}")
        if not re.fullmatch(r"2\.\d{1,2}", self.glibc):
            raise ValueError(f"expected a glibc such as 2.39, found {self.glibc!r}")
        if not re.fullmatch(r"\d{1,2}", self.gcc):
            raise ValueError(f"expected a gcc such as 13, found {self.gcc!r}")

    @property
    def name(self) -> str:
        """The name of its wheelhouse."""
        return f"{self.arch}-{self.python}"

    def flags(self) -> tuple[str, ...]:
        """Return what makes pip choose wheels for this target, the newest C library first."""
        tags = []
        for minor in range(int(self.glibc[2:]), _OLDEST[self.arch] - 1, -1):
            tags.append(f"manylinux_2_{minor}_{self.arch}")
            if minor in _LEGACY and (self.arch == "x86_64" or minor == 17):
                tags.append(f"{_LEGACY[minor]}_{self.arch}")
        tags.append(f"linux_{self.arch}")
        python = self.python.replace(".", "")
        words = ["--implementation", "cp", "--python-version", self.python]
        for abi in (f"cp{python}", "abi3", "none"):
            words += ["--abi", abi]
        for tag in tags:
            words += ["--platform", tag]
        return tuple(words)

    def markers(self) -> dict[str, str]:
        """Return what environment markers are compared with. Source: PEP 508."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": self.arch,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
        }
