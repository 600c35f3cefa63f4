"""Real ground to work on: git repositories, virtual environments, wheels, and a machine that notes what it starts."""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from k3env.node.machine import Machine
from k3env.node.modules import Module
from k3env.protocol.finding import Change
from k3env.protocol.profile import Profile

PYTHON = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
VERSION = "{}.{}".format(*sys.version_info)
BY = {
    **{f"GIT_{who}_NAME": "a person" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "person@example.invalid" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_DATE": "2026-08-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")},
}


class Watched(Machine):
    """A machine that notes the commands that it starts, and the progress that it tells."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.started: list[tuple[str, ...]] = []
        self.told: list[tuple[str, float | None]] = []
        super().__init__(
            environment=environment, name="run-host-task", on_progress=lambda text, part: self.told.append((text, part))
        )

    def run(self, argv: Sequence[str], **more: Any) -> Any:
        self.started.append(tuple(argv))
        return super().run(argv, **more)

    def stream(self, argv: Sequence[str], **more: Any) -> Any:
        self.started.append(tuple(argv))
        return super().stream(argv, **more)


def machine(home: Path, *paths: Path, **environment: str) -> Watched:
    """Return a machine whose python3 is the base interpreter, and whose user has nothing configured."""
    programs = home / "bin"
    programs.mkdir(parents=True, exist_ok=True)
    if not (programs / "python3").exists():
        (programs / "python3").symlink_to(PYTHON)
    path = os.pathsep.join(map(str, (*paths, programs, "/usr/bin", "/bin")))
    return Watched({"PATH": path, "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", **BY, **environment})


def perform(module: Module, on: Machine) -> tuple[Change, ...]:
    """Do as the worker does: look, apply, look again; return the changes, which must all have been made."""
    changes = module.changes(on)
    assert changes, "there was nothing to do"
    module.apply(on, changes)
    left = module.changes(on)
    assert left == (), left
    return changes


def judged(module: Module, on: Machine) -> dict[str, str]:
    """Return the findings about the state that is there now: id to status."""
    return {finding.id: finding.status for finding in module.judge(on, Profile())}


def git(at: Path, *arguments: str) -> str:
    """Run git as a person would, and return what it says."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    environment = {**kept, **BY, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}
    command = ["git", "-c", "protocol.file.allow=always", "-C", str(at), *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def commit(at: Path, message: str, **files: str) -> str:
    """Write files, commit them, and return the commit; a repository is made where there is none."""
    if not (at / ".git").exists():
        at.mkdir(parents=True, exist_ok=True)
        git(at, "init", "--quiet", "--initial-branch=main")
    for name, text in files.items():
        (at / name).parent.mkdir(parents=True, exist_ok=True)
        (at / name).write_text(text)
    git(at, "add", "--all")
    git(at, "commit", "--quiet", "--allow-empty", "--message", message)
    return git(at, "rev-parse", "HEAD")


def environment(base: Path, path: Path) -> Path:
    """Make a virtual environment that can build packages: a copy of one that is made once for all tests."""
    template = base / "environment-template"
    if not template.exists():
        fresh = base / "environment-fresh"
        run(PYTHON, "-m", "venv", fresh)
        run(fresh / "bin" / "python", "-m", "pip", "install", "--quiet", "setuptools>=77,<80", "wheel")
        fresh.rename(template)
    return copied(template, path)


def copied(tree: Path, path: Path) -> Path:
    """Copy a tree by links to its files: a test replaces a file, and never edits one in place."""
    shutil.copytree(tree, path, symlinks=True, copy_function=os.link)
    return path


def wheel(directory: Path, name: str, version: str, *requires: str, **files: str) -> Path:
    """Write a wheel of one module, or of these files. Source: PEP 427."""
    stem = f"{name.replace('-', '_')}-{version}"
    info = f"{stem}.dist-info"
    needs = "".join(f"Requires-Dist: {text}\n" for text in requires)
    contents = {
        **(files or {f"{name.replace('-', '_')}/__init__.py": f"__version__ = {version!r}\n"}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},sha256={_digest(text)},{len(text)}\n" for path, text in contents.items())
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{stem}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for file, text in {**contents, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
            archive.writestr(file, text)
    return path


def run(*argv: str | Path, **more: Any) -> str:
    """Run a command that must succeed, and return what it says."""
    done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, check=False, **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip()


def _digest(text: str) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
