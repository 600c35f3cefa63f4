"""The ages of build_wheel.py: what each is recognised by, and the exact arguments that it is given.

The scripts are stand-ins of our own: parsers with the flags that the real ones have at that age, and the words by which
their behaviour is told.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from k3env.errors import TaskFailed
from k3env.node.facts.checkout import flags as helped
from k3env.node.facts.script import added, script
from k3env.node.machine import Machine
from k3env.node.modules.trtllm_build import argv

DATA = Path(__file__).parents[2] / "data" / "build" / "ages"
AGES = {"1-before": "before", "2-kimi-k3": "kimi k3", "3-build-root": "build root", "4-fingerprint": "fingerprint"}


def checkout(tmp_path: Path, name: str) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts" / "build_wheel.py").write_text((DATA / f"{name}.py").read_text())
    return tmp_path


@pytest.mark.parametrize(("name", "age"), AGES.items())
def test_a_script_is_recognised_by_what_it_can_do(tmp_path: Path, name: str, age: str) -> None:
    found = script(Machine(), str(checkout(tmp_path, name)))
    assert found is not None and found.age == age and found.told
    assert (found.fetches_submodules, found.marks_fmha) == {
        "before": (True, False),
        "kimi k3": (True, True),
        "build root": (False, True),
        "fingerprint": (False, True),
    }[age]


@pytest.mark.parametrize("name", AGES)
def test_flags_read_from_the_source_are_those_that_help_lists(name: str) -> None:
    text = (DATA / f"{name}.py").read_text()
    shown = subprocess.run(
        [sys.executable, str(DATA / f"{name}.py"), "--help"], capture_output=True, text=True, check=True
    )
    assert set(added(text)) | {"-h", "--help"} == helped(shown.stdout)


GOLDEN = {
    "first": {
        "1-before": "--cuda_architectures 103-real --skip_building_wheel -j 16",
        "2-kimi-k3": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16",
        "3-build-root": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16",
        "4-fingerprint": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16",
    },
    "another architecture": {
        "1-before": "--cuda_architectures 103-real --skip_building_wheel -j 16 --configure_cmake",
        "2-kimi-k3": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --configure_cmake",
        "3-build-root": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --configure_cmake",
        "4-fingerprint": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --configure_cmake",
    },
    "moved": {
        "1-before": "--cuda_architectures 103-real --skip_building_wheel -j 16 --clean",
        "2-kimi-k3": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --clean",
        "3-build-root": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --clean",
        "4-fingerprint": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --clean",
    },
    "no static NVRTC": {
        "1-before": "--cuda_architectures 103-real --skip_building_wheel -j 16",
        "2-kimi-k3": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --nvrtc_dynamic_linking",
        "3-build-root": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --nvrtc_dynamic_linking",
        "4-fingerprint": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --nvrtc_dynamic_linking",
    },
    "half of the attention kernels": {
        "1-before": "--cuda_architectures 103-real --skip_building_wheel -j 16",
        "2-kimi-k3": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --generate_fmha",
        "3-build-root": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --generate_fmha",
        "4-fingerprint": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --generate_fmha",
    },
}
HOW = {
    "first": {},
    "another architecture": {"configure": True},
    "moved": {"clean": True},
    "no static NVRTC": {"dynamic_nvrtc": True},
    "half of the attention kernels": {"generate_fmha": True},
}


@pytest.mark.parametrize("case", GOLDEN)
@pytest.mark.parametrize("name", AGES)
def test_the_exact_arguments(name: str, case: str) -> None:
    flags = frozenset(added((DATA / f"{name}.py").read_text()))
    made = argv(flags, arch="103-real", jobs=16, **HOW[case])
    assert " ".join(made) == GOLDEN[case][name]
    # And the script of that age takes them.
    done = subprocess.run([sys.executable, str(DATA / f"{name}.py"), *made], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_script_that_takes_no_architecture_is_none_of_ours() -> None:
    with pytest.raises(TaskFailed, match="takes no --cuda_architectures"):
        argv(frozenset({"--yes"}), arch="103-real", jobs=1)


@pytest.mark.parametrize("text", ["def (", "\0", "(" * 500])
def test_what_is_no_python_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="no Python"):
        added(text)


ODD = [
    ("a mark of the byte order", "\ufeffp.add_argument('--yes', '-y')\n", {"--yes", "-y"}),
    ("another name for the method", "add = p.add_argument\nadd('--yes', '-y', help='no --force')\n", {"--yes", "-y"}),
    ("click", "@click.option('--yes/--no-yes', '-y', help='-x')\ndef main(): run(['a', '--b'])\n", {"--yes", "-y"}),
    ("a newer Python's words", "later X = 1\np.add_argument(\n    '--yes',\n    '-y', help='--x')\n", {"--yes", "-y"}),
    ("a call that adds no option", "words.append('--fresh')\np.add_argument('--yes')\n", {"--yes"}),
    ("none at all", "print('yes -y')\n", set()),
]


@pytest.mark.parametrize(("name", "text", "expected"), ODD, ids=[name for name, _, _ in ODD])
def test_flags_of_scripts_that_are_written_in_other_ways(name: str, text: str, expected: set[str]) -> None:
    assert set(added(text)) == expected


def test_a_checkout_without_the_script_has_no_age(tmp_path: Path) -> None:
    assert script(Machine(), str(tmp_path)) is None
