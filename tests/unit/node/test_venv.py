"""Environments, interpreters and packages as facts, and the checks that judge them."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Optional

import pytest

from k3env.node import checks, requirements
from k3env.node.facts import build, checkout, interpreter, packages, read, venv
from k3env.node.facts.build import Build
from k3env.node.facts.checkout import Checkout
from k3env.node.facts.packages import Distribution, Packages, Sites
from k3env.node.facts.venv import Start, Venv
from k3env.node.manifest import Manifest
from k3env.protocol import codec
from k3env.protocol.container import Container
from k3env.protocol.finding import Finding
from k3env.protocol.profile import Gpu, Paths, Pins, Profile
from tests.unit.node import ground
from tests.unit.node.ground import Watched

A, B = "a" * 40, "b" * 40
REPO = "/srv/TensorRT-LLM"
VENV = f"{REPO}/.venv-3.12"


@pytest.fixture
def machine(tmp_path: Path) -> Watched:
    return ground.machine(tmp_path / "home")


def plain(
    path: Path, *, version: str = ground.VERSION, home: Path = ground.PYTHON.parent, system: bool = False
) -> Path:
    """Make what looks like an environment, with pip's metadata."""
    site = path / "lib" / f"python{version}" / "site-packages"
    (site / "pip").mkdir(parents=True)
    (site / "pip-24.0.dist-info").mkdir()
    (path / "bin").mkdir()
    for name in ("python", "python3", f"python{version}"):
        (path / "bin" / name).symlink_to(home / f"python{version}")
    text = f"home = {home}\ninclude-system-site-packages = {str(system).lower()}\nversion = {version}.3\n"
    (path / "pyvenv.cfg").write_text(text)
    return path


def put(site: Path, name: str, version: str, direct: Optional[dict[str, Any]] = None, requires: str = "") -> None:
    """Write a distribution's metadata."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Name: {name}\nVersion: {version}\n{requires}\nRequires-Dist: not-a-header\n")
    (info / "RECORD").write_text(f'{info.name}/METADATA,,\n"../../../bin/a, b",,\n')
    if direct is not None:
        (info / "direct_url.json").write_text(json.dumps(direct))


def test_an_environment_is_read_from_files(tmp_path: Path, machine: Watched) -> None:
    path = plain(tmp_path / f".venv-{ground.VERSION}", system=True)
    found = venv.read(machine, str(path))
    assert found is not None
    assert (found.version, found.full_version) == (ground.VERSION, f"{ground.VERSION}.3")
    assert (found.unfinished, found.dangling, found.system_site_packages) == (None, None, True)
    assert machine.started == []
    assert codec.decode(Venv, codec.encode(found)) == found
    assert venv.read(machine, str(tmp_path / "absent")) is None


def test_the_config_of_virtualenv_is_read_too(tmp_path: Path, machine: Watched) -> None:
    path = plain(tmp_path / f".venv-{ground.VERSION}")
    text = f"home = {ground.PYTHON.parent}\nversion_info = {ground.VERSION}.3.final.0\nversion = 20.29.1\n"
    (path / "pyvenv.cfg").write_text(text)
    found = venv.read(machine, str(path))
    assert found is not None and found.full_version == f"{ground.VERSION}.3"


def test_a_home_whose_interpreter_is_another_by_now_is_gone(tmp_path: Path, machine: Watched) -> None:
    home = tmp_path / "home-of-it"
    home.mkdir()
    (home / "python3.7").touch()
    (home / "python3").symlink_to("python3.7")  # as after an upgrade of the system
    path = plain(tmp_path / f".venv-{ground.VERSION}")
    text = (path / "pyvenv.cfg").read_text()
    (path / "pyvenv.cfg").write_text(text.replace(str(ground.PYTHON.parent), str(home)))
    found = venv.read(machine, str(path))
    assert found is not None and found.dangling == f"its home {home} has no Python {ground.VERSION}"
    inside = venv.read(machine, str(path), in_image=True)
    assert inside is not None and inside.dangling is None


def wrapper(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


def test_the_base_interpreter_is_no_environments(tmp_path: Path) -> None:
    inside = plain(tmp_path / "active")
    machine = ground.machine(tmp_path / "home", inside / "bin")
    found = interpreter.base_python(machine)
    assert (found.path, found.version) == (str(tmp_path / "home/bin/python3"), ground.VERSION)
    assert str(inside) not in interpreter.base_path(machine)
    machine.environment["PATH"] = str(inside / "bin")
    assert interpreter.base_python(machine).path == str(ground.PYTHON.parent / "python3"), "the one behind it"
    machine.environment["PATH"] = str(tmp_path)
    with pytest.raises(FileNotFoundError, match="no python3"):
        interpreter.base_python(machine)
    assert machine.started == []


def test_a_script_that_only_starts_an_interpreter_is_seen_through(tmp_path: Path, machine: Watched) -> None:
    wrapper(tmp_path / "w/python3", f'# a note\nexec {ground.PYTHON} "$@"')
    machine.environment["PATH"] = str(tmp_path / "w")
    assert interpreter.base_python(machine).version == ground.VERSION
    assert machine.started == []


@pytest.mark.parametrize("body", [f'exec env {ground.PYTHON} "$@"', f'X="; exec y\n{ground.PYTHON} "$@"\n#"'])
def test_a_script_that_does_more_is_asked(body: str, tmp_path: Path, machine: Watched) -> None:
    wrapper(tmp_path / "w/python3", body)
    machine.environment["PATH"] = f"{tmp_path / 'w'}:/usr/bin:/bin"
    if '"; exec' in body:
        with pytest.raises(FileNotFoundError, match="does not start"):
            interpreter.base_python(machine)
    else:
        assert interpreter.base_python(machine).version == ground.VERSION
    assert len(machine.started) == 1


def test_an_interpreter_without_a_version_in_its_name(tmp_path: Path, machine: Watched) -> None:
    for library in ("python3.14", "python3.14t"):
        (tmp_path / "lib" / library).mkdir(parents=True)
    (tmp_path / "lib/python3.14/os.py").touch()
    wrapper(tmp_path / "bin/python3", "false").rename(tmp_path / "bin/plain")
    (tmp_path / "bin/python3").symlink_to(tmp_path / "bin/plain")
    machine.environment["PATH"] = str(tmp_path / "bin")
    assert interpreter.base_python(machine).version == "3.14"
    assert machine.started == []


def test_an_interpreter_of_a_version_is_found_by_asking(machine: Watched) -> None:
    found = interpreter.of_version(machine, ground.VERSION)
    assert found is not None and Path(found.path) == ground.PYTHON
    assert interpreter.of_version(machine, "3.7") is None or sys.version_info[:2] == (3, 7)


def test_where_a_checkouts_environment_is(tmp_path: Path, machine: Watched) -> None:
    repo, none, image = tmp_path / "repo", Container(), Container("enroot", "k3")
    here = f".venv-{ground.VERSION}"
    assert venv.find(machine, str(repo), none) == str(repo / here)
    assert venv.find(machine, str(repo), image) is None, "not known before the image has built"
    for name in (".venv-3.7", ".venv-3.7.k3env-aside-x", ".venv"):
        (repo / name).mkdir(parents=True)
    assert venv.expected(machine, str(repo), none) == str(repo / here)
    assert venv.find(machine, str(repo), none) == str(repo / ".venv-3.7"), "the only one that is there"
    assert venv.find(machine, str(repo), image) == str(repo / ".venv-3.7")
    (repo / here).mkdir()
    assert venv.find(machine, str(repo), none) == str(repo / here)
    assert venv.find(machine, str(repo), image) is None
    (repo / ".k3env").mkdir()
    (repo / ".k3env/manifest.json").write_text(json.dumps({"commit": A, "arch": "x", "image": "k3", "python": "3.9"}))
    assert venv.find(machine, str(repo), image) == str(repo / ".venv-3.9")


def test_packages_of_the_base_are_seen_where_the_environment_sees_them(tmp_path: Path, machine: Watched) -> None:
    base = tmp_path / "base"
    for name in ("python3", f"python{ground.VERSION}"):
        (base / "bin").mkdir(parents=True, exist_ok=True)
        (base / "bin" / name).symlink_to(ground.PYTHON)
    own = plain(tmp_path / "own", system=True, home=base / "bin")
    site = own / "lib" / f"python{ground.VERSION}" / "site-packages"
    theirs = base / "lib" / f"python{ground.VERSION}" / "dist-packages"
    put(theirs, "torch", "2.12.0a0+nv26.5")
    put(theirs, "einops", "0.7.0")
    (theirs / "old_fashioned.egg-info").mkdir()
    (theirs / "old_fashioned.egg-info/PKG-INFO").write_text("Name: old-fashioned\nVersion: 1.5\n")
    (theirs / "egg-2.0-py3.12.egg-info").write_text("Version: 2.0\n")
    (theirs / "triton-3.6.0.dist-info").mkdir()
    put(site, "einops", "0.8.1", {"url": "https://x", "vcs_info": {"vcs": "git", "commit_id": A}})
    found = venv.read(machine, str(own))
    assert found is not None
    sites = Sites(machine, found)
    names = ("torch", "einops", "old-fashioned", "egg", "triton", "absent")
    versions = {"torch": "2.12.0a0+nv26.5", "einops": "0.8.1", "old-fashioned": "1.5", "egg": "2.0", "triton": "3.6.0"}
    assert {name: sites.version(name) for name in names} == {**versions, "absent": None}
    assert sites.versions(("einops", "egg", "absent")) == {"einops": f"0.8.1 @ {A}", "egg": "2.0"}
    einops, triton = sites.distribution("einops"), sites.distribution("Triton")
    assert einops is not None and (einops.commit, einops.lost) == (A, ())
    assert triton is not None and triton.lost == (), "distributions of the system may lack the list of their files"
    assert Sites(machine, found, with_base=False).version("torch") is None
    assert Sites(machine, replace(found, system_site_packages=False)).version("torch") is None
    profile = Profile(paths=Paths(venv=str(own)))
    seen = read(packages.packages, machine, profile)
    assert {name: item.version for name, item in seen.found.items()} == {
        key: value for key, value in versions.items() if key in ("torch", "einops", "triton")
    }
    assert codec.decode(Packages, codec.encode(seen)) == seen
    assert machine.started == []


@pytest.mark.parametrize(
    ("requirement", "found", "short"),
    [
        ("einops", None, "absent"),
        ("einops", Distribution("einops", "0.8.1", ""), None),
        ("einops==0.8.1", Distribution("einops", "0.8.0", ""), "0.8.0 from an index"),
        ("torch>=2.11.0,<=2.13.0a0", Distribution("torch", "2.12.0a0+nv26.5", ""), None),
        ("x==0.6.16", Distribution("x", "0.6.16+k3.b6cc594", ""), None),
        ("x>=1", Distribution("x", "not-a-version", ""), "not-a-version from an index"),
        (f"x @ git+https://h/x@{A}", Distribution("x", "1", "", "https://mirror/x", A), None),
        (f"x @ git+https://h/x@{A}", Distribution("x", "1", "", "https://h/x", B), f"1 from commit {B}"),
        (f"x @ git+https://h/x@{A}", Distribution("x", "1", "", None, None, False, A), None),
        (f"x @ git+https://h/x@{A}", Distribution("x", "1", "", "https://h/x", B, False, A), f"1 from commit {B}"),
        (f"x @ git+https://h/x@{A}", Distribution("x", f"1+{A}", ""), f"1+{A} from an index"),
        ("x @ https://h/x-1.whl", Distribution("x", "1", "", "https://h/x-1.whl"), None),
        ("x @ https://h/x-1.whl", Distribution("x", "1", ""), "1 from an index"),
        ("x", Distribution("x", "1", "", lost=("x",)), "1 from an index, without x"),
    ],
)
def test_how_a_distribution_falls_short(requirement: str, found: Optional[Distribution], short: Optional[str]) -> None:
    assert requirements.shortcoming(requirements.parse(requirement), found) == short


def test_what_pip_is_given() -> None:
    for text in (f"x[a] @ git+file:///srv/x@{A}", f"x[a] @ git+file://localhost/srv/x@{A}"):
        assert requirements.for_pip(requirements.parse(text)) == f"x[a] @ git+file://localhost/srv/x@{A}"
    assert requirements.for_pip(requirements.parse("x==1")) == "x==1"


# Checks: what the facts are, and what the finding must be.

WHOLE = Venv(VENV, "3.12", "3.12.3", "/usr/bin", True)
EDITABLE = Distribution("tensorrt-llm", "1.3.0", "", f"file://{REPO}", None, True)
FOUND = {
    "tensorrt-llm": EDITABLE,
    "fla-core": Distribution("fla-core", "0.6.0", ""),
    "einops": Distribution("einops", "0.8.1", ""),
    "flashinfer-python": Distribution("flashinfer-python", "0.6.16", "", "https://h/x", A),
}
PROFILE = Profile(paths=Paths(repo=REPO), pins=Pins(A, "auto", A, "0.6.0", None))
ASKS = Checkout(REPO, A, asks_for_fork=True, flashinfer_pin="flashinfer-python==0.6.16")
IMAGE = Container("enroot", "k3")


def having(**changed: Optional[Distribution]) -> Packages:
    """The packages that are wanted, with some changed or, as None, taken away."""
    found = {**FOUND, **{name.replace("_", "-"): item for name, item in changed.items()}}
    return Packages(VENV, {name: item for name, item in found.items() if item is not None})


def judge(id: str, values: tuple[Any, ...], profile: Profile = PROFILE) -> Finding:
    (rule,) = checks.select((id,))
    finding = checks.judge(rule, dict(zip(rule.facts, values)), profile)
    if finding.status == "fail":
        assert finding.expected and finding.found and finding.remedy
    return finding


PRESENT = [
    ((WHOLE, Start("3.12.3")), "pass", f"{VENV}, Python 3.12.3"),
    ((None, None), "fail", f"none in {REPO}"),
    ((replace(WHOLE, unfinished="it has no pip"), None), "fail", "it has no pip"),
    ((replace(WHOLE, dangling="its home is gone"), Start(None, "exit code 127")), "fail", "its home is gone"),
    ((WHOLE, Start(None, "no answer after 5 s")), "fail", "does not start: no answer after 5 s"),
    ((WHOLE, None), "pass", "not started: it lies in an image"),
]


@pytest.mark.parametrize(("values", "status", "found"), PRESENT)
def test_venv_present(values: tuple[Any, ...], status: str, found: str) -> None:
    finding = judge("venv.present", values)
    assert finding.status == status
    assert found in (finding.found or "")


PINS = [
    (having(), PROFILE, "pass", "fla-core 0.6.0", ""),
    (None, PROFILE, "fail", "no whole environment", "tag `build`"),
    (having(tensorrt_llm=None), PROFILE, "fail", "tensorrt-llm absent", f"--no-deps -e {REPO}"),
    (
        having(tensorrt_llm=replace(EDITABLE, url="file:///elsewhere")),
        PROFILE,
        "fail",
        "editable from file:///elsewhere",
        f"--no-deps -e {REPO}",
    ),
    (having(tensorrt_llm=Distribution("tensorrt-llm", "1.3.0", "")), PROFILE, "fail", "1.3.0 from an index", "-e"),
    (having(tensorrt_llm=replace(EDITABLE, lost=("__editable__x.pth",))), PROFILE, "fail", "without __edit", "-e"),
    (
        having(fla_core=Distribution("fla-core", "0.5.0", "")),
        PROFILE,
        "fail",
        "fla-core 0.5.0 from an index",
        f"{VENV}/bin/python -m pip install --force-reinstall --no-deps 'fla-core==0.6.0'",
    ),
    (having(einops=None), PROFILE, "fail", "einops absent", f"{VENV}/bin/python -m pip install --no-deps 'einops'"),
    (having(einops=None, fla_core=None), PROFILE, "fail", "fla-core absent; einops absent", "'einops'"),
    (replace(having(einops=None), base_unseen=True), PROFILE, "unknown", None, ""),
    (replace(having(), several={"einops": ("a", "b")}), PROFILE, "fail", "einops twice over: a, b", ""),
    (having(), Profile(), "skip", None, ""),
    (having(tensorrt_llm=None), Profile(paths=Paths(venv=VENV)), "pass", "fla-core 0.6.0", ""),
]


@pytest.mark.parametrize(("seen", "profile", "status", "found", "remedy"), PINS)
def test_venv_pins(seen: Optional[Packages], profile: Profile, status: str, found: Optional[str], remedy: str) -> None:
    finding = judge("venv.pins", (seen,), profile)
    assert finding.status == status
    assert (found or "") in (finding.found or "")
    assert remedy in (finding.remedy or "")


def stepping(step: str, commit: Optional[str] = A) -> Profile:
    return replace(PROFILE, pins=Pins(flashinfer_step=step, flashinfer_commit=commit))


STOCK = Distribution("flashinfer-python", "0.6.16", "")
FLASHINFER = [
    (having(), ASKS, PROFILE, "pass", f"0.6.16 from commit {A}"),
    (having(), None, PROFILE, "skip", None),
    (having(), replace(ASKS, asks_for_fork=False), PROFILE, "skip", None),
    (having(), replace(ASKS, asks_for_fork=False), stepping("fork"), "pass", A),
    (having(), ASKS, stepping("none"), "skip", None),
    (having(), ASKS, stepping("fork", None), "unknown", None),
    (having(flashinfer_python=STOCK), ASKS, PROFILE, "fail", "flashinfer-python 0.6.16 from an index"),
    (having(flashinfer_python=replace(STOCK, built_commit=A)), ASKS, PROFILE, "pass", f"built from commit {A}"),
    (having(flashinfer_python=replace(STOCK, commit=B, url="u")), ASKS, PROFILE, "fail", f"from commit {B}"),
    (having(flashinfer_python=None), ASKS, PROFILE, "fail", "flashinfer-python absent"),
    (replace(having(flashinfer_python=None), base_unseen=True), ASKS, PROFILE, "unknown", None),
    (None, ASKS, PROFILE, "fail", "no whole environment"),
    (having(flashinfer_python=STOCK), ASKS, stepping("pin"), "pass", "0.6.16 from an index"),
    (having(flashinfer_python=replace(STOCK, version="0.6.15")), ASKS, stepping("pin"), "fail", "0.6.15"),
    (having(), replace(ASKS, flashinfer_pin=None), stepping("pin"), "skip", None),
    (having(), ASKS, Profile(), "skip", None),
]


@pytest.mark.parametrize(("seen", "asking", "profile", "status", "found"), FLASHINFER)
def test_venv_flashinfer(
    seen: Optional[Packages], asking: Optional[Checkout], profile: Profile, status: str, found: Optional[str]
) -> None:
    finding = judge("venv.flashinfer", (seen, asking), profile)
    assert finding.status == status
    assert (found or "") in (finding.found or "")
    if status == "fail" and profile is PROFILE and seen is not None:
        assert f"@{A}'" in (finding.remedy or "") and "BUILD_NVEP=0" in (finding.remedy or "")


@pytest.mark.parametrize(("named", "note"), [(None, ""), (A, ""), (A[:9], ""), (B, f"the checkout's guide names {B}")])
def test_a_guide_that_names_another_commit_is_noted(named: Optional[str], note: str) -> None:
    finding = judge("venv.flashinfer", (having(), replace(ASKS, fork_commit=named)))
    assert (finding.status, finding.message) == ("pass", note)


MADE = Manifest(A, "103-real", "103-real")
BUILT = Build(REPO, "103-real", f"{REPO}/cpp", (), (), MADE)
BUILDS = [
    (BUILT, PROFILE, "pass", f"commit {A}, 103-real"),
    (None, PROFILE, "fail", f"no checkout at {REPO}"),
    (BUILT, Profile(), "skip", None),
    (replace(BUILT, manifest=None), PROFILE, "fail", "of an unknown commit, for 103-real"),
    (replace(BUILT, manifest=None, cmake_arch=None), PROFILE, "fail", "build: absent"),
    (replace(BUILT, manifest=replace(MADE, commit=B)), PROFILE, "fail", f"build's commit: {B}"),
    (replace(BUILT, manifest=replace(MADE, commit=B)), replace(PROFILE, pins=Pins()), "pass", B),
    (replace(BUILT, cmake_arch="100-real"), PROFILE, "fail", "CMAKE_CUDA_ARCHITECTURES: 100-real"),
    (BUILT, replace(PROFILE, gpu=Gpu(arch="100-real")), "fail", "CMAKE_CUDA_ARCHITECTURES: 103-real"),
    (replace(BUILT, missing=("x.so",)), PROFILE, "fail", "x.so: gone"),
    (replace(BUILT, altered=("x.so",)), PROFILE, "fail", "x.so: not as it was built"),
    (replace(BUILT, cmake_home="/elsewhere"), PROFILE, "fail", "/elsewhere"),
    (BUILT, replace(PROFILE, container=IMAGE), "fail", "build's image: none"),
    (replace(BUILT, manifest=replace(MADE, image="k3")), PROFILE, "pass", A),
]


@pytest.mark.parametrize(("seen", "profile", "status", "found"), BUILDS)
def test_trtllm_built(seen: Optional[Build], profile: Profile, status: str, found: Optional[str]) -> None:
    finding = judge("trtllm.built", (seen,), profile)
    assert finding.status == status
    assert (found or "") in (finding.found or "")


def test_facts_of_a_real_environment(tmp_path: Path, machine: Watched) -> None:
    path = tmp_path / "venv"
    ground.run(ground.PYTHON, "-m", "venv", "--without-pip", path)
    profile = Profile(paths=Paths(venv=str(path)))
    found = venv.venv(machine, profile)
    assert found is not None and found.unfinished == "it has no pip"
    assert venv.start(machine, profile) is None, "what is unfinished is not started"
    site = path / "lib" / f"python{ground.VERSION}" / "site-packages"
    (site / "pip").mkdir()
    put(site, "pip", "24.0")
    started = venv.start(machine, profile)
    assert started is not None and started.version == "{}.{}.{}".format(*sys.version_info)
    shutil.move(path, tmp_path / "elsewhere")
    assert venv.start(machine, profile) is None
    (tmp_path / "elsewhere/bin/python").unlink()
    wrapper(tmp_path / "elsewhere/bin/python", f'exec {ground.PYTHON} "$@"')
    other = venv.start(machine, Profile(paths=Paths(venv=str(tmp_path / "elsewhere"))))
    assert other is not None and "takes" in (other.problem or "")
    assert venv.start(machine, replace(profile, container=IMAGE)) is None


def test_without_a_checkout_facts_are_none(machine: Watched) -> None:
    for fact in (venv.venv, venv.start, packages.packages, checkout.checkout, build.build):
        assert read(fact, machine, Profile()) is None
    for rule in checks.select(("venv.*", "trtllm.*")):
        assert checks.judge(rule, dict.fromkeys(rule.facts), Profile()).status == "skip"
        assert rule.doc
