"""Packages that must fit each other, in environments made of metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k3env.node import checks
from k3env.node.facts import conflicts
from k3env.node.facts.conflicts import Shadows
from k3env.node.machine import Machine
from k3env.protocol.container import Container
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Paths, Profile
from tests.unit.node import ground
from tests.unit.node.test_venv import plain, put


@pytest.fixture
def venv(tmp_path: Path) -> Path:
    return plain(tmp_path / f".venv-{ground.VERSION}")


def site(venv: Path) -> Path:
    return venv / "lib" / f"python{ground.VERSION}" / "site-packages"


def judged(id: str, venv: Path, **more: Any) -> Finding:
    (rule,) = checks.select((id,))
    profile = Profile(paths=Paths(venv=str(venv)), **more)
    machine = Machine()
    return checks.judge(rule, {fact: fact(machine, profile) for fact in rule.facts}, profile)


@pytest.mark.parametrize(
    ("installed", "status", "told"),
    [
        ({"flashinfer-python": "0.6.16"}, "pass", "flashinfer-python 0.6.16"),
        ({"flashinfer-python": "0.6.16", "flashinfer-cubin": "0.6.16"}, "pass", "flashinfer-cubin 0.6.16"),
        ({"flashinfer-python": "0.6.16", "flashinfer-cubin": "0.6.13"}, "fail", "flashinfer-cubin 0.6.13"),
        ({"flashinfer-python": "0.6.16", "flashinfer-jit-cache": "0.6.16+cu130"}, "pass", ""),
        ({"flashinfer-python": "0.6.16", "flashinfer-jit-cache": "0.6.13+cu130"}, "fail", "jit-cache 0.6.13+cu130"),
        ({"flashinfer-python": "0.6.16.post1", "flashinfer-cubin": "0.6.16"}, "fail", "flashinfer-cubin 0.6.16"),
        ({"flashinfer-cubin": "0.6.13"}, "skip", ""),
    ],
)
def test_flashinfers_three_packages(venv: Path, installed: dict[str, str], status: str, told: str) -> None:
    for name, version in installed.items():
        put(site(venv), name, version)
    finding = judged("venv.flashinfer_trio", venv)
    assert finding.status == status and told in f"{finding.found}", finding


@pytest.mark.parametrize(
    ("installed", "status"),
    [
        ({}, "pass"),
        ({"fla-core": "0.5.2"}, "pass"),
        ({"fla-core": "0.5.2", "flash-linear-attention": "0.5.2"}, "pass"),
        ({"fla-core": "0.5.2", "flash-linear-attention": "0.4.0"}, "warn"),
        ({"flash-linear-attention": "0.4.0"}, "warn"),
    ],
)
def test_who_owns_fla(venv: Path, installed: dict[str, str], status: str) -> None:
    for name, version in installed.items():
        put(site(venv), name, version)
    assert judged("venv.fla_owner", venv).status == status


@pytest.mark.parametrize(
    ("here", "below", "status"),
    [
        ({"torch": "2.9.1"}, {"torch": "2.10.0a0+b4e4ee81d3.nv26"}, "fail"),
        ({"torch": "2.9.1"}, {"torch": "2.9.1"}, "pass"),
        ({"torch": "2.9.1"}, {}, "pass"),
        ({"einops": "1"}, {"einops": "2"}, "pass"),
        ({"nvidia-cublas": "1"}, {"nvidia-cublas": "2"}, "fail"),
    ],
)
def test_what_hides_the_images_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: dict[str, str], below: dict[str, str], status: str
) -> None:
    venv = plain(tmp_path / f".venv-{ground.VERSION}", system=True)
    base = tmp_path / "base"
    base.mkdir()
    monkeypatch.setattr(conflicts.installed, "base_sites", lambda machine, found: (str(base),))
    for place, packages in ((site(venv), here), (base, below)):
        for name, version in packages.items():
            put(place, name, version)
    finding = judged("venv.shadowed", venv)
    assert finding.status == status, finding
    if status == "fail":
        assert f"{next(iter(here))} {next(iter(here.values()))} over" in (finding.found or "")


def test_an_image_that_is_not_seen_into_is_unknown(tmp_path: Path) -> None:
    venv = plain(tmp_path / f".venv-{ground.VERSION}", system=True)
    inside = Container(engine="enroot", image="/i.sqsh")
    assert judged("venv.shadowed", venv, container=inside).status == "unknown"
    (rule,) = checks.select(("venv.shadowed",))
    assert checks.judge(rule, {conflicts.shadows: Shadows("/v", base_seen=True)}, Profile()).status == "pass"


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("#!{venv}/bin/python\nx", "pass"),
        ("#!/old/place/.venv-3.12/bin/python\nx", "fail"),
        ("#!/bin/sh\n'''exec' \"/old/a very long place/bin/python\" \"$0\" \"$@\"\n' '''\n", "fail"),
        ("#!/bin/sh\n'''exec' {venv}/bin/python \"$0\" \"$@\"\n", "pass"),
        ("#!/bin/bash\nset -e\n", "pass"),
        ("", "pass"),
    ],
)
def test_entry_points_of_a_moved_environment(venv: Path, text: str, status: str) -> None:
    (venv / "bin" / "trtllm-serve").write_text(text.replace("{venv}", str(venv)))
    assert judged("venv.scripts", venv).status == status


def test_what_is_required_and_not_there(venv: Path) -> None:
    put(site(venv), "fla-core", "0.5.2", requires="Requires-Dist: einops\n")
    finding = judged("venv.pip_check", venv)
    assert (finding.status, finding.found) == ("warn", "fla-core requires einops")
    put(site(venv), "einops", "0.8")
    assert judged("venv.pip_check", venv).status == "pass"


@pytest.mark.parametrize("id", ["flashinfer_trio", "fla_owner", "shadowed", "scripts", "pip_check"])
def test_without_an_environment_nothing_is_judged(tmp_path: Path, id: str) -> None:
    assert judged(f"venv.{id}", tmp_path / "none").status == "skip"
