"""k3env-preflight.pyz with checks that do what no check should, in a place from which root runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path

from k3env import compiling, payload
from k3env.node.preflight.bundle import FILE, Bundle, Entry
from k3env.protocol import codec
from k3env.protocol.plan import Plan, Task

PYTHON = "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else sys.executable
PLANTED, OTHER = "k3env/node/checks/planted.py", "k3env/node/checks/other.py"
CHECKS = """
import os, sys, time
from dataclasses import dataclass
from k3env.node.checks import check, fail, passed, skip, unknown
from k3env.node.facts import deadline, privileged
from k3env.protocol.finding import Finding, WARN

@dataclass(frozen=True)
class Who:
    uid: int
    home: str

def who(machine) -> Who:
    return Who(os.geteuid(), machine.environment.get("HOME", ""))

_who = who

@privileged
def root(machine) -> Who:
    return Who(os.geteuid(), "")

@deadline(30.0)
def hangs(machine) -> Who:
    machine.run(["sleep", "98"], timeout_s=97)
    time.sleep(97)

def rule(id, judge, *facts, scope="node", severity="fail"):
    globals()[id] = check(f"planted.{id}", *facts, scope=scope, severity=severity)(judge)

broken = dict(expected="whole", found="broken", remedy="mend it")
rule("fine", lambda profile: passed("fine"))
rule("bad", lambda profile: fail(**broken))
rule("bad_rank", lambda profile: fail(**broken), scope="rank")
rule("bad_warn", lambda profile: fail(**broken), severity="warn")
rule("rank", lambda profile: passed("here"), scope="rank")
rule("dark", lambda profile: unknown("can't tell"))
rule("context", lambda profile: passed(f"{profile.context} {profile.at_rank}"))
rule("base", lambda profile: passed(profile.paths.cache_base))
rule("who", lambda who, profile: passed(f"{who.uid} {who.home}"), who)
rule("root", lambda who, profile: passed(str(who.uid)), root)
rule("hang", lambda who, profile: passed("woke up"), hangs)
rule("raises", lambda profile: {}["x"])
rule("exits", lambda profile: sys.exit(2))
rule("vanishes", lambda profile: os._exit(2))
rule("loops", lambda profile: exec("while True: pass"))
rule("kills", lambda profile: os.kill(os.getpid(), 11))
rule("floods", lambda profile: fail(expected="x", found="\\x1b[31m<&\\"|{}\\u202e\\ud800" + "y" * 5000, remedy="no"))
"""
_ENTRIES = {"bad_rank": ("rank", "fail"), "rank": ("rank", "fail"), "bad_warn": ("node", "warn")}


@lru_cache(maxsize=1)
def _base() -> bytes:
    return payload.pyz(b"{}", PYTHON, [PYTHON])


@lru_cache(maxsize=32)
def _compiled(file: str, code: str) -> dict[str, bytes]:
    return {file: code.encode(), **compiling.compiled(PYTHON, {file: code.encode()})}


def _replace(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.NameToInfo.pop(name, None)
    archive.filelist = [item for item in archive.filelist if item.filename != name]
    archive.writestr(name, content)


@contextmanager
def place() -> Iterator[Path]:
    """Make a directory in which nobody else writes, on the whole way to it."""
    with tempfile.TemporaryDirectory(dir="/opt" if os.geteuid() == 0 else None, prefix="k3env-test-") as name:
        os.chmod(name, 0o755)  # noqa: S103
        yield Path(name)


def plant(
    directory: Path,
    *ids: str,
    name: str = "k3env-preflight.pyz",
    code: str = CHECKS,
    other: str | None = None,
    replaced: dict[str, str] | None = None,
    profile: dict[str, object] | None = None,
) -> Path:
    """Write a bundle of the planted checks with these names."""
    wanted = [f"planted.{id}" for id in ids] + ([f"other.{other}"] if other else [])
    entries = {id: Entry(*_ENTRIES.get(id.partition(".")[2], ("node", "fail")), "Planted.") for id in wanted}
    files = {PLANTED: code, OTHER: code.replace("planted.", "other."), **(replaced or {})}
    plan = Plan((Task("1.1", "The node", "verify", {"checks": wanted}),), profile or {})
    bundle = Bundle("0", "planted.yml", (codec.encode(plan),), entries)
    path = directory / name
    whole = _base()
    path.write_bytes(f"#!{PYTHON} -IS\n".encode() + whole[whole.index(b"\n") + 1 :])
    with zipfile.ZipFile(path, "a") as archive:
        for item, content in (pair for file, text in files.items() for pair in _compiled(file, text).items()):
            _replace(archive, item, content)
        _replace(archive, FILE, codec.dumps(bundle).encode())
    path.chmod(0o755)
    return path


def run(
    path: Path, *words: str, python: str | None = None, user: str | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run a bundle as a Slurm daemon would: without a PATH."""
    argv: Sequence[str] = [*([python, "-IS"] if python else []), str(path), *words]
    return subprocess.run(argv, capture_output=True, text=True, env=environment, user=user, cwd="/", timeout=120)
