"""What a checkout asks for: requirement files that name each other, tools of its build, CMake's sources."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from k3env.fetching import sources
from k3env.fetching.sources import Dependency

FILES = {
    "requirements-dev.txt": "-r requirements.txt\nlm_eval[api]==0.4.9\n",
    "requirements.txt": "--extra-index-url https://x.invalid/whl\n-c constraints.txt\ntorch>=2.11\n"
    "nvidia-ml-py>=13  # NVML\n-r deps/more.txt\n",
    "constraints.txt": "h11>=0.16\n",
    "deps/more.txt": "numpy\n--requirement=again.txt\n",
    "deps/again.txt": "-r more.txt\n",
}


def test_requirement_files_come_with_those_that_they_name(tmp_path: Path) -> None:
    first = sources.requirements(FILES.get, tmp_path)
    assert first == tmp_path / "requirements-dev.txt"
    written = {str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == FILES


def test_a_checkout_without_requirements_asks_for_none(tmp_path: Path) -> None:
    assert sources.requirements({}.get, tmp_path) is None


SCRIPTS = [
    ('build_run(f\'"{py}" -m pip install "virtualenv>=20.29.1,<22.0"\')', "virtualenv>=20.29.1,<22.0"),
    ("pip install conan==2.14.0\n find conan in the venv: conan profile", "conan==2.14.0"),
    ("pip install nanobind pybind11-stubgen", "nanobind"),
    ("# no word of it", "setuptools"),
]


@pytest.mark.parametrize("script, wanted", SCRIPTS)
def test_tools_are_read_from_the_build_script(script: str, wanted: str) -> None:
    assert wanted in sources.tools({"scripts/build_wheel.py": script}.get)


def test_what_a_build_in_isolation_needs_is_read_from_pyproject() -> None:
    text = '[build-system]\nrequires = ["hatchling>=1.5", "a[b]"]\n'
    assert sources.build_requires(text) == ("hatchling>=1.5", "a[b]")
    assert sources.build_requires("[project]\n") == sources.build_requires(None) == ("setuptools", "wheel")


def test_what_cmake_fetches_is_told_or_said_not_to_be() -> None:
    rows = [
        {"name": "fmt", "git_repository": "https://github.com/fmtlib/fmt", "git_tag": "abc", "git_shallow": True},
        {"name": "ep", "git_repository": "${github_base_url}/deepseek-ai/DeepEP", "git_tag": "931", "use_url": True},
        {"name": "other", "git_repository": "https://x.invalid/a", "git_tag": "1", "use_url": True},
        {"name": "odd", "git_repository": "${base}/a", "git_tag": "1"},
        {"name": "none", "git_tag": "1"},
    ]
    found, untold = sources.dependencies({sources.FETCHCONTENT: json.dumps({"dependencies": rows})}.get)
    assert found == (
        Dependency("fmt", "https://github.com/fmtlib/fmt", "abc", archive=False),
        Dependency("ep", "https://github.com/deepseek-ai/DeepEP", "931", archive=True),
    )
    assert found[1].path == "deepseek-ai/DeepEP/archive/931.tar.gz"
    assert set(untold) == {"other", "odd", "none"}


def test_cmake_files_that_fetch_by_themselves_are_told_of() -> None:
    assert sources.dependencies({}.get) == ((), {})
    _, untold = sources.dependencies({"3rdparty/CMakeLists.txt": "FetchContent_Declare(x)"}.get)
    assert list(untold) == ["FetchContent"]


def test_whether_flashinfer_comes_from_a_repository_is_read_from_the_guides() -> None:
    line = 'pip install "flashinfer-python[cu13] @ git+https://github.com/x/flashinfer-k3.git@b6cc594"'
    assert sources.asks_for_fork({"examples/kimi_k3/README.md": f"run\n  {line}\n"}.get)
    assert not sources.asks_for_fork({"examples/kimi_k3/README.md": "pip install flashinfer-python==0.6.16"}.get)
    assert not sources.asks_for_fork({}.get)
