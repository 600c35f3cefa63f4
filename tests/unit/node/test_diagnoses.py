"""What failed output means: a table of real wording, against which every row of the diagnoses is held."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest
import yaml

from k3env.k3 import build, pins
from k3env.k3.diagnoses import TABLES, diagnose, last_errors

DATA = os.path.join(os.path.dirname(__file__), "..", "..", "data", "build")
with open(os.path.join(DATA, "diagnoses.yaml"), encoding="utf-8") as file:
    SAMPLES: list[dict[str, Any]] = yaml.safe_load(file)
with open(os.path.join(DATA, "harmless.yaml"), encoding="utf-8") as file:
    HARMLESS: list[str] = yaml.safe_load(file)
ROWS = [row for table in TABLES.values() for row in table]


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{at}-{sample['id']}" for at, sample in enumerate(SAMPLES)])
def test_output_means_what_its_row_says(sample: dict[str, Any]) -> None:
    found = diagnose(sample["tool"], f"before\n{sample['output']}\nafter")
    assert found is not None
    assert found.diagnosis.id == sample["id"]
    assert found.line in [line.strip() for line in sample["output"].splitlines()]


@pytest.mark.parametrize("tool", TABLES)
@pytest.mark.parametrize("line", HARMLESS)
def test_what_a_healthy_run_says_too_means_nothing(line: str, tool: str) -> None:
    found = diagnose(tool, f"{line}\nerror: something that nobody knows\n")
    assert found is None, found


@pytest.mark.parametrize("sample", SAMPLES, ids=[f"{at}-{sample['id']}" for at, sample in enumerate(SAMPLES)])
def test_what_is_harmless_hides_nothing(sample: dict[str, Any]) -> None:
    quiet = [line for line in HARMLESS if not line.startswith("WARNING: ")]
    found = diagnose(sample["tool"], "\n".join([*quiet, sample["output"], *quiet]))
    assert found is not None and found.diagnosis.id == sample["id"]


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
    assert last_errors("\n".join(f"error: {number}" for number in range(9)), 2) == ("error: 7", "error: 8")


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


def test_artefacts_are_patterns_in_the_package() -> None:
    for item in build.ARTEFACTS:
        assert item.pattern.startswith("tensorrt_llm/"), item
        assert re.fullmatch(r"[\w./*]+", item.pattern), item
