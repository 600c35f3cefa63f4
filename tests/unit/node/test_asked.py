"""What a checkout asks for beside its build: pins, images, the environment of each mode, submodules."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.node.facts.asked import architectures, asked, images, modes
from tests.unit.node import ground
from tests.unit.node.ground import commit

SWEEP = """#!/bin/bash
MODE=""
case "$1" in
    --mode) MODE=$2; shift 2 ;;
esac
# MODE_ENV="HIDDEN=1"
case "$MODE" in
    deep)
        SIZE=64
        MODE_ENV=""
        ;;
    wide)
        MODE_ENV="KIMI_A=0 KIMI_B=1"
        # MODE_ENV="HIDDEN=1"
        ;;
    small|tiny) MODE_ENV='KIMI_A=1'; MODE_ENV+=" KIMI_C=$SIZE KIMI_D=x" ;;
    *) echo "error: unknown (deep|wide)" >&2; exit 2 ;;
esac
[[ -n "$MODE_ENV" ]] && COMMAND="export $MODE_ENV"
"""


def test_the_environment_of_each_mode() -> None:
    both = {"KIMI_A": "1", "KIMI_D": "x"}
    assert modes(SWEEP) == {"deep": {}, "wide": {"KIMI_A": "0", "KIMI_B": "1"}, "small": both, "tiny": both}


@pytest.mark.parametrize("text", ["", "case x in\n", "MODE_ENV=1\n", "deep)\n", "\x00\n"])
def test_a_script_without_modes(text: str) -> None:
    assert modes(text) == {}


REFUSES = 'message(FATAL_ERROR "GPU ${A} is not supported by\\n  TensorRT-LLM.")'
GPUS = [
    (f"set(ARCHITECTURES_WITH_KERNELS\n    80\n    103\n    120)\n{REFUSES}", ("80", "103", "120")),
    (f"set(ARCHITECTURES_WITH_KERNELS 80 86)\n{REFUSES}", ("80", "86")),
    ("set(ARCHITECTURES_WITH_KERNELS 80 86 89 90 120)\nforeach(A IN LISTS ARCHITECTURES_WITH_KERNELS)\n", ()),
    (f"set(ARCHITECTURES_WITH_KERNELS ${{X}})\n{REFUSES}", ()),
    ("", ()),
]


@pytest.mark.parametrize(("module", "taken"), GPUS)
def test_the_gpus_that_its_cmake_takes(module: str, taken: tuple[str, ...]) -> None:
    assert architectures(module.replace("\\n", "\n")) == taken


def test_the_images_by_cpu() -> None:
    text = "# LLM_DOCKER_IMAGE=no\nIMAGE_NAME=x\nLLM_DOCKER_IMAGE=r/x:1\nLLM_SBSA_DOCKER_IMAGE='r/y:2'\nLLM_ROCKY=z\n"
    assert images(text) == {"x86_64": "r/x:1", "aarch64": "r/y:2"}


def test_of_a_whole_checkout_and_of_a_sparse_one(tmp_path: Path) -> None:
    machine, repo = ground.machine(tmp_path / "home"), tmp_path / "repo"
    commit(
        repo, "it", **{
            "requirements.txt": "torch>=2\nfla-core==0.5.2\neinops\n",
            "examples/kimi_k3/perf_sweep/perf_sweep.sbatch": SWEEP,
            ".gitmodules": '[submodule "a"]\n\tpath = 3rdparty/a\n',
        },
    )  # fmt: skip
    found = asked(machine, str(repo))
    assert found.pins == {"torch": "torch>=2", "fla-core": "fla-core==0.5.2", "einops": "einops"}
    assert set(found.modes) == {"deep", "wide", "small", "tiny"}
    assert (found.submodules, found.absent, found.is_sparse) == (("3rdparty/a",), ("3rdparty/a",), False)
    ground.run("git", "-C", repo, "sparse-checkout", "set", "tensorrt_llm")
    sparse = asked(machine, str(repo))
    assert sparse.is_sparse and not sparse.modes and sparse.pins


def test_of_nothing(tmp_path: Path) -> None:
    found = asked(ground.machine(tmp_path / "home"), str(tmp_path / "absent"))
    assert not found.pins and not found.images and not found.modes and not found.submodules
