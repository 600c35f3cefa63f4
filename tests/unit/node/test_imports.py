"""venv.import in a real virtual environment; its packages are stand-ins, since torch and GPUs can't be here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from k3env.node.facts import imports as facts
from k3env.node.facts.imports import MODULES, Imports
from k3env.node.machine import Machine
from k3env.node.modules.verify import Verify
from k3env.protocol.finding import Finding, Unreadable
from k3env.protocol.profile import Paths, Profile

NO_GPU = "class cuda:\n    is_available = staticmethod(lambda: False)\n"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an environment in which each module is an empty file."""
    path = tmp_path_factory.mktemp("env") / ".venv-{}.{}".format(*sys.version_info[:2])
    subprocess.run([sys.executable, "-m", "venv", str(path)], check=True)
    for name in MODULES:
        (site(path) / f"{name}.py").write_text("")
    return path


def site(path: Path) -> Path:
    return path / "lib" / "python{}.{}".format(*sys.version_info[:2]) / "site-packages"


@pytest.fixture
def venv(made: Path) -> Path:
    for name in MODULES:
        (site(made) / f"{name}.py").write_text(NO_GPU if name == "torch" else "")
    return made


def judged(venv: Path) -> Finding:
    (finding,) = Verify(("venv.import",)).judge(Machine(), Profile(paths=Paths(venv=str(venv))))
    return finding


def test_what_loads_passes_and_says_that_no_kernel_was_run(venv: Path) -> None:
    finding = judged(venv)
    assert finding.status == "pass" and "import tensorrt_llm" in (finding.found or "")
    assert finding.message == "no GPU is seen here, so that no kernel was run"


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("fla", "raise ImportError('no module named einops')", "import fla: ImportError: no module named einops"),
        ("flashinfer", "raise RuntimeError('flashinfer-cubin 0.6.13 != 0.6.16')", "flashinfer-cubin 0.6.13"),
        ("tensorrt_llm", "import os; os._exit(3)", "Python ended after import flashinfer"),
        (
            "tensorrt_llm",
            "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
            "Python ended after import flashinfer",
        ),
        ("triton", "raise SystemExit(0)", "import triton: SystemExit"),
    ],
)
def test_what_does_not_load_is_named(venv: Path, name: str, text: str, told: str) -> None:
    (site(venv) / f"{name}.py").write_text(text)
    finding = judged(venv)
    assert finding.status == "fail" and told in (finding.found or ""), finding


def test_a_kernel_that_fails_is_a_failure(venv: Path) -> None:
    (site(venv) / "torch.py").write_text(NO_GPU.replace("False", "True"))
    finding = judged(venv)
    assert finding.status == "fail"
    assert all(f"kernel {name}: " in (finding.found or "") for name in ("triton", "flashinfer", "fla"))


def test_an_import_that_hangs_costs_its_deadline(venv: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "ASK_S", 1.0)
    (site(venv) / "flashinfer.py").write_text("import time; time.sleep(600)")
    found = facts.imports(Machine(), Profile(paths=Paths(venv=str(venv))))
    assert isinstance(found, Imports) and not found.ended and found.done[-1] == "import fla"


def test_an_interpreter_that_says_nothing_is_unknown(venv: Path) -> None:
    (site(venv) / "sitecustomize.py").write_text("import os; os._exit(1)")
    try:
        found = facts.imports(Machine(), Profile(paths=Paths(venv=str(venv))))
        assert isinstance(found, Unreadable) and "exit code 1" in found.reason
    finally:
        (site(venv) / "sitecustomize.py").unlink()


def test_a_glob_never_means_it(venv: Path) -> None:
    profile = Profile(paths=Paths(venv=str(venv)))
    for patterns in (("*",), ("venv.*",)):
        assert "venv.import" not in {rule.id for rule in Verify(patterns).rules(profile)}
    assert [rule.id for rule in Verify(("venv.*", "venv.import")).rules(profile)].count("venv.import") == 1


def test_without_an_environment_it_is_skipped(tmp_path: Path) -> None:
    assert judged(tmp_path / "none").status == "skip"
