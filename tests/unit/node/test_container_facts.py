"""What containers need: real namespaces, real images, real libraries; enroot and the toolkit by what they say."""

from __future__ import annotations

import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from k3env.node import checks
from k3env.node.facts import Facts, containers, read
from k3env.node.facts.containers import namespaces, toolkit
from k3env.node.facts.enroot import Place, enroot, expanded
from k3env.node.facts.image import COMPRESSORS, architecture, image, unpacker
from k3env.node.facts.inside import Inside, inside
from k3env.node.facts.rank import libraries, programs, tmp
from k3env.node.machine import Machine
from k3env.protocol.container import Container
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Profile
from tests.unit.node.tools import Node, is_root, known


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


# User namespaces

WANTED = Profile(container=Container("enroot", "k3"))


def unprivileged() -> list[str]:
    return ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"] if is_root() else []


def test_a_real_namespace_is_tried_by_somebody_without_privileges() -> None:
    done = subprocess.run([*unprivileged(), "unshare", "-Ur", "true"], capture_output=True, check=False)
    found = namespaces(Machine(), WANTED)
    assert (known(found.probe) == "") == (done.returncode == 0)
    assert any("unshare -Ur true" in item.source for item in found.source)
    assert is_root() == any("setpriv" in item.source for item in found.source)


def test_nothing_is_tried_where_there_is_no_enroot(node: Node) -> None:
    node.program("unshare", f"touch '{node.directory}/started'")
    assert namespaces(node.machine(path=""), Profile()).probe is None
    assert not (node.directory / "started").exists()


def test_the_sysctls_that_a_kernel_has(node: Node) -> None:
    node.file("/proc/sys/user/max_user_namespaces", "0\n")
    node.file("/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
    node.file("/etc/apparmor.d/enroot")
    node.says("unshare", stderr="unshare: unshare failed: Operation not permitted\n", exit_code=1)
    node.program("setpriv", 'while [ "$1" != unshare ]; do shift; done; exec "$@"')
    found = namespaces(node.machine(), WANTED)
    assert found.sysctls["user.max_user_namespaces"] == 0
    assert found.sysctls["kernel.apparmor_restrict_unprivileged_userns"] == 1
    assert (found.profiled, found.probe) == (True, "unshare: unshare failed: Operation not permitted")


def test_an_unshare_that_hangs(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(containers, "_ANSWER_S", 0.3)
    node.program("unshare", "exec sleep 30")
    node.program("setpriv", "exec sleep 30")
    assert isinstance(namespaces(node.machine(), WANTED).probe, Unreadable)


# Inside of one


@pytest.mark.parametrize(
    ("environment", "files", "mark"),
    [
        ({}, {}, None),
        ({"ENROOT_ROOTFS": "/x"}, {}, "ENROOT_ROOTFS=/x"),
        ({"container": "podman"}, {}, "container=podman"),
        ({}, {"/run/.containerenv": ""}, "/run/.containerenv"),
        ({}, {"/proc/self/uid_map": "      1000       1000          1\n"}, "a user namespace: 1000 1000 1"),
        ({}, {"/proc/self/cgroup": f"0::/docker/{'a1' * 32}\n"}, "a1" * 32),
        ({}, {"/proc/self/cgroup": "0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\n"}, None),
    ],
)
def test_marks_of_a_container(
    node: Node, environment: dict[str, str], files: dict[str, str], mark: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("k3env.node.facts.inside._FILES", ("/run/.containerenv",))
    node.file("/proc/self/uid_map", "         0          0 4294967295\n")
    node.file("/proc/self/cgroup", "0::/\n")
    for path, text in files.items():
        node.file(path, text)
    node.environment.update(environment)
    assert inside(node.machine()).container == mark


def test_a_real_user_namespace_is_one(tmp_path: Path) -> None:
    code = (
        "from k3env.node.facts import inside\nfrom k3env.node.machine import Machine\n"
        "inside._FILES = ()\nprint(inside.inside(Machine()).container)"
    )
    argv = ["unshare", "-Ur", sys.executable, "-c", code]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if "unshare" in done.stderr:
        pytest.skip("no user namespaces here")
    assert done.stdout.startswith("a user namespace: 0 "), done.stderr


# The toolkit

CTK = "NVIDIA Container Toolkit CLI version 1.17.8\ncommit: f202b80a9b9d0db00d9b1d73c0128c8962c55f4d\n"
CLI = "cli-version: 1.17.7\nlib-version: 1.17.7\nbuild date: 2025-05-16T12:00+00:00\n"


def test_versions_and_cdi(node: Node) -> None:
    node.says("nvidia-ctk", CTK)
    node.says("nvidia-container-cli", CLI)
    node.file("/etc/cdi/nvidia.yaml")
    node.file("/etc/cdi/README")
    found = toolkit(node.machine())
    assert found.versions == {"nvidia-ctk": "1.17.8", "nvidia-container-cli": "1.17.7"}
    assert found.cdi == ("/etc/cdi/nvidia.yaml",)


@pytest.mark.parametrize("answer", [("", 0), ("version unknown\n", 0), (CTK, 1), ("\x00\x01", 0)])
def test_a_toolkit_that_tells_no_version(node: Node, answer: tuple[str, int]) -> None:
    node.says("nvidia-ctk", answer[0], exit_code=answer[1])
    assert isinstance(toolkit(node.machine()).versions["nvidia-ctk"], Unreadable)


def test_no_toolkit(node: Node) -> None:
    assert toolkit(node.machine(path="")).versions == {}


# enroot

VALUES = {"HOME": "/home/me", "XDG_DATA_HOME": "${HOME}/.local/share", "LOOP": "$LOOP"}


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/local/enroot", "/local/enroot"),
        ('"/local/enroot"', "/local/enroot"),
        ("${XDG_DATA_HOME}/enroot", "/home/me/.local/share/enroot"),
        ("$HOME/x", "/home/me/x"),
        ("${TMPDIR:-/tmp}", "/tmp"),
        ("${TMPDIR:-$HOME}", "/home/me"),
        ("/run/enroot/user-$(id -u)", f"/run/enroot/user-{os.geteuid()}"),
        ("/run/$UID", f"/run/{os.geteuid()}"),
    ],
)
def test_settings_as_a_shell_would_read_them(text: str, path: str) -> None:
    assert expanded(text, VALUES) == path


@pytest.mark.parametrize("text", ["$(mktemp -d)", "`id -u`", "${MISSING}/x", "$LOOP", "${X:?}"])
def test_settings_that_only_a_shell_can_tell(text: str) -> None:
    with pytest.raises(ValueError, match=r"can only be told by running it|is not set|refers to itself"):
        expanded(text, VALUES)


MOUNTS = """22 1 8:1 / / rw - ext4 /dev/sda1 rw
40 22 0:50 / {0}/home rw - nfs4 server:/home rw
41 22 8:2 / {0}/local rw - xfs /dev/sdb rw
"""


def places(node: Node) -> dict[str, Place]:
    found = enroot(node.machine())
    return {known(place).name.removeprefix("ENROOT_").removesuffix("_PATH"): place for place in found.places}  # type: ignore[union-attr]


@pytest.fixture
def installed(node: Node, tmp_path: Path) -> Node:
    """Return a node with enroot, a home on NFS and a local disk; mounts are a table, as nothing can be mounted here."""
    node.says("enroot", "4.0.1\n")
    for name in ("home", "local"):
        (tmp_path / name).mkdir()
    node.file("/proc/self/mountinfo", MOUNTS.format(tmp_path))
    node.environment.update({"HOME": f"{tmp_path}/home", "TMPDIR": f"{tmp_path}/local"})
    node.file("/machine.json", '{"free_bytes": {"/": 7000}}')
    return node


def test_enroots_own_defaults(installed: Node, tmp_path: Path) -> None:
    found = places(installed)
    data = found["DATA"]
    assert (data.path, data.existing) == (f"{tmp_path}/home/.local/share/enroot", f"{tmp_path}/home")
    assert (data.kind, data.free_bytes, data.writable) == ("network", 7000, True)
    assert found["TEMP"].kind == "local"


def test_the_sites_configuration_and_what_is_exported(installed: Node, tmp_path: Path) -> None:
    config = f"# comment\n#ENROOT_DATA_PATH /no\nENROOT_DATA_PATH {tmp_path}/local/$(id -u)\nENROOT_CACHE_PATH=/c\n"
    installed.file("/etc/enroot/enroot.conf", config)
    found = places(installed)
    assert found["DATA"].path == f"{tmp_path}/local/{os.geteuid()}"
    assert found["CACHE"].path == "/c"
    installed.environment["ENROOT_DATA_PATH"] = f"{tmp_path}/home/mine"
    assert places(installed)["DATA"].path == f"{tmp_path}/home/mine"


def test_through_pyxis_nothing_exported_counts(installed: Node, tmp_path: Path) -> None:
    installed.file("/etc/enroot/enroot.conf", f"ENROOT_DATA_PATH {tmp_path}/local/data\n")
    installed.file("/etc/slurm/slurm.conf", "ClusterName=x\n")
    installed.file("/etc/slurm/plugstack.conf", "required /usr/lib/slurm/spank_pyxis.so\n")
    installed.environment["ENROOT_DATA_PATH"] = f"{tmp_path}/home/mine"
    assert enroot(installed.machine()).by_pyxis
    assert places(installed)["DATA"].path == f"{tmp_path}/local/data"


def test_a_directory_that_is_not_writable(installed: Node, tmp_path: Path) -> None:
    """A stand-in for test(1): nothing is refused to root, who may run this."""
    installed.program("test", f'[ "$*" = "-w {tmp_path}/home" ] && exit 1; exit 0')
    found = places(installed)
    assert (found["DATA"].writable, found["TEMP"].writable) == (False, True)


def test_a_setting_that_can_not_be_told_hides_no_other(installed: Node) -> None:
    installed.environment["ENROOT_TEMP_PATH"] = "$(mktemp -d)"
    found = enroot(installed.machine()).places
    assert [isinstance(place, Unreadable) for place in found] == [False, False, False, True]


# Images

needs_squashfs = pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="no squashfs-tools")


def profile(path: str | Path) -> Profile:
    return Profile(container=Container("enroot", str(path)))


def elf(machine: int, little: bool = True) -> bytes:
    """Return the head of a 64-bit program for a kind of CPU. Source: elf.h."""
    order = "<" if little else ">"
    return (
        b"\x7fELF"
        + bytes((2, 1 if little else 2, 1))
        + bytes(9)
        + struct.pack(f"{order}HHI", 2, machine, 1)
        + bytes(40)
    )


def packed(directory: Path, compressor: str = "gzip", **files: bytes) -> Path:
    """Make an image of these files, all below usr/bin, with bin a link to it as in a merged /usr."""
    root = directory / "root"
    (root / "usr/bin").mkdir(parents=True)
    (root / "bin").symlink_to("usr/bin")
    for name, data in files.items():
        (root / "usr/bin" / name).write_bytes(data)
    path = directory / "k3.sqsh"
    argv = ["mksquashfs", str(root), str(path), "-noappend", "-no-progress", "-quiet", "-comp", compressor]
    subprocess.run(argv, check=True, capture_output=True)
    return path


@needs_squashfs
@pytest.mark.parametrize("compressor", sorted(COMPRESSORS.values()))
def test_a_real_image_by_its_superblock(tmp_path: Path, compressor: str) -> None:
    path = packed(tmp_path, compressor, sh=b"x" * 5000)
    found = image(Machine(), profile(path))
    assert (found.magic, found.compressor, found.version) == (True, compressor, "4.0")
    assert 0 < found.bytes_used <= (found.size or 0)
    assert compressor in known(unpacker(Machine()).compressors)


@needs_squashfs
def test_an_image_that_was_cut_and_files_that_are_none(tmp_path: Path) -> None:
    path = packed(tmp_path, sh=os.urandom(50000))
    (rule,) = checks.select(("system.image_sqsh",))

    def status(wanted: Profile) -> tuple[str, str]:
        # These tests may run in a container, from where a node's files may not be seen.
        finding = checks.judge(rule, {**Facts(Machine(), wanted).collect(rule.facts), inside: Inside()}, wanted)
        return finding.status, finding.found or finding.message

    assert status(profile(path))[0] == "pass"
    os.truncate(path, path.stat().st_size // 2)
    assert status(profile(path))[0] == "fail" and "it was cut" in status(profile(path))[1]
    os.truncate(path, 40)
    assert "something else" in status(profile(path))[1]
    path.write_bytes(b"#!/bin/sh\n" * 100)
    assert "something else" in status(profile(path))[1]
    path.unlink()
    assert "no such file" in status(profile(path))[1]
    path.mkdir()
    assert status(profile(path))[0] == "unknown"


@needs_squashfs
@pytest.mark.parametrize(
    ("number", "name"), [(183, "aarch64"), (62, "x86_64"), (243, "riscv64"), (9999, "machine 9999")]
)
@pytest.mark.parametrize("shell", ["dash", "bash", "busybox"])
def test_for_which_cpus_an_image_is(tmp_path: Path, number: int, name: str, shell: str) -> None:
    path = packed(tmp_path, **{shell: elf(number) + os.urandom(2 << 20)})
    assert known(architecture(Machine(), profile(path)).image) == name


@needs_squashfs
def test_a_shell_that_is_no_program(tmp_path: Path) -> None:
    for data in (b"#!/bin/true\n", b"\x7fELF", b""):
        shutil.rmtree(tmp_path, ignore_errors=True)
        found = architecture(Machine(), profile(packed(tmp_path, dash=data))).image
        assert isinstance(found, Unreadable) and "no program could be read" in found.reason


@needs_squashfs
def test_an_image_that_unsquashfs_refuses(tmp_path: Path) -> None:
    path = packed(tmp_path, dash=elf(183))
    os.truncate(path, 96)
    assert isinstance(architecture(Machine(), profile(path)).image, Unreadable)


@pytest.mark.parametrize(
    ("container", "path"),
    [
        (Container(), None),
        (Container("docker", "nvcr.io/nvidia/x:1"), None),
        (Container("enroot", "k3"), None),
        (Container("enroot", "k3.sqsh"), "k3.sqsh"),
        (Container("enroot", "/images/k3"), "/images/k3"),
    ],
)
def test_which_images_are_files(container: Container, path: str | None) -> None:
    assert image(Machine(), Profile(container=container)).path == path


# Libraries and programs

needs_compiler = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


def stub(directory: Path, name: str, version: str = "") -> Path:
    """Make a library, with the link that loaders look for."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{name}{version}"
    (directory / "stub.c").write_text("int stub(void) { return 0; }\n")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(directory / "stub.c")], check=True)
    if version:
        (directory / f"{name}.1").symlink_to(path.name)
    return path


@needs_compiler
def test_which_file_the_loader_takes(node: Node, tmp_path: Path) -> None:
    node.file("/sys/module/nvidia/version", "580.105.08\n")
    real = stub(tmp_path / "lib", "libcuda.so", ".580.105.08")
    compat = stub(tmp_path / "compat", "libcuda.so", ".575.57.08")
    node.environment["LD_LIBRARY_PATH"] = f"{tmp_path}/compat:{tmp_path}/lib"
    found = libraries(node.machine())
    first, second = known(found.found)
    assert (found.driver, first.path, first.version) == ("580.105.08", str(compat), "575.57.08")
    assert second.path is None or "libnvidia-ml" in second.path
    node.environment["LD_LIBRARY_PATH"] = f"{tmp_path}/lib"
    assert known(libraries(node.machine()).found)[0].path == str(real)


def test_an_empty_library_is_not_one(node: Node, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libcuda.so.1").touch()
    node.file(f"/usr/lib/{os.uname().machine}-linux-gnu/libcuda.so.1", "")
    node.environment["LD_LIBRARY_PATH"] = f"{tmp_path}/lib"
    first = known(libraries(node.machine()).found)[0]
    assert first.path is None and "file too short" in first.reason
    assert first.empty == (f"/usr/lib/{os.uname().machine}-linux-gnu/libcuda.so.1",)


def test_a_loader_that_never_returns(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k3env.node.facts.rank._ANSWER_S", 0.3)
    node.program("python3", "exec sleep 30")
    assert isinstance(libraries(node.machine()).found, Unreadable)


def test_programs_in_path(node: Node) -> None:
    for name in ("bash", "ps", "python3"):
        node.program(name, "exit 0")
    assert programs(node.machine(path="")).missing == ("openssl", "python")


def test_tmp_as_it_is_here() -> None:
    found = known(tmp(Machine()))
    status = os.stat("/tmp")
    assert (found.uid, found.mode, found.ours) == (status.st_uid, status.st_mode & 0o7777, os.geteuid())


# All of them

SILENT, NOISE, KILLED, REFUSES = "exit 0", r"printf '\377\000\033[31mx'; exit 0", "kill -9 $$", "echo no >&2; exit 1"
COMMANDS = (
    *("srun", "scontrol", "munge", "unmunge", "chronyc", "timedatectl", "unshare", "setpriv", "enroot", "nvidia-ctk"),
    *("nvidia-container-cli", "unsquashfs", "bash", "sh", "test", "stat", "python3"),
)
FILES = (
    *("/proc/modules", "/proc/net/tcp", "/proc/self/limits", "/proc/self/status", "/proc/sys/kernel/numa_balancing"),
    *("/etc/enroot/enroot.conf", "/etc/slurm/slurm.conf", "/etc/slurm/plugstack.conf", "/proc/self/mountinfo"),
    *(
        "/sys/class/infiniband/mlx5_0/ports/1/state",
        "/proc/sys/user/max_user_namespaces",
        "/etc/slurm/job_container.conf",
    ),
    *("/sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "/proc/sys/kernel/osrelease", "/images/k3.sqsh"),
    *("/sys/module/nvidia/version", "/proc/self/cgroup", "/proc/meminfo"),
)
# What these say cannot come from a file or a command that was spoiled.
BY_ITSELF = {"system.meta", "system.arch_page", "system.shm", "system.net_rank0_port", "system.container_tools"}


@pytest.mark.parametrize("body", [SILENT, NOISE, KILLED, REFUSES], ids=["silent", "noise", "killed", "refuses"])
@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00\x1b[31m", b"NAME=\nx y z\n"], ids=["empty", "binary", "other"])
def test_nothing_that_a_machine_says_raises_or_turns_into_a_pass(node: Node, body: str, content: bytes) -> None:
    for name in COMMANDS:
        node.program(name, body)
    for path in FILES:
        node.file(path, content)
    node.environment.update({"SLURM_JOB_ID": "1", "SLURM_TASKS_PER_NODE": "x(y", "SLURM_GPUS_PER_NODE": "a:b,,"})
    machine = node.machine(path="")
    wanted = Profile(at_rank=True, container=Container("enroot", "/images/k3.sqsh"))
    for rule in checks.select(("system.*", "slurm.*")):
        values = {fact: read(fact, machine, wanted) for fact in rule.facts}
        finding = checks.judge(rule, values, wanted)
        assert "itself failed" not in finding.message, finding
        if body in (KILLED, REFUSES) and content != b"NAME=\nx y z\n" and rule.id not in BY_ITSELF:
            assert finding.status != "pass" or finding.severity == "info" or rule.id in SAFE, finding


SAFE = {"system.container_tmp", "system.mem_cgroup", "system.modules"}
"""These read what could not be spoiled: the real /tmp, a memory without a limit, the modules of this kernel."""
