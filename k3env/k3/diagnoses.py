"""What the output of a failed build, pip, git, enroot or run means, and what to do: pattern, cause, remedy, source.

Rows are tried in their order, and the special ones stand first. A build runs pip and git, and pip runs git, so a
failed build is looked up in all three tables. Lines that a healthy run says as well are passed over.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Optional

from k3env.k3.diagnoses_build import BUILD
from k3env.k3.diagnoses_enroot import ENROOT
from k3env.k3.diagnoses_git import GIT
from k3env.k3.diagnoses_pip import PIP
from k3env.k3.diagnoses_run import RUN
from k3env.k3.diagnosis import Diagnosis


@dataclass(frozen=True)
class Match:
    """A diagnosis, with the line that it was made by."""

    diagnosis: Diagnosis
    line: str


def diagnose(tool: str, output: str) -> Optional[Match]:
    """Return what the output of a failed `build`, `pip`, `git`, `enroot` or `run` means, or None."""
    lines = [_plain(line) for line in output.splitlines()]
    telling = [line for line in lines if not _HARMLESS.search(line)]
    for row in (row for name in _LOOKED_UP[tool] for row in TABLES[name]):
        if row.also and not any(re.search(row.also, line) for line in telling):
            continue
        pattern = re.compile(row.pattern)
        for line in lines if row.also else telling:
            if pattern.search(line):
                return Match(row, line.strip())
    return None


def last_errors(output: str, count: int = 5) -> tuple[str, ...]:
    """Return the last lines that tell of an error, those first that say more than that some tool failed."""
    lines = [_plain(line).strip() for line in output.splitlines()]
    found = [line for line in lines if _ERROR.search(line) and not _HARMLESS.search(line)]
    telling = [line for line in found if not _PASSED_ON.search(line)]
    return tuple(dict.fromkeys(telling or found))[-count:]


def _plain(line: str) -> str:
    """Return a line without the terminal's colours."""
    return re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", line)


_HARMLESS = re.compile(
    # Warnings of git, pip, compilers and linkers.
    r"(?i:(^|[ :)])(warning|deprecation|note|hint|remark)( #?[\w-]{1,40})? ?: )|^\[notice\]"
    # A compiler quotes the source, whose texts may say anything; but a pointer of Git LFS is not source.
    r"|^\s{0,12}\d+ \|(?! version https://git-lfs)"
    # Progress: names of files and targets, packages that are there, features that are tried.
    r"|^\[ *\d+%\] |^\[\d+/\d+\] |^-- (Performing|Looking for|Check|Detecting|Found|Could NOT find|Not )"
    r"|^ *(Collecting|Downloading|Using cached|Requirement already satisfied|copying|adding|creating|removing)\b"
)
_ERROR = re.compile(
    r"(?i)\b(error|fatal|exception|failed|failure|refused|denied|not found)\b|\b[A-Z]\w*(Error|Exception):"
)
# What make, subprocess and pip say where something below them failed.
_PASSED_ON = re.compile(
    r"^g?make(\[\d+\])?: \*\*\*|CalledProcessError|subprocess-exited-with-error|^collect2: |^ninja: build stopped"
    r"|returned non-zero exit status|^compilation terminated|Failed building wheel for|metadata-generation-failed"
)

TABLES = {"build": BUILD, "pip": PIP, "git": GIT, "enroot": ENROOT, "run": RUN}
_LOOKED_UP = {
    "build": ("build", "pip", "git"),
    "pip": ("pip", "build", "git"),
    "git": ("git",),
    "enroot": ("enroot",),
    "run": ("run", "build", "pip", "git"),
}
