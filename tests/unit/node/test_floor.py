"""What travels runs on Python 3.9, the oldest that a node may have (RHEL 9)."""

from __future__ import annotations

import ast
import io
import os
import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from k3env import payload
from k3env.protocol.profile import Paths, Profile
from tests.agent import Agent, task

OLDEST = (3, 9)


def interpreters(version: str) -> list[str]:
    """Return the interpreters of a version on this machine: in PATH, or kept by pyenv."""
    kept = sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")).glob(f"versions/{version}.*/bin/python3"))
    found = shutil.which(f"python{version}", path=os.defpath + ":/usr/local/bin")
    return [*([found] if found else []), *map(str, kept)][:1]


def test_everything_that_travels_is_syntax_of_the_oldest_python() -> None:
    with zipfile.ZipFile(io.BytesIO(payload.build().data)) as archive:
        names = archive.namelist()
        for name in names:
            ast.parse(archive.read(name), name, feature_version=OLDEST)
    assert "k3env/node/worker.py" in names and "packaging/version.py" in names
    assert not [name for name in names if name.split("/")[1] in ("cli", "runner", "inventory", "sandbox")]


@pytest.mark.skipif(not interpreters("3.9"), reason="no Python 3.9 on this machine")
def test_every_module_of_it_imports_there(tmp_path: Path) -> None:
    with zipfile.ZipFile(io.BytesIO(payload.build().data)) as archive:
        archive.extractall(tmp_path)
    script = (
        "import sys, pkgutil, importlib, typing; sys.path.insert(0, sys.argv[1]); import k3env, dataclasses\n"
        "for found in pkgutil.walk_packages(k3env.__path__, 'k3env.'):\n"
        "    if found.name.endswith(('.boot', '.__main__')): continue\n"
        "    for item in list(vars(importlib.import_module(found.name)).values()):\n"
        "        if not (dataclasses.is_dataclass(item) and isinstance(item, type)): continue\n"
        "        if 'protocol' in item.__module__ or hasattr(item, 'apply'): typing.get_type_hints(item)\n"
        "    print(found.name)\n"
    )
    argv = [*interpreters("3.9"), "-I", "-S", "-W", "error", "-c", script, str(tmp_path)]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "k3env.node.modules.trtllm_build" in done.stdout


@pytest.mark.skipif(not interpreters("3.9"), reason="no Python 3.9 on this machine")
def test_a_plan_runs_there(tmp_path: Path) -> None:
    agent = Agent(tmp_path, *interpreters("3.9"))
    tasks = [
        task("cache_dirs", base=str(tmp_path / "cache"), min_free_gib=0),
        task("command", "1.2", argv=["touch", str(tmp_path / "made")], creates=str(tmp_path / "made")),
        task("verify", "1.3", checks=["cache.*"]),
    ]
    heard = agent.follow(tasks, profile=Profile(paths=Paths(cache_base=str(tmp_path / "cache"))))
    assert heard.session.hello is not None and heard.session.hello.python.startswith("3.9.")
    assert heard.results() == {"1.1": "changed", "1.2": "changed", "1.3": "ok"}, heard.events


@pytest.mark.skipif(not interpreters("3.6"), reason="no Python 3.6 on this machine")
def test_an_older_python_is_told_what_to_do(tmp_path: Path) -> None:
    from k3env.errors import Refused

    with pytest.raises(Refused, match=r"3\.9 or later is needed; set ansible_python_interpreter"):
        Agent(tmp_path, *interpreters("3.6")).follow()
