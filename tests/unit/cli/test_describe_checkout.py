"""describe --repo: what a checkout is recognised as, without running anything of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3env.node.facts.build import objects_of

DATA = Path(__file__).parents[2] / "data" / "build" / "ages"
FORK = 'pip install "flashinfer-python[cu13] @ git+https://github.com/x/y.git@b6cc594918baf76c40c3a6236fd53f0f8fb9d2dc"'


def described(root: Path, *more: str) -> dict[str, Any]:
    argv = [sys.executable, "-m", "k3env.cli", "describe", "--repo", str(root), "--output", "json", *more]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "requirements.txt").write_text("flashinfer-python==0.6.16\n")
    return tmp_path


@pytest.mark.parametrize(
    ("age", "name"), [("1-before", "before"), ("2-kimi-k3", "kimi k3"), ("3-build-root", "build root")]
)
def test_the_commands_of_each_age(root: Path, age: str, name: str) -> None:
    (root / "scripts" / "build_wheel.py").write_text((DATA / f"{age}.py").read_text())
    found = described(root)
    assert found["age"] == name and found["commit"] is None
    yes = " --yes" if age != "1-before" else ""
    words = f"python3 scripts/build_wheel.py --cuda_architectures 103-real --skip_building_wheel{yes} -j JOBS"
    commands = {row["step"]: row["command"] for row in found["commands"]}
    assert list(commands) == ["build", "install", "extras"] and commands["build"] == words
    assert "--no-deps fla-core einops" in commands["extras"]
    assert ("ROOT/venv-X.Y" in found["venv"]) is (age == "3-build-root")


def test_a_guide_that_asks_for_the_fork_adds_its_step(root: Path) -> None:
    (root / "scripts" / "build_wheel.py").write_text((DATA / "2-kimi-k3.py").read_text())
    (root / "examples" / "kimi_k3").mkdir(parents=True)
    (root / "examples" / "kimi_k3" / "README.md").write_text(FORK)
    found = described(root, "--extra-vars", "trtllm_arch=100-real", "--extra-vars", "trtllm_jobs=8")
    commands = {row["step"]: row["command"] for row in found["commands"]}
    assert "--cuda_architectures 100-real" in commands["build"] and "-j 8" in commands["build"]
    assert commands["flashinfer"].startswith("BUILD_NVEP=0 ") and "--force-reinstall" in commands["flashinfer"]
    assert "flashinfer" not in {
        row["step"] for row in described(root, "--extra-vars", "flashinfer_step=none")["commands"]
    }


def test_nothing_of_the_checkout_is_run(root: Path) -> None:
    text = (DATA / "2-kimi-k3.py").read_text()
    (root / "scripts" / "build_wheel.py").write_text(f"{text}\nopen({str(root / 'ran')!r}, 'w')\n")
    described(root)
    assert not (root / "ran").exists()


NO_CHECKOUTS = [
    (None, "is no checkout of TensorRT LLM expected: scripts/build_wheel.py in it found: no such file"),
    ("def (", "no Python"),
    ("print 'hello'", "Missing parentheses"),
    ("import argparse\nargparse.ArgumentParser().add_argument('--skip-download')\n", "one that takes --skip-download"),
    ("print()\n", "one that takes no options"),
]


@pytest.mark.parametrize(("text", "told"), NO_CHECKOUTS)
def test_what_is_no_checkout_is_said(root: Path, text: str | None, told: str) -> None:
    if text is not None:
        (root / "scripts" / "build_wheel.py").write_text(text)
    argv = [sys.executable, "-m", "k3env.cli", "describe", "--repo", str(root)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and told in " ".join(done.stderr.split()) and "Traceback" not in done.stderr


def _loop(root: Path) -> None:
    (root / "scripts" / "build_wheel.py").symlink_to("build_wheel.py")


def _nested(root: Path) -> None:
    (root / "scripts" / "build_wheel.py").write_text("-" * 20000 + "1\n")


def _odd_version(root: Path) -> None:
    (root / "scripts" / "build_wheel.py").write_text("")
    (root / "tensorrt_llm" / "version.py").mkdir(parents=True)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [(_loop, "symbolic links"), (_nested, "it is no Python"), (_odd_version, "version.py can't be read")],
)
def test_what_can_not_be_read_is_the_checkouts_fault(root: Path, spoil: Callable[[Path], None], told: str) -> None:
    spoil(root)
    argv = [sys.executable, "-m", "k3env.cli", "describe", "--repo", str(root)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    said = " ".join(done.stderr.split())
    assert done.returncode == 1 and told in said and "defect" not in said


def test_where_objects_go_is_part_of_the_command(root: Path) -> None:
    (root / "scripts" / "build_wheel.py").write_text((DATA / "2-kimi-k3.py").read_text())
    found = described(root, "--extra-vars", "trtllm_build_root=/local/b")
    command = next(row["command"] for row in found["commands"] if row["step"] == "build")
    assert f"--build_dir {objects_of('/local/b', str(root))}" in command


def refused(path: Path) -> str:
    argv = [sys.executable, "-m", "k3env.cli", "describe", "--repo", str(path)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and not done.stdout
    return " ".join(done.stderr.split())


def test_where_there_is_no_directory_or_no_file_checked_out(root: Path) -> None:
    assert "found: no such directory" in refused(root / "absent")
    assert "found: a file" in refused(root / "requirements.txt")
    subprocess.run(["git", "init", "--quiet", "--bare", str(root / "bare.git")], check=True)
    assert "found: a bare repository" in refused(root / "bare.git")


def test_a_directory_inside_a_checkout_names_its_root(root: Path) -> None:
    (root / "scripts" / "build_wheel.py").write_text((DATA / "2-kimi-k3.py").read_text())
    assert f"--repo {root}" in refused(root / "scripts")


def test_what_it_asks_for(root: Path) -> None:
    (root / "scripts" / "build_wheel.py").write_text((DATA / "2-kimi-k3.py").read_text())
    (root / "requirements.txt").write_text("torch>=2.11.0,<=2.13.0a0\nflashinfer-python==0.6.16\n")
    (root / "jenkins").mkdir()
    (root / "jenkins" / "current_image_tags.properties").write_text("LLM_SBSA_DOCKER_IMAGE=site/x:sbsa\n")
    (root / ".gitmodules").write_text('[submodule "3rdparty/a"]\n\tpath = 3rdparty/a\n\turl = https://example.org/a\n')
    found = described(root)
    assert found["pins"] == {"torch": "torch>=2.11.0,<=2.13.0a0", "flashinfer-python": "flashinfer-python==0.6.16"}
    assert found["images"] == {"aarch64": "site/x:sbsa"} and found["modes"] == {} and found["sparse"] is False
    assert found["submodules"] == {"paths": ["3rdparty/a"], "absent": ["3rdparty/a"]}
    assert found["flashinfer"]["guides"] == []


def lines(root: Path) -> list[str]:
    argv = [sys.executable, "-m", "k3env.cli", "describe", "--repo", str(root)]
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=True).stdout.splitlines()


def test_a_person_reads_it_in_80_columns(root: Path) -> None:
    (root / "scripts" / "build_wheel.py").write_text((DATA / "1-before.py").read_text())
    (root / "requirements.txt").write_text("torch>=2.11.0,<=2.13.0a0\ntriton==3.6.0\ntransformers==5.5.4\nfla-core\n")
    told = lines(root)
    told = told[: told.index("what is done:")]
    assert all(len(line) <= 80 for line in told[1:])
    assert "FlashInfer    no guide for Kimi K3 in this checkout" in "\n".join(told)


def test_a_guide_that_names_another_commit_than_the_variable(root: Path) -> None:
    (root / "scripts" / "build_wheel.py").write_text((DATA / "2-kimi-k3.py").read_text())
    (root / "examples" / "kimi_k3").mkdir(parents=True)
    (root / "examples" / "kimi_k3" / "README.md").write_text(FORK.replace("b6cc", "0000"))
    told = " ".join(" ".join(lines(root)).split())
    assert "asks for the fork at 0000594918baf76c40c3a6236fd53f0f8fb9d2dc; flashinfer_commit is b6cc5949" in told


@pytest.mark.parametrize("path", ["", "  "])
def test_an_empty_path_is_told_as_such(path: str) -> None:
    argv = [sys.executable, "-m", "k3env.cli", "describe", "--repo", path]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and "--repo names no checkout" in done.stderr and "an empty text" in done.stderr


def test_a_script_that_makes_no_environment(root: Path) -> None:
    text = (DATA / "1-before.py").read_text()
    (root / "scripts" / "build_wheel.py").write_text(
        "\n".join(line for line in text.splitlines() if "venv" not in line)
    )
    assert described(root)["venv"].startswith("none of its own")


def test_only_directories_are_environments(root: Path) -> None:
    (root / "scripts" / "build_wheel.py").write_text((DATA / "2-kimi-k3.py").read_text())
    (root / ".venv-3.12").mkdir()
    (root / ".venv-3.11").symlink_to(".venv-3.12")
    (root / ".venv-3.10").write_text("")
    (root / ".venv-3.9").symlink_to("gone")
    assert described(root)["environments"] == [".venv-3.11", ".venv-3.12"]
