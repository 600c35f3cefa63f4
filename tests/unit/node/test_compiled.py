"""After a build: its kernels, its one module, and what it was compiled against."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k3env.node import checks
from k3env.node.facts import compiled as facts
from k3env.node.machine import Machine
from k3env.protocol.container import Container
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Gpu, Paths, Profile
from tests.unit.node import ground
from tests.unit.node.test_venv import plain, put

LISTED = "ELF file    1: libth_common.1.sm_{arch}.cubin\nELF file    2: x.2.sm_{arch}.cubin\n"


def judged(id: str, profile: Profile, machine: Machine | None = None) -> Finding:
    (rule,) = checks.select((id,))
    on = machine or Machine()
    return checks.judge(rule, {fact: fact(on, profile) for fact in rule.facts}, profile)


def cuobjdump(tmp_path: Path, body: str) -> Machine:
    """Return a machine with a stand-in of cuobjdump, which comes with CUDA."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "cuobjdump").write_text(f"#!/bin/sh\n{body}\n")
    (tmp_path / "bin" / "cuobjdump").chmod(0o755)
    return Machine(environment={"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin"})


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    (tmp_path / "repo" / "tensorrt_llm" / "libs").mkdir(parents=True)
    (tmp_path / "repo" / facts.LIBRARY).write_bytes(b"\x7fELF")
    return tmp_path / "repo"


@pytest.mark.parametrize(
    ("held", "arch", "status", "told"),
    [
        ("103a", "103-real", "pass", "sm_103"),
        ("100f", "103-real", "pass", "sm_100"),
        ("90", "103-real", "fail", "sm_90"),
        ("120", "100-real", "fail", "sm_120"),
        ("", "103-real", "fail", "none"),
        ("103a", "103-ptx", "fail", "no CUDA architecture"),
    ],
)
def test_the_librarys_own_word(tmp_path: Path, repo: Path, held: str, arch: str, status: str, told: str) -> None:
    text = LISTED.format(arch=held) if held else "no elf"
    machine = cuobjdump(tmp_path, f"cat <<'E'\n{text}\nE")
    finding = judged("trtllm.kernels", Profile(paths=Paths(repo=str(repo)), gpu=Gpu(arch=arch)), machine)
    assert finding.status == status and told in (finding.found or ""), finding


def test_a_tool_that_fails_is_unknown_and_none_is_a_skip(tmp_path: Path, repo: Path) -> None:
    profile = Profile(paths=Paths(repo=str(repo)))
    machine = cuobjdump(tmp_path, "echo cuobjdump fatal >&2; exit 1")
    assert isinstance(facts.kernels(machine, profile), Unreadable)
    assert judged("trtllm.kernels", profile, machine).status == "unknown"
    (repo / facts.LIBRARY).unlink()
    assert judged("trtllm.kernels", profile, machine).status == "skip"
    assert judged("trtllm.kernels", Profile(), machine).status == "skip"


@pytest.mark.parametrize(
    ("names", "status"),
    [
        (["bindings.cpython-312-aarch64-linux-gnu.so"], "pass"),
        (["bindings.cpython-310-aarch64-linux-gnu.so", "bindings.cpython-312-aarch64-linux-gnu.so"], "fail"),
        (["bindings.pyi"], "fail"),
    ],
)
def test_one_module(repo: Path, names: list[str], status: str) -> None:
    for name in names:
        (repo / "tensorrt_llm" / name).touch()
    assert judged("trtllm.bindings", Profile(paths=Paths(repo=str(repo)))).status == status
    assert judged("trtllm.bindings", Profile()).status == "skip"


REQUIREMENTS = """--extra-index-url https://download.pytorch.org/whl/cu130
-c constraints.txt
torch>=2.11.0,<=2.13.0a0
triton==3.6.0  # pinned
nvidia-cutlass-dsl[cu13]==4.7.0
transformers==5.5.4
fastapi>=0.120
"""
RIGHT = {"torch": "2.12.0a0+5e1b", "triton": "3.6.0", "nvidia-cutlass-dsl": "4.7.0", "transformers": "5.5.4"}


def required(repo: Path, versions: dict[str, str], **more: Any) -> Finding:
    venv = plain(repo / f".venv-{ground.VERSION}", system=bool(more))
    for name, version in versions.items():
        put(venv / "lib" / f"python{ground.VERSION}" / "site-packages", name, version)
    return judged("venv.requirements", Profile(paths=Paths(repo=str(repo), venv=str(venv)), **more))


@pytest.mark.parametrize(
    ("text", "versions", "status", "told"),
    [
        (REQUIREMENTS, RIGHT, "pass", "torch 2.12.0a0+5e1b"),
        (REQUIREMENTS, {**RIGHT, "torch": "2.9.1"}, "fail", "torch 2.9.1"),
        (REQUIREMENTS, {**RIGHT, "triton": "3.5.0"}, "fail", "triton 3.5.0"),
        (
            REQUIREMENTS,
            {name: RIGHT[name] for name in ("torch", "triton", "transformers")},
            "fail",
            "cutlass-dsl absent",
        ),
        ("fastapi\n", RIGHT, "skip", ""),
        ("torch>>2\n", RIGHT, "unknown", "torch>>2"),
    ],
)
def test_what_kernels_are_compiled_against(
    repo: Path, text: str, versions: dict[str, str], status: str, told: str
) -> None:
    (repo / "requirements.txt").write_text(text)
    finding = required(repo, versions)
    assert finding.status == status and told in f"{finding.found} {finding.message}", finding


def test_what_an_image_holds_is_not_guessed(repo: Path) -> None:
    (repo / "requirements.txt").write_text(REQUIREMENTS)
    finding = required(repo, {}, container=Container(engine="enroot", image="/i.sqsh"))
    assert finding.status == "unknown" and "not seen from outside" in finding.message
