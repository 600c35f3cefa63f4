"""What failed output means: a table of real wording, against which every row of the diagnoses is held."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from k3env.k3 import build, pins
from k3env.k3.diagnoses.lookup import TABLES, chief, diagnose, last_errors
from k3env.k3.diagnoses.needles import needles
from k3env.k3.diagnoses.system import LAST

DATA = os.path.join(os.path.dirname(__file__), "..", "..", "data", "build")
with open(os.path.join(DATA, "diagnoses.yaml"), encoding="utf-8") as file:
    SAMPLES: list[dict[str, Any]] = yaml.safe_load(file)
with open(os.path.join(DATA, "harmless.yaml"), encoding="utf-8") as file:
    HARMLESS: list[str] = yaml.safe_load(file)
ROWS = [row for table in TABLES.values() for row in table]
PASSING = {row.id for row in ROWS if row.passes}


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{at}-{sample['id']}" for at, sample in enumerate(SAMPLES)])
def test_output_means_what_its_row_says(sample: dict[str, Any]) -> None:
    found = diagnose(sample["tool"], f"before\n{sample['output']}\nafter")
    assert found is not None
    assert found.diagnosis.id == sample["id"]
    assert any(found.line and found.line in line for line in sample["output"].splitlines())


@pytest.mark.parametrize("tool", TABLES)
@pytest.mark.parametrize("line", HARMLESS)
def test_what_a_healthy_run_says_too_means_nothing(line: str, tool: str) -> None:
    found = diagnose(tool, f"{line}\nerror: something that nobody knows\n")
    assert found is None, found


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{at}-{sample['id']}" for at, sample in enumerate(SAMPLES)])
def test_what_is_harmless_hides_nothing(sample: dict[str, Any]) -> None:
    quiet = [line for line in HARMLESS if not line.startswith("WARNING: ")]
    if sample["id"] in {row.id for row in LAST}:
        quiet = [line for line in quiet if not line.startswith("/src/kernel.cpp:12:3: error: ")]
    behind = [] if sample["id"] in PASSING else quiet
    found = diagnose(sample["tool"], "\n".join([*quiet, sample["output"], *behind]))
    assert found is not None and found.diagnosis.id == sample["id"]


def test_a_text_without_a_pattern_s_words_need_not_be_searched() -> None:
    """The words spare most searches, so every row has some; and no line matches that has none of them."""
    lines = {line for sample in SAMPLES for line in sample["output"].splitlines()} | set(HARMLESS)
    for row in ROWS:
        for pattern in filter(None, (row.pattern, row.also, row.near)):
            words = needles(pattern)
            matching = [line for line in lines if re.search(pattern, line)]
            assert words is None or all(any(word in line.casefold() for word in words) for line in matching), pattern
    assert [row.id for row in ROWS if needles(row.pattern) is None] == []


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("abc", {"abc"}),
        ("(?i)Abc", {"abc"}),
        ("abc|defg", {"abc", "defg"}),
        (r"x\d+ failed: (no|yes)", {" failed: "}),
        ("(abc)?x", None),
        ("(abc)+x", {"abc"}),
        (r"[abc]+\d", None),
        ("abc|x", None),
        ("ab(?:cd|ef)ghi", {"ghi"}),
        ("(?!abc)def", {"def"}),
    ],
)
def test_words_without_which_a_pattern_cannot_match(pattern: str, words: set[str] | None) -> None:
    assert needles(pattern) == words


def test_every_row_has_a_sample_a_remedy_and_a_source() -> None:
    assert {row.id for row in ROWS} == {sample["id"] for sample in SAMPLES}
    assert [row.id for row in ROWS if not (row.cause and row.remedy and row.source)] == []
    assert len({row.id for row in ROWS}) == len(ROWS)
    assert {row.id.partition(".")[0] for row in ROWS} == set(TABLES)


def test_what_nothing_fits_is_told_by_its_last_errors() -> None:
    output = """
    /src/kernel.cpp:12:3: error: use of undeclared identifier 'foo'
    /src/kernel.cpp:88:9: warning: unused variable 'error' [-Wunused]
    [ 88%] Building CXX object error/fatal.cpp.o
    gmake[2]: *** [CMakeFiles/Makefile2:677: all] Error 2
    subprocess.CalledProcessError: Command 'cmake --build .' returned non-zero exit status 2.
    """
    assert diagnose("build", output) is None
    assert last_errors(output) == ("/src/kernel.cpp:12:3: error: use of undeclared identifier 'foo'",)
    assert last_errors("gmake: *** [Makefile:166: all] Error 2") == ("gmake: *** [Makefile:166: all] Error 2",)
    assert last_errors("all is well") == ()
    assert last_errors("\n".join(f"error: {number}" for number in range(9)), 3) == ("error: 0", "error: 7", "error: 8")


def test_what_packages_say_while_they_are_built_is_a_failure_of_git_alone() -> None:
    said = "fatal: not a git repository (or any of the parent directories): .git"
    assert [tool for tool in TABLES if diagnose(tool, f"{said}\nerror: something that nobody knows\n")] == ["git"]


def test_what_is_said_by_the_way_counts_near_the_end_alone() -> None:
    said, others = "profile.sh: line 3: lsb_release: command not found\n", [f"error: {number}\n" for number in range(9)]
    found = diagnose("build", "".join(others) + said)
    assert found is not None and found.diagnosis.id == "system.no_program"
    assert diagnose("build", said + "".join(others)) is None
    assert diagnose("build", said + "/r/x.cpp:12:3: error: 'y' was not declared in this scope\n") is None


CUT = "error: RPC failed; curl 56 GnuTLS recv error (-54): Error in the pull function.\nfatal: early EOF\n"
WENT_ON = (
    "Submodule path '3rdparty/json': checked out '1f2e3d4'\n-- Configuring done (1.1s)\n"
    "[  4%] Building CXX object a.o\n"
)
UNKNOWN = "/r/cpp/a.cpp:12:3: error: use of undeclared identifier 'foo'\ngmake: *** [Makefile:166: all] Error 2\n"
CONTEXTS = {
    # what is said, and what it is taken for
    "a fetch that was tried again, before a failure that nobody knows": ("build", CUT + WENT_ON + UNKNOWN, None),
    "a fetch that failed": ("build", CUT, "git.network"),
    "a fetch that failed behind others": ("build", WENT_ON + CUT, "git.network"),
    "a fetch that failed, and what followed at once": ("build", CUT + UNKNOWN, "git.network"),
    "a fetch that failed for good, and what others said then": (
        "git",
        CUT + WENT_ON + CUT + "fatal: clone of 'https://x.invalid/json' into submodule path 'json' failed\n",
        "git.network",
    ),
    "a compiler without memory, though other jobs went on": (
        "build",
        "c++: fatal error: Killed signal terminated program cc1plus\n" + WENT_ON + UNKNOWN,
        "build.memory",
    ),
    "a rank's connection is none of git's": ("run", "ConnectionError: Connection reset by peer\n", "system.network"),
    "a host key that is not git's": ("run", "ssh: n2: Host key verification failed.\n", None),
    "a host key that is git's": (
        "run",
        "Cloning into 'x'...\nHost key verification failed.\nfatal: Could not read from remote repository.\n",
        "git.host_key",
    ),
    "an index's certificate within a build": (
        "build",
        "Collecting einops\nERROR: Could not fetch URL https://pypi.org/simple/einops/: certificate verify failed\n",
        "build.certificate",
    ),
    "an option that is not pip's": ("build", "tool: error: no such option: --frob\n", "system.usage"),
    "a page of the hub that is only named": (
        "run",
        "See https://huggingface.co/docs/transformers for more.\nRuntimeError: flux\n",
        None,
    ),
    "an argument that a compiler does not know": (
        "run",
        "clang: error: unknown argument: '-fno-flux'\n",
        "build.option",
    ),
    "a file that is no program": (
        "run",
        "FileNotFoundError: [Errno 2] No such file or directory: 'config.json'\n",
        None,
    ),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_words_mean_what_they_say_where_they_stand(name: str) -> None:
    tool, output, id = CONTEXTS[name]
    found = diagnose(tool, output)
    assert (found.diagnosis.id if found else None) == id


NINJA = """
[3/9] /usr/bin/nvcc -c a.cu -o a.o
FAILED: [code=1] a.o
/usr/bin/nvcc -DERROR -c a.cu -o a.o
a.cu(88): error: identifier "size_x" is undefined
          auto x = cute::size_x(l);
                   ^

1 error detected in the compilation of "a.cu".
[4/9] /usr/bin/nvcc -c b.cu -o b.o
b.cu(7): warning #177-D: variable "error" was declared but never referenced
FAILED: [code=2] c.o
c.cu(9): error: more than one instance of overloaded function
ninja: build stopped: subcommand failed.
Traceback (most recent call last):
  File "scripts/build_wheel.py", line 152, in main
subprocess.CalledProcessError: Command 'cmake --build . --parallel 64' returned non-zero exit status 1.
"""
TOLD = {
    # what a failure says, and the line that is told of it: the one that the others follow from
    "ninja goes on with other jobs": (NINJA, 'a.cu(88): error: identifier "size_x" is undefined'),
    "thousands of lines later": (
        NINJA + "[100%] Building CXX object x.o\n" * 3000 + "gmake: *** [Makefile:166: all] Error 2\n",
        'a.cu(88): error: identifier "size_x" is undefined',
    ),
    "CMake's words stand below": (
        "CMake Error at CMakeLists.txt:301 (message):\n  flux capacitor\n  is broken\n\n"
        "-- Configuring incomplete, errors occurred!\n",
        "CMake Error at CMakeLists.txt:301 (message): flux capacitor is broken",
    ),
    "CMake's words stand below a blank": (
        'CMake Error at x.cmake:9 (find):\n\n    What follows is "flux.cmake"\n\n'
        "Call Stack (most recent call first):\n",
        'CMake Error at x.cmake:9 (find): What follows is "flux.cmake"',
    ),
    "the linker": (
        "/usr/bin/ld: a.o: undefined reference to `flux'\ncollect2: error: ld returned 1 exit status\n"
        "gmake: *** [a] Error 1\n",
        "/usr/bin/ld: a.o: undefined reference to `flux'",
    ),
    "pip's frames": (
        "  × python setup.py egg_info did not run successfully.\n  │ exit code: 1\n  ╰─> [6 lines of output]\n"
        "      Traceback (most recent call last):\n      ValueError: flux\n      [end of output]\n"
        "error: metadata-generation-failed\n",
        "ValueError: flux",
    ),
    "colours and progress": (
        "\x1b[1m\x1b[31merror: flux\x1b[0m\x1b[K\rReceiving objects:  9%\rReceiving objects: 100%, done.\n",
        "error: flux",
    ),
    "a builder's prefixes": ("#22 3747.1 error: flux\n#22 3747.2 gmake[1]: *** [x] Error 2\n", "error: flux"),
    "a rank's prefix": (
        "12: [rank12]: ValueError: flux\nsrun: error: n1: task 12: Exited with exit code 1\n",
        "ValueError: flux",
    ),
    "bytes that are no UTF-8": (
        b"error: fl\xfcx \xe2\x80\x98y\xe2\x80\x99\n".decode("utf-8", "replace"),
        "error: fl\ufffdx ‘y’",
    ),
}


@pytest.mark.parametrize("name", TOLD)
def test_the_line_that_is_told_of_a_failure_that_nobody_knows(name: str) -> None:
    output, line = TOLD[name]
    assert diagnose("build", output) is None
    assert chief(last_errors(output)) == line


PIP = (sys.executable, "-m", "pip", "install", "--isolated", "--retries", "1")
NOWHERE = "127.0.0.1:9"
REAL = {
    # what is done for real, and what its words are taken for
    "an index that does not answer": ((*PIP, "--index-url", f"http://{NOWHERE}/", "x"), "pip.unreachable"),
    "an index over http": ((*PIP, "--index-url", "http://nosuch.invalid/", "x"), "pip.untrusted"),
    "no directory of wheels": ((*PIP, "--no-index", "--find-links", "/nosuch", "x"), "pip.wheelhouse"),
    "no such package": ((*PIP, "--no-index", "x"), "pip.no_match"),
    "a wheel for another processor": ((*PIP, "--no-index", "x-1.0-cp27-cp27m-win32.whl"), "pip.platform"),
    "a wheel that is cut off": ((*PIP, "--no-index", "y-1.0-py3-none-any.whl"), "pip.bad_wheel"),
    "a proxy that is down": (
        ("env", f"https_proxy=http://{NOWHERE}", *PIP, "--index-url", "https://a.invalid/", "x"),
        "pip.proxy_down or pip.unreachable",  # pip 26 names the proxy by its address alone
    ),
    "an old pip": ((*PIP, "--nosuch"), "pip.option"),
    "git within pip": ((*PIP, "--no-deps", f"x @ git+https://{NOWHERE}/x@{'1' * 40}"), "git.network"),
    "a git server that does not answer": (("git", "clone", f"https://{NOWHERE}/x", "a"), "git.network"),
    "no repository": (("git", "clone", "/nosuch", "a"), "git.not_a_repository"),
    "no such commit": (("git", "-C", "repo", "checkout", "1" * 40), "git.no_commit"),
    "no such branch": (("git", "-C", "repo", "fetch", ".", "nosuch"), "git.no_commit"),
}


@pytest.mark.parametrize("name", REAL)
def test_real_words_of_pip_and_git(name: str, tmp_path: Path) -> None:
    argv, id = REAL[name]
    for wheel in ("x-1.0-cp27-cp27m-win32.whl", "y-1.0-py3-none-any.whl"):
        (tmp_path / wheel).touch()
    subprocess.run(["git", "init", "-q", "repo"], cwd=tmp_path, check=True)
    kept = {key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")}
    plain = {**kept, "LC_ALL": "C.UTF-8", "GIT_TERMINAL_PROMPT": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1"}
    done = subprocess.run(argv, cwd=tmp_path, env=plain, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    tool = "pip" if "pip" in argv else "git"
    found = diagnose(tool, done.stdout + done.stderr)
    assert found is not None and found.diagnosis.id in id.split(" or "), done.stdout + done.stderr


def test_colours_and_unknown_words() -> None:
    found = diagnose("build", "\x1b[31mc++: fatal error: Killed signal terminated program cc1plus\x1b[0m\n")
    assert found is not None and found.diagnosis.id == "build.memory"
    assert diagnose("build", "all is well\n[100%] Built target th_common\n") is None
    assert diagnose("git", "No module named pip") is None, "git has no business with pip"


@pytest.mark.parametrize(
    ("arch", "problem"),
    [
        ("103-real", None),
        ("100-real", None),
        ("100-real;103-real", None),
        ("90a-real", None),
        ("native", None),
        ("all", None),
        ("10.3", "did you mean 103-real?"),
        ("sm_103", "did you mean 103-real?"),
        ("103f-real", "did you mean 103-real?"),
        ("100-virtual", "did you mean 100-real?"),
        ("all-major", "found 'all-major'"),
        ("103-real;native", "found 'native'"),
        ("70-real", "Volta"),
        ("", "found ''"),
        ("103-real,100-real", "found '103-real,100-real'"),
        # CMake takes no white space around an item, and no number that begins with 0.
        ("103-real; 100-real", "did you mean 100-real?"),
        ("103-real ", "did you mean 103-real?"),
        ("0103-real", "found '0103-real'"),
        ("\uff11\uff10\uff13", "found"),
        ("75-real", "before Ampere (75-real)"),
        ("52", "before Ampere"),
        ("1003-real", "found '1003-real'"),
        ("700", "found '700'"),
        ("80", None),
        ("121-real", None),
        ("103a", None),
    ],
)
def test_architectures_that_cmake_takes(arch: str, problem: str | None) -> None:
    found = build.arch_problem(arch)
    assert (found is None) == (problem is None)
    assert problem is None or problem in (found or "")


GIB = 1 << 30


@pytest.mark.parametrize(
    ("cpus", "bounds", "jobs"),
    [
        (144, (None, None, None), 144),
        (144, (480 * GIB, None, None), 120),
        # Grace: 480 GiB of its own, and the GPUs' memory as nodes without CPUs.
        (144, (1700 * GIB, 470 * GIB, None), 117),
        (144, (480 * GIB, None, 64 * GIB), 16),
        (8, (480 * GIB, None, None), 8),
        (8, (3 * GIB, None, None), 1),
        (8, (0, None, None), 1),
        (2, (None, None, 9 * GIB), 2),
    ],
)
def test_jobs(cpus: int, bounds: tuple[int | None, ...], jobs: int) -> None:
    assert build.build_jobs(cpus, *bounds) == jobs


@pytest.mark.parametrize(
    "name",
    ["torch", "Torch", "torchvision", "triton", "nvidia-cutlass-dsl", "nvidia_nccl_cu13", "tensorrt", "tensorrt_llm"],
)
def test_protected(name: str) -> None:
    assert pins.is_protected(name)


@pytest.mark.parametrize("name", ["einops", "fla-core", "flashinfer-python", "torch-c-dlpack-ext", "tritonclient"])
def test_not_protected(name: str) -> None:
    assert not pins.is_protected(name)


def test_artefacts_are_patterns_in_the_checkout() -> None:
    for item in build.ARTEFACTS:
        assert item.pattern.startswith(("tensorrt_llm/", "3rdparty/")), item
        assert re.fullmatch(r"[\w./*]+", item.pattern), item
