"""pip_packages: every promise is broken by itself, named by itself, and mended by itself; with real pip."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from k3env.errors import Refused, TaskFailed
from k3env.node import manifest
from k3env.node.modules.pip_packages import PipPackages
from k3env.protocol.container import Container
from k3env.protocol.profile import Profile
from tests.counting import counted
from tests.unit.node import ground
from tests.unit.node.ground import Watched, commit, judged, perform, run, wheel

CALLS = 90
"""What packages that are as wanted may ask their filesystem: each is a round trip on a network filesystem."""
# Writes the commit that it is built from, as FlashInfer's does.
SETUP = """
import subprocess
from setuptools import setup
commit = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True).stdout.strip()
open("flashinfer/_build_meta.py", "w").write(f'__version__ = "0.6.16"\\n__git_commit__ = "{commit}"\\n')
setup(name="flashinfer-python", version="0.6.16", packages=["flashinfer"], install_requires=["einops", "tiny>=2"],
      extras_require={"cu13": ["nvidia-cutlass-dsl"]})
"""


@dataclass(frozen=True)
class Ground:
    """An environment that is as wanted, and where packages come from."""

    venv: Path
    wheels: Path
    repository: Path
    pinned: str
    later: str
    machine: Watched

    @property
    def site(self) -> Path:
        return self.venv / "lib" / f"python{ground.VERSION}" / "site-packages"

    def pip(self, *arguments: str | Path) -> str:
        return run(self.venv / "bin" / "python", "-m", "pip", *arguments, cwd=self.venv.parent)

    def requirement(self, pinned: str, host: str = "") -> str:
        return f"flashinfer-python[cu13] @ git+file://{host}{self.repository}@{pinned}"

    def info(self, name: str) -> Path:
        (found,) = self.site.glob(f"{name}-*.dist-info")
        return found


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Ground:
    root = tmp_path_factory.mktemp("sources")
    wheels, repository = root / "wheels", root / "flashinfer"
    for name, version, requires in (
        ("einops", "0.8.1", ()),
        ("einops", "0.7.0", ()),
        ("fla-core", "0.5.0", ("torch>=2.7", "einops")),
        ("fla-core", "0.6.0", ("einops", "torch>=2.7; extra == 'cuda'")),
        ("tiny", "1.0", ()),
        ("tiny", "2.0", ()),
        ("torch", "2.0", ()),
        ("torch", "3.0", ()),
        ("heavy", "1.0", ("torch>=3",)),
        ("light", "1.0", ("torch>=2",)),
    ):
        wheel(wheels, name, version, *requires)
    # The index's own FlashInfer: the same version, from another commit.
    meta = f'__version__ = "0.6.16"\n__git_commit__ = "{"c" * 40}"\n'
    wheel(wheels, "flashinfer-python", "0.6.16", **{"flashinfer/__init__.py": "", "flashinfer/_build_meta.py": meta})
    files = {"setup.py": SETUP, "flashinfer/__init__.py": "", ".gitignore": "_build_meta.py\n"}
    pinned = commit(repository, "pinned", **files)
    later = commit(repository, "later", **{"flashinfer/mla.py": ""})
    machine = ground.machine(root / "home", PIP_CONFIG_FILE="/dev/null", PIP_FIND_LINKS="", PIP_EXTRA_INDEX_URL="")
    venv = ground.environment(tmp_path_factory.getbasetemp(), root / "venv")
    made = Ground(venv, wheels, repository, pinned, later, machine)
    perform(extras(made), machine)
    perform(flashinfer(made), machine)
    return made


@pytest.fixture
def wanted(sources: Ground, tmp_path: Path) -> Ground:
    """The environment that is as wanted, to be broken."""
    ground.copied(sources.venv, tmp_path / "venv")
    machine = ground.machine(tmp_path / "home", PIP_CONFIG_FILE="/dev/null", PIP_FIND_LINKS="", PIP_EXTRA_INDEX_URL="")
    return replace(sources, venv=tmp_path / "venv", machine=machine)


def extras(on: Ground, *packages: str, **more: Any) -> PipPackages:
    links = {"no_index": True, "find_links": (str(on.wheels),)}
    names = packages or ("fla-core==0.6.0", "einops")
    return PipPackages(names, venv=str(on.venv), **{"no_deps": True, **links, **more})


def flashinfer(on: Ground, pinned: str = "", **more: Any) -> PipPackages:
    exact = {"no_deps": True, "no_build_isolation": True, "no_cache": True}
    return PipPackages((on.requirement(pinned or on.pinned),), venv=str(on.venv), **{**exact, **more})


def test_nothing_to_do_starts_nothing(wanted: Ground) -> None:
    for module in (extras(wanted), flashinfer(wanted)):
        with counted(wanted.venv) as asked:
            assert module.changes(wanted.machine) == ()
            module.judge(wanted.machine, Profile())
        assert asked.total() <= CALLS, asked
    assert wanted.machine.started == []


def test_why_there_is_nothing_to_do(wanted: Ground, tmp_path: Path) -> None:
    assert extras(wanted).reasons(wanted.machine) == ("fla-core 0.6.0 from an index", "einops 0.8.1 from an index")
    (told,) = flashinfer(wanted).reasons(wanted.machine)
    assert told.startswith("flashinfer-python 0.6.16 from ") and wanted.pinned in told
    foreign = extras(wanted, "einops; python_version < '3'").reasons(wanted.machine)
    assert foreign == ("einops 0.8.1 from an index",)
    (tmp_path / "repo").mkdir()
    unasked = flashinfer(wanted, if_asked_by=str(tmp_path / "repo"))
    assert unasked.reasons(wanted.machine) == (
        f"neither README nor guide of {tmp_path}/repo installs FlashInfer from a repository",
    )
    assert wanted.machine.started == []


def test_a_commit_is_installed_without_being_resolved_first(wanted: Ground) -> None:
    perform(flashinfer(wanted, wanted.later), wanted.machine)
    (argv,) = wanted.machine.started
    assert argv[1:] == (
        *("-u", "-m", "pip", "install", "--force-reinstall", "--no-deps", "--no-build-isolation", "--no-cache-dir"),
        wanted.requirement(wanted.later, "localhost"),
    )
    direct = json.loads((wanted.info("flashinfer_python") / "direct_url.json").read_text())
    assert direct["vcs_info"]["commit_id"] == wanted.later


def test_what_is_absent_is_not_installed_by_force(wanted: Ground) -> None:
    wanted.pip("uninstall", "--yes", "flashinfer-python")
    perform(flashinfer(wanted), wanted.machine)
    (argv,) = wanted.machine.started
    assert "--force-reinstall" not in argv


BROKEN: dict[str, tuple[Callable[[Ground], object], str, str]] = {
    "removed": (lambda on: on.pip("uninstall", "--yes", "einops"), "einops", "absent"),
    "its files are gone": (
        lambda on: shutil.rmtree(on.site / "einops"),
        "einops",
        "0.8.1 from an index, without einops",
    ),
    "its metadata is gone": (lambda on: (on.info("einops") / "RECORD").unlink(), "einops", "without einops-0.8.1.dist"),
    "another version": (
        lambda on: on.pip("install", "-q", "--no-deps", "--no-index", "-f", on.wheels, "fla-core==0.5.0"),
        "fla-core",
        "0.5.0 from an index",
    ),
    "the index's own of the same version": (
        lambda on: on.pip(
            "install", "-q", "--no-deps", "--force-reinstall", "--no-index", "-f", on.wheels, "flashinfer-python"
        ),
        "flashinfer-python",
        f"0.6.16 from an index, built from commit {'c' * 40}",
    ),
    "another commit of the same version": (
        lambda on: on.pip(
            "install",
            "-q",
            "--no-deps",
            "--force-reinstall",
            "--no-build-isolation",
            on.requirement(on.later, "localhost"),
        ),
        "flashinfer-python",
        "0.6.16 from commit ",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_promise_is_broken_named_and_mended(name: str, wanted: Ground) -> None:
    damage, package, before = BROKEN[name]
    damage(wanted)
    modules = (extras(wanted), flashinfer(wanted))
    changes = [change for module in modules for change in module.changes(wanted.machine)]
    assert [change.what for change in changes] == [package]
    assert before in changes[0].before
    others = [path for path in wanted.site.glob("*.dist-info") if not path.name.startswith(package.replace("-", "_"))]
    times = {path: path.stat().st_mtime_ns for path in others}
    (broken,) = (module for module in modules if module.changes(wanted.machine))
    perform(broken, wanted.machine)
    assert [module.changes(wanted.machine) for module in modules] == [(), ()]
    assert times == {path: path.stat().st_mtime_ns for path in others}
    assert wanted.machine.started[-1][-1].startswith(package), "only what was not as wanted is installed"


def test_a_wheel_of_the_commit_is_proven_by_its_build_metadata(wanted: Ground, tmp_path: Path) -> None:
    run("git", "clone", "-q", wanted.repository, tmp_path / "clone")
    for at, left in ((wanted.pinned, ()), (wanted.later, ("flashinfer-python",))):
        run("git", "-C", tmp_path / "clone", "checkout", "-q", at)
        wanted.pip("wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path / at, tmp_path / "clone")
        (built,) = (tmp_path / at).iterdir()
        wanted.pip("install", "-q", "--no-deps", "--force-reinstall", built)
        assert "vcs_info" not in (wanted.info("flashinfer_python") / "direct_url.json").read_text()
        assert [change.what for change in flashinfer(wanted).changes(wanted.machine)] == list(left)


def test_what_is_declared_and_missing_is_named(wanted: Ground) -> None:
    (finding,) = flashinfer(wanted).judge(wanted.machine, ground.Profile())
    assert (finding.status, finding.subject) == ("warn", "flashinfer-python")
    assert finding.found == "tiny>=2 (absent), nvidia-cutlass-dsl (absent)"
    perform(extras(wanted, "tiny<2"), wanted.machine)
    (finding,) = flashinfer(wanted).judge(wanted.machine, ground.Profile())
    assert finding.found == "tiny>=2 (1.0), nvidia-cutlass-dsl (absent)"
    assert judged(extras(wanted), wanted.machine) == {}, "the extra of fla-core was not asked for"
    assert judged(flashinfer(wanted, no_deps=False), wanted.machine) == {}


@pytest.mark.parametrize("resolving", [True, False])
def test_a_protected_package_is_not_moved(resolving: bool, wanted: Ground) -> None:
    perform(extras(wanted, "torch<3"), wanted.machine)
    asked = ("heavy",) if resolving else ("torch>=3",)
    module = extras(wanted, *asked, no_deps=not resolving)
    with pytest.raises(Refused) as caught:
        module.apply(wanted.machine, module.changes(wanted.machine))
    assert caught.value.finding.found == "torch 2.0 → 3.0"
    assert "no_deps: true" in (caught.value.finding.remedy or "")
    assert wanted.info("torch").name == "torch-2.0.dist-info"
    assert list(wanted.site.glob("heavy*")) == []
    assert any("torch 2.0 → 3.0" in text for text, _ in wanted.machine.told), "it is shown what would move"


def test_a_protected_package_that_need_not_move_is_no_obstacle(wanted: Ground) -> None:
    perform(extras(wanted, "torch<3"), wanted.machine)
    perform(extras(wanted, "light", no_deps=False), wanted.machine)
    assert wanted.info("torch").name == "torch-2.0.dist-info"
    assert not list(wanted.venv.glob(".k3env/resolution*"))


def test_what_is_installed_anew_gets_what_it_needs(wanted: Ground) -> None:
    links = {"no_index": True, "find_links": (str(wanted.wheels),)}
    requirement = f"flashinfer-python @ git+{wanted.repository.as_uri()}@{wanted.later}"
    module = PipPackages((requirement,), venv=str(wanted.venv), no_build_isolation=True, **links)  # type: ignore[arg-type]
    perform(module, wanted.machine)
    assert wanted.info("tiny").name == "tiny-2.0.dist-info"


@pytest.mark.parametrize(
    ("name", "version", "fits"),
    [
        ("flashinfer-cubin", "0.6.13", False),
        ("flashinfer-cubin", "0.6.16", True),
        ("flashinfer-jit-cache", "0.6.15+cu130", False),
        ("flashinfer-jit-cache", "0.6.16+cu130", True),
    ],
)
@pytest.mark.parametrize("how", ["a commit", "an index"])
def test_what_flashinfer_is_not_imported_beside_is_told_before_it_is_installed(
    wanted: Ground, tmp_path: Path, name: str, version: str, fits: bool, how: str
) -> None:
    wanted.pip("install", "-q", "--no-deps", wheel(tmp_path / "w", name, version))
    module = flashinfer(wanted, wanted.later)
    if how == "an index":
        wanted.pip("uninstall", "-q", "--yes", "flashinfer-python")
        module = extras(wanted, "flashinfer-python")
    before = sorted(path.name for path in wanted.site.glob("flashinfer_python*"))
    if fits:
        perform(module, wanted.machine)
        return
    with pytest.raises(Refused) as caught:
        module.apply(wanted.machine, module.changes(wanted.machine))
    finding = caught.value.finding
    assert (finding.id, finding.found) == ("pip.flashinfer_trio", f"{name} {version}")
    assert f"install --no-deps {name}==0.6.16;" in (finding.remedy or "")
    assert sorted(path.name for path in wanted.site.glob("flashinfer_python*")) == before, "something was installed"


def test_companions_that_come_along_are_those_that_count(wanted: Ground, tmp_path: Path) -> None:
    wheel(tmp_path / "w", "flashinfer-cubin", "0.6.16")
    wanted.pip("install", "-q", "--no-deps", wheel(tmp_path / "old", "flashinfer-cubin", "0.6.13"))
    wanted.pip("uninstall", "-q", "--yes", "flashinfer-python")
    links = (str(wanted.wheels), str(tmp_path / "w"))
    perform(extras(wanted, "flashinfer-python", "flashinfer-cubin==0.6.16", find_links=links), wanted.machine)


def test_twice_over_is_a_refusal(wanted: Ground) -> None:
    shutil.copytree(wanted.info("einops"), wanted.site / "einops-0.7.0.dist-info")
    with pytest.raises(Refused, match="2 times over") as caught:
        extras(wanted).changes(wanted.machine)
    assert "einops-0.7.0.dist-info" in (caught.value.finding.remedy or "")


def test_remains_of_an_interrupted_uninstall_are_overlooked(wanted: Ground) -> None:
    shutil.copytree(wanted.info("einops"), wanted.site / "~inops-0.8.1.dist-info")
    assert extras(wanted).changes(wanted.machine) == ()


def test_a_pip_that_can_not_resolve_beforehand_resolves_nothing(wanted: Ground) -> None:
    wanted.info("pip").rename(wanted.site / "pip-21.3.dist-info")
    with pytest.raises(Refused, match="can't say what"):
        extras(wanted, "light", no_deps=False).apply(wanted.machine, ())
    perform(extras(wanted, "tiny"), wanted.machine)


def test_a_failure_names_log_and_meaning(wanted: Ground) -> None:
    module = extras(wanted, "absent-from-here")
    with pytest.raises(TaskFailed) as caught:
        module.apply(wanted.machine, module.changes(wanted.machine))
    finding = caught.value.finding
    log = wanted.venv / ".k3env/logs/run-host-task.log"
    assert finding.id == "pip.no_match"
    assert finding.remedy is not None and finding.remedy.endswith(f"log: {log}")
    assert finding.evidence[-1].source == str(log)
    assert "absent-from-here" in log.read_text()
    assert "absent-from-here" in finding.evidence[-1].excerpt


@pytest.mark.parametrize("damage", ["dangling", "unfinished", "absent"])
def test_an_environment_that_is_broken_is_not_installed_into(damage: str, wanted: Ground) -> None:
    if damage == "dangling":
        (wanted.venv / "bin/python").unlink()
        (wanted.venv / "bin/python").symlink_to("/nowhere/python")
        assert extras(wanted).changes(wanted.machine) == (), "what is installed is read from files"
    elif damage == "unfinished":
        (wanted.venv / "pyvenv.cfg").unlink()
    else:
        shutil.rmtree(wanted.venv)
    changes = extras(wanted).changes(wanted.machine)
    if damage != "dangling":
        assert [(change.what, change.before) for change in changes] == [("fla-core", "absent"), ("einops", "absent")]
    with pytest.raises(Refused, match="can't be installed into"):
        extras(wanted).apply(wanted.machine, changes)
    assert judged(extras(wanted), wanted.machine) == {}


@pytest.mark.parametrize("more", [{"index_url": "https://me:secret@h/simple"}, {"find_links": ("https://t@h/",)}])
def test_a_password_of_an_index_is_refused(more: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\.netrc") as caught:
        PipPackages(("x",), venv="/v", **more)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"])
def test_a_password_of_an_index_in_the_environment_is_refused(name: str, wanted: Ground) -> None:
    module = PipPackages(("x",), venv=str(wanted.venv), environment={name: "https://me:secret@localhost:1/simple"})
    with pytest.raises(Refused, match=f"{name} holds a name and password"):
        module.apply(wanted.machine, module.changes(wanted.machine))
    assert wanted.machine.started == []


def test_a_checkout_names_its_environment(wanted: Ground, tmp_path: Path) -> None:
    repo = tmp_path / "TensorRT-LLM"
    repo.mkdir()
    wanted.venv.rename(repo / f".venv-{ground.VERSION}")
    links = {"no_index": True, "find_links": (str(wanted.wheels),)}
    module = PipPackages(("tiny<2",), checkout=str(repo), **links)  # type: ignore[arg-type]
    assert module.writes() == (str(repo),)
    manifest.write(wanted.machine, str(repo), manifest.Manifest("a" * 40, "103-real", versions={"einops": "0"}))
    perform(module, wanted.machine)
    made = manifest.read(wanted.machine, str(repo))
    assert made is not None and made.commit == "a" * 40
    flashinfer = f"0.6.16 @ {wanted.pinned}"
    assert made.versions == {"fla-core": "0.6.0", "einops": "0.8.1", "flashinfer-python": flashinfer}
    assert [path.name for path in (repo / ".k3env/logs").iterdir()] == ["run-host-task.log"]
    by_name = replace(module, checkout=None, venv=str(repo / f".venv-{ground.VERSION}"))
    assert by_name.writes() == (str(repo),), "the lease is the checkout's"
    assert by_name.changes(wanted.machine) == ()


@pytest.mark.parametrize("asks", [True, False])
def test_what_the_guide_does_not_ask_for_is_left_out(asks: bool, tmp_path: Path) -> None:
    guide = tmp_path / "repo/examples/kimi_k3/README.md"
    guide.parent.mkdir(parents=True)
    line = '    "flashinfer-python[cu13] @ git+https://github.com/PerkzZheng/flashinfer-k3.git@b6cc594918"\n'
    guide.write_text(f"install\n{line if asks else ''}done\n")
    machine = ground.machine(tmp_path / "home")
    module = PipPackages(("x",), checkout=str(tmp_path / "repo"), if_asked_by=str(tmp_path / "repo"))
    assert [change.what for change in module.changes(machine)] == (["x"] if asks else [])
    assert judged(module, machine) == {}
    assert replace(module, if_asked_by=None).changes(machine) != ()
    assert replace(module, if_asked_by=str(tmp_path / "absent")).changes(machine) != ()


def test_in_an_image_what_it_brings_counts(wanted: Ground, tmp_path: Path) -> None:
    engine = tmp_path / "engines" / "docker"
    engine.parent.mkdir()
    engine.write_text('#!/bin/sh\necho a banner\nwhile [ "$1" != k3 ]; do shift; done\nshift\nexec "$@"\n')
    engine.chmod(0o755)
    config = wanted.venv / "pyvenv.cfg"
    text = config.read_text()
    config.unlink()
    config.write_text(text.replace("include-system-site-packages = false", "include-system-site-packages = true"))
    machine = ground.machine(tmp_path / "home", engine.parent, PIP_CONFIG_FILE="/dev/null")
    inside = {"container": Container("docker", "k3")}
    assert extras(wanted, "pip", **inside).changes(machine) == ()
    assert machine.started == []
    (change,) = extras(wanted, "no-such-package-anywhere", **inside).changes(machine)
    assert change.before == "absent"
    assert machine.started[0][0] == "docker"
    perform(extras(wanted, "tiny", **inside), machine)
    assert wanted.info("tiny").name == "tiny-2.0.dist-info"
    assert judged(flashinfer(wanted, **inside), machine) == {}, "what an image brings is not seen from outside"


REFUSED = {
    "no environment": {"venv": None},
    "two environments": {"checkout": "/b"},
    "a relative path": {"venv": "a"},
    "nothing": {"packages": ()},
    "an option": {"packages": ("--index-url=http://x",)},
    "a short commit": {"packages": ("x @ git+https://h/x@b6cc594",)},
    "a branch": {"packages": ("x @ git+https://h/x@main",)},
    "no commit": {"packages": ("x @ git+https://h/x",)},
    "another version control": {"packages": (f"x @ hg+https://h/x@{'a' * 40}",)},
    "a password": {"packages": (f"x @ git+https://me:secret@h/x@{'a' * 40}",)},
    "a token": {"packages": (f"x @ git+https://secret@h/x@{'a' * 40}",)},
    "one package twice": {"packages": ("fla-core", "fla_core==1")},
    "no index and nothing else": {"no_index": True},
    "no index and an index": {"no_index": True, "find_links": ("/w",), "index_url": "https://x"},
    "an option for an index": {"index_url": "--extra"},
    "an option for links": {"find_links": ("-x",)},
    "a relative checkout that asks": {"if_asked_by": "repo"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_parameters_that_are_refused_at_load(name: str) -> None:
    with pytest.raises(ValueError) as caught:
        PipPackages(**{"packages": ("x",), "venv": "/a", **REFUSED[name]})  # type: ignore[arg-type]
    assert "secret" not in str(caught.value)


def test_the_index_that_everybody_uses(wanted: Ground) -> None:
    wanted.pip("uninstall", "--yes", "einops")
    machine = ground.machine(wanted.venv.parent / "home")
    perform(PipPackages(("einops==0.8.1",), venv=str(wanted.venv), no_deps=True), machine)
    assert (wanted.info("einops") / "METADATA").read_text().count("Name: einops") == 1
    assert (wanted.site / "einops/einops.py").stat().st_size > 1000
