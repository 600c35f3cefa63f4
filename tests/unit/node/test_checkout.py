"""What a checkout is and asks for, and what stands in its manifest."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.k3 import pins
from k3env.node import git_content, manifest
from k3env.node.facts.checkout import Checkout, asks_for_fork, checkout, flags, recognise
from k3env.protocol import codec
from k3env.protocol.profile import Paths, Profile
from tests.unit.node import ground
from tests.unit.node.ground import Watched, commit

# The step as the README of the bring-up and the deployment guide have it; later READMEs have none.
STEP = """
.venv-3.12/bin/python -u -m pip install --force-reinstall --no-deps \\
    --no-build-isolation \\
    "flashinfer-python[cu13] @ git+https://github.com/PerkzZheng/flashinfer-k3.git@b6cc594918baf76c40c3a6236fd53f0f8fb9d2dc"
"""
REQUIREMENTS = """--extra-index-url https://download.pytorch.org/whl/cu130
-c constraints.txt
# flashinfer-python==0.6.14
torch>=2.11.0,<=2.13.0a0
flashinfer-python==0.6.16  # CuTeDSL
einops
"""


@pytest.fixture
def machine(tmp_path: Path) -> Watched:
    return ground.machine(tmp_path / "home")


GUIDES = [
    ("examples/kimi_k3/README.md", STEP, True, pins.FLASHINFER_COMMIT),
    ("docs/source/deployment-guide/deployment-guide-for-kimi-k3-on-trtllm.md", STEP, True, pins.FLASHINFER_COMMIT),
    ("examples/kimi_k3/README.md", "pip install 'flashinfer-python @ git+ssh://git@host/x.git@main'", True, None),
    (
        "examples/kimi_k3/README.md",
        "pip install fla-core einops\nflashinfer-python==0.6.17 is in requirements",
        False,
        None,
    ),
    ("examples/kimi_k3/README.md", "git clone git+https://x; see flashinfer", False, None),
    ("README.md", STEP, False, None),
]


@pytest.mark.parametrize(("path", "text", "asks", "named"), GUIDES)
def test_whether_it_asks_for_the_fork(
    path: str, text: str, asks: bool, named: str | None, tmp_path: Path, machine: Watched
) -> None:
    (tmp_path / "repo" / path).parent.mkdir(parents=True)
    (tmp_path / "repo" / path).write_text(text)
    found = recognise(machine, str(tmp_path / "repo"))
    assert (found.asks_for_fork, found.fork_commit) == (asks, named)
    assert asks_for_fork(machine, str(tmp_path / "repo")) == asks
    assert found.source


def test_a_checkout_is_recognised_without_git(tmp_path: Path, machine: Watched) -> None:
    repo = tmp_path / "repo"
    version = '"""Version."""\n__version__ = "1.3.0rc5"\n'
    at = commit(repo, "it", **{"tensorrt_llm/version.py": version, "requirements.txt": REQUIREMENTS})
    found = checkout(machine, Profile(paths=Paths(repo=str(repo))))
    assert found is not None
    assert (found.commit, found.version, found.flashinfer_pin) == (at, "1.3.0rc5", "flashinfer-python==0.6.16")
    assert machine.started == []
    assert codec.decode(Checkout, codec.encode(found)) == found


def test_none_where_there_is_none(tmp_path: Path, machine: Watched) -> None:
    assert checkout(machine, Profile()) is None
    assert checkout(machine, Profile(paths=Paths(repo=str(tmp_path / "absent")))) is None
    (tmp_path / "archive").mkdir()
    assert recognise(machine, str(tmp_path / "archive")).commit is None


def test_flags_are_those_that_help_lists() -> None:
    text = """usage: build_wheel.py [-h] [--build_type {Release,Debug}]
  -h, --help            show this help message and exit
  --cuda_architectures CUDA_ARCHITECTURES, -a CUDA_ARCHITECTURES
                        as in 100-real; see well-known--names
  --use-3rdparty-cache  keep sources
  -j [JOB_COUNT], --job_count [JOB_COUNT]
"""
    expected = {
        "-h",
        "--help",
        "--build_type",
        "--cuda_architectures",
        "-a",
        "--use-3rdparty-cache",
        "-j",
        "--job_count",
    }
    assert flags(text) == expected


NO_FLAGS = """usage: build_wheel.py [-h] [-ccache]
                      [--yes]

Builds; --trt_root is gone.

\x1b[1;34moptions:\x1b[0m
  \x1b[1;32m-h\x1b[0m, \x1b[1;36m--help\x1b[0m  show this, as -? did
  \x1b[1;32m-ccache\x1b[0m    instead of --use_ccache
  \x1b[1;36m--yes\x1b[0m      no question; what
              --force was, and
              -y
"""


def test_flags_in_colour_and_in_a_narrow_terminal() -> None:
    assert flags(NO_FLAGS) == {"-h", "--help", "-ccache", "--yes"}, "those that a description speaks of are none"


def test_a_help_that_is_laid_out_in_another_way_is_searched() -> None:
    assert flags("Usage: build\n\nOptions\n│ --yes  -y   no question │\n") == {"--yes", "-y"}


@pytest.mark.parametrize("cone", [("scripts",), ("scripts", "examples")])
def test_what_a_sparse_checkout_leaves_out(cone: tuple[str, ...], tmp_path: Path, machine: Watched) -> None:
    repo = tmp_path / "repo"
    commit(repo, "it", **{"cpp/CMakeLists.txt": "", "examples/kimi_k3/README.md": STEP, "scripts/x": ""})
    names = ("cpp/CMakeLists.txt", "examples/kimi_k3/README.md", "docs/never.md")
    assert git_content.left_out(machine, str(repo), names) == ()
    ground.run("git", "-C", repo, "sparse-checkout", "set", *cone)
    expected = names[:1] if "examples" in cone else names[:2]
    assert git_content.left_out(machine, str(repo), names) == expected
    assert recognise(machine, str(repo)).guides == (names[1:2] if "examples" in cone else ())


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path, machine: Watched) -> None:
    made = manifest.Manifest(
        "a" * 40, "103-real", "103-real", "d" * 64, {"3rdparty/x": "b" * 40}, ("-j", "4"), build_dir="/local/b",
        image="image", image_key="k", python="3.12", versions={"torch": "2.12.0a0"},
        artefacts={"tensorrt_llm/libs/libth_common.so": (5, 1_700_000_000_123_456_789)},
    )  # fmt: skip
    manifest.write(machine, str(tmp_path), made)
    found = manifest.read(machine, str(tmp_path))
    assert found is not None and found.made.endswith("Z") and found.by == "run-host-task"
    assert codec.encode(found) == {**codec.encode(made), "made": found.made, "by": found.by}


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"commit": "a"}', '{"commit": "a", "arch": "b", "format": 2}', '{"x": 1}']
)
def test_a_manifest_that_is_none(text: str, tmp_path: Path, machine: Watched) -> None:
    assert manifest.read(machine, str(tmp_path)) is None
    (tmp_path / ".k3env").mkdir()
    (tmp_path / ".k3env/manifest.json").write_text(text)
    assert manifest.read(machine, str(tmp_path)) is None


def test_a_manifest_is_not_written_without_the_lease(tmp_path: Path, machine: Watched) -> None:
    def lost() -> None:
        raise PermissionError("the lease was lost")

    machine.on_commit(lost)
    with pytest.raises(PermissionError):
        manifest.write(machine, str(tmp_path), manifest.Manifest("a" * 40, "103-real"))
    assert manifest.read(machine, str(tmp_path)) is None
