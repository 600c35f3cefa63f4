"""What a run starts that finds all as wanted: every process of controller and node, as the kernel saw them begin."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.sandbox.cli import Site

GITS = ("status", "ls-files")
"""Where HEAD, files and submodules are; and which files are Git LFS's."""
ENGINES = {"docker", "podman", "enroot", "buildah", "nerdctl", "apptainer", "singularity", "crun", "runc", "srun"}
_EXECUTED = re.compile(r'execve\("(?P<program>[^"]+)", \[(?P<words>.*?)\], 0x')


def untraceable() -> str:
    """Return why processes can't be traced here, or ""."""
    if shutil.which("strace") is None:
        return "strace is not installed"
    done = subprocess.run(["strace", "-f", "-qq", "-e", "trace=execve", "true"], capture_output=True, check=False)
    return "" if done.returncode == 0 else "this user may not trace processes"


@pytest.mark.skipif(bool(untraceable()), reason=untraceable() or "strace is here")
def test_no_pip_no_container_and_two_gits_where_nothing_is_to_be_done(provisioned: Site, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    argv = provisioned.argv("provision", "--hosts", "tray-01", "--detailed-exitcode")
    tracing = ["strace", "-f", "-qq", "-s", "300", "-e", "trace=execve", "-e", "signal=none", "-o", str(trace)]
    environment = provisioned.environment()
    done = subprocess.run([*tracing, *argv], env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    begun = started(trace.read_text(errors="replace"))
    # The node's sshd is a thread of the controller: what it starts is seen too.
    assert any("sys.stdin.buffer" in " ".join(words) for words in begun), "the agent was not seen to start"
    assert [words for words in begun if is_pip(words)] == []
    assert [words for words in begun if Path(words[0]).name in ENGINES] == []
    gits = [words for words in begun if Path(words[0]).name == "git"]
    assert sorted(next(word for word in words[3:] if word[0] != "-") for words in gits) == sorted(GITS), gits


def started(trace: str) -> list[list[str]]:
    """Return the command line of each program that was started; attempts along PATH are none."""
    lines = (line for line in trace.splitlines() if " = -1 " not in line)
    found = (_EXECUTED.search(line) for line in lines)
    return [[match["program"], *re.findall(r'"((?:[^"\\]|\\.)*)"', match["words"])[1:]] for match in found if match]


def is_pip(words: list[str]) -> bool:
    """Return whether a command line is pip's."""
    name = Path(words[0]).name
    return name.startswith("pip") or (name.startswith("python") and "pip" in words[1:])


def test_the_trace_is_read_as_it_is_written(tmp_path: Path) -> None:
    begun = started(
        '7 execve("/usr/local/bin/pip3", ["pip3", "list"], 0x55 /* 9 vars */) = -1 ENOENT (No such file)\n'
        '7 execve("/usr/bin/pip3", ["pip3", "a \\"b\\""], 0x55 /* 9 vars */ <unfinished ...>\n'
        '8 execve("/opt/v/bin/python", ["python", "-u", "-m", "pip", "install"], 0x55 /* 9 vars */) = 0\n'
        "8 +++ exited with 0 +++\n"
    )
    assert begun == [["/usr/bin/pip3", 'a \\"b\\"'], ["/opt/v/bin/python", "-u", "-m", "pip", "install"]]
    assert all(map(is_pip, begun)) and not is_pip(["/usr/bin/python3", "-c", "import this"])
