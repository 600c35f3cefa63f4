"""conan's packages: fetched by a real conan from a real server, carried, and used where no server is."""

from __future__ import annotations

import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from k3env.errors import Refused
from k3env.fetching import Asked, Target, fill
from k3env.fetching import conan as fetching
from k3env.fetching.filling import Filled
from k3env.node import offline
from k3env.node.facts.toolchain import Toolchain
from k3env.node.modules import _conan, _ground
from k3env.node.modules.trtllm_build import TrtllmBuild
from k3env.node.offline import Conan, Fetched, Wheelhouse
from k3env.protocol import codec
from tests.unit.fetching import conans
from tests.unit.fetching.conans import Conans
from tests.unit.node import ground

ARM = Target("aarch64", "3.12", gcc="13")


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Conans:
    found = conans.install(tmp_path_factory.mktemp("conan"))
    if isinstance(found, str):
        pytest.skip(f"needs conan from the package index: {found}")
    return found


@dataclass
class Site:
    """A server, and a checkout that asks for its packages."""

    root: Path
    url: str

    def upstream(self, *names: str, remote: str = "--remote=TensorRT-LLM", url: str = "") -> tuple[str, str]:
        files = {"scripts/build_wheel.py": conans.script(url or self.url, remote)}
        files["cpp/conanfile.py"] = conans.CONANFILE.format(names=names or ("nvrtc_wrapper/[>=1.0]",))
        return (str(self.root / "upstream"), ground.commit(self.root / "upstream", "one", **files))

    def fetch(self, *repositories: tuple[str, str], target: Target = ARM) -> Filled:
        return fill(str(self.root / "off"), Asked(target, repositories))


@pytest.fixture
def site(tmp_path: Path, tools: Conans, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr("k3env.fetching.filling._Filling._wheels", lambda self, reads: Wheelhouse("", ()))
    monkeypatch.setattr(fetching.Packages, "_program", lambda self, spec: tools.program)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with tools.server(ARM) as url:
        yield Site(tmp_path, url)


def test_packages_come_for_the_nodes_processor_and_serve_without_the_server(site: Site, tools: Conans) -> None:
    repository = site.upstream()
    found = site.fetch(repository)
    assert found.missing == {} and found.conan is not None and found.conan.packages == ("nvrtc_wrapper/1.0",)
    assert found.new == ("conan/aarch64.tar.gz",)
    with tarfile.open(site.root / "off/conan/aarch64.tar.gz") as archive:
        assert {name.partition("/")[0] for name in archive.getnames()} == {"p"}, "no remotes, no logins"
    logs = sorted((site.root / "off/logs").iterdir())
    assert site.fetch(repository).new == () and sorted((site.root / "off/logs").iterdir()) == logs

    # On the node: what the old script does, with a remote that is nowhere.
    on = ground.machine(site.root / "home")
    assert found.conan.archive is not None
    home = _conan.unpacked(on, str(site.root / "off"), found.conan.archive, str(site.root / "node/conan"))
    assert home == _conan.unpacked(on, str(site.root / "off"), found.conan.archive, str(site.root / "node/conan"))
    (site.root / "profile").write_text(fetching.profile(ARM))
    at = Path(home)
    tools.conan(at, "profile", "detect", "-f")
    tools.conan(at, "remote", "add", "--force", "TensorRT-LLM", "http://127.0.0.1:9")
    words = ("install", str(site.root / "upstream/cpp"), "--build=missing", "--remote=TensorRT-LLM")
    tools.conan(at, *words, f"--output-folder={site.root}/out", "--profile:all", str(site.root / "profile"))
    (library,) = at.rglob("wrapper.so")
    assert library.read_text() == "armv8 gcc 13" and library.is_symlink()
    said = tools.conan(
        at, *words, "--profile:all", str(site.root / "profile"), "-s", "compiler.version=12", check=False
    )
    assert "Unable to connect to remote" in said, "another compiler's are not there: conan would go out"


def test_what_would_have_to_be_compiled_is_named_with_the_command_for_the_target(site: Site) -> None:
    found = site.fetch(site.upstream("nvrtc_wrapper/1.0", "sourced/1.0"))
    assert found.conan is not None and found.conan.archive is None
    (told,) = found.missing.values()
    assert "TensorRT-LLM has no sourced/1.0 for aarch64 and gcc 13" in told
    assert f"conan remote add TensorRT-LLM {site.url}" in told and "pip install 'conan==2.14.0'" in told


def test_a_remote_out_of_reach_keeps_nothing_else_from_being_fetched(site: Site) -> None:
    found = site.fetch(site.upstream(url="http://127.0.0.1:9"))
    (told,) = found.missing.values()
    assert "resolve conan's packages failed" in told and "export CONAN_HOME" in told
    assert (site.root / "off/manifest.json").exists() and found.fetched.mirrors


def test_what_an_earlier_fetch_has_for_another_processor_stays(site: Site) -> None:
    site.fetch(site.upstream())
    both = site.fetch(site.upstream(), target=Target("x86_64"))
    assert set(both.fetched.conans) == {"aarch64", "x86_64"} and both.fetched.conans["aarch64"].archive is not None
    assert "nvrtc_wrapper/1.0 for x86_64" in str(both.missing)
    newer = site.fetch(site.upstream(remote="--no-remote"))
    assert "aarch64" not in newer.fetched.conans, "newer ages load nothing"


def test_conan_is_installed_as_the_build_installs_it(tmp_path: Path, tools: Conans) -> None:
    from k3env.fetching.commands import Commands

    program = fetching.Packages(Commands(str(tmp_path)), ARM, tmp_path)._program(f"conan=={conans.VERSION}")
    assert program.is_file() and "2.14.0" in tools.conan(tmp_path / "home", "--version")


SCRIPTS = [
    ("conan remote add --force TensorRT-LLM https://x.invalid/api/y\nconan install --remote=TensorRT-LLM x",
     ("TensorRT-LLM", "https://x.invalid/api/y", fetching.SPEC)),
    ("f'conan remote add -f T http://x/y' pip install conan==2.14.0 'conan install --remote T'",
     ("T", "http://x/y", "conan==2.14.0")),
    ("conan install --remote=Lost x", ("Lost", "", fetching.SPEC)),
    ("conan install --build=missing --no-remote x", None),
    ("no word", None),
]  # fmt: skip


@pytest.mark.parametrize(("script", "told"), SCRIPTS)
def test_what_the_script_loads_is_read(script: str, told: tuple[str, str, str] | None) -> None:
    found = fetching.wanted({"scripts/build_wheel.py": script}.get)
    assert (found and (found.remote, found.url, found.spec)) == told


@pytest.fixture
def carried(tmp_path: Path) -> tuple[ground.Watched, Fetched, Path]:
    """A directory with an archive of conan's, on a node without a compiler's name."""
    on = ground.machine(tmp_path / "home")
    place = tmp_path / "off"
    (place / "conan").mkdir(parents=True)
    (tmp_path / "p/one").mkdir(parents=True)
    path = place / "conan/any.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(tmp_path / "p", "p")
    from k3env.fetching.wheels import digest

    made = offline.Archive("http://x", "conan/any.tar.gz", path.stat().st_size, digest(path))
    arch = on.architecture()
    fetched = Fetched({f"{arch}-3.12": Wheelhouse("", ())}, conans={arch: Conan("", "13", made)})
    (place / "manifest.json").write_text(codec.dumps(fetched))
    return on, fetched, place


def test_an_archive_that_was_spoiled_on_its_way_is_refused(
    carried: tuple[ground.Watched, Fetched, Path], tmp_path: Path
) -> None:
    on, fetched, place = carried
    (conan,) = fetched.conans.values()
    assert conan.archive is not None
    wrong = replace(conan.archive, sha256="0" * 64)
    with pytest.raises(Refused, match="is not what was fetched"):
        _conan.unpacked(on, str(place), wrong, str(tmp_path / "home/conan"))
    assert not list((tmp_path / "home").glob("conan-*"))
    (place / "conan/any.tar.gz").write_bytes(b"")
    with pytest.raises(Refused, match="is not whole"):
        offline.use(on, str(place))


def test_before_the_build_it_is_told_what_is_not_there(
    carried: tuple[ground.Watched, Fetched, Path], tmp_path: Path
) -> None:
    on, fetched, place = carried
    ((arch, conan),) = fetched.conans.items()
    assert conan.archive is not None
    wanted = TrtllmBuild(str(tmp_path / "r"), "1" * 40, offline=str(place))
    home = f"/b/conan-{conan.archive.sha256[:12]}"

    def lacking(compiler: str, home: str) -> tuple[tuple[str, str], ...]:
        tools = Toolchain(arch, "3.12", True, {"c++": compiler})
        return _ground._lacking(on, wanted, {"CONAN_HOME": home}, tools)

    assert lacking("13.3", home) == () and lacking("12.2", "/somebody's/own") == ()
    ((told, remedy),) = lacking("12.2", home)
    assert told == "conan's packages are for gcc 13, and c++ there is 12" and remedy.endswith("--gcc 12")
    absent = replace(fetched, conans={arch: Conan("", "13", missing="no answer", remedy="do it there")})
    (place / "manifest.json").write_text(codec.dumps(absent))
    ((told, remedy),) = lacking("13.3", str(tmp_path / "c"))
    assert f"CONAN_HOME, here {tmp_path}/c, holds none" in told and remedy == "do it there"
    on.environment["CONAN_HOME"] = "/lustre/c"
    assert "not /lustre/c, which is on a network" in lacking("13.3", str(tmp_path / "c"))[0][0]
    shutil.copytree(tmp_path / "p", tmp_path / "c/p")
    assert lacking("13.3", str(tmp_path / "c")) == (), "filled by hand"


def test_a_home_that_can_not_be_written_is_found(tmp_path: Path) -> None:
    assert _conan.unwritable(str(tmp_path / "not/yet")) is None and _conan.unwritable("") is None
    (tmp_path / "file").write_text("")
    assert _conan.unwritable(f"{tmp_path}/file/x") == f"{tmp_path}/file/x", "for root too"
