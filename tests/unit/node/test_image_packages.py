"""What an image has installed: known of that very image, and of no other; what is judged by it."""

from __future__ import annotations

import dataclasses
import json
import os
import struct
from pathlib import Path

import pytest

from k3env.node import checks, manifest
from k3env.node.facts import image_packages
from k3env.node.facts.image_packages import ImagePackages
from k3env.node.machine import Machine
from k3env.node.modules.trtllm_build import TrtllmBuild
from k3env.protocol import codec
from k3env.protocol.container import Container
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Paths, Profile
from tests.unit.node import ground
from tests.unit.node.test_venv import plain, put
from tests.unit.node.tools import Node

ID = "31614bc168abe496a8369f832030ded5842604a83818ae0df19dbec7b4444447"
SHELL = '[ "$1 $2" = "image inspect" ] || exit 9; '


def squashfs(path: Path, made: int, used: int = 4096) -> Container:
    """Write the head of an image: its superblock."""
    head = struct.pack("<4sIIIIHHHHHHQQ", b"hsqs", 7, made, 131072, 0, 6, 17, 0, 1, 4, 0, 0, used)
    path.write_bytes(head.ljust(4096, b"\0"))
    return Container("enroot", str(path))


def test_a_squashfs_is_known_by_its_superblock_wherever_it_lies(tmp_path: Path) -> None:
    machine = Machine()
    one = image_packages.key(machine, squashfs(tmp_path / "a.sqsh", 1_790_000_000))
    copy = squashfs(tmp_path / "copy.sqsh", 1_790_000_000)
    os.utime(copy.image, (1, 1))
    assert one and image_packages.key(machine, copy) == one
    assert image_packages.key(machine, squashfs(tmp_path / "later.sqsh", 1_790_000_001)) != one
    assert image_packages.key(machine, squashfs(tmp_path / "larger.sqsh", 1_790_000_000, 8192)) != one


def test_another_file_is_known_by_size_and_time(tmp_path: Path) -> None:
    path = tmp_path / "image.sqsh"
    path.write_bytes(b"something else")
    container = Container("enroot", str(path))
    one = image_packages.key(Machine(), container)
    assert one == f"14@{path.stat().st_mtime_ns}"
    os.utime(path, (1, 1))
    assert image_packages.key(Machine(), container) != one


@pytest.mark.parametrize(
    ("container", "program", "key"),
    [
        (Container("docker", f"nvcr.io/x@sha256:{ID}"), "exit 9", ID),
        (Container("docker", "k3:1"), f"{SHELL}echo sha256:{ID}", ID),
        (Container("podman", "k3:1"), f"{SHELL}echo {ID}", ID),
        (Container("podman", "k3:1"), "echo a banner", ""),
        (Container("podman", "k3:1"), "exit 125", ""),
        (Container("enroot", "a-container"), "exit 9", ""),
        (Container("enroot", "/no/such.sqsh"), "exit 9", ""),
        (Container(), "exit 9", ""),
    ],
)
def test_other_images(tmp_path: Path, container: Container, program: str, key: str) -> None:
    node = Node(tmp_path)
    for engine in ("docker", "podman", "enroot"):
        node.program(engine, program)
    assert image_packages.key(node.machine(), container) == key


def known(root: Path, container: Container, python: str = ground.VERSION, **versions: str) -> None:
    """Write down what an image has, as a build does."""
    named = {name.replace("_", "-"): version for name, version in versions.items()}
    key = image_packages.key(Machine(), container)
    path = Path(image_packages.path(str(root)))
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(codec.encode(ImagePackages(container.image, key, python, named))))


def test_it_is_known_of_that_very_image_alone(tmp_path: Path) -> None:
    container = squashfs(tmp_path / "a.sqsh", 1)
    root, machine = str(tmp_path), Machine()
    assert image_packages.recorded(machine, root, container) is None
    known(tmp_path, container, torch="2.12.0a0")
    found = image_packages.recorded(machine, root, container)
    assert found is not None and found.versions == {"torch": "2.12.0a0"}
    assert image_packages.recorded(machine, root, squashfs(tmp_path / "b.sqsh", 1)) is None, "another name"
    squashfs(tmp_path / "a.sqsh", 2)
    assert image_packages.recorded(machine, root, container) is None, "another image of the same name"
    Path(image_packages.path(root)).write_text("{")
    assert image_packages.recorded(machine, root, container) is None


HAS = {"torch": "2.12.0a0", "einops": "0.8.1", "flashinfer_python": "0.6.16", "numpy": "2.1"}


@pytest.mark.parametrize(
    ("id", "own", "status", "told"),
    [
        ("venv.shadowed", {}, "pass", ""),
        ("venv.shadowed", {"torch": "2.12.0a0"}, "pass", ""),
        ("venv.shadowed", {"torch": "2.13.0"}, "fail", "torch 2.13.0 over 2.12.0a0"),
        ("venv.pins", {"fla-core": "0.5.2"}, "pass", "fla-core 0.5.2, einops 0.8.1"),
        ("venv.pins", {}, "fail", "fla-core absent"),
        ("venv.flashinfer_trio", {"flashinfer-cubin": "0.6.16"}, "pass", "flashinfer-python 0.6.16"),
        ("venv.flashinfer_trio", {"flashinfer-cubin": "0.6.13"}, "fail", "flashinfer-cubin 0.6.13"),
        ("venv.pip_check", {"fla-core": "0.5.2 numpy"}, "pass", ""),
        ("venv.pip_check", {"fla-core": "0.5.2 pandas"}, "warn", "fla-core requires pandas"),
    ],
)
def test_checks_see_into_an_image_from_outside(
    tmp_path: Path, id: str, own: dict[str, str], status: str, told: str
) -> None:
    finding = judged(tmp_path, id, own, ground.VERSION)
    assert finding.status == status and told in f"{finding.found} {finding.message}", finding


@pytest.mark.parametrize("id", ["venv.shadowed", "venv.pins"])
def test_the_packages_of_another_python_in_the_image_say_nothing(tmp_path: Path, id: str) -> None:
    finding = judged(tmp_path, id, {}, "3.8")
    assert finding.status == "unknown" and "the tag `build` asks it" in finding.message


def judged(root: Path, id: str, own: dict[str, str], python: str) -> Finding:
    venv = plain(root / f".venv-{ground.VERSION}", system=True)
    site = venv / "lib" / f"python{ground.VERSION}" / "site-packages"
    for name, text in own.items():
        version, _, needs = text.partition(" ")
        put(site, name, version, requires=f"Requires-Dist: {needs}\n" if needs else "")
    container = squashfs(root / "a.sqsh", 1)
    known(root, container, python, **HAS)
    if id == "venv.pins" and own == {}:
        put(site, "fla-core", "0.1") if python != ground.VERSION else None
    (rule,) = checks.select((id,))
    profile = Profile(paths=Paths(venv=str(venv)), container=container)
    machine = ground.machine(root / "home")
    finding = checks.judge(rule, {fact: fact(machine, profile) for fact in rule.facts}, profile)
    assert machine.started == [], "a check starts no engine for an image that is a file"
    return finding


def test_a_build_in_another_image_of_the_same_name_is_told(tmp_path: Path) -> None:
    container = squashfs(tmp_path / "a.sqsh", 1)
    machine = ground.machine(tmp_path / "home")
    made = manifest.Manifest("a" * 40, "103-real", image=container.image)
    made = dataclasses.replace(made, image_key=image_packages.key(machine, container))
    manifest.write(machine, str(tmp_path), made)
    module = TrtllmBuild(str(tmp_path), "a" * 40, container=container)
    assert module.judge(machine, Profile()) == ()
    squashfs(tmp_path / "a.sqsh", 2)
    (finding,) = module.judge(machine, Profile())
    assert (finding.id, finding.status) == ("trtllm.image", "warn")
