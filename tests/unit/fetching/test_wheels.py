"""Wheels for another machine: resolved by its markers, sources built where pure, what is nowhere said by name."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from k3env.fetching import Asked, Target, fill, sources
from k3env.fetching.filling import Filled
from tests.unit.node import ground
from tests.unit.node.ground import wheel

ARM = Target("aarch64", "3.12")
PYPROJECT = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
IN_TREE = '[build-system]\nrequires = ["builder"]\nbuild-backend = "backend"\nbackend-path = ["."]\n'
BACKEND = """import os, zipfile
import builder
STEM, INFO = "{name}-1.0", "{name}-1.0.dist-info"
METADATA = "Metadata-Version: 2.1\\nName: {name}\\nVersion: 1.0\\nRequires-Dist: tiny\\n"
WHEEL = "Wheel-Version: 1.0\\nGenerator: tests\\nRoot-Is-Purelib: true\\nTag: {tag}\\n"

def prepare_metadata_for_build_wheel(directory, settings=None):
    os.mkdir(os.path.join(directory, INFO))
    with open(os.path.join(directory, INFO, "METADATA"), "w") as file:
        file.write(METADATA)
    return INFO

def build_wheel(directory, settings=None, metadata=None):
    file = STEM + "-{tag}.whl"
    with zipfile.ZipFile(os.path.join(directory, file), "w") as archive:
        for name, text in (("METADATA", METADATA), ("WHEEL", WHEEL), ("RECORD", "")):
            archive.writestr(INFO + "/" + name, text)
    return file
"""
"""A backend in the source itself: setuptools, in each of pip's isolated environments, would take seconds every time."""


def source(directory: Path, name: str, tag: str) -> None:
    """Write a source distribution that becomes a wheel of this tag."""
    root = directory / f"{name}-1.0"
    root.mkdir(parents=True)
    files = {"pyproject.toml": IN_TREE, "backend.py": BACKEND.format(name=name, tag=tag)}
    files["PKG-INFO"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    for file, text in files.items():
        (root / file).write_text(text)
    with tarfile.open(directory / f"{name}-1.0.tar.gz", "w:gz") as archive:
        archive.add(root, root.name)


def renamed(path: Path, tag: str) -> None:
    """Give a wheel the tag of a machine."""
    path.rename(path.with_name(path.name.replace("py3-none-any", tag)))


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that is all there is to be had; what builds is there by name alone."""
    place = tmp_path_factory.mktemp("index")
    for name in ("pip", "tiny", "einops", "nvidia-nccl-cu13", "nvidia-ml-py", "x86-only", "setuptools", "builder"):
        wheel(place, name, "1.0")
    wheel(place, "arm-only", "1.0")
    wheel(place, "torch", "1.0", "nvidia-nccl-cu13", "nvidia-ml-py")
    markers = ("arm-only; platform_machine == 'aarch64'", "x86-only; platform_machine == 'x86_64'")
    wheel(place, "chooses", "1.0", *markers, "tiny; python_version == '3.12'")
    wheel(place, "fla-core", "1.0", "torch", "nvidia-ml-py", "tiny; extra == 'x'")
    renamed(wheel(place, "fast", "1.0"), "cp312-cp312-manylinux_2_28_aarch64")
    renamed(wheel(place, "fast", "2.0"), "cp312-cp312-manylinux_2_28_x86_64")
    renamed(wheel(place, "newer", "1.0"), "cp312-cp312-manylinux_2_99_aarch64")
    source(place, "pure", "py3-none-any")
    source(place, "compiled", f"cp{ground.VERSION.replace('.', '')}-none-linux_{os.uname().machine}")
    return place


def _alone(patch: pytest.MonkeyPatch, links: Path) -> None:
    """Let pip find this directory and nothing else."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        patch.delenv(name)
    patch.setenv("PIP_CONFIG_FILE", "/dev/null")
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(links))
    patch.setattr(sources, "TOOLS", ())  # a pip less, each time


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, index: Path) -> None:
    _alone(monkeypatch, index)


def fetched(directory: Path, *packages: str, requirements: str = "") -> Filled:
    """Fetch for aarch64: packages by themselves, and what a checkout asks for with all it needs."""
    repositories: tuple[tuple[str, str], ...] = ()
    if requirements:
        upstream = directory.parent / "upstream"
        files = {"requirements.txt": requirements, "pyproject.toml": PYPROJECT}
        repositories = ((str(upstream), ground.commit(upstream, "one", **files)),)
    return fill(str(directory), Asked(ARM, repositories, packages=packages))


def names(filled: Filled) -> set[str]:
    return {item.name for item in filled.house.wheels}


def _head(place: Path) -> str:
    return ground.git(place / "upstream", "rev-parse", "HEAD")


WANTED = "chooses\ntiny\nfla-core\ntorch\nnewer>=1\nno-such-package>=1\n"


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, index: Path) -> tuple[Path, Filled]:
    """What one checkout's requirements come to, among them some that are nowhere."""
    place = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        _alone(patch, index)
        return place, fetched(place / "off", requirements=WANTED)


def test_markers_are_the_targets(whole: tuple[Path, Filled]) -> None:
    assert {"chooses", "arm-only", "tiny"} <= names(whole[1]) and "x86-only" not in names(whole[1])


def test_the_wheel_is_the_targets(tmp_path: Path) -> None:
    files = {item.file for item in fetched(tmp_path / "off", "fast").house.wheels}
    assert "fast-1.0-cp312-cp312-manylinux_2_28_aarch64.whl" in files, "2.0 is another processor's"


def test_what_is_nowhere_is_named_and_the_rest_is_fetched(whole: tuple[Path, Filled]) -> None:
    place, found = whole
    why = "no index has it for aarch64-3.12"
    assert found.missing == {"newer": why, "no-such-package": why} and "tiny" in names(found)
    asked = Asked(ARM, ((str(place / "upstream"), _head(place)),))
    assert fill(str(place / "off"), asked).missing == found.missing, "also another time"


def test_a_pure_source_becomes_a_wheel_and_another_stays(tmp_path: Path) -> None:
    found = fetched(tmp_path / "off", requirements="pure\ncompiled\n")
    files = {item.file for item in found.house.wheels}
    assert {"pure-1.0-py3-none-any.whl", "compiled-1.0.tar.gz"} <= files and "tiny" in names(found)
    assert list(found.house.source) == ["compiled"], "said by its name"
    assert "builder" in names(found), "which it needs to be built"


def test_what_the_image_brings_is_left_to_it(whole: tuple[Path, Filled]) -> None:
    place, found = whole
    assert found.house.image == ("nvidia-nccl-cu13", "torch")
    assert "nvidia-ml-py" in names(found), "not torch alone needs it"
    asked = Asked(ARM, ((str(place / "upstream"), _head(place)),), image_packages=True)
    assert {"torch", "nvidia-nccl-cu13"} <= names(fill(str(place / "all"), asked))


def test_a_second_fetch_starts_no_pip_and_mends_what_was_broken(tmp_path: Path) -> None:
    first = fetched(tmp_path / "off", "fast", "tiny")
    assert fetched(tmp_path / "off", "fast", "tiny").new == ()
    logs = len(list((tmp_path / "off/logs").iterdir()))
    fetched(tmp_path / "off", "fast", "tiny")
    assert len(list((tmp_path / "off/logs").iterdir())) == logs
    broken = tmp_path / "off/wheels/aarch64-3.12/tiny-1.0-py3-none-any.whl"
    whole = broken.read_bytes()
    broken.write_bytes(whole[:-1])
    mended = fetched(tmp_path / "off", "fast", "tiny")
    assert mended.house == first.house and broken.read_bytes() == whole
    assert mended.new == (broken.name,), "and it is told"


def test_what_an_interrupted_fetch_had_is_taken_up(tmp_path: Path) -> None:
    fetched(tmp_path / "off", "fast", "tiny")
    (tmp_path / "off/manifest.json").unlink()
    place = tmp_path / "off/wheels/aarch64-3.12"
    before = {path.name: path.stat().st_ino for path in place.iterdir()}
    (tmp_path / "off/.work-dead").mkdir()
    fetched(tmp_path / "off", "fast", "tiny")
    assert not (tmp_path / "off/.work-dead").exists() and set(before) == {path.name for path in place.iterdir()}


def test_two_fetches_do_not_meet(tmp_path: Path) -> None:
    script = (
        "import sys, fcntl, time\nf = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=True); input()"
    )
    (tmp_path / "off").mkdir()
    words = [sys.executable, "-c", script, str(tmp_path / "off/.lock")]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline()
        with pytest.raises(Exception, match="another fetch fills"):
            fetched(tmp_path / "off", "tiny")
        other.communicate(b"\n")


def pypi() -> str | None:
    """Return why the public index can't be used, or None."""
    words = [sys.executable, "-m", "pip", "index", "versions", "einops"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no answer"])[-1]


def test_the_public_index_for_both_processors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name)
    problem = pypi()
    if problem:
        pytest.skip(f"needs the package index: {problem}")
    off = str(tmp_path / "off")
    arm = fill(off, Asked(ARM, packages=("fla-core", "einops", "numpy==2.3.5", "conan==2.14.0")))
    files = {item.file for item in arm.house.wheels}
    assert any(name.startswith("numpy-2.3.5-cp312-cp312-manylinux") and name.endswith("aarch64.whl") for name in files)
    assert "conan-2.14.0-py3-none-any.whl" in files, "the index has its source alone"
    here = Target(os.uname().machine, ground.VERSION)
    ours = fill(off, Asked(here, packages=("fla-core", "einops")))
    assert set(ours.fetched.wheelhouses) == {ARM.name, here.name} and ours.missing == {}
