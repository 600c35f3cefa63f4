"""Before anything is installed without a network: which requirements no wheel meets, for this Python and processor."""

from __future__ import annotations

from pathlib import Path

import pytest
from packaging.requirements import Requirement

from k3env.errors import Refused
from k3env.node.facts.toolchain import Toolchain
from k3env.node.modules import _ground, _wheelhouse
from k3env.node.modules.git_checkout import GitCheckout
from k3env.node.modules.pip_packages import PipPackages
from k3env.node.modules.trtllm_build import TrtllmBuild
from k3env.node.offline import Fetched, Mirror, Offline, Wheel, Wheelhouse
from k3env.protocol import codec
from tests.unit.fetching.served import mirrored
from tests.unit.node import ground

WHEELS = (
    "tiny-1.0-py3-none-any.whl", "fast-1.0-cp312-cp312-manylinux_2_28_aarch64.whl", "newer-1.0-cp313-cp313-x.whl",
    "stable-2.0-cp39-abi3-manylinux2014_aarch64.whl", "late-2.0-cp313-abi3-x.whl",
    "Some_Thing-1.5a1-py2.py3-none-any.whl",
    "source-1.0.tar.gz",
)  # fmt: skip
TORCH = ("torch", "nvidia-nccl-cu13")


def wheelhouse(*files: str, missing: str = "") -> Wheelhouse:
    wheels = tuple(Wheel(name, name.split("-")[0], name.split("-")[1].removesuffix(".tar.gz"), 0, "") for name in files)
    return Wheelhouse("", wheels, TORCH, missing={missing: "no index has it"} if missing else {})


HOUSES = {
    "aarch64-3.12": wheelhouse(*WHEELS, missing="lost"),
    "x86_64-3.12": wheelhouse("other-1-py3-none-any.whl"),
}
HOUSE = Offline("/off", Fetched(HOUSES), "aarch64")
# requirement, Python, what is told
ROWS = [
    ("tiny", "3.12", None),
    ("tiny==1.0", "3.12", None),
    ("tiny>=2", "3.12", "tiny>=2 (there: 1.0)"),
    ("absent", "3.12", "absent"),
    ("other", "3.12", "other"),  # another processor's
    ("fast", "3.12", None),
    ("fast", "3.11", "fast"),
    ("fast", None, None),
    ("newer", "3.12", "newer"),
    ("stable", "3.12", None),
    ("late", "3.12", "late"),
    ("late", "3.13", None),
    ("some.thing>=1", "3.12", None),
    ("source", "3.12", None),
    ("torch>=2.11", "3.12", None),
    ("lost", "3.12", None),
    ("absent; platform_machine == 'x86_64'", "3.12", None),
    ("absent; python_version < '3.12'", "3.12", None),
    ("absent @ git+https://x.invalid/a", "3.12", None),
]


@pytest.mark.parametrize(("text", "python", "told"), ROWS)
def test_what_no_wheel_meets(text: str, python: str | None, told: str | None) -> None:
    assert _wheelhouse.unfetched(HOUSE, [Requirement(text)], python) == (() if told is None else (told,))


@pytest.mark.parametrize(
    ("text", "told"), [("torch>=2.11", "torch>=2.11"), ("lost", "lost"), ("seen>=1", None), ("seen>=3", "seen>=3")]
)
def test_where_it_is_known_what_the_image_has_nothing_else_counts(text: str, told: str | None) -> None:
    found = _wheelhouse.unfetched(HOUSE, [Requirement(text)], "3.12", {"seen": "2.0a0+1"})
    assert found == (() if told is None else (told,))


def test_requirement_files_name_others() -> None:
    files = {
        "dev.txt": "-r sub/more.txt\n-c limits.txt\ntiny==1 \\\n  ; python_version > '3'\n??\n",
        "sub/more.txt": "-r ../dev.txt\nfast\n",
    }
    found = _wheelhouse.required(files.get, ("none.txt", "dev.txt", "sub/more.txt"))
    assert [item.name for item in found] == ["tiny", "fast"]
    assert _wheelhouse.required({}.get, ("none.txt",)) == ()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """A directory with wheels for this machine, and a mirror."""
    on = ground.machine(tmp_path / "home")
    place = tmp_path / "off"
    (place / "wheels" / f"{on.architecture()}-{ground.VERSION}").mkdir(parents=True)
    (place / "wheels" / f"{on.architecture()}-{ground.VERSION}" / WHEELS[0]).touch()
    house = {f"{on.architecture()}-{ground.VERSION}": wheelhouse(WHEELS[0])}
    (place / "manifest.json").write_text(
        codec.dumps(Fetched(house, (mirrored(place, Mirror("https://x.invalid/a", "git/a", ("1" * 40,))),)))
    )
    return place


FRESH = [
    (PipPackages(("tiny",), venv="/nowhere/v"), None),
    (PipPackages(("tiny==2",), venv="/nowhere/v"), "no wheel of tiny==2 (there: 1.0)"),
    (PipPackages(("tiny==2",), venv="/nowhere/v", find_links=("/more",)), None),
    (PipPackages((f"a @ git+https://x.invalid/a@{'1' * 40}",), venv="/nowhere/v"), None),
    (PipPackages((f"a @ git+https://x.invalid/a@{'2' * 40}",), venv="/nowhere/v"), f"the commit {'2' * 40}"),
    (GitCheckout("/nowhere/r", "https://x.invalid/a.git", "1" * 40), None),
    (GitCheckout("/nowhere/r", "https://x.invalid/a.git", "2" * 40), f"the commit {'2' * 40}"),
    (GitCheckout("/nowhere/r", "https://x.invalid/b.git", "1" * 40), "the repository"),
]


@pytest.mark.parametrize(("module", "told"), FRESH)
def test_check_mode_tells_what_is_not_there(
    directory: Path, tmp_path: Path, module: PipPackages | GitCheckout, told: str | None
) -> None:
    from dataclasses import replace

    on = ground.machine(tmp_path / "home")
    wanted = replace(module, offline=str(directory))
    if told is None:
        assert wanted.changes(on)
        return
    with pytest.raises(Refused, match=told.replace("(", r"\(").replace(")", r"\)")) as caught:
        wanted.changes(on)
    assert f"invoke fetch --directory {directory}" in (caught.value.finding.remedy or "")


def test_a_build_tells_what_its_requirements_lack(directory: Path, tmp_path: Path) -> None:
    on = ground.machine(tmp_path / "home")
    files = {
        "scripts/build_wheel.py": "",
        "requirements-dev.txt": "-r requirements.txt\n",
        "requirements.txt": "tiny\ntorch>=2\n",
    }
    commit = ground.commit(tmp_path / "r", "one", **files)
    assert TrtllmBuild(str(tmp_path / "r"), commit, offline=str(directory)).changes(on)
    tools = Toolchain(on.architecture(), ground.VERSION, True, installed={"torch": "2.12"})
    wanted = TrtllmBuild(str(tmp_path / "r"), commit, offline=str(directory))
    assert _ground._lacking(on, wanted, {}, tools) == ()
    ((told, remedy),) = _ground._lacking(on, wanted, {}, Toolchain(on.architecture(), ground.VERSION, True))
    assert told == f"{directory} lacks torch>=2" and "--image-packages" in remedy and "use an image" in remedy
    later = ground.commit(tmp_path / "r", "two", **{"requirements.txt": "tiny>=3\nmore\n"})
    with pytest.raises(Refused, match=r"no wheel of tiny>=3 \(there: 1.0\), more, and"):
        TrtllmBuild(str(tmp_path / "r"), later, offline=str(directory)).changes(on)
    # A checkout that is still to be moved asks for what nobody has read yet.
    assert TrtllmBuild(str(tmp_path / "r"), commit, offline=str(directory)).changes(on)
