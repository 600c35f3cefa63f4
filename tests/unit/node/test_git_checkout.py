"""git_checkout: every promise is broken by itself, named by itself, and mended by itself; with real git."""

from __future__ import annotations

import shutil
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from k3env.errors import Refused, TaskFailed
from k3env.node import git as reader
from k3env.node import git_content
from k3env.node.modules.git_checkout import GitCheckout
from tests.counting import counted
from tests.unit.node import ground
from tests.unit.node.ground import Watched, commit, git, judged, perform

POINTER = b"version https://git-lfs.github.com/spec/v1\n"
ABSENT = "1" * 40
CALLS = 30
"""What a checkout that is as wanted may ask its filesystem, beside two gits."""


@dataclass(frozen=True)
class Upstream:
    """Repositories that a checkout comes from."""

    path: Path
    first: str
    second: str
    """With a submodule, which has one itself, and a file of Git LFS."""

    @property
    def url(self) -> str:
        return self.path.as_uri()


@pytest.fixture(scope="session")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    root = tmp_path_factory.mktemp("upstream")
    inner, middle, path = root / "inner", root / "middle", root / "TensorRT-LLM"
    commit(inner, "inner", **{"inner.txt": "1"})
    commit(middle, "middle", **{"middle.txt": "1"})
    git(middle, "submodule", "add", "--quiet", inner.as_uri(), "deep/inner")
    commit(middle, "with its own")
    first = commit(path, "first", **{"README.md": "first\n", "a.txt": "1\n"})
    git(path, "submodule", "add", "--quiet", middle.as_uri(), "3rdparty/middle")
    git(path, "lfs", "install", "--local")
    (path / "kernel.bin").write_bytes(bytes(range(256)) * 8)
    second = commit(path, "second", **{"a.txt": "2\n", ".gitattributes": "*.bin filter=lfs diff=lfs merge=lfs -text\n"})
    assert git(path, "cat-file", "-p", "HEAD:kernel.bin").encode().startswith(POINTER.strip())
    return Upstream(path, first, second)


@pytest.fixture(scope="session")
def cloned(tmp_path_factory: pytest.TempPathFactory, upstream: Upstream) -> Path:
    """A checkout that is as wanted."""
    root = tmp_path_factory.mktemp("cloned")
    machine = ground.machine(root / "home")
    module = GitCheckout(str(root / "TensorRT-LLM"), upstream.url, upstream.second)
    changes = perform(module, machine)
    assert [(change.before, change.after) for change in changes] == [("absent", f"{upstream.url} at {upstream.second}")]
    return root / "TensorRT-LLM"


@pytest.fixture
def machine(tmp_path: Path) -> Watched:
    return ground.machine(tmp_path / "home")


@pytest.fixture
def module(tmp_path: Path, cloned: Path, upstream: Upstream) -> GitCheckout:
    """The wanted checkout, to be broken."""
    repo = tmp_path / "TensorRT-LLM"
    shutil.copytree(cloned, repo, symlinks=True)
    git(repo, "status", "--short")  # refreshes the copied index
    return GitCheckout(str(repo), upstream.url, upstream.second)


def test_a_clone_has_it_all(cloned: Path, upstream: Upstream) -> None:
    assert git(cloned, "rev-parse", "HEAD") == upstream.second
    assert (cloned / "3rdparty/middle/deep/inner/inner.txt").read_text() == "1"
    assert (cloned / "kernel.bin").read_bytes() == bytes(range(256)) * 8
    assert git(cloned, "status", "--porcelain") == ""
    assert list(cloned.parent.glob(".TensorRT-LLM*")) == []


def test_nothing_to_do_takes_two_gits_that_only_read(module: GitCheckout, machine: Watched) -> None:
    with counted(Path(module.repo)) as asked:
        assert module.changes(machine) == ()
    assert [argv[3] for argv in machine.started] == ["status", "ls-files"]
    assert asked.total() <= CALLS, asked
    assert judged(module, machine) == {}
    assert [argv[3] for argv in machine.started] == ["status", "ls-files", "status"]


def test_many_files_of_lfs_are_all_looked_at(tmp_path: Path, machine: Watched) -> None:
    repo = tmp_path / "many"
    pointer = f"{POINTER.decode()}oid sha256:{'1' * 64}\nsize 9\n"
    files = {f"{number:03}.bin": pointer if number % 3 == 0 else f"kernel {number}" for number in range(200)}
    commit(repo, "many", **files)
    (repo / ".gitattributes").write_text("*.bin filter=lfs\n")
    assert git_content.lfs_pointers(machine, str(repo)) == tuple(f"{number:03}.bin" for number in range(0, 200, 3))


BROKEN: dict[str, tuple[Callable[[Path, Upstream], object], str]] = {
    "HEAD moved": (lambda repo, up: git(repo, "checkout", "--quiet", "--force", up.first), "HEAD"),
    "another origin": (lambda repo, up: git(repo, "remote", "set-url", "origin", "https://x.invalid/a.git"), "origin"),
    "no origin": (lambda repo, up: git(repo, "remote", "remove", "origin"), "origin"),
    "submodule gone": (
        lambda repo, up: git(repo, "submodule", "deinit", "--force", "3rdparty/middle"),
        "submodule 3rdparty/middle",
    ),
    "submodule within one gone": (
        lambda repo, up: git(repo / "3rdparty/middle", "submodule", "deinit", "--force", "deep/inner"),
        "submodule 3rdparty/middle/deep/inner",
    ),
    "submodule elsewhere": (
        lambda repo, up: git(repo / "3rdparty/middle", "checkout", "--quiet", "HEAD~1"),
        "submodule 3rdparty/middle",
    ),
    "an LFS pointer": (
        lambda repo, up: (repo / "kernel.bin").write_text(git(repo, "cat-file", "-p", "HEAD:kernel.bin") + "\n"),
        "Git LFS files",
    ),
    ".k3env/ not excluded": (lambda repo, up: (repo / ".git/info/exclude").write_text("*.o"), "git's exclude file"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_each_promise_is_broken_named_and_mended(
    name: str, module: GitCheckout, machine: Watched, upstream: Upstream
) -> None:
    damage, what = BROKEN[name]
    damage(Path(module.repo), upstream)
    assert [change.what for change in perform(module, machine)] == [what]
    assert git(Path(module.repo), "status", "--porcelain") == ""


def test_why_there_is_nothing_to_do(module: GitCheckout, machine: Watched) -> None:
    head, origin, submodules, lfs = module.reasons(machine)
    assert head == f"HEAD of {module.repo} is at {module.commit[:12]}" and origin == f"origin is {module.url}"
    assert submodules == "1 submodule as recorded" and lfs == "1 file of Git LFS, none a pointer"
    assert len(replace(module, lfs=False, submodules=False).reasons(machine)) == 2


def test_a_branch_stays_where_it_is(module: GitCheckout, machine: Watched, upstream: Upstream) -> None:
    repo = Path(module.repo)
    git(repo, "checkout", "--quiet", "--force", "-b", "mine", upstream.first)
    (change,) = perform(module, machine)
    assert change.before == f"{upstream.first} (branch mine)"
    assert git(repo, "rev-parse", "mine") == upstream.first
    assert git(repo, "for-each-ref", "refs/k3env/kept") == "", "a branch names it already"


def test_a_branch_at_the_wanted_commit_is_left_alone(module: GitCheckout, machine: Watched) -> None:
    git(Path(module.repo), "checkout", "--quiet", "-b", "mine")
    assert module.changes(machine) == ()


def test_a_local_commit_is_kept(module: GitCheckout, machine: Watched) -> None:
    repo = Path(module.repo)
    mine = commit(repo, "mine", **{"mine.txt": "mine"})
    inner = commit(repo / "3rdparty/middle", "mine too", **{"mine.txt": "mine"})
    assert [change.what for change in module.changes(machine)] == ["HEAD"], "what follows from HEAD is not known yet"
    git(repo, "add", "3rdparty/middle")
    git(repo, "commit", "--quiet", "--amend", "--message", "mine")
    mine = git(repo, "rev-parse", "HEAD")
    perform(module, machine)
    assert git(repo, "for-each-ref", "--format=%(objectname)", "refs/k3env/kept") == mine
    assert git(repo / "3rdparty/middle", "for-each-ref", "--format=%(objectname)", "refs/k3env/kept") == inner


def test_local_changes_are_a_warning_where_head_stays(module: GitCheckout, machine: Watched) -> None:
    (Path(module.repo) / "a.txt").write_text("mine\n")
    assert module.changes(machine) == ()
    (finding,) = module.judge(machine, ground.Profile())
    assert (finding.status, finding.found) == ("warn", "a.txt")


@pytest.mark.parametrize("staged", [False, True])
def test_local_changes_are_a_refusal_where_head_must_move(
    staged: bool, module: GitCheckout, machine: Watched, upstream: Upstream
) -> None:
    (Path(module.repo) / "a.txt").write_text("mine\n")
    if staged:
        git(Path(module.repo), "add", "a.txt")
    with pytest.raises(Refused) as caught:
        replace(module, commit=upstream.first).changes(machine)
    assert "a.txt" in (caught.value.finding.found or "")
    assert "stash" in (caught.value.finding.remedy or "")
    assert (Path(module.repo) / "a.txt").read_text() == "mine\n"


def test_a_head_at_a_branch_without_a_commit_is_told_as_that(
    module: GitCheckout, machine: Watched, upstream: Upstream
) -> None:
    repo = Path(module.repo)
    (repo / "a.txt").write_text("mine\n")
    git(repo, "symbolic-ref", "HEAD", "refs/heads/gone")
    with pytest.raises(Refused) as caught:
        module.changes(machine)
    finding = caught.value.finding
    assert finding.id == "git.unborn" and "names branch gone, which has no commit" in finding.message
    words = ["update-ref", "--no-deref", "HEAD"]
    assert " ".join(words) in (finding.remedy or "") and "stash" not in (finding.remedy or "")
    git(repo, *words, module.commit)
    assert module.changes(machine) == () and (repo / "a.txt").read_text() == "mine\n"


def test_local_changes_in_a_submodule_are_a_refusal_too(
    module: GitCheckout, machine: Watched, upstream: Upstream
) -> None:
    (Path(module.repo) / "3rdparty/middle/middle.txt").write_text("mine\n")
    assert judged(module, machine) == {"git.dirty": "warn"}
    with pytest.raises(Refused, match="local changes"):
        replace(module, commit=upstream.first).changes(machine)


def test_a_merge_under_way_is_a_refusal(module: GitCheckout, machine: Watched, upstream: Upstream) -> None:
    (Path(module.repo) / ".git/MERGE_HEAD").write_text(f"{upstream.first}\n")
    with pytest.raises(Refused, match="local changes") as caught:
        replace(module, commit=upstream.first).changes(machine)
    assert caught.value.finding.found == "not finished: MERGE_HEAD"


@pytest.mark.parametrize("ignored", [False, True])
def test_a_file_that_git_does_not_track_is_not_overwritten(
    ignored: bool, module: GitCheckout, machine: Watched, upstream: Upstream
) -> None:
    repo = Path(module.repo)
    later = commit(upstream.path, "later", **{"later.txt": "theirs"})
    git(upstream.path, "reset", "--quiet", "--hard", upstream.second)
    (repo / "later.txt").write_text("mine")
    if ignored:
        (repo / ".git/info/exclude").write_text("later.txt\n/.k3env/\n")
    wanted = replace(module, commit=later)
    with pytest.raises(TaskFailed) as caught:
        wanted.apply(machine, wanted.changes(machine))
    assert caught.value.finding.id == "git.untracked"
    assert (repo / "later.txt").read_text() == "mine"


def test_a_lock_that_was_left_is_a_refusal(module: GitCheckout, machine: Watched, upstream: Upstream) -> None:
    lock = Path(module.repo, ".git/index.lock")
    lock.touch()
    assert module.changes(machine) == (), "another git may be reading; there is nothing to do here"
    with pytest.raises(Refused) as caught:
        replace(module, commit=upstream.first).changes(machine)
    assert f"rm {lock}" in (caught.value.finding.remedy or "")


def test_what_is_no_checkout_is_left_alone(tmp_path: Path, machine: Watched, upstream: Upstream) -> None:
    repo = tmp_path / "TensorRT-LLM"
    module = GitCheckout(str(repo), upstream.url, upstream.second)
    repo.mkdir()
    assert [change.before for change in module.changes(machine)] == ["absent"]
    (repo / "precious").write_text("mine")
    with pytest.raises(Refused, match="not a git checkout, and not empty"):
        module.changes(machine)
    (repo / ".git").mkdir()
    with pytest.raises(TaskFailed, match="can't read"):
        module.changes(machine)
    assert (repo / "precious").read_text() == "mine"


def test_a_repository_around_it_is_not_taken_for_it(tmp_path: Path, machine: Watched, upstream: Upstream) -> None:
    commit(tmp_path / "around", "around", **{"a.txt": "1"})
    repo = tmp_path / "around/TensorRT-LLM"
    (repo / ".git").mkdir(parents=True)
    with pytest.raises(TaskFailed) as caught:
        GitCheckout(str(repo), upstream.url, upstream.second).changes(machine)
    assert caught.value.finding.id == "git.no_checkout"


def test_an_interrupted_clone_leaves_nothing_that_looks_finished(
    tmp_path: Path, machine: Watched, upstream: Upstream
) -> None:
    repo = tmp_path / "TensorRT-LLM"
    (tmp_path / ".TensorRT-LLM.k3env-clone-dead").mkdir()
    module = GitCheckout(str(repo), upstream.url, ABSENT)
    with pytest.raises(TaskFailed) as caught:
        module.apply(machine, module.changes(machine))
    assert caught.value.finding.id == "git.no_commit"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["home"]


def test_a_server_that_gives_no_commit_by_its_id_is_fetched_from_whole(
    tmp_path: Path, machine: Watched, upstream: Upstream
) -> None:
    # Protocol 0 gives only what a branch or tag names, unless the server allows more.
    old = tmp_path / "old"
    git(tmp_path, "clone", "--quiet", "--bare", str(upstream.path), str(old))
    configured = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": "protocol.version", "GIT_CONFIG_VALUE_0": "0"}
    machine.environment.update(configured)
    module = GitCheckout(str(tmp_path / "TensorRT-LLM"), str(old), upstream.first)
    perform(module, machine)
    assert ["fetch", "--progress", "--tags", "origin"] in [list(argv[-4:]) for argv in machine.started]


def test_a_server_that_never_answers_is_left(tmp_path: Path, machine: Watched) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"git://127.0.0.1:{server.getsockname()[1]}/x"
        module = GitCheckout(str(tmp_path / "TensorRT-LLM"), url, ABSENT, inactivity_s=0.5)
        with pytest.raises(TaskFailed, match="did nothing any more") as caught:
            module.apply(machine, module.changes(machine))
    assert caught.value.finding.id == "git.timeout"
    assert not (tmp_path / "TensorRT-LLM").exists()


UNREADY = {
    "another owner": ({"GIT_TEST_ASSUME_DIFFERENT_OWNER": "1"}, "git.ownership", "safe.directory"),
    "no git": ({"PATH": "/nowhere"}, "git.missing", "install git"),
}


@pytest.mark.parametrize("name", UNREADY)
def test_what_git_needs_is_said(name: str, module: GitCheckout, machine: Watched) -> None:
    environment, id, remedy = UNREADY[name]
    machine.environment.update(environment)
    with pytest.raises(TaskFailed) as caught:
        module.changes(machine)
    assert caught.value.finding.id == id
    assert remedy in (caught.value.finding.remedy or "")


def test_a_server_that_refuses_is_not_asked_for_everything(tmp_path: Path, machine: Watched) -> None:
    module = GitCheckout(str(tmp_path / "TensorRT-LLM"), "https://127.0.0.1:1/x.git", ABSENT)
    with pytest.raises(TaskFailed) as caught:
        module.apply(machine, module.changes(machine))
    assert caught.value.finding.id == "git.network"
    assert [argv for argv in machine.started if "--tags" in argv] == []


def test_git_is_told_nothing_of_another_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert "GIT_DIR" not in ground.machine(tmp_path).environment


def test_without_lfs_and_submodules_neither_is_looked_at(module: GitCheckout, machine: Watched) -> None:
    git(Path(module.repo), "submodule", "deinit", "--force", "--all")
    Path(module.repo, "kernel.bin").write_bytes(POINTER)
    assert replace(module, lfs=False, submodules=False).changes(machine) == ()


def test_lfs_that_is_not_installed_names_its_package(module: GitCheckout, machine: Watched, tmp_path: Path) -> None:
    programs = tmp_path / "without"
    programs.mkdir()
    for name in ("git", "sh"):
        (programs / name).symlink_to(str(shutil.which(name)))
    machine.environment["PATH"] = str(programs)
    Path(module.repo, "kernel.bin").write_bytes(POINTER)
    with pytest.raises(TaskFailed) as caught:
        module.apply(machine, module.changes(machine))
    assert caught.value.finding.id == "git.lfs_missing"
    assert "git-lfs" in (caught.value.finding.remedy or "")


BAD = {
    "a relative path": {"repo": "TensorRT-LLM"},
    "a path with dots": {"repo": "/srv/../srv/x"},
    "a slash at the end": {"repo": "/srv/x/"},
    "the root": {"repo": "/"},
    "a short commit": {"commit": "b6cc594"},
    "a branch": {"commit": "main"},
    "capital letters": {"commit": "A" * 40},
    "an option for a URL": {"url": "--upload-pack=touch /tmp/x"},
    "a transport that runs programs": {"url": "ext::sh -c touch% /tmp/x"},
    "a password": {"url": "https://me:secret@example.invalid/x.git"},
    "a token": {"url": "https://token@example.invalid/x.git"},
    "a blank": {"url": "https://example.invalid/a b"},
}


@pytest.mark.parametrize("name", BAD)
def test_parameters_that_are_refused_at_load(name: str) -> None:
    good = {"repo": "/srv/x", "url": "https://example.invalid/x.git", "commit": "a" * 40}
    with pytest.raises(ValueError) as caught:
        GitCheckout(**{**good, **BAD[name]})  # type: ignore[arg-type]
    assert "secret" not in str(caught.value) and "token@" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["git@github.com:NVIDIA/TensorRT-LLM.git", "ssh://git@host/x", "/srv/mirror.git", "file:///srv/mirror"]
)
def test_urls_that_are_taken(url: str) -> None:
    assert GitCheckout("/srv/x", url, "a" * 40).writes() == ("/srv/x",)


def test_a_password_in_the_origin_that_is_found_is_not_shown(module: GitCheckout, machine: Watched) -> None:
    git(Path(module.repo), "remote", "set-url", "origin", "https://me:secret@example.invalid/x.git")
    (change,) = module.changes(machine)
    assert change.before == "https://********@example.invalid/x.git"


def test_head_is_read_from_files_as_git_says(module: GitCheckout, machine: Watched, upstream: Upstream) -> None:
    repo = Path(module.repo)
    states = [
        ("checkout", "--quiet", "-b", "loose"),
        ("checkout", "--quiet", "--force", "-b", "packed", upstream.first),
        ("pack-refs", "--all"),
        ("worktree", "add", "--quiet", "--force", str(repo.parent / "tree"), upstream.second),
    ]
    for state in states:
        git(repo, *state)
        assert reader.head(machine, str(repo)) == git(repo, "rev-parse", "HEAD")
    assert reader.head(machine, str(repo.parent / "tree")) == upstream.second
    assert reader.head(machine, str(repo.parent)) is None
    assert machine.started == []
