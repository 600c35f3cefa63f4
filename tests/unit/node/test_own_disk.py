"""Caches and objects of a build on a network filesystem: on the node's own disk, also in a container."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k3env.errors import Refused
from k3env.node.facts import build
from k3env.node.machine import Machine
from k3env.node.modules import _own_disk
from k3env.protocol.container import Container

ROOT = "/lustre/TensorRT-LLM"
OWN = f"/var/tmp/k3env-build-{os.geteuid()}"
LINE = "{number} 1 0:{number} / {point} rw - {fstype} {fstype} rw\n"
SHARED = {"/": "ext4", "/lustre": "lustre"}


def node(directory: Path, mounted: dict[str, str], **environment: str) -> Machine:
    """Return a node with these filesystems, by mount point."""
    table = directory / "overlay/proc/self/mountinfo"
    table.parent.mkdir(parents=True)
    rows = enumerate(mounted.items(), 20)
    table.write_text("".join(LINE.format(number=number, point=at, fstype=kind) for number, (at, kind) in rows))
    machine = Machine(overlay=str(directory / "overlay"), environment={"HOME": "/home/me", **environment})
    for name in ("XDG_CACHE_HOME", "PIP_CACHE_DIR", "CCACHE_DIR", "CONAN_HOME"):
        if name not in environment:
            machine.environment.pop(name, None)
    return machine


@pytest.mark.parametrize(
    ("mounted", "around", "given", "caches"),
    [
        ({"/": "ext4"}, {}, {}, {"CONAN_HOME": f"{ROOT}/.k3env/conan"}),
        (SHARED, {}, {}, {"CONAN_HOME": f"{OWN}/conan"}),
        ({"/": "ext4", "/home": "nfs4"}, {}, {}, {
            "CONAN_HOME": f"{ROOT}/.k3env/conan", "CCACHE_DIR": f"{OWN}/ccache", "PIP_CACHE_DIR": f"{OWN}/pip",
        }),
        ({"/": "ext4", "/home": "nfs4"}, {"XDG_CACHE_HOME": "/local"}, {}, {"CONAN_HOME": f"{ROOT}/.k3env/conan"}),
        (SHARED, {"CCACHE_DIR": "/lustre/ccache"}, {}, {"CONAN_HOME": f"{OWN}/conan", "CCACHE_DIR": f"{OWN}/ccache"}),
        (SHARED, {}, {"CONAN_HOME": "/lustre/mine"}, {}),
        ({**SHARED, "/var": "nfs"}, {}, {}, {"CONAN_HOME": f"{ROOT}/.k3env/conan"}),
        ({"/": "ext4"}, {"CONAN_HOME": "/local/conan"}, {}, {"CONAN_HOME": "/local/conan"}),
        (SHARED, {"CONAN_HOME": "~/conan"}, {}, {"CONAN_HOME": "/home/me/conan"}),
        (SHARED, {"CONAN_HOME": "/lustre/conan"}, {}, {"CONAN_HOME": f"{OWN}/conan"}),
        ({"/": "ext4"}, {"CONAN_HOME": "/theirs"}, {"CONAN_HOME": "/mine"}, {}),
        ({"/": "ext4"}, {"CONAN_HOME": "relative"}, {}, {"CONAN_HOME": f"{ROOT}/.k3env/conan"}),
    ],
)  # fmt: skip
def test_where_caches_lie(
    tmp_path: Path, mounted: dict[str, str], around: dict[str, str], given: dict[str, str], caches: dict[str, str]
) -> None:
    assert _own_disk.of(node(tmp_path, mounted, **around), ROOT, Container(), given).caches == caches


def test_a_container_sees_them_at_the_same_path(tmp_path: Path) -> None:
    container = Container("docker", "k3", ("/models:/models:ro",))
    found = _own_disk.of(node(tmp_path, SHARED), ROOT, container, {})
    assert set(found.caches) == {"CONAN_HOME", "CCACHE_DIR", "PIP_CACHE_DIR"}
    assert found.container.mounts == ("/models:/models:ro", f"{OWN}:{OWN}")


def test_a_container_sees_the_home_of_conan_that_the_node_names(tmp_path: Path) -> None:
    machine = node(tmp_path, {"/": "ext4"}, CONAN_HOME="/local/conan")
    found = _own_disk.of(machine, ROOT, Container("docker", "k3"), {})
    assert found.caches["CONAN_HOME"] == "/local/conan" and found.container.mounts == ("/local/conan:/local/conan",)


def test_a_container_of_a_local_checkout_gets_no_more_mounts(tmp_path: Path) -> None:
    found = _own_disk.of(node(tmp_path, {"/": "ext4"}), ROOT, Container("docker", "k3"), {})
    assert found.caches == {"CONAN_HOME": f"{ROOT}/.k3env/conan"} and found.container.mounts == ()


def test_a_build_root_on_a_network_is_refused(tmp_path: Path) -> None:
    machine = node(tmp_path, SHARED)
    _own_disk.refuse_far(machine, "/scratch/build")
    with pytest.raises(Refused, match="on a network filesystem"):
        _own_disk.refuse_far(machine, "/lustre/build")


def test_checkouts_share_no_objects() -> None:
    assert build.objects_of(None, ROOT) == ""
    one, other = (build.objects_of("/scratch", path) for path in (ROOT, f"{ROOT}-2"))
    assert one != other and one.startswith("/scratch/cpp-build-")
