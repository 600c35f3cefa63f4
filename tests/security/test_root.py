"""Root never runs what a user can write: real files of a real user, and a canary that says whether root ran them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from k3env.k3 import build
from k3env.node import git, trust
from k3env.node.facts import Facts, interpreter, read
from k3env.node.facts import venv as venvs
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.container import Container
from k3env.protocol.profile import Profile
from tests.agent import Agent, task
from tests.security import other
from tests.security.other import needs_root
from tests.unit.node import ground as making

pytestmark = needs_root


@pytest.fixture
def canary(ground: Path) -> Path:
    """A directory that everybody may write to, in which a program that runs writes who it is."""
    path = ground / "canary"
    path.mkdir()
    path.chmod(0o1777)
    return path


def trap(path: Path, canary: Path, says: str = "") -> Path:
    """Write a program that tells in whose name it ran."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\ntouch {canary}/$(id -u)\n{says}\n")
    path.chmod(0o755)
    return path


def ran(canary: Path) -> set[str]:
    """Return the uids in whose names a trap was run."""
    return {path.name for path in canary.iterdir()}


@pytest.fixture
def home(ground: Path) -> Path:
    """The other user's home."""
    path = ground / "home"
    path.mkdir()
    return other.give(path)


GIT_TRAPS: dict[str, Callable[[Path, Path], None]] = {
    "fsmonitor": lambda repo, program: _config(repo, "core.fsmonitor", str(program)),
    "ssh": lambda repo, program: _config(repo, "core.sshCommand", str(program)),
    "hooks": lambda repo, program: _hooks(repo, program),
    "another place of hooks": lambda repo, program: _config(repo, "core.hooksPath", str(_hooks(repo, program))),
    "a filter": lambda repo, program: _filter(repo, program),
    "an alias": lambda repo, program: _config(repo, "alias.status", f"!{program}"),
    "a pager": lambda repo, program: _config(repo, "core.pager", str(program)),
    "an include": lambda repo, program: _config(repo, "include.path", str(_included(repo, program))),
    "a helper": lambda repo, program: _config(repo, "credential.helper", f"!{program}"),
}


def _config(repo: Path, key: str, value: str) -> None:
    making.git(repo, "config", key, value)


def _hooks(repo: Path, program: Path) -> Path:
    for name in ("post-checkout", "reference-transaction", "post-index-change", "pre-auto-gc"):
        trap_at = repo / ".git" / "hooks" / name
        trap_at.parent.mkdir(exist_ok=True)
        trap_at.write_text(program.read_text())
        trap_at.chmod(0o755)
    return repo / ".git" / "hooks"


def _filter(repo: Path, program: Path) -> None:
    (repo / ".git" / "info").mkdir(exist_ok=True)
    (repo / ".git" / "info" / "attributes").write_text("* filter=x\n")
    for kind in ("clean", "smudge", "process"):
        _config(repo, f"filter.x.{kind}", str(program))


def _included(repo: Path, program: Path) -> Path:
    path = repo / ".git" / "more"
    path.write_text(f'[core]\n\tfsmonitor = "{program}"\n')
    return path


@pytest.mark.parametrize("name", GIT_TRAPS)
@pytest.mark.parametrize("caller", ["root", "sudo"])
def test_git_obeys_no_user_s_settings(
    name: str, caller: str, home: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = home / "repo"
    first = making.commit(repo, "first", a="1")
    second = making.commit(repo, "second", a="2")
    GIT_TRAPS[name](repo, trap(home / "program", canary))
    (repo / "a").write_text("3")
    other.give(home)
    if caller == "sudo":
        # git trusts the repositories of whoever called sudo.
        monkeypatch.setenv("SUDO_UID", str(other.uid()))
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "safe.directory")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "*")
    for words in (["status"], ["diff"], ["checkout", "-f", first], ["fetch", "origin"], ["cat-file", "-e", second]):
        done = git.read(Machine(), str(repo), *words)
        assert not done.ok and b"belongs to uid" in done.stderr, done
    assert ran(canary) == set()


def module(name: str, repo: Path, **more: object) -> object:
    return {
        "git": task("git_checkout", url="https://example.invalid/r", repo=str(repo), commit="c" * 40),
        "build": task("trtllm_build", repo=str(repo), commit="c" * 40),
        "pip": task("pip_packages", checkout=str(repo), packages=["einops"]),
        "venv": task("pip_packages", venv=str(repo / f".venv-{making.VERSION}"), packages=["einops"]),
        "command": task("command", argv=[str(repo / "program")], read_only=True),
        "below": task("command", argv=["./program"], chdir=str(repo), read_only=True),
        "guard": task("command", argv=["true"], unless=[str(repo / "program")]),
        "python": task("command", argv=["python3", "-c", "import json"], chdir=str(repo), read_only=True),
    }[name]


def trapped(repo: Path, canary: Path) -> None:
    """Make a checkout of a user in which each program is a trap, and each module that Python looks for."""
    making.commit(repo, "first", a="1")
    _config(repo, "core.fsmonitor", str(trap(repo / "program", canary)))
    script = trap(repo / build.SCRIPT, canary)
    script.write_text(f"import os\nopen(f'{canary}/{{os.geteuid()}}', 'w')\n")
    for name in ("json.py", "pip.py", "sitecustomize.py", "usercustomize.py", "conftest.py", "venv.py"):
        (repo / name).write_text(f"import os\nopen(f'{canary}/{{os.geteuid()}}', 'w')\n")
    env = repo / f".venv-{making.VERSION}"
    for name in ("python", "python3", f"python{making.VERSION}", "pip", "git"):
        trap(env / "bin" / name, canary)
    site = env / "lib" / f"python{making.VERSION}" / "site-packages"
    (site / "pip").mkdir(parents=True)
    (site / "pip-24.0.dist-info").mkdir()
    (site / "evil.pth").write_text(f"import os; open(f'{canary}/{{os.geteuid()}}', 'w')\n")
    (env / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion = {making.VERSION}.0\n")
    other.give(repo)


@pytest.mark.parametrize("name", ["git", "build", "pip", "venv", "command", "below", "guard", "python"])
def test_no_module_runs_a_user_s_program_as_root(name: str, home: Path, canary: Path, ground: Path) -> None:
    repo = home / "repo"
    trapped(repo, canary)
    heard = Agent(ground).follow([module(name, repo)])  # type: ignore[list-item]
    assert "0" not in ran(canary), heard.events
    assert heard.result()["status"] == "failed", heard.result()
    assert "defect" not in str(heard.result())


@pytest.mark.parametrize("name", ["command", "below", "guard", "python"])
def test_as_the_user_it_runs_as_the_user(name: str, home: Path, canary: Path, ground: Path) -> None:
    repo = home / "repo"
    trapped(repo, canary)
    from dataclasses import replace

    job = replace(module(name, repo), become_user=other.NAME)  # type: ignore[type-var]
    Agent(ground).follow([job])
    assert ran(canary) == {str(other.uid())}


def test_no_fact_runs_a_user_s_program_as_root(home: Path, canary: Path) -> None:
    repo = home / "repo"
    trapped(repo, canary)
    profile = codec.decode(Profile, {"paths": {"repo": str(repo), "venv": str(repo / f".venv-{making.VERSION}")}})
    machine = Machine()
    for fact in (venvs.venv, venvs.start):
        read(fact, machine, profile)
    interpreter.of_version(machine, making.VERSION)
    venvs.find(machine, str(repo), Container())
    Facts(machine, profile).collect((venvs.venv, venvs.start))
    assert ran(canary) == set()


@pytest.mark.parametrize("lies", ["user's", "others write", "group writes", "link", "relative"])
def test_a_directory_of_path(
    lies: str, home: Path, ground: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program of a user that comes first in root's PATH."""
    place = home / "bin" if lies == "user's" else ground / "bin"
    for name in ("git", "python3", "nvidia-smi", "id2"):
        trap(place / name, canary)
    if lies == "user's":
        other.give(place)
    elif lies == "others write":
        place.chmod(0o777)
    elif lies == "group writes":
        os.chown(place, 0, 4242)
        place.chmod(0o775)
    elif lies == "link":
        (home / "link").symlink_to(place)
        os.lchown(home / "link", other.uid(), other.uid())
        place = home / "link"
    else:
        monkeypatch.chdir(ground)
        place = Path("bin")
    monkeypatch.setenv("PATH", f"{place}:{os.environ['PATH']}")
    for machine in (Machine(), Machine(environment={"PATH": os.environ["PATH"]})):
        assert machine.run(["git", "--version"]).text.startswith("git version")
        assert machine.run(["id2"]).exit_code == 127
        assert machine.run(["sh", "-c", "id2; git --version"]).text.startswith("git version")
        interpreter.base_python(machine)
    assert Machine().run(["sh", "-c", "id2"], environment={"PATH": os.environ["PATH"]}).exit_code == 127
    assert ran(canary) == set()


@pytest.mark.parametrize(
    "variable",
    ["HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "PIP_CONFIG_FILE", "GIT_EXEC_PATH", "BASH_ENV", "LD_PRELOAD",
     "PYTHONUSERBASE", "GIT_SSH_COMMAND", "TMPDIR"],
)  # fmt: skip
def test_a_variable_that_leads_to_a_user_s_files(
    variable: str, home: Path, ground: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = trap(home / "git" / "program", canary)
    (home / ".gitconfig").write_text(f'[alias]\n\tgo = "!{program}"\n[core]\n\tpager = {program}\n')
    (home / "git" / "config").write_text((home / ".gitconfig").read_text())
    trap(home / "git" / "git-go", canary)
    (home / "pip").mkdir()
    (home / "pip" / "pip.conf").write_text("[global]\nindex-url = http://127.0.0.1:9/canary\n")
    other.give(home)
    value = {
        "GIT_CONFIG_GLOBAL": home / ".gitconfig",
        "PIP_CONFIG_FILE": home / "pip" / "pip.conf",
        "GIT_EXEC_PATH": home / "git",
        "BASH_ENV": program,
        "GIT_SSH_COMMAND": f"{program} -x",
    }.get(variable, home)
    monkeypatch.setenv(variable, str(value))
    machine = Machine()
    assert variable == "HOME" or variable not in machine.environment
    assert str(home) not in machine.run(["env"]).text
    machine.run(["git", "go"])
    machine.run(["bash", "-c", "true"])
    assert "canary" not in machine.run([sys.executable, "-m", "pip", "config", "list"]).text
    assert ran(canary) == set()


def test_where_the_caller_was_does_not_count(home: Path, canary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """sudo keeps the directory, and `python3 -c` imports from it."""
    for name in ("json", "sitecustomize", "shlex"):
        (home / f"{name}.py").write_text(f"open('{canary}/0', 'w')\n")
    other.give(home)
    monkeypatch.chdir(home)
    assert Machine().run([str(making.PYTHON), "-c", "import json, os; print(os.getcwd())"]).text == "/"
    assert ran(canary) == set()


@pytest.mark.parametrize(
    ("path", "is_exposed"),
    [
        ("/", False),
        ("/usr/bin/env", False),
        ("/tmp", True),
        ("/tmp/.", True),
        ("/tmp/../tmp/", True),
        ("/tmp/..", False),
        ("/tmp/nothing", True),
        ("/root/nothing", False),
    ],
)
def test_what_is_exposed(path: str, is_exposed: bool) -> None:
    assert (trust.exposed(path) is not None) == is_exposed


@pytest.mark.parametrize(
    ("gid", "is_exposed"),
    # A directory service counts on where 16 bits end; 65534 is whom a user namespace does not know.
    [
        (0, False),
        (50, False),
        (999, False),
        (1000, True),
        (65533, True),
        (65534, False),
        (65535, True),
        (1 << 30, True),
    ],
)
def test_what_a_group_may_write_to(ground: Path, gid: int, is_exposed: bool) -> None:
    path = ground / "group" / "file"
    path.parent.mkdir()
    path.write_text("")
    for at in (path.parent, path):
        assert trust.exposed(str(path)) is None
        os.chown(at, 0, gid)
        assert trust.exposed(str(path)) is None
        at.chmod(0o775)
        assert (trust.exposed(str(path)) is not None) == is_exposed
        at.chmod(0o755)


def test_links_that_lead_in_a_circle_end(ground: Path) -> None:
    (ground / "a").symlink_to("b")
    (ground / "b").symlink_to("a")
    assert "links" in (trust.exposed(str(ground / "a" / "x")) or "")


def test_the_settings_of_a_repository_of_root_s_that_another_user_may_write(home: Path, canary: Path) -> None:
    repo = home.parent / "of root"
    making.commit(repo, "first", a="1")
    _config(repo, "core.fsmonitor", str(trap(home.parent / "program", canary)))
    os.chown(repo / ".git" / "config", other.uid(), other.uid())
    done = git.read(Machine(), str(repo), "status")
    assert not done.ok and b"belongs to uid" in done.stderr
    assert ran(canary) == set()


def test_what_was_only_passed_through(ground: Path) -> None:
    (ground / "all" / "ours").mkdir(parents=True)
    (ground / "all").chmod(0o1777)
    assert trust.exposed(str(ground / "all" / "ours")) is None
    assert trust.exposed(str(ground / "all" / "ours" / "..")) is not None


def test_a_link_of_a_user_on_the_way(home: Path, ground: Path) -> None:
    (ground / "mine").mkdir()
    (home / "link").symlink_to(ground / "mine")
    os.lchown(home / "link", other.uid(), other.uid())
    (ground / "to").symlink_to(home / "link")
    for path in (home, home / "link", ground / "to", ground / "to" / "x", home / "none"):
        assert "belongs to uid" in (trust.exposed(str(path)) or ""), path
    assert trust.exposed(str(ground / "mine" / "none")) is None
    (ground / "mine").chmod(0o1777)
    assert trust.exposed(str(ground / "mine" / "none")) is not None
    (ground / "mine" / "ours").write_text("")
    assert trust.exposed(str(ground / "mine" / "ours")) is None
