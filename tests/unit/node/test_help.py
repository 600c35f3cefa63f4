"""A build script's own word on its flags: coloured, chatty, hung, broken, or with a child left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from k3env.node.facts import toolchain
from k3env.node.facts.checkout import flags
from k3env.node.facts.toolchain import Toolchain
from k3env.node.machine import Machine
from k3env.node.modules import _steps
from k3env.node.process import Completed
from k3env.protocol.container import Container

PARSER = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--yes', '-y')\n"


def asked(root: Path, source: str, **environment: str) -> tuple[int, str]:
    (root / "scripts").mkdir()
    (root / "scripts" / "build_wheel.py").write_text(source)
    found = toolchain.toolchain(Machine(environment={**os.environ, **environment}), Container(), str(root))
    assert isinstance(found, Toolchain) and found.help is not None
    return found.help


def test_no_colour_is_asked_for(tmp_path: Path) -> None:
    told = "import os\nprint(os.environ['NO_COLOR'], os.environ['PYTHON_COLORS'], os.environ['COLUMNS'])\n"
    assert asked(tmp_path, told, FORCE_COLOR="1")[1].split() == ["1", "0", "200"]


def test_what_it_says_beside_its_flags_is_no_matter(tmp_path: Path) -> None:
    code, text = asked(tmp_path, f"print('x' * 200_000)\n{PARSER}p.parse_args()\n")
    assert code == 0 and flags(text) == {"-h", "--help", "--yes", "-y"}


def test_a_child_that_it_leaves_behind_is_not_waited_for(tmp_path: Path) -> None:
    left = "import subprocess\nprint(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
    code, text = asked(tmp_path, f"{left}{PARSER}p.parse_args()\n")
    assert code == 0 and "--yes" in text
    with pytest.raises(ProcessLookupError):
        _gone(int(text.split()[0]))


def _gone(pid: int) -> None:
    """Raise ProcessLookupError if a process has ended, also where nobody has asked for its end yet."""
    os.kill(pid, 0)
    status = Path(f"/proc/{pid}/stat").read_text()
    if status.rpartition(")")[2].split()[0] in "ZX":
        raise ProcessLookupError(pid)
    os.kill(pid, signal.SIGKILL)


def test_one_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain, "HELP_S", 1)
    code, text = asked(tmp_path, f"import time\nprint('thinking', flush=True)\ntime.sleep(600)\n{PARSER}")
    assert code == 124 and text.splitlines() == ["thinking", "", "no end after 1 s"]


BROKEN = [
    ("import no_such_module\n", "ModuleNotFoundError: No module named 'no_such_module'"),
    ("def (\n", "SyntaxError: invalid syntax"),
    ("print 'of Python 2'\n", "SyntaxError: Missing parentheses in call to 'print'. Did you mean print(...)?"),
    ("import sys\nsys.exit('this checkout needs Python 4')\n", "this checkout needs Python 4"),
    ("input('Really?')\n", "EOFError: EOF when reading a line"),
]


@pytest.mark.parametrize(("source", "why"), BROKEN)
def test_one_that_fails_is_told_by_its_last_words(tmp_path: Path, source: str, why: str) -> None:
    code, text = asked(tmp_path, source)
    done = Completed(("python3", "x", "--help"), code, text.encode())
    error = _steps.failed(Machine(), _steps.Step("ask", done.argv, "build"), done)
    assert error.finding.found == f"exit code 1: {why}"
