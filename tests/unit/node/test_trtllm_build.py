"""trtllm_build: every promise is broken by itself, named by itself, and mended by what that needs and no more."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest

from k3env.errors import Refused, TaskFailed
from k3env.node import manifest
from k3env.node.facts import build as builds
from k3env.node.machine import Space
from k3env.node.modules import _steps
from k3env.node.modules.trtllm_build import TrtllmBuild
from k3env.protocol.container import Container
from tests.counting import counted
from tests.unit.node import ground
from tests.unit.node.ground import Watched, commit, git, judged, perform, run, wheel

SCRIPT = Path(__file__).parents[2] / "data" / "build" / "checkout" / "build_wheel.py"
SETUP = """
from setuptools import setup
setup(name="tensorrt_llm", version="1.3.0", packages=["tensorrt_llm"], install_requires=["torch>=3"])
"""
IGNORED = "*.so\n/.venv-*\n/cpp/build/\n*.egg-info\n/build/\n/tensorrt_llm/*/\n"
CALLS = 90
"""What a build that is as wanted may ask its filesystem: each is a round trip on a network filesystem at its worst."""
ENGINE = '#!/bin/sh\necho a banner\nwhile [ "$1" != k3 ]; do shift; done\nshift\nexec "$@"\n'


@dataclass(frozen=True)
class Ground:
    """A checkout, and a machine that builds it."""

    repo: Path
    commits: tuple[str, str]
    machine: Watched
    calls: Path

    @property
    def venv(self) -> Path:
        return self.repo / f".venv-{ground.VERSION}"

    @property
    def module(self) -> TrtllmBuild:
        # pip reads this variable the other way round: it must not fetch setuptools for each test.
        return TrtllmBuild(str(self.repo), self.commits[1], jobs=3, environment={"PIP_NO_BUILD_ISOLATION": "0"})

    @property
    def manifest(self) -> manifest.Manifest:
        found = manifest.read(self.machine, str(self.repo))
        assert found is not None
        return found

    def built(self) -> list[str]:
        """The arguments of the builds since the last time."""
        lines = self.calls.read_text().splitlines() if self.calls.exists() else []
        self.calls.unlink(missing_ok=True)
        return lines

    def pips(self) -> int:
        return sum("pip" in argv for argv in self.machine.started)

    def bindings(self) -> Path:
        (found,) = (self.repo / "tensorrt_llm").glob("bindings.*.so")
        return found


def on(base: Path, root: Path, repo: Path, commits: tuple[str, str], *paths: Path) -> Ground:
    calls = root / "calls"
    template = base / "environment-template"
    machine = ground.machine(root / "home", *paths, FAKE_VENV=str(template), FAKE_CALLS=str(calls))
    return Ground(repo, commits, machine, calls)


def checkout() -> dict[str, str]:
    """The files of a checkout."""
    return {
        "scripts/build_wheel.py": SCRIPT.read_text(),
        "setup.py": SETUP,
        "pyproject.toml": '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n',
        ".gitignore": IGNORED,
        "tensorrt_llm/__init__.py": "",
        "tensorrt_llm/version.py": '__version__ = "1.3.0"\n',
        "cpp/kernel.cu": "1",
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """A checkout that is built."""
    root, base = tmp_path_factory.mktemp("made"), tmp_path_factory.getbasetemp()
    ground.environment(base, root / "unused")
    repo = root / "TensorRT-LLM"
    first = commit(repo, "first", **checkout())
    second = commit(repo, "second", **{"cpp/kernel.cu": "2"})
    found = on(base, root, repo, (first, second))
    changes = perform(found.module, found.machine)
    assert [(change.what, change.before) for change in changes] == [
        (f"environment {found.venv}", "absent"),
        ("build", "absent"),
        ("tensorrt-llm", "not installed"),
    ]
    return found


@pytest.fixture
def wanted(made: Ground, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Ground:
    """The built checkout, at its own path, to be broken."""
    aside = made.repo.parent / "TensorRT-LLM.kept"
    if not aside.exists():
        ground.copied(made.repo, aside)
    shutil.rmtree(made.repo)
    ground.copied(aside, made.repo)
    return on(tmp_path_factory.getbasetemp(), tmp_path, made.repo, made.commits)


def test_what_a_first_build_is_given_and_leaves(made: Ground) -> None:
    assert made.built() == ["--cuda_architectures 103-real --skip_building_wheel --yes -j 3"]
    found = made.manifest
    assert (found.commit, found.arch, found.cmake_arch) == (made.commits[1], "103-real", "103-real")
    assert (found.dirty, found.image, found.python, found.by) == (None, "", ground.VERSION, "run-host-task")
    assert found.flags == ("--cuda_architectures", "103-real", "--skip_building_wheel", "--yes", "-j", "3")
    assert f"tensorrt_llm/{made.bindings().name}" in found.artefacts
    assert "tensorrt_llm/libs/libtensorrt_llm_nixl_wrapper.so" in found.artefacts
    assert [path.name for path in (made.repo / ".k3env/logs").iterdir()] == ["run-host-task.log"]
    assert git(made.repo, "status", "--porcelain") == ""
    parts = [part for _, part in made.machine.told if part is not None]
    assert parts and parts == sorted(parts)


def test_nothing_to_do_starts_nothing(wanted: Ground) -> None:
    with counted(wanted.repo) as asked:
        assert wanted.module.changes(wanted.machine) == ()
        assert judged(wanted.module, wanted.machine) == {}
    assert wanted.machine.started == []
    assert asked.total() <= CALLS, asked
    listed = {name: times for name, times in asked.items() if name.startswith(("listdir", "open"))}
    assert {name for name, times in listed.items() if times > 1} <= {
        "open .k3env/manifest.json",  # what is there, and how it was made
        f"listdir .venv-{ground.VERSION}/lib/python{ground.VERSION}/site-packages",  # whole, and what is installed
    }


def test_why_there_is_nothing_to_do(wanted: Ground) -> None:
    count = len(wanted.manifest.artefacts)
    assert wanted.module.reasons(wanted.machine) == (
        "CMakeCache.txt says 103-real",
        f"the manifest says commit {wanted.commits[1][:12]}",
        f"{count} artefacts as recorded",
        f".venv-{ground.VERSION} is whole, Python {ground.VERSION}",
        f"tensorrt-llm is editable from {wanted.repo}",
    )
    assert count > 5 and wanted.machine.started == []


def rewrite(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    path.unlink()
    path.write_text(text.replace(old, new))


def break_home(wanted: Ground) -> None:
    """Let the environment be one of an interpreter that is gone, as after a change of images."""
    for name in ("python", "python3", f"python{ground.VERSION}"):
        (wanted.venv / "bin" / name).unlink()
        (wanted.venv / "bin" / name).symlink_to(f"/gone/bin/python{ground.VERSION}")
    rewrite(wanted.venv / "pyvenv.cfg", str(ground.PYTHON.parent), "/gone/bin")


def break_python(wanted: Ground) -> None:
    (wanted.venv / "bin/python").unlink()
    (wanted.venv / "bin/python").symlink_to("/gone/bin/python3")


def install_elsewhere(wanted: Ground) -> None:
    clone = wanted.repo.parent / "another"
    if not clone.exists():
        run("git", "clone", "-q", wanted.repo, clone)
    pip = (wanted.venv / "bin/python", "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation")
    run(*pip, "-e", clone)


LIBRARY = "tensorrt_llm/libs/libth_common.so"
Damage = Callable[[Ground], object]
BROKEN: dict[str, tuple[Damage, str, list[str], int]] = {
    # what is broken: how, what is named, the builds and the pips that mend it
    "a library deleted": (lambda on: (on.repo / LIBRARY).unlink(), LIBRARY, [""], 0),
    "a library emptied": (
        lambda on: ((on.repo / LIBRARY).unlink(), (on.repo / LIBRARY).touch()),
        LIBRARY,
        [""],
        0,
    ),
    "a library replaced": (
        lambda on: ((on.repo / LIBRARY).unlink(), (on.repo / LIBRARY).write_bytes(b"\x7fELF another")),
        LIBRARY,
        [""],
        0,
    ),
    "the bindings deleted": (
        lambda on: on.bindings().unlink(),
        f"tensorrt_llm/bindings.cpython-{ground.VERSION.replace('.', '')}",
        [""],
        0,
    ),
    "the stubs deleted": (
        lambda on: shutil.rmtree(on.repo / "tensorrt_llm/bindings"),
        "tensorrt_llm/bindings/",
        [""],
        0,
    ),
    "all libraries deleted": (
        lambda on: shutil.rmtree(on.repo / "tensorrt_llm/libs"),
        "build's artefacts",
        [""],
        0,
    ),
    "another architecture in CMake's cache": (
        lambda on: rewrite(on.repo / "cpp/build/CMakeCache.txt", "103-real", "100-real"),
        "CMAKE_CUDA_ARCHITECTURES",
        [" --configure_cmake"],
        0,
    ),
    "CMake's cache deleted": (
        lambda on: shutil.rmtree(on.repo / "cpp/build"),
        "CMAKE_CUDA_ARCHITECTURES",
        [""],
        0,
    ),
    "the checkout moved": (
        lambda on: rewrite(on.repo / "cpp/build/CMakeCache.txt", str(on.repo), "/elsewhere"),
        "CMake's source directory",
        [" --clean"],
        0,
    ),
    "the manifest deleted": (lambda on: (on.repo / ".k3env/manifest.json").unlink(), "build", [""], 1),
    "the manifest of another format": (
        lambda on: rewrite(on.repo / ".k3env/manifest.json", '"arch"', '"format": 2, "arch"'),
        "build",
        [""],
        1,
    ),
    "the environment's python dangling": (break_python, "environment ", [], 0),
    "the environment's interpreter gone": (break_home, "environment ", [], 0),
    "uninstalled": (
        lambda on: run(on.venv / "bin/python", "-m", "pip", "uninstall", "-q", "--yes", "tensorrt_llm"),
        "tensorrt-llm",
        [],
        1,
    ),
    "its .pth deleted": (
        lambda on: [path.unlink() for path in on.venv.rglob("__editable__*") if path.is_file()],
        "tensorrt-llm",
        [],
        1,
    ),
    "installed from another checkout": (install_elsewhere, "tensorrt-llm", [], 1),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_promise_is_broken_named_and_mended(name: str, wanted: Ground) -> None:
    damage, what, arguments, pips = BROKEN[name]
    damage(wanted)
    wanted.built()
    (change,) = perform(wanted.module, wanted.machine)
    assert change.what.startswith(what)
    plain = "--cuda_architectures 103-real --skip_building_wheel --yes -j 3"
    assert wanted.built() == [plain + more for more in arguments]
    assert wanted.pips() == pips
    assert run(wanted.venv / "bin/python", "-c", "import pip, sys; print(sys.prefix)") == str(wanted.venv)


def test_a_relinked_environment_keeps_what_is_installed(wanted: Ground) -> None:
    marker = next(wanted.venv.rglob("tensorrt_llm-*.dist-info")) / "RECORD"
    before = marker.stat().st_mtime_ns
    break_home(wanted)
    (change,) = perform(wanted.module, wanted.machine)
    assert "/gone/bin" in change.before
    assert marker.stat().st_mtime_ns == before
    assert f"home = {ground.PYTHON.parent}\n" in (wanted.venv / "pyvenv.cfg").read_text()


def test_an_environment_whose_python_is_nowhere_is_a_refusal(wanted: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    break_home(wanted)
    changes = wanted.module.changes(wanted.machine)
    monkeypatch.setattr("k3env.node.facts.interpreter.of_version", lambda machine, version: None)
    with pytest.raises(Refused) as caught:
        wanted.module.apply(wanted.machine, changes)
    assert f"install Python {ground.VERSION}" in (caught.value.finding.remedy or "")


HALF_MADE: dict[str, tuple[Damage, str]] = {
    "no pyvenv.cfg": (lambda on: (on.venv / "pyvenv.cfg").unlink(), "no pyvenv.cfg"),
    "no pip": (lambda on: shutil.rmtree(next(on.venv.rglob("site-packages/pip"))), "no pip"),
    "another version": (
        lambda on: rewrite(on.venv / "pyvenv.cfg", f"version = {ground.VERSION}", "version = 3.8"),
        "it is of Python 3.8",
    ),
    "an empty directory": (lambda on: (shutil.rmtree(on.venv), on.venv.mkdir()), "no pyvenv.cfg"),
}


@pytest.mark.parametrize("name", HALF_MADE)
def test_an_environment_that_is_half_made_is_moved_aside(name: str, wanted: Ground) -> None:
    damage, why = HALF_MADE[name]
    damage(wanted)
    earlier = wanted.venv.with_name(f"{wanted.venv.name}.k3env-aside-20260101-000000-aaaaaa")
    (earlier / "lib").mkdir(parents=True)
    (change,) = perform(wanted.module, wanted.machine)
    assert why in change.before
    assert (len(wanted.built()), wanted.pips()) == (1, 1)
    (aside,) = wanted.repo.glob(".venv-*.k3env-aside-*")
    assert aside.is_dir()
    assert aside != earlier


def test_another_commit_is_built_and_installed(wanted: Ground) -> None:
    git(wanted.repo, "checkout", "--quiet", wanted.commits[0])
    assert wanted.module.changes(wanted.machine) == (), "HEAD is git_checkout's"
    earlier = replace(wanted.module, commit=wanted.commits[0])
    (change,) = perform(earlier, wanted.machine)
    assert (change.what, change.before, change.after) == ("build's commit", wanted.commits[1], wanted.commits[0])
    assert (len(wanted.built()), wanted.pips()) == (1, 1)
    assert wanted.manifest.commit == wanted.commits[0]


def test_head_elsewhere_is_a_refusal(wanted: Ground) -> None:
    git(wanted.repo, "checkout", "--quiet", wanted.commits[0])
    (wanted.repo / LIBRARY).unlink()
    changes = wanted.module.changes(wanted.machine)
    assert [change.what for change in changes] == [LIBRARY]
    with pytest.raises(Refused) as caught:
        wanted.module.apply(wanted.machine, changes)
    assert (caught.value.finding.expected, caught.value.finding.found) == (wanted.commits[1], wanted.commits[0])
    assert wanted.built() == []


@pytest.mark.parametrize("before", ["nothing", "a source archive"])
def test_without_a_checkout_all_is_reported(before: str, tmp_path: Path, wanted: Ground) -> None:
    repo = tmp_path / "TensorRT-LLM"
    if before != "nothing":
        (repo / "scripts").mkdir(parents=True)
    module = replace(wanted.module, repo=str(repo))
    assert len(module.changes(wanted.machine)) == 3
    assert judged(module, wanted.machine) == {}
    with pytest.raises(Refused, match="not at the commit"):
        module.apply(wanted.machine, ())


def test_a_build_that_is_cut_off_is_made_whole_by_the_next(wanted: Ground) -> None:
    (wanted.repo / LIBRARY).unlink()
    cut = replace(wanted.module, environment={**wanted.module.environment, "FAKE_STOP": "1"})
    with pytest.raises(TaskFailed) as caught:
        cut.apply(wanted.machine, cut.changes(wanted.machine))
    assert "signal 6" in (caught.value.finding.found or "")
    assert not (wanted.repo / "tensorrt_llm/libs").exists()
    (change,) = perform(wanted.module, wanted.machine)
    assert change.what == "build's artefacts"
    assert (wanted.repo / LIBRARY).exists()


@pytest.mark.parametrize(
    ("number", "id", "remedy"),
    [(signal.SIGKILL, "system.killed", "memory ran out"), (signal.SIGTERM, "system.ended", "run it again"),
     (signal.SIGHUP, "system.ended", "run it again"), (signal.SIGSEGV, "build.failed", "no diagnosis")],
)  # fmt: skip
def test_a_build_that_a_signal_ends_is_told_so(number: signal.Signals, id: str, remedy: str, wanted: Ground) -> None:
    (wanted.repo / LIBRARY).unlink()
    script = wanted.repo / "scripts/build_wheel.py"
    # Whoever runs these tests may ignore a signal, as nohup does.
    deadly = (
        f"number = {int(number)}; number == 9 or signal.signal(number, signal.SIG_DFL); os.kill(os.getpid(), number)"
    )
    rewrite(script, "    args = parsed()\n", f"    args = parsed()\n    import signal; {deadly}\n")
    with pytest.raises(TaskFailed) as caught:
        wanted.module.apply(wanted.machine, wanted.module.changes(wanted.machine))
    finding = caught.value.finding
    assert finding.id == id and remedy in (finding.remedy or "")
    assert f"signal {int(number)} ({number.name})" in (finding.found or "")
    assert "compiler" not in finding.message


class Full(Watched):
    """A machine whose disk at a path has nothing left: what fails there fails without a word."""

    full = ""

    def space(self, path: str) -> Space:
        return Space(3 << 20, 1 << 20) if path == self.full else super().space(path)


def test_a_step_that_fails_without_a_word_on_a_full_disk(tmp_path: Path) -> None:
    on = Full({"PATH": os.environ["PATH"]})
    on.full = str(tmp_path)
    with pytest.raises(TaskFailed) as caught:
        _steps.take(on, _steps.Step("build it", ("false",), "build", cwd=on.full))
    finding = caught.value.finding
    assert (finding.id, finding.message) == (
        "system.disk", f"build it failed: {on.full} is full: 3.0 MiB and 1048576 inodes are left"
    )  # fmt: skip
    assert "make room there" in (finding.remedy or "")


FAILED = {
    "memory": ("c++: fatal error: Killed signal terminated program cc1plus", "build.memory", "trtllm_jobs"),
    "LFS": ("x.a: file not recognized: file format not recognized", "build.lfs_pointer", "git lfs pull"),
    "PEP 668": ("error: externally-managed-environment", "pip.externally_managed", "image"),
    "unknown": ("something that nobody knows", "build.failed", "see what its output says"),
}


@pytest.mark.parametrize("name", FAILED)
def test_a_failed_build_says_what_it_means(name: str, wanted: Ground) -> None:
    text, id, remedy = FAILED[name]
    (wanted.repo / LIBRARY).unlink()
    noise = "\n".join(f"gmake[{number}]: *** Error 1" for number in range(300))
    module = replace(wanted.module, environment={"FAKE_FAIL": f"{text}\n{noise}"})
    with pytest.raises(TaskFailed) as caught:
        module.apply(wanted.machine, module.changes(wanted.machine))
    finding, log = caught.value.finding, wanted.repo / ".k3env/logs/run-host-task.log"
    assert finding.id == id
    assert remedy in (finding.remedy or "") and str(log) in (finding.remedy or "")
    assert finding.evidence[-1].source == str(log) and finding.evidence[-1].exit_code == 1
    assert id == "build.failed" or finding.evidence[0].excerpt == text, (
        "the line that matters, though the tail lacks it"
    )
    assert text in log.read_text()
    assert wanted.manifest.commit == wanted.commits[1]


def test_a_build_without_words_is_ended(wanted: Ground) -> None:
    (wanted.repo / LIBRARY).unlink()
    script = wanted.repo / "scripts/build_wheel.py"
    rewrite(script, "    args = parsed()\n", "    args = parsed()\n    time.sleep(60)\n")
    module = replace(wanted.module, inactivity_s=0.5)
    begun = time.monotonic()
    with pytest.raises(TaskFailed, match=r"no output and no work for 0\.5 s"):
        module.apply(wanted.machine, module.changes(wanted.machine))
    assert time.monotonic() - begun < 15


def test_a_build_that_ends_well_and_leaves_too_little_fails(wanted: Ground) -> None:
    (wanted.repo / LIBRARY).unlink()
    module = replace(wanted.module, environment={"FAKE_FORGET": "libs/libth_common.so"})
    with pytest.raises(TaskFailed, match=r"left no tensorrt_llm/libs/libth_common\.so"):
        module.apply(wanted.machine, module.changes(wanted.machine))
    assert wanted.manifest.commit == wanted.commits[1]


def test_flags_that_an_old_script_does_not_know_are_left_out(wanted: Ground) -> None:
    (wanted.repo / LIBRARY).unlink()
    perform(replace(wanted.module, environment={"FAKE_OLD": "1"}), wanted.machine)
    assert wanted.built() == ["--cuda_architectures 103-real --skip_building_wheel"]


def test_an_architecture_that_cmake_rewrites_is_the_same(wanted: Ground) -> None:
    module = replace(wanted.module, arch="100-real", environment={"FAKE_REWRITE": "100f-real"})
    perform(module, wanted.machine)
    assert wanted.built() == ["--cuda_architectures 100-real --skip_building_wheel --yes -j 3 --configure_cmake"]
    assert (wanted.manifest.arch, wanted.manifest.cmake_arch) == ("100-real", "100f-real")


def test_jobs_are_counted_where_none_are_given(wanted: Ground) -> None:
    (wanted.repo / LIBRARY).unlink()
    perform(replace(wanted.module, jobs=None), wanted.machine)
    (arguments,) = wanted.built()
    assert 1 <= int(arguments.rpartition(" ")[2]) <= os.cpu_count()  # type: ignore[operator]


def test_objects_on_the_nodes_own_disk(wanted: Ground, tmp_path: Path) -> None:
    module = replace(wanted.module, build_root=str(tmp_path / "scratch"))
    assert module.changes(wanted.machine) == (), "what is built in the checkout is built"
    objects = builds.objects_of(module.build_root, module.repo)
    shutil.rmtree(wanted.repo / "cpp/build")
    perform(module, wanted.machine)
    (arguments,) = wanted.built()
    assert arguments == f"--cuda_architectures 103-real --skip_building_wheel --yes -j 3 --build_dir {objects}"
    assert (Path(objects) / "CMakeCache.txt").exists() and not (wanted.repo / "cpp/build").exists()
    assert wanted.manifest.build_dir == objects and wanted.manifest.cmake_arch == "103-real"
    assert (wanted.repo / f".venv-{ground.VERSION}").is_dir()
    # Another architecture is configured there; another node, which has no such directory, finds nothing to do.
    perform(replace(module, arch="100-real"), wanted.machine)
    assert wanted.built()[0].endswith(f"--configure_cmake --build_dir {objects}")
    shutil.rmtree(objects)
    assert replace(module, arch="100-real").changes(wanted.machine) == ()
    assert module.changes(wanted.machine) != ()
    # Back in the checkout, which was never configured: all of it anew.
    perform(wanted.module, wanted.machine)
    assert wanted.built() == ["--cuda_architectures 103-real --skip_building_wheel --yes -j 3"]
    assert wanted.manifest.build_dir == ""


def test_a_script_that_can_not_compile_elsewhere_is_said(wanted: Ground, tmp_path: Path) -> None:
    (wanted.repo / LIBRARY).unlink()
    module = replace(wanted.module, build_root=str(tmp_path), environment={"FAKE_OLD": "1"})
    with pytest.raises(TaskFailed, match="takes no --build_dir"):
        module.apply(wanted.machine, module.changes(wanted.machine))


def test_a_build_root_of_the_users_shell_moves_nothing(wanted: Ground, tmp_path: Path) -> None:
    shutil.rmtree(wanted.venv)
    wanted.machine.environment["TRTLLM_BUILD_ROOT"] = str(tmp_path / "theirs")
    perform(
        replace(wanted.module, environment={**wanted.module.environment, "FAKE_ROOTS": "1"}, build_root=str(tmp_path)),
        wanted.machine,
    )
    assert wanted.venv.is_dir() and not (tmp_path / "theirs").exists()
    assert "--build_root" not in wanted.built()[0]


@pytest.mark.parametrize(
    ("key", "value"), [("CMAKE_BUILD_TYPE", "Debug"), ("Python_EXECUTABLE", "/gone/.venv-3.8/bin/python3")]
)
def test_what_cmake_would_keep_from_before_is_configured_anew(wanted: Ground, key: str, value: str) -> None:
    (wanted.repo / LIBRARY).unlink()
    cache = wanted.repo / "cpp/build/CMakeCache.txt"
    text = cache.read_text()
    cache.unlink()
    cache.write_text(f"{text}{key}:STRING={value}\n")
    perform(wanted.module, wanted.machine)
    assert wanted.built() == ["--cuda_architectures 103-real --skip_building_wheel --yes -j 3 --configure_cmake"]


def test_what_is_built_from_local_changes_is_told_and_built_again_without(wanted: Ground) -> None:
    rewrite(wanted.repo / "cpp/kernel.cu", "2", "mine")
    (wanted.repo / LIBRARY).unlink()
    perform(wanted.module, wanted.machine)
    assert wanted.manifest.dirty is not None
    assert judged(wanted.module, wanted.machine) == {"trtllm.dirty": "warn"}
    assert wanted.module.changes(wanted.machine) == ()
    git(wanted.repo, "checkout", "--quiet", "cpp/kernel.cu")
    (change,) = perform(wanted.module, wanted.machine)
    assert (change.what, change.after) == ("local changes that were built", "none")
    assert wanted.manifest.dirty is None


def test_an_environment_that_is_active_is_not_built_with(
    wanted: Ground, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    active = ground.environment(tmp_path_factory.getbasetemp(), tmp_path / "active")
    inside = on(tmp_path_factory.getbasetemp(), tmp_path, wanted.repo, wanted.commits, active / "bin")
    assert inside.module.changes(inside.machine) == ()
    (wanted.repo / LIBRARY).unlink()
    perform(inside.module, inside.machine)
    assert all(str(active) not in word for argv in inside.machine.started for word in argv)


def test_the_users_caches_are_left_alone(wanted: Ground, tmp_path: Path) -> None:
    theirs = tmp_path / "home/.tensorrt_llm/kernel"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("precious")
    (wanted.repo / LIBRARY).unlink()
    perform(wanted.module, wanted.machine)
    assert theirs.read_text() == "precious"


def test_a_resolving_install_moves_no_protected_package(wanted: Ground, tmp_path: Path) -> None:
    wheel(tmp_path / "wheels", "torch", "2.0")
    wheel(tmp_path / "wheels", "torch", "3.0")
    pip = (wanted.venv / "bin/python", "-m", "pip")
    run(*pip, "install", "-q", "--no-index", "-f", tmp_path / "wheels", "torch<3")
    run(*pip, "uninstall", "-q", "--yes", "tensorrt_llm")
    offline = {
        **wanted.module.environment,
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "wheels"),
    }
    module = replace(wanted.module, install="resolve", environment=offline)
    with pytest.raises(Refused, match=r"torch 2\.0 → 3\.0"):
        module.apply(wanted.machine, module.changes(wanted.machine))
    run(*pip, "uninstall", "-q", "--yes", "torch")
    perform(module, wanted.machine)
    assert list(wanted.venv.rglob("torch-3.0.dist-info")) != []


def test_in_an_image(wanted: Ground, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    engine = tmp_path / "engines/enroot"
    engine.parent.mkdir()
    engine.write_text(ENGINE)
    engine.chmod(0o755)
    inside = on(tmp_path_factory.getbasetemp(), tmp_path, wanted.repo, wanted.commits, engine.parent)
    module = replace(inside.module, container=Container("enroot", "k3"))
    (change,) = perform(module, inside.machine)
    assert (change.what, change.before, change.after) == ("build's image", "none", "k3")
    assert inside.manifest.image == "k3"
    (arguments,) = inside.built()
    assert arguments.endswith(" --clean"), "objects of two images must not be mixed"
    (inside.repo / LIBRARY).unlink()
    perform(module, inside.machine)
    assert "--clean" not in inside.built()[0]
    inside.machine.started.clear()
    break_home(inside)
    assert module.changes(inside.machine) == (), "an image's interpreter is not seen from outside"
    assert inside.machine.started == []


@pytest.mark.parametrize("engine", ["podman", "docker", "enroot"])
def test_an_engine_that_is_missing_is_said(
    wanted: Ground, tmp_path: Path, engine: Literal["podman", "docker", "enroot"]
) -> None:
    for program in ("git", "sh"):
        (tmp_path / "home" / "bin" / program).symlink_to(shutil.which(program) or "")
    wanted.machine.environment["PATH"] = str(tmp_path / "home" / "bin")
    module = replace(wanted.module, container=Container(engine, "k3"))
    with pytest.raises(TaskFailed, match=f"{engine} can't be started: No such file or directory") as caught:
        module.apply(wanted.machine, module.changes(wanted.machine))
    assert caught.value.finding.remedy == "install it, or see PATH"


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"arch": "10.3"}, "did you mean 103-real"),
        ({"arch": "sm_103"}, "did you mean 103-real"),
        ({"arch": "100f-real"}, "did you mean 100-real"),
        ({"commit": "main"}, "40 hexadecimal digits"),
        ({"repo": "x"}, "absolute path"),
        ({"build_root": "b"}, "absolute path"),
        ({"environment": {"TRTLLM_BUILD_ROOT": "/b"}}, "set build_root instead"),
        ({"jobs": 0}, "from 1 to 4096"),
    ],
)
def test_parameters_that_are_refused_at_load(parameters: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        TrtllmBuild(**{"repo": "/srv/x", "commit": "a" * 40, **parameters})  # type: ignore[arg-type]


def test_a_checkout_of_another_age_lacks_nothing_that_its_script_does_not_name(wanted: Ground) -> None:
    assert builds.wanting(wanted.machine, str(wanted.repo), ground.VERSION) == ()
    assert builds.wanting(wanted.machine, str(wanted.repo), "3.8") != (), "the bindings are for another Python"
    (wanted.repo / "tensorrt_llm/libs/libpg_utils.so").unlink()
    assert builds.wanting(wanted.machine, str(wanted.repo), "") == ("tensorrt_llm/libs/libpg_utils.so",)
    rewrite(wanted.repo / "scripts/build_wheel.py", "libpg_utils", "libother")
    assert builds.wanting(wanted.machine, str(wanted.repo), "") == ()


def test_what_newer_ages_compile_at_run_time_is_part_of_a_build(wanted: Ground) -> None:
    script = wanted.repo / "scripts/build_wheel.py"
    script.write_text(f'{script.read_text()}\n# project / "3rdparty" / "fmha_sm100"\n')
    assert builds.wanting(wanted.machine, str(wanted.repo), "") == ("3rdparty/fmha_sm100/",)
    (wanted.repo / "3rdparty/fmha_sm100").mkdir(parents=True)
    assert builds.wanting(wanted.machine, str(wanted.repo), "") == ("3rdparty/fmha_sm100/",), "it is empty"
    (wanted.repo / "3rdparty/fmha_sm100/__init__.py").touch()
    assert builds.wanting(wanted.machine, str(wanted.repo), "") == ()
