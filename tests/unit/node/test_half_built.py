"""What a build does with what an earlier one left half made, and with what an image lacks: by the script's flags."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.k3 import build as k3
from k3env.node.facts import build
from k3env.node.facts.toolchain import Toolchain
from k3env.node.machine import Machine
from k3env.node.modules._building import Work
from k3env.node.modules.trtllm_build import TrtllmBuild
from tests.unit.node import ground, test_ages

KERNEL = f"{k3.FMHA}/fmha_v2_flash_attention_sm100.cu"


def work(root: Path, name: str, has_cuda: bool = False, nvrtc_static: bool = True) -> Work:
    """A build of a checkout of that age, in a place with that toolchain."""
    text = (test_ages.DATA / f"{name}.py").read_text()
    shown = "usage: build_wheel.py\n" + "".join(f"  {flag}\n" for flag in sorted(test_ages.added(text)))
    found = Toolchain("aarch64", ground.VERSION, True, nvrtc_static=nvrtc_static, has_cuda=has_cuda, help=(0, shown))
    return Work(ground.machine(root / "home"), TrtllmBuild(str(root / "repo"), "1" * 40, jobs=1), [found])


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout of the age before Kimi K3, in which attention kernels lie that no build has finished."""
    files = {
        "scripts/build_wheel.py": (test_ages.DATA / "1-before.py").read_text(),
        ".gitignore": f"/{k3.FMHA}/\n",
        "tensorrt_llm/__init__.py": "",
    }
    ground.commit(tmp_path / "repo", "first", **files)
    (tmp_path / "repo" / KERNEL).parent.mkdir(parents=True)
    (tmp_path / "repo" / KERNEL).touch()
    return tmp_path


def test_half_of_the_attention_kernels_is_removed_where_no_flag_makes_them_anew(root: Path) -> None:
    made = work(root, "1-before")
    made._drop_half_fmha(build.look(made.machine, made.root))
    assert not (root / "repo" / k3.FMHA).exists()


def test_kernels_that_git_tracks_are_left_alone(root: Path) -> None:
    ground.git(root / "repo", "add", "--force", KERNEL)
    made = work(root, "1-before")
    made._drop_half_fmha(build.look(made.machine, made.root))
    assert (root / "repo" / KERNEL).exists()


def test_a_flag_makes_them_anew_where_there_is_one(root: Path) -> None:
    """A script that knows the flag, and does not mark what it has finished."""
    made = work(root, "2-kimi-k3")
    found = build.look(made.machine, made.root)
    made._drop_half_fmha(found)
    assert (root / "repo" / KERNEL).exists()
    assert "--generate_fmha" in made._arguments(found, made.toolchain())


def test_whole_kernels_are_made_no_second_time(root: Path) -> None:
    (root / "repo/scripts/build_wheel.py").write_text((test_ages.DATA / "2-kimi-k3.py").read_text())
    made = work(root, "2-kimi-k3")
    assert "--generate_fmha" not in made._arguments(build.look(made.machine, made.root), made.toolchain())


@pytest.mark.parametrize(
    ("name", "has_cuda", "static", "dynamic"),
    [
        ("2-kimi-k3", True, False, True),
        ("2-kimi-k3", True, True, False),
        ("2-kimi-k3", False, False, False),
        ("1-before", True, False, False),
    ],
)
def test_nvrtc_is_linked_dynamically_where_there_is_no_static_one(
    root: Path, name: str, has_cuda: bool, static: bool, dynamic: bool
) -> None:
    made = work(root, name, has_cuda=has_cuda, nvrtc_static=static)
    words = made._arguments(build.look(made.machine, made.root), made.toolchain())
    assert ("--nvrtc_dynamic_linking" in words) == dynamic


@pytest.mark.parametrize("name", ["VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "CONDA_PREFIX"])
def test_another_environment_does_not_leak_into_what_is_started(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "/elsewhere")
    said = Machine().run(["env"], timeout_s=20).text
    assert f"{name}=" not in said and "PATH=" in said
