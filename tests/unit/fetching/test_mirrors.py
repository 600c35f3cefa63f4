"""Mirrors: real git and Git LFS from a git daemon, whole before they are believed, used without any network."""

from __future__ import annotations

import functools
import http.server
import json
import os
import shutil
import threading
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from k3env.errors import Refused, TaskFailed
from k3env.fetching import Asked, Target, fill
from k3env.node import offline
from k3env.node.machine import Machine
from k3env.node.mirrors import absolute, relative
from k3env.node.modules.git_checkout import GitCheckout
from k3env.node.offline import Fetched, Mirror, Wheelhouse
from tests.unit.fetching import served
from tests.unit.node import ground
from tests.unit.node.ground import git, perform

PATHS = [
    ("https://github.com/NVIDIA/TensorRT-LLM.git", "git/github.com/NVIDIA/TensorRT-LLM.git"),
    ("https://github.com/NVIDIA/TensorRT-LLM/", "git/github.com/NVIDIA/TensorRT-LLM.git"),
    ("ssh://git@host:29418/a/b", "git/host%3A29418/a/b.git"),
    ("git@host.example:a/b.git", "git/host.example/a/b.git"),
    ("/srv/git/a", "git/local/srv/git/a.git"),
    ("file:///srv/git/../../a b", "git/local/srv/git/a%20b.git"),
]


@pytest.mark.parametrize("url, path", PATHS)
def test_a_mirror_lies_where_its_url_says(url: str, path: str) -> None:
    assert relative(url) == path


URLS = [
    ("https://github.com/a/b.git", "../c.git", "https://github.com/a/c.git"),
    ("https://github.com/a/b", "./c", "https://github.com/a/b/c"),
    ("git@host:a/b", "../../c", "git@host:c"),
    ("file:///srv/a", "../b", "file:///srv/b"),
    ("https://github.com/a/b", "https://other.invalid/c", "https://other.invalid/c"),
]


@pytest.mark.parametrize("parent, url, wanted", URLS)
def test_submodules_may_be_named_relative_to_their_parent(parent: str, url: str, wanted: str) -> None:
    assert absolute(parent, url) == wanted


@dataclass(frozen=True)
class Site:
    """What was fetched, from a server that is gone."""

    url: str
    commits: dict[str, str]
    directory: Path
    seen: Fetched


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    root = tmp_path_factory.mktemp("served")
    directory = root / "off line"
    with pytest.MonkeyPatch.context() as patch, served.daemon(root) as url:
        _alone(patch, root)
        commits = served.repositories(root, url)
        asked = Asked(Target(), pinned=((f"{url}/TensorRT-LLM", commits["pinned"]),))
        # Wheels are another test's: those of this target count as fetched.
        house = Wheelhouse("", ())
        machine = Machine()
        directory.mkdir()
        patch.setattr("k3env.fetching.filling._Filling._wheels", lambda self, reads: house)
        seen = fill(str(directory), asked).fetched
        assert offline.read(machine, str(directory)) == seen
    return Site(url, commits, directory, seen)


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _alone(monkeypatch, tmp_path)
    monkeypatch.setattr("k3env.fetching.filling._Filling._wheels", lambda self, reads: Wheelhouse("", ()))


def _alone(patch: pytest.MonkeyPatch, home: Path) -> None:
    """Configure nothing of the user's."""
    for name, value in {"HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": "/dev/null"}.items():
        patch.setenv(name, value)


def machine(home: Path) -> ground.Watched:
    on = ground.machine(home)
    on.architecture = lambda: "aarch64"  # type: ignore[method-assign]
    return on


def checkout(site: Site, repo: Path, commit: str = "") -> GitCheckout:
    url = f"{site.url}/TensorRT-LLM.git"  # as upstream spells it, or not
    return GitCheckout(str(repo), url, commit or site.commits["pinned"], offline=str(site.directory))


def test_a_mirror_comes_with_its_submodules_and_their_commits(site: Site) -> None:
    names = {mirror.url.rpartition("/")[2]: mirror.commits for mirror in site.seen.mirrors}
    wanted = {"TensorRT-LLM": "pinned", "middle": "middle", "inner": "inner"}
    assert names == {name: (site.commits[commit],) for name, commit in wanted.items()}
    assert not list(site.directory.rglob("*.part"))


def test_a_checkout_is_made_without_the_server(site: Site, tmp_path: Path) -> None:
    on = machine(tmp_path / "home")
    perform(checkout(site, tmp_path / "repo"), on)
    repo = tmp_path / "repo"
    assert git(repo, "rev-parse", "HEAD") == site.commits["pinned"]
    assert (repo / "3rdparty/middle/in/inner.txt").read_text() == "1"
    assert (repo / "kernel.bin").read_bytes() == served.LFS
    assert git(repo, "remote", "get-url", "origin") == f"{site.url}/TensorRT-LLM.git", "the true origin"
    assert "insteadof" not in (repo / ".git/config").read_text().lower()
    assert not (tmp_path / "home" / ".gitconfig").exists()


def test_a_commit_that_is_not_there_is_named_with_what_fetches_it(site: Site, tmp_path: Path) -> None:
    with pytest.raises(Refused) as caught:
        perform(checkout(site, tmp_path / "repo", site.commits["later"]), machine(tmp_path / "home"))
    assert site.commits["later"] in str(caught.value)
    assert f"invoke fetch --directory {site.directory} --arch aarch64" in (caught.value.finding.remedy or "")


def test_a_submodule_that_is_not_there_is_not_looked_for_elsewhere(site: Site, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(site.directory, copy)
    kept = tuple(mirror for mirror in site.seen.mirrors if not mirror.url.endswith("middle"))
    _write(copy, Fetched(site.seen.wheelhouses, kept))
    module = GitCheckout(str(tmp_path / "repo"), f"{site.url}/TensorRT-LLM", site.commits["pinned"], offline=str(copy))
    with pytest.raises(TaskFailed) as caught:
        perform(module, machine(tmp_path / "home"))
    assert caught.value.finding.id == "offline.missing" and "invoke fetch" in (caught.value.finding.remedy or "")


def test_a_second_fetch_asks_no_server(site: Site) -> None:
    before = (site.directory / "manifest.json").stat().st_mtime_ns
    asked = Asked(Target(), pinned=((f"{site.url}/TensorRT-LLM", site.commits["pinned"]),))
    told: list[str] = []
    again = fill(str(site.directory), asked, told.append)
    assert told == [] and again.fetched.mirrors == site.seen.mirrors
    assert (site.directory / "manifest.json").stat().st_mtime_ns == before


def test_what_was_cut_off_is_not_believed(tmp_path: Path) -> None:
    root = tmp_path / "served"
    with served.daemon(root.parent) as url:
        first = ground.commit(root, "first", a="1")
        place = tmp_path / "off" / relative(f"{url}/served")
        place.with_name(place.name + ".part").mkdir(parents=True)  # a clone that was killed
        asked = Asked(Target(), pinned=((f"{url}/served", first),))
        fill(str(tmp_path / "off"), asked)
        second = ground.commit(root, "second", a="2")
        with pytest.raises(TaskFailed):
            fill(str(tmp_path / "off"), Asked(Target(), pinned=((f"{url}/served", "1" * 40),)))
        seen = offline.read(Machine(), str(tmp_path / "off"))
        assert seen is not None and seen.mirrors == (Mirror(f"{url}/served", relative(f"{url}/served"), (first,)),)
        filled = fill(str(tmp_path / "off"), Asked(Target(), pinned=((f"{url}/served", second),)))
        assert set(filled.fetched.mirrors[0].commits) == {first, second}


LOST = {
    "its objects": lambda mirror: shutil.rmtree(mirror / "objects"),
    "its head": lambda mirror: (mirror / "HEAD").write_text("junk"),
    "all but its directory": lambda mirror: (shutil.rmtree(mirror), mirror.mkdir()),
    "the content of its objects": lambda mirror: _emptied(mirror / "objects"),
}


def _emptied(objects: Path) -> None:
    for pack in [path for path in objects.rglob("*") if path.is_file()]:
        pack.chmod(0o644)
        pack.write_bytes(b"")


@pytest.mark.parametrize("lost", LOST)
def test_a_mirror_that_has_lost_files_is_made_anew(lost: str, tmp_path: Path) -> None:
    around, root = tmp_path / "around", tmp_path / "served"
    ground.commit(around, "of somebody", z="1")  # the directory may lie in a repository, which is none of ours
    with served.daemon(root.parent) as url:
        first = ground.commit(root, "first", a="1")
        asked = Asked(Target(), pinned=((f"{url}/served", first),))
        fill(str(around / "off"), asked)
        mirror = around / "off" / relative(f"{url}/served")
        LOST[lost](mirror)
        before = git(around, "for-each-ref"), git(around, "count-objects", "-v")
        filled = fill(str(around / "off"), asked)
        assert not filled.missing and git(mirror, "cat-file", "-t", first) == "commit"
        assert (git(around, "for-each-ref"), git(around, "count-objects", "-v")) == before


LFS_LOST = {
    "all of them": lambda files: [path.unlink() for path in files],
    "a part of each": lambda files: [_shortened(path) for path in files],
}


def _shortened(path: Path) -> None:
    data = path.read_bytes()
    path.unlink()  # git-lfs may have linked the server's own
    path.write_bytes(data[:-1])


@pytest.mark.parametrize("lost", LFS_LOST)
def test_lost_files_of_git_lfs_are_told_and_fetched_again(lost: str, tmp_path: Path) -> None:
    root, off = tmp_path / "served", tmp_path / "off"
    root.mkdir()
    with served.daemon(root) as url:
        commit = served.repositories(root, url)["pinned"]
        asked = Asked(Target(), pinned=((f"{url}/TensorRT-LLM", commit),))
        fill(str(off), asked)
        files = [path for path in (off / relative(f"{url}/TensorRT-LLM") / "lfs/objects").rglob("*") if path.is_file()]
        for path in files:
            path.chmod(0o644)
        LFS_LOST[lost](files)
        module = GitCheckout(str(tmp_path / "repo"), f"{url}/TensorRT-LLM", commit, offline=str(off))
        with pytest.raises(TaskFailed) as caught:
            perform(module, machine(tmp_path / "home"))
        assert caught.value.finding.id == "offline.missing" and "of Git LFS" in caught.value.finding.message
        assert f"invoke fetch --directory {off}" in (caught.value.finding.remedy or "")
        fill(str(off), asked)
        perform(module, machine(tmp_path / "home"))
    assert (tmp_path / "repo/kernel.bin").read_bytes() == served.LFS


@pytest.mark.parametrize("lost", [lost for lost in LOST if lost not in ("its head", "the content of its objects")])
def test_a_mirror_that_is_not_whole_is_told_before_anything_is_built(lost: str, site: Site, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(site.directory, copy)
    (middle,) = (mirror for mirror in site.seen.mirrors if mirror.url.endswith("middle"))
    LOST[lost](copy / middle.path)
    with pytest.raises(Refused) as caught:
        offline.use(machine(tmp_path / "home"), str(copy))
    finding = caught.value.finding
    assert finding.id == "offline.cut" and middle.url in (finding.expected or "")
    assert f"invoke fetch --directory {copy} --arch aarch64" in (finding.remedy or "")


def test_tags_and_branches_become_commits(site: Site, tmp_path: Path) -> None:
    from k3env.fetching.commands import Commands
    from k3env.node.mirrors import Mirrors

    mirrors = Mirrors(Commands(str(site.directory)), {mirror.url: mirror for mirror in site.seen.mirrors})
    assert mirrors.at_revision(f"{site.url}/TensorRT-LLM", "v1") == site.commits["first"]


def _write(directory: Path, fetched: Fetched) -> None:
    from k3env.protocol import codec

    (directory / "manifest.json").write_text(codec.dumps(fetched))


UNUSABLE = [
    (None, "offline.absent", "holds nothing that was fetched to its end"),
    (Fetched(), "offline.arch", "holds no wheels for"),
    (Fetched({"aarch64-3.12": Wheelhouse("", (offline.Wheel("a.whl", "a", "1", 5, ""),))}), "offline.cut", "not whole"),
]


@pytest.mark.parametrize("fetched, id, words", UNUSABLE)
def test_a_directory_that_can_not_serve_is_refused(
    tmp_path: Path, fetched: Fetched | None, id: str, words: str
) -> None:
    if fetched is not None:
        _write(tmp_path, fetched)
    with pytest.raises(Refused, match=words) as caught:
        offline.use(machine(tmp_path / "home"), str(tmp_path))
    assert caught.value.finding.id == id and caught.value.finding.remedy


def test_a_manifest_of_another_k3env_is_refused(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text('{"format": 1, "other": 2}')
    with pytest.raises(Refused, match="is not what this k3env writes"):
        offline.use(machine(tmp_path / "home"), str(tmp_path))


def test_settings_that_stand_in_the_environment_stay(tmp_path: Path) -> None:
    mirror = served.mirrored(tmp_path, Mirror("https://x.invalid/a", "git/a.git", ()))
    _write(tmp_path, Fetched({"aarch64-3.12": Wheelhouse("", ())}, (mirror,)))
    on = machine(tmp_path / "home")
    on.environment.update(GIT_CONFIG_COUNT="1", GIT_CONFIG_KEY_0="safe.directory", GIT_CONFIG_VALUE_0="*")
    found = offline.use(on, str(tmp_path)).environment()
    assert found["GIT_CONFIG_COUNT"] == "3" and "GIT_CONFIG_KEY_0" not in found
    done = on.run(["git", "config", "--get-regexp", "safe|url"], environment={**os.environ, **found})
    assert "safe.directory *" in done.text and "https://x.invalid/a.git" in done.text


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def test_what_cmake_fetches_is_mirrored_or_lies_as_on_github(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "web/deepseek-ai/DeepEP/archive").mkdir(parents=True)
    (tmp_path / "web/deepseek-ai/DeepEP/archive/931.tar.gz").write_bytes(b"an archive")
    handler = functools.partial(_Quiet, directory=str(tmp_path / "web"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server, served.daemon(tmp_path) as url:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        web = f"http://127.0.0.1:{server.server_port}"
        for module in ("filling", "sources"):
            monkeypatch.setattr(f"k3env.fetching.{module}.GITHUB", web)
        monkeypatch.setattr("k3env.node.offline.GITHUB", web)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        one = ground.commit(tmp_path / "fmt", "one", a="1")
        git(tmp_path / "fmt", "tag", "-a", "-m", "a tag", "v1")
        rows = [
            {"name": "fmt", "git_repository": f"{url}/fmt", "git_tag": "v1"},
            {"name": "gone", "git_repository": f"{url}/fmt", "git_tag": "v2"},
            {
                "name": "deep_ep",
                "git_repository": "${github_base_url}/deepseek-ai/DeepEP",
                "git_tag": "931",
                "use_url": 1,
            },
            {"name": "lost", "git_repository": "${github_base_url}/a/b", "git_tag": "1", "use_url": True},
        ]
        text = json.dumps({"dependencies": rows})
        commit = ground.commit(tmp_path / "TensorRT-LLM", "one", **{"3rdparty/fetch_content.json": text})
        asked = Asked(Target(), ((f"{url}/TensorRT-LLM", commit),))
        found = fill(str(tmp_path / "off"), asked)
        server.shutdown()
        server.server_close()
        assert set(found.missing) == {"gone", "lost"}
        assert "v2" in found.missing["gone"] and f"{web}/a/b/archive/1.tar.gz" in found.missing["lost"]
        assert {mirror.url: mirror.commits for mirror in found.fetched.mirrors}[f"{url}/fmt"] == (one,)
        (archive,) = found.fetched.archives
        assert fill(str(tmp_path / "off"), asked).new == (), "also where the server is gone"
    # Where GITHUB_MIRROR leads, CMake finds what it would find on GitHub.
    _write(tmp_path / "off", replace(found.fetched, wheelhouses={"aarch64-3.12": Wheelhouse("", ())}))
    on = machine(tmp_path / "home")
    around = offline.use(on, str(tmp_path / "off")).environment()
    path = around["GITHUB_MIRROR"].removeprefix("file://") + "/deepseek-ai/DeepEP/archive/931.tar.gz"
    assert Path(path).read_bytes() == b"an archive" and archive.size == len(b"an archive")
    clone = ["git", "clone", "--quiet", "--depth", "1", "--branch", "v1", f"{url}/fmt", str(tmp_path / "fmt-src")]
    assert on.run(clone, environment=around).ok and (tmp_path / "fmt-src/a").read_text() == "1"
