"""A container that enroot has by name: its packages and its CPUs are read from its directory, as it would see it."""

from __future__ import annotations

import shutil
import struct
from pathlib import Path

import pytest

from k3env.node import checks
from k3env.node.facts import enroot_root, image_packages
from k3env.node.facts.image import architecture
from k3env.node.modules.trtllm_build import TrtllmBuild
from k3env.protocol.container import Container
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Paths, Profile
from tests.unit.node import ground
from tests.unit.node.ground import Watched
from tests.unit.node.test_venv import plain, put

CONTAINER = Container("enroot", "k3")
VERSION = ground.VERSION


@pytest.fixture
def machine(tmp_path: Path) -> Watched:
    """A machine whose enroot would tell of itself if it were asked."""
    made = ground.machine(tmp_path / "home", ENROOT_DATA_PATH=str(tmp_path / "data"))
    program = tmp_path / "home" / "bin" / "enroot"
    program.write_text("#!/bin/sh\nexit 9\n")
    program.chmod(0o755)
    return made


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A container as Ubuntu's images are: merged /usr, a Python of the distribution's, pip's packages in /usr/local."""
    made = tmp_path / "data" / "k3"
    for name in ("usr/bin", "usr/lib/python3/dist-packages", f"usr/local/lib/python{VERSION}/dist-packages", "etc"):
        (made / name).mkdir(parents=True)
    (made / "bin").symlink_to("usr/bin")
    (made / "usr/bin" / f"python{VERSION}").write_bytes(elf(183))
    (made / "usr/bin/python3").symlink_to(f"python{VERSION}")
    (made / "usr/bin/dash").write_bytes(elf(183))
    # Absolute, as update-alternatives writes them: in here they lead to another file than outside.
    (made / "etc/alternatives").mkdir()
    (made / "usr/bin/sh").symlink_to("/etc/alternatives/sh")
    (made / "etc/alternatives/sh").symlink_to("/bin/dash")
    installed(made / f"usr/local/lib/python{VERSION}/dist-packages", "torch", "2.12.0a0+5e1b")
    installed(made / f"usr/local/lib/python{VERSION}/dist-packages", "packaging", "25.0")
    installed(made / "usr/lib/python3/dist-packages", "packaging", "24.0")
    return made


def installed(site: Path, name: str, version: str) -> None:
    (site / f"{name}-{version}.dist-info").mkdir()


def elf(number: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, number) + bytes(44)


def versions(machine: Watched) -> dict[str, str] | None:
    found = enroot_root.brought(machine, CONTAINER)
    return None if found is None else found.versions


def test_what_its_python_has_installed(machine: Watched, root: Path) -> None:
    found = enroot_root.brought(machine, CONTAINER)
    assert found is not None and found.python == VERSION
    assert found.versions == {"torch": "2.12.0a0+5e1b", "packaging": "25.0"}, "the first in the search path counts"
    assert machine.started == []


def test_the_path_of_the_image_leads_to_its_python(machine: Watched, root: Path) -> None:
    site = root / f"opt/python/lib/python{VERSION}/site-packages"
    site.mkdir(parents=True)
    (root / "opt/python/bin").mkdir()
    (root / f"opt/python/bin/python{VERSION}").write_bytes(b"")
    (root / "opt/python/bin/python3").symlink_to(f"/opt/python/bin/python{VERSION}")
    installed(site, "torch", "2.13.0")
    (root / "etc/environment").write_text("HOME=/root\nPATH=/gone:/opt/python/bin:/usr/bin\n")
    assert versions(machine) == {"torch": "2.13.0"}


@pytest.mark.parametrize(
    ("name", "target", "inside"),
    [
        ("relative", "usr/bin", "/usr/bin"),
        ("absolute", "/usr/bin", "/usr/bin"),
        ("above the root", "../../../../usr/bin", "/usr/bin"),
        ("over another", "/bin/../lib", "/usr/lib"),
        ("round", "round", None),
        ("gone", "/nothing/here", None),
    ],
)
def test_no_link_leads_out(machine: Watched, root: Path, name: str, target: str, inside: str | None) -> None:
    (root / name).symlink_to(target)
    found = enroot_root.Root(str(root)).inside(machine, f"/{name}")
    assert found == (None if inside is None else f"{root}{inside}")


UNKNOWN = {
    "no such container": lambda root: shutil.rmtree(root),
    "no python3": lambda root: (root / "usr/bin/python3").unlink(),
    "a python3 that leads out of it": lambda root: (
        (root / "usr/bin/python3").unlink(),
        (root / "usr/bin/python3").symlink_to(f"/..{ground.PYTHON}"),
    ),
    "a virtual environment's": lambda root: (root / "usr/pyvenv.cfg").write_text("home = /usr/bin\n"),
    "a python3 without a version in its name": lambda root: (
        (root / "usr/bin/python3").unlink(),
        (root / "usr/bin/python3").write_bytes(b""),
    ),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_can_not_be_told_is_not_told(machine: Watched, root: Path, name: str) -> None:
    UNKNOWN[name](root)
    assert enroot_root.brought(machine, CONTAINER) is None
    assert image_packages.recorded(machine, str(root), CONTAINER) is None


@pytest.mark.parametrize(
    "container", [Container("enroot", "/images/k3.sqsh"), Container("docker", "k3"), Container("enroot", "a/k3")]
)
def test_other_images_have_no_such_directory(machine: Watched, root: Path, container: Container) -> None:
    assert enroot_root.root(machine, container) is None


def test_a_configuration_that_only_a_shell_can_tell(machine: Watched, root: Path) -> None:
    machine.environment["ENROOT_DATA_PATH"] = "$(mktemp -d)"
    assert enroot_root.root(machine, CONTAINER) is None


@pytest.mark.parametrize(
    ("id", "own", "status", "told"),
    [
        ("venv.shadowed", {}, "pass", ""),
        ("venv.shadowed", {"torch": "2.13.0"}, "fail", "torch 2.13.0 over 2.12.0a0"),
        ("venv.pip_check", {"fla-core": "0.5.2 torch"}, "pass", ""),
        ("venv.pip_check", {"fla-core": "0.5.2 pandas"}, "warn", "fla-core requires pandas"),
    ],
)
def test_checks_see_into_it(
    machine: Watched, root: Path, tmp_path: Path, id: str, own: dict[str, str], status: str, told: str
) -> None:
    venv = plain(tmp_path / f".venv-{VERSION}", system=True)
    for name, text in own.items():
        version, _, needs = text.partition(" ")
        site = venv / "lib" / f"python{VERSION}" / "site-packages"
        put(site, name, version, requires=f"Requires-Dist: {needs}\n" if needs else "")
    (rule,) = checks.select((id,))
    profile = Profile(paths=Paths(venv=str(venv)), container=CONTAINER)
    finding = checks.judge(rule, {fact: fact(machine, profile) for fact in rule.facts}, profile)
    assert finding.status == status and told in f"{finding.found} {finding.message}", finding
    assert machine.started == [], "a directory is read"


def test_it_is_not_asked_what_its_directory_says(machine: Watched, root: Path, tmp_path: Path) -> None:
    module = TrtllmBuild(str(tmp_path), "a" * 40, container=CONTAINER)
    venv = plain(tmp_path / f".venv-{VERSION}", system=True)
    assert module._image_changes(machine, module._venv(machine)) == () and venv.is_dir()
    found = image_packages.ensure(machine, str(tmp_path), CONTAINER, {})
    assert found.versions["torch"] == "2.12.0a0+5e1b" and machine.started == []
    assert not Path(image_packages.path(str(tmp_path))).exists(), "it may change, and is read anew"


def test_for_which_cpus_it_is(machine: Watched, root: Path) -> None:
    wanted = Profile(container=CONTAINER)
    assert architecture(machine, wanted).image == "aarch64"
    (root / "usr/bin/dash").write_bytes(elf(62))
    assert architecture(machine, wanted).image == "x86_64"
    (root / "usr/bin/dash").write_bytes(b"#!/bin/true\n")
    assert isinstance(architecture(machine, wanted).image, Unreadable)
    shutil.rmtree(root)
    assert architecture(machine, wanted).image is None, "no container of that name"
    assert machine.started == []
