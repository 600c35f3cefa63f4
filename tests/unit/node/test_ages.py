"""The ages of build_wheel.py: what each is recognised by, and the exact arguments that it is given.

The scripts are stand-ins of our own: they have the flags that the real ones have at that age, the words by which their
behaviour is told, and that behaviour as far as it decides where things go, and what is configured.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from k3env.errors import TaskFailed
from k3env.k3 import ages
from k3env.node.facts import build
from k3env.node.facts.checkout import flags as helped
from k3env.node.facts.script import added, script
from k3env.node.machine import Machine
from k3env.node.modules.trtllm_build import argv
from tests.unit.node import ground

DATA = Path(__file__).parents[2] / "data" / "build" / "ages"
AGES = {"1-before": "before", "2-kimi-k3": "kimi k3", "3-build-root": "build root", "4-fingerprint": "fingerprint"}


def checkout(tmp_path: Path, name: str) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "cpp").mkdir()
    (tmp_path / ".gitmodules").write_text("")
    (tmp_path / "scripts" / "build_wheel.py").write_text((DATA / f"{name}.py").read_text())
    (tmp_path / "scripts" / "steps.py").write_text((DATA / "steps.py").read_text())
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
    "objects elsewhere": {
        "1-before": "--cuda_architectures 103-real --skip_building_wheel -j 16 --build_dir /local/b",
        "2-kimi-k3": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --build_dir /local/b",
        "3-build-root": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --build_dir /local/b",
        "4-fingerprint": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --build_dir /local/b",
    },
    "all at once": {
        "1-before": "--cuda_architectures 103-real --skip_building_wheel -j 16 --clean --build_dir /local/b",
        "2-kimi-k3": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --clean"
        " --nvrtc_dynamic_linking --build_dir /local/b",
        "3-build-root": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --clean"
        " --nvrtc_dynamic_linking --build_dir /local/b",
        "4-fingerprint": "--cuda_architectures 103-real --skip_building_wheel --yes -j 16 --clean"
        " --nvrtc_dynamic_linking --build_dir /local/b",
    },
}
HOW = {
    "first": {},
    "another architecture": {"configure": True},
    "moved": {"clean": True},
    "no static NVRTC": {"dynamic_nvrtc": True},
    "half of the attention kernels": {"generate_fmha": True},
    "objects elsewhere": {"objects": "/local/b"},
    "all at once": {
        "configure": True, "clean": True, "dynamic_nvrtc": True, "generate_fmha": True, "objects": "/local/b"
    },
}  # fmt: skip


@pytest.mark.parametrize("case", GOLDEN)
@pytest.mark.parametrize("name", AGES)
def test_the_exact_arguments(tmp_path: Path, name: str, case: str) -> None:
    flags = frozenset(added((DATA / f"{name}.py").read_text()))
    made = argv(flags, arch="103-real", jobs=16, **HOW[case])
    assert " ".join(made) == GOLDEN[case][name]
    # And the script of that age takes them.
    (tmp_path / "x").mkdir()
    root = checkout(tmp_path / "x", name)
    done = tried(root, *(word.replace("/local/b", f"{tmp_path}/b") for word in made))
    assert Path(done["build"]) == (tmp_path / "b" if "objects" in HOW[case] else root / "cpp/build")


def tried(root: Path, *words: str, **around: str) -> dict[str, Any]:
    """Run a checkout's script with the base interpreter, and return what it did."""
    argv = [str(ground.PYTHON), str(root / "scripts" / "build_wheel.py"), *words]
    kept = {key: value for key, value in os.environ.items() if key not in ("VIRTUAL_ENV", ages.ROOT_VARIABLE)}
    done = subprocess.run(argv, capture_output=True, text=True, env={**kept, **around}, cwd=root)
    if done.returncode:
        raise RuntimeError(done.stderr.splitlines()[-1])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def given(root: Path, *, arch: str = "103-real", dynamic_nvrtc: bool = False, objects: str = "") -> tuple[str, ...]:
    """Return the arguments that a build gets, by what is there now."""
    machine = Machine()
    found, read = build.look(machine, str(root), objects), script(machine, str(root))
    assert read is not None
    environment = ages.environment(ground.VERSION, str(root))
    stale = build.stale(found, arch=arch, environment=environment, dynamic_nvrtc=dynamic_nvrtc)
    return argv(
        frozenset(read.flags), arch=arch, jobs=1, configure=bool(stale), clean=not build.same_home(found),
        dynamic_nvrtc=dynamic_nvrtc, objects=objects,
    )  # fmt: skip


def cache(place: str) -> dict[str, str]:
    lines = (Path(place) / "CMakeCache.txt").read_text().splitlines()
    return dict(line.replace(":STRING", "").split("=", 1) for line in lines)


def rewritten(place: str, key: str, value: str) -> None:
    path = Path(place) / "CMakeCache.txt"
    path.write_text(re.sub(f"(?m)^{key}:STRING=.*$", f"{key}:STRING={value}", path.read_text()))


@pytest.mark.parametrize("elsewhere", [False, True])
@pytest.mark.parametrize("name", AGES)
def test_what_is_to_be_otherwise_is_configured_by_every_age(tmp_path: Path, name: str, elsewhere: bool) -> None:
    root, objects = checkout(tmp_path, name), f"{tmp_path}/b" if elsewhere else ""
    first = tried(root, *given(root, objects=objects))
    assert first["configured"] and first["venv"] == str(root / f".venv-{ground.VERSION}")
    place = first["build"]
    assert not tried(root, *given(root, objects=objects))["configured"], "once is enough"
    # The trap: the script by itself goes on as it was, up to the age that notices.
    plain = [word for word in given(root, arch="100-real", objects=objects) if word != "--configure_cmake"]
    notices = name == "4-fingerprint"
    assert tried(root, *plain)["configured"] is notices
    tried(root, *given(root, arch="100-real", objects=objects))
    assert cache(place)["CMAKE_CUDA_ARCHITECTURES"] == "100-real"
    if name != "1-before":
        tried(root, *given(root, arch="100-real", dynamic_nvrtc=True, objects=objects))
        assert cache(place)["NVRTC_DYNAMIC_LINKING"] == "ON"
    for key, value in (("CMAKE_BUILD_TYPE", "Debug"), ("Python3_EXECUTABLE", "/gone/.venv-3.8/bin/python3")):
        rewritten(place, key, value)
        words = given(root, arch="100-real", objects=objects)
        assert "--configure_cmake" in words, key
        tried(root, *words)
        assert cache(place)[key] != value
    rewritten(place, "CMAKE_HOME_DIRECTORY", "/elsewhere/cpp")
    with pytest.raises(RuntimeError, match="CMake Error"):
        tried(root, *(word for word in given(root, objects=objects) if word != "--clean"), "--configure_cmake")
    tried(root, *given(root, objects=objects))
    assert cache(place)["CMAKE_HOME_DIRECTORY"] == str(root / "cpp")


@pytest.mark.parametrize("name", AGES)
def test_where_each_age_makes_the_environment(tmp_path: Path, name: str) -> None:
    (tmp_path / "x").mkdir()
    root, place = checkout(tmp_path / "x", name), f"{tmp_path}/b"
    has_roots = ages.BUILD_ROOT in added((DATA / f"{name}.py").read_text())
    here, there = (ages.environment(ground.VERSION, str(root), where) for where in (None, place))
    assert here.endswith(f"/.venv-{ground.VERSION}") and there == f"{place}/venv-{ground.VERSION}"
    # A build root moves the environment, too; --build_dir moves the objects alone.
    moved = tried(root, "-a", "103-real", TRTLLM_BUILD_ROOT=place)
    assert moved["venv"] == (there if has_roots else here)
    assert moved["build"] == (f"{place}/cpp-build" if has_roots else f"{root}/cpp/build")
    if has_roots:
        assert tried(root, "-a", "103-real", ages.BUILD_ROOT, place)["venv"] == there
        with pytest.raises(RuntimeError, match="--out-of-tree"):
            tried(root, "-a", "103-real", ages.BUILD_ROOT, place, "--out-of-tree", "--skip_building_wheel")
    kept = tried(root, *given(root, objects=place), TRTLLM_BUILD_ROOT="")
    assert (kept["venv"], kept["build"]) == (here, place)


GIVEN = {"--cuda_architectures", "--skip_building_wheel", "--yes", "-j", "--clean", "--configure_cmake",
         "--nvrtc_dynamic_linking", "--generate_fmha", "--build_dir"}  # fmt: skip
NOT_GIVEN = {
    "--build_root": "it moves the environment out of the checkout, where jobs and other nodes look for it",
    "--out-of-tree": "it refuses --skip_building_wheel, and installs from a wheel instead of the checkout",
    "--python_only": "it makes no libraries",
    "--install": "up to some age it installs into the launching Python; pip install -e . comes after",
    "--no-venv": "it makes no environment",
    "--skip_requirements": "it leaves out conan's packages, too",
    "--skip-stubs": "an editable install asks for the stubs",
    "--linking_install_binary": "links would lead to one node's own disk",
    "--cpp_only": "it copies nothing into the package",
    "--configure-only": "it builds nothing",
    "--fast_build": "it leaves kernels out",
    "--clean_wheel": "there is no wheel",
    "--dist_dir": "there is no wheel",
    "--plat-name": "there is no wheel",
    "--mypyc": "there is no wheel",
    "--require_dynamic_attributions": "there is no wheel",
    "--version-override": "it changes a tracked file",
    "--build_type": "Release is its default",
    "--generator": "its own default",
    "--extra-cmake-vars": "what it would say, flags say",
    "--extra-make-targets": "the default targets are all that is needed",
    "--use_ccache": "the site sets it by its environment",
    "--use-3rdparty-cache": "an offline directory is used by its variables",
    "--benchmarks": "not needed to serve",
    "--micro_benchmarks": "not needed to serve",
    "--nvtx": "not needed to serve",
    "--trt_root": "the image brings it",
    "--nccl_root": "the image brings it",
    "--nixl_root": "the image brings it",
    "--mooncake_root": "the image brings it",
    "--internal-cutlass-kernels-root": "nobody outside has them",
}


@pytest.mark.parametrize("name", AGES)
def test_each_flag_of_each_age_is_given_or_left_out_for_a_reason(name: str) -> None:
    flags = {flag for flag in added((DATA / f"{name}.py").read_text()) if flag.startswith("--")}
    passed = {word for case in GOLDEN.values() for word in case[name].split() if word.startswith("-")}
    assert passed <= GIVEN and not GIVEN & NOT_GIVEN.keys()
    assert flags - GIVEN - {"--job_count"} <= NOT_GIVEN.keys(), "a flag that nobody has thought about"
    assert not passed & NOT_GIVEN.keys()


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
