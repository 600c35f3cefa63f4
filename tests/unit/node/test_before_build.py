"""Before a build: each thing that would end it after an hour is told in its first second, with what to do."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from k3env.k3.build import GIB
from k3env.node.facts.gpu import Gpu
from k3env.node.facts.quota import Quota
from k3env.node.facts.script import Script
from k3env.node.facts.toolchain import Toolchain, toolchain
from k3env.node.machine import Machine, Space
from k3env.node.modules import _ground
from k3env.node.modules._before_build import Ground, problems
from k3env.node.modules._room import Room, needs
from k3env.protocol.container import Container
from k3env.protocol.finding import Unreadable
from tests.unit.node.ground import PYTHON, run


def room(size: int, inodes: int, path: str = "/r", first: bool = True) -> Room:
    """Return a filesystem with this much room, on which all of a build lands."""
    return Room(tuple(needs(path, None, (), compiled=not first, made=not first)), Space(size, inodes))


TOOLS = {"cmake": "3.31.8", "nvcc": "13.0", "patchelf": "0.18.0", "git": "2.43", "git-lfs": "3.4", "c++": "13.3"}
IMAGE = Toolchain("aarch64", "3.12", True, TOOLS, {"torch": "2.12.0a0+5e1b"}, True, True)
SCRIPT = Script("/r/scripts/build_wheel.py", ("--yes", "-j"), "kimi k3", "", True, True, True)
GB300 = tuple(Gpu(f"0000000{at}:06:00.0", "NVIDIA GB300", (10, 3), 284208) for at in range(4))
GOOD = Ground(
    "/r",
    "103-real",
    SCRIPT,
    IMAGE,
    True,
    True,
    "aarch64",
    GB300,
    (room(900 * GIB, 10_000_000),),
    torch_requirement="torch>=2.11.0,<=2.13.0a0",
)
GB200 = (Gpu("00000008:01:00.0", "NVIDIA GB200", (10, 0), 189471),)


def without(*tools: str, **versions: str) -> Toolchain:
    return replace(IMAGE, tools={**TOOLS, **dict.fromkeys(tools), **versions})


BROKEN = [
    (
        "an image of another CPU",
        {"toolchain": replace(IMAGE, architecture="x86_64")},
        "image",
        "one for x86_64",
        "SBSA",
    ),
    ("inside an environment", {"toolchain": replace(IMAGE, is_base=False)}, "python", "virtual environment's", "leave"),
    (
        "a distribution's Python",
        {"toolchain": replace(IMAGE, externally_managed=True)},
        "python",
        "PEP 668",
        "python3-virtualenv",
    ),
    ("103 on GB200", {"gpus": GB200}, "arch", "103-real", "set trtllm_arch to 100-real"),
    ("100 on GB300", {"arch": "100-real"}, "arch", "100-real", "set trtllm_arch to 103-real"),
    ("no nvcc", {"toolchain": without("nvcc")}, "tools", "no nvcc", "devel image"),
    ("no patchelf, no compiler", {"toolchain": without("patchelf", "c++")}, "tools", "no c++, no patchelf", ""),
    ("an old cmake", {"toolchain": without(cmake="3.22.1")}, "tools", "cmake 3.22.1", "devel image"),
    ("CUDA 12", {"toolchain": without(nvcc="12.9")}, "tools", "nvcc 12.9", ""),
    ("on the bare node", {"toolchain": without("nvcc"), "in_image": False}, "tools", "no nvcc", "variable container"),
    (
        "an older torch",
        {"toolchain": replace(IMAGE, packages={"torch": "2.9.1"})},
        "torch",
        "torch 2.9.1 in the image",
        "current_image_tags",
    ),
    (
        "a prompt nobody answers",
        {
            "script": replace(SCRIPT, flags=("-j",)),
            "venv_torch": True,
            "toolchain": replace(IMAGE, ngc_pytorch="26.05"),
        },
        "prompt",
        "script asks",
        "uninstall torch",
    ),
    ("a read-only mount", {"toolchain": replace(IMAGE, writable=False)}, "writable", "can't be written", "k3_user"),
    ("native without a GPU", {"arch": "native", "gpus": ()}, "arch", "none on this host", "103-real"),
    (
        "LFS pointers, and no git-lfs on the node",
        {"pointers": ("a.a",), "in_image": False, "toolchain": without("git-lfs")},
        "lfs",
        "a.a",
        "install git-lfs; git -C",
    ),
    ("LFS pointers", {"pointers": ("a.a", "b.cpp", "c", "d")}, "lfs", "a.a, b.cpp, c and 1 more", "lfs pull"),
    (
        "submodules that nobody fetches",
        {"submodules_missing": ("3rdparty/x",), "script": replace(SCRIPT, fetches_submodules=False)},
        "submodules",
        "3rdparty/x",
        "submodule update",
    ),
    ("little room", {"rooms": (room(20 * GIB, 10_000_000),)}, "space", "20.0 GiB", "make room"),
    (
        "little room on the node's own disk",
        {"rooms": (room(900 * GIB, 10_000_000), room(20 * GIB, 10_000_000, "/local/b"))},
        "space",
        "20.0 GiB",
        "make room",
    ),
    ("few inodes", {"rooms": (room(900 * GIB, 1000),)}, "space", "1000 inodes", "df -i"),
    (
        "a quota that is nearly used up",
        {"rooms": (replace(room(900 * GIB, 10_000_000), quota=Quota(12 * GIB, 50_000)),)},
        "space",
        "a quota with 12.0 GiB and 50000 inodes left",
        "have the quota raised",
    ),
    (
        "requirements that nothing reads",
        {"requirements": ("requirements.txt is in UTF-16", "c.txt is not in UTF-8: byte 0xe9 in line 1")},
        "requirements",
        "requirements.txt is in UTF-16; c.txt",
        "git -C /r checkout -- requirements.txt",
    ),
    ("more jobs than memory", {"jobs": 72, "memory_bytes": 64 * GIB}, "memory", "64 GiB free", "set trtllm_jobs to 16"),
    (
        "a build script that makes no environment",
        {"script": replace(SCRIPT, makes_venv=False)},
        "python",
        "into python3 itself",
        "trtllm_commit",
    ),
    (
        "an architecture that the checkout has no kernels for",
        {"arch": "103-real;121-real", "architectures": ("80", "103", "120")},
        "arch",
        "103-real;121-real",
        "trtllm_arch",
    ),
    (
        "a Python that is too old",
        {"toolchain": replace(IMAGE, python="3.9"), "requires_python": ">=3.10, <4"},
        "python",
        "Python 3.9",
        "first in PATH",
    ),
    (
        "a sparse checkout",
        {"left_out": ("cpp/CMakeLists.txt",)},
        "sources",
        "left out: cpp/CMakeLists.txt",
        "sparse-checkout disable",
    ),
    ("no way out", {"unreachable": ("github.com:443",)}, "egress", "github.com:443", "https_proxy"),
    (
        "a directory without all",
        {"lacking": (("D lacks fmt: gone", "fetch it"),)},
        "offline",
        "D lacks fmt",
        "fetch it",
    ),
    ("a mount without code", {"noexec": "/shared"}, "noexec", "/shared is mounted noexec", "without noexec"),
    ("conan's home", {"conan_home": "/theirs"}, "conan", "CONAN_HOME is /theirs", "unset CONAN_HOME"),
    ("a login node", {"login_node": "a login node: …"}, "login", "a login node", "trtllm_on_login_node: true"),
]


@pytest.mark.parametrize(("name", "change", "what", "found", "remedy"), BROKEN, ids=[row[0] for row in BROKEN])
def test_what_would_end_the_build(name: str, change: dict[str, object], what: str, found: str, remedy: str) -> None:
    (finding,) = problems(replace(GOOD, **change))  # type: ignore[arg-type]
    assert finding.id == f"trtllm.before.{what}" and finding.status == "fail"
    assert found in (finding.found or "") and remedy in (finding.remedy or "") and finding.expected


def test_good_ground_is_not_spoken_of() -> None:
    assert problems(GOOD) == ()


def test_all_that_is_wrong_is_told_at_once() -> None:
    ground = replace(GOOD, gpus=GB200, toolchain=without("nvcc"), pointers=("a",))
    assert [item.id.rpartition(".")[2] for item in problems(ground)] == ["arch", "tools", "lfs"]


HARMLESS = [
    ("native where a GPU is seen", {"arch": "native"}),
    ("a host without GPUs builds for others", {"gpus": ()}),
    ("a GPU that says no capability", {"gpus": (Gpu("0:0"),)}),
    ("the second build needs little room", {"rooms": (room(9 * GIB, 0, first=False),)}),
    ("a configured build downloads nothing", {"is_first": False, "unreachable": ("github.com:443",)}),
    (
        "nothing is compiled in a stand-in",
        {"compiles": False, "toolchain": without("nvcc", "c++"), "rooms": (room(1, 1),)},
    ),
    ("the script fetches its submodules", {"submodules_missing": ("3rdparty/x",)}),
    ("torch in an environment, asked with --yes", {"venv_torch": True}),
    ("no torch at all is another's matter", {"toolchain": replace(IMAGE, packages={"torch": None})}),
    ("an architecture that the checkout has kernels for", {"architectures": ("80", "103", "120")}),
    ("all that it has kernels for", {"arch": "all", "architectures": ("80", "103", "120")}),
    ("a Python that setup.py takes", {"requires_python": ">=3.10, <4"}),
    ("a word of setup.py that is none of versions", {"requires_python": "three"}),
    ("a local and alpha version counts", {"torch_requirement": "torch==2.12.0a0"}),
    ("a quota with room", {"rooms": (replace(room(900 * GIB, 10_000_000), quota=Quota(70 * GIB, None)),)}),
    ("a filesystem that says nothing", {"rooms": (replace(room(0, 0), space=None),)}),
    ("one job", {"jobs": 1, "memory_bytes": GIB}),
    (
        "virtualenv is there already",
        {"toolchain": replace(IMAGE, externally_managed=True, packages={"virtualenv": "20"})},
    ),
]


@pytest.mark.parametrize(("name", "change"), HARMLESS, ids=[row[0] for row in HARMLESS])
def test_what_does_no_harm(name: str, change: dict[str, object]) -> None:
    assert problems(replace(GOOD, **change)) == ()  # type: ignore[arg-type]


def test_the_toolchain_of_this_machine(tmp_path: Path) -> None:
    found = toolchain(Machine(), Container(), str(tmp_path))
    assert isinstance(found, Toolchain)
    assert found.architecture == Machine().architecture() and found.tools["git"]
    assert found.packages["pip"] is None or found.packages["pip"][0].isdigit()
    closed = tmp_path / "gone"
    away = toolchain(Machine(), Container(), str(closed))
    assert isinstance(away, Toolchain) and not away.writable


def test_an_interpreter_that_does_not_answer(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\necho broken >&2\nexit 3\n")
    (tmp_path / "python3").chmod(0o755)
    found = toolchain(Machine(environment={"PATH": f"{tmp_path}:/usr/bin:/bin"}), Container(), "/")
    assert isinstance(found, Unreadable) and "exit code 3: broken" in found.reason


@pytest.mark.parametrize("told", ["environment", "pip.conf", "nothing"])
def test_an_image_that_allows_what_its_distribution_forbids(tmp_path: Path, told: str) -> None:
    run(PYTHON, "-m", "venv", tmp_path / "v")
    for lib in (tmp_path / "v" / "lib").glob("python*"):
        (lib / "EXTERNALLY-MANAGED").write_text("[externally-managed]\nError=no\n")
    around = {"PATH": f"{tmp_path}/v/bin:/usr/bin:/bin", "HOME": str(tmp_path)}
    if told == "environment":
        around["PIP_BREAK_SYSTEM_PACKAGES"] = "1"
    if told == "pip.conf":
        (tmp_path / "v" / "pip.conf").write_text("[global]\nbreak-system-packages = true\n")
    found = toolchain(Machine(environment=around), Container(), str(tmp_path))
    assert isinstance(found, Toolchain) and found.externally_managed is (told == "nothing")


def node(tmp_path: Path, *files: str, **texts: str) -> Machine:
    (tmp_path / "proc" / "7").mkdir(parents=True)
    (tmp_path / "proc" / "7" / "comm").write_text(texts.get("comm", "bash\n"))
    (tmp_path / "proc" / "1").mkdir()
    (tmp_path / "proc" / "1" / "comm").write_text("systemd\n")
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    machine = Machine(overlay=str(tmp_path))
    machine.environment.pop("SLURM_JOB_ID", None)
    return machine


def test_a_login_node_is_one_with_slurm_and_without_slurmd(tmp_path: Path) -> None:
    found = _ground._login_node(node(tmp_path, "etc/slurm/slurm.conf"))
    assert found is not None and "/etc/slurm/slurm.conf" in found


@pytest.mark.parametrize("comm", ["slurmd\n", "slurmstepd\n"])
def test_a_compute_node_is_none(tmp_path: Path, comm: str) -> None:
    assert _ground._login_node(node(tmp_path, "etc/slurm/slurm.conf", comm=comm)) is None


def test_nor_is_a_node_that_hides_processes(tmp_path: Path) -> None:
    machine = node(tmp_path, "etc/slurm/slurm.conf")
    (tmp_path / "proc" / "1" / "comm").unlink()
    (tmp_path / "proc" / "1" / "comm").mkdir()  # Unreadable for root, too.
    assert _ground._login_node(machine) is None


def test_nor_is_a_host_without_slurm_or_a_step_of_a_job(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert _ground._login_node(node(tmp_path / "a")) is None
    (tmp_path / "b").mkdir()
    machine = node(tmp_path / "b", "etc/slurm/slurm.conf")
    machine.environment["SLURM_JOB_ID"] = "7"
    assert _ground._login_node(machine) is None
