"""The lines of failed output: those that tell of an error, and those that mean nothing."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Optional


def last_errors(output: str, count: int = 5) -> tuple[str, ...]:
    """Return the lines that tell of an error, those alone that say more than that some tool failed.

    Of many, these are the first, which the others follow from, and the last ones.
    """
    telling = errors_of(_joined(lines_of(output)))
    return tuple(telling if len(telling) <= count else [telling[0], *telling[-(count - 1) :]])


def chief(errors: Sequence[str]) -> str:
    """Return the one of some errors that the others follow from: a compiler's first, else the last one said."""
    return next((line for line in errors if COMPILER.search(line)), errors[-1])


def shells_word(exit_code: Optional[int]) -> str:
    """Return what a shell says of a program that a signal ended, which says nothing itself; "" of any other."""
    if exit_code is None or 0 <= exit_code <= _SHELL:
        return ""
    return _ENDED.get(-exit_code if exit_code < 0 else exit_code - _SHELL, "")


def errors_of(lines: Iterable[str]) -> list[str]:
    """Return the lines that tell of an error; where none tells its cause, those that say that some tool failed."""
    told = list(dict.fromkeys(line for line in lines if _ERROR.search(line) and not HARMLESS.search(line)))
    return [line for line in told if not _PASSED_ON.search(line)] or told


def own_errors(lines: Sequence[str]) -> Iterator[int]:
    """Yield which lines tell of an error of their own, not of something below that failed."""
    for at, line in enumerate(lines):
        if line and _ERROR.search(line) and not HARMLESS.search(line) and not _PASSED_ON.search(line):
            yield at


def lines_of(output: str) -> Iterator[str]:
    """Return the lines without the terminal's colours, and without what builders and launchers put before them.

    Of a long one, such as a compiler's command, the middle is left out: no pattern may take long over it. What
    stands indented below a warning of CMake's, or is source quoted by nvcc, is no word of a tool.
    """
    below = False
    for line in _CONTROL.sub("", output).splitlines():
        short = line if len(line) <= _LONG else f"{line[: _LONG // 2]} ... {line[-_LONG // 2 :]}"
        bare = _FRAME.sub("", _BEFORE.sub("", short))
        below = below and (bare[:1].isspace() or not bare)
        if not below:
            yield bare.strip()
        below = below or _QUOTES.search(bare) is not None


def _joined(lines: Iterator[str]) -> Iterator[str]:
    """Return the lines, where CMake's errors, and git's, stand in one with the text that comes below them."""
    head: list[str] = []
    for line in lines:
        if head and not line and len(head) == 1:
            continue
        if head and line and len(head) < _BELOW and not line.startswith(("CMake ", "-- ", "Call Stack")):
            head.append(line)
            continue
        if head:
            yield " ".join(head)
            head = []
        if _HEAD.search(line):
            head = [line]
        else:
            yield line
    if head:
        yield " ".join(head)


_SHELL = 128
_ENDED: dict[int, str] = {signal.SIGKILL: "Killed", signal.SIGTERM: "Terminated", signal.SIGHUP: "Hangup"}
_CONTROL = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[@-Z\\-_])")
# BuildKit's "#25 474.9 ", a time, srun's "12: ", torch's "[rank3]:", pyxis' words before those of enroot.
_BEFORE = re.compile(
    r"^([\w.-]+ - (INFO|ERROR|DEBUG) - )?(#\d+ )?(\d+\.\d+ (?=\S| +\S))?(\[?\d{4}-\d\d-\d\dT[\d:.,]+(Z"
    r"|[+-]\d\d:?\d\d)?\]?:? ?)?(\d+: (?!\d))?"
    r"(\[rank\d+\]: ?)?(\([\w .=-]+ pid=\d+\) )?(ERROR \d\d-\d\d [\d:]+ \[\S+:\d+\] )?(slurmstepd: (error: )?pyxis: +)?"
)
_FRAME = re.compile(
    # Of pip and uv, which draw with ASCII where the terminal knows no more.
    r"^\s*((\|->|`->|[│|├\u00d7╰─▶>]+) |x (?=Failed|No solution))+(?=\S)|[ \t│]+$"
)
_HEAD = re.compile(r"^CMake Error.*:$|error setting certificate verify locations:$|unable to access '[^']*':$")
_BELOW = 4
_QUOTES = re.compile(r"^CMake (\w+ )?Warning\b|\S\(\d+\): (warning|error|note|remark)\b")
_LONG = 1200
HARMLESS = re.compile(
    # Warnings of git, pip, compilers and linkers; words of NCCL that are no warnings.
    r"(?i:(^|[ :)])(warning|deprecation|note|remark)( #?[\w-]{1,40})? ?: |^(remote: )?hint: )|^\[notice\]|NCCL INFO "
    r"|^(\([^)]*\) )?(WARNING|INFO|DEBUG) +\d\d-\d\d |^(WARNING|INFO|DEBUG):\w|\[(WARNING|INFO|DEBUG)\]|^[WI]\d{4} \d"
    r"|\b[A-Z]\w*Warning: |^WARN: |^(WARN|INFO|DEBU)\[\d+\] |\blevel=(warning|info|debug)\b|^\[INFO\]"
    r"|^(\[[^\]]*\] )?\[TRT-LLM\] \[[WI]\]|\[TensorRT-LLM\]\[(WARNING|INFO)\]"
    # A builder shows the command that it runs.
    r"|^(cd \S+ && )?(/?[^\s:]*/)?(ccache |sccache )?(/?[^\s:]*/)?(nvcc|cc|gcc|g\+\+|c\+\+|clang(\+\+)?)(-\d+)? -\S"
    r"|dependency resolver does not currently take into account|^(DEBUG|TRACE) "
    # A compiler quotes the source, whose texts may say anything; but a pointer of Git LFS is not source.
    r"|^\s{0,12}\d+ \|(?! version https://git-lfs)"
    # Progress: names of files and targets, packages that are there, features that are tried.
    r"|^\[ *\d+%\] |^\[\d+/\d+\] |^-- (Performing|Looking for|Check|Detecting|Found|Could NOT find|Not )"
    r"|^ *(Collecting|Downloading|Using cached|Requirement already satisfied|copying|adding|creating|removing)\b"
)
_ERROR = re.compile(
    r"(?i)\b(error|fatal|exception|failed|failure|refused|denied|not found|undefined (reference|symbol)|cannot"
    r"|could not"
    r"|unable to|no such file|multiple definition|not permitted|timed out|aborted|core dumped|killed)\b"
    r"|\b[A-Z]\w*(Error|Exception):"
)
COMPILER = re.compile(
    r"^[^\s:]+[:(]\d+[:)][\d: ]*(fatal |catastrophic )?error|undefined reference to|^CMake Error|^nvcc (fatal|error)"
    r"|ptxas (fatal|error)"
)
# What make, ninja, subprocess, pip and srun say where something below them failed.
_PASSED_ON = re.compile(
    r"^g?make(\[\d+\])?: \*\*\*|CalledProcessError|subprocess-exited-with-error|^\s*collect2: |^ninja: |^FAILED: "
    r"|returned (a )?non-zero (exit status|code)|^[Cc]ompilation terminated|Failed building wheel for"
    r"|Ninja build failed"
    r"|metadata-generation-failed|did not run successfully|error while generating package metadata"
    r"|^\s*(Preparing|Getting|Installing|Building) .*(error|'error')$|Could not build wheels|Failed to build "
    r"|errors? detected in the compilation of|Configuring incomplete, errors occurred|failed with exit (code|status)"
    r"|[Ee]rror compiling objects for extension|failed with error code|task \d+: Exited with|plugin spank|spank plugin"
    r"|^srun: error: |[Cc]hild job \d+ terminated|did not complete successfully|smudge filter lfs failed"
    r"|external filter"
    r"|Check the logs for full command output|printing (contents of )?(enroot )?log|couldn't start container"
    r"|failed to import docker image|Failed to recurse into submodule|a second time, aborting|Retry scheduled"
    r"|^executor failed running|The build backend returned an error"
    r"|^(error: )?Failed to (build|download|fetch|install)[: ]|Call to `\S+` failed|^help: |MPI_ERRORS_ARE_FATAL"
    r"|Request failed after \d+ retries|^fatal: not a git repository|^Traceback|^During handling of"
    r"|Error 1$"
)
