"""requirements.txt, read as pip reads it: options, comments, markers, repositories."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.node import requirements
from k3env.node.machine import Machine
from tests.unit.node.ground import PYTHON, run

TEXT = """--extra-index-url https://example.org/whl/cu130
-c constraints.txt
-r more.txt
# torch==1.0
torch>=2.9.0a0,<=2.9.0; platform_machine == "x86_64"
torch>=2.11.0,<=2.13.0a0 ; platform_machine == "aarch64"  # as the image has it
nvidia-modelopt[torch]~=0.37.0
nvidia_cutlass.dsl[cu13]==4.7.0; python_version >= "3.10"
nvidia-cutlass-dsl==4.3.4; python_version < "3.10"
transformers==5.5.4 \\
    --hash=sha256:00 \\
    --hash=sha256:11
etcd3 @ git+https://example.org/etcd3.git@e58a899579ba416449c4e225b61f039457c8072a
git+https://example.org/flashinfer.git@e3853dd#egg=flashinfer-python
deep_gemm @ https://example.org/deep_gemm-1.whl#sha256=00
numexpr<2.14.0 # text with ; and -r
triton
"""


class Arm(Machine):
    def architecture(self) -> str:
        return "aarch64"


class Intel(Machine):
    def architecture(self) -> str:
        return "x86_64"


LINES = [
    (Arm, "torch", "3.12", 'torch>=2.11.0,<=2.13.0a0 ; platform_machine == "aarch64"'),
    (Intel, "torch", "3.12", 'torch>=2.9.0a0,<=2.9.0; platform_machine == "x86_64"'),
    (Arm, "nvidia-cutlass-dsl", "3.12", 'nvidia_cutlass.dsl[cu13]==4.7.0; python_version >= "3.10"'),
    (Arm, "nvidia-cutlass-dsl", "3.9", 'nvidia-cutlass-dsl==4.3.4; python_version < "3.10"'),
    (Arm, "transformers", "3.12", "transformers==5.5.4"),
    (Arm, "flashinfer-python", None, "git+https://example.org/flashinfer.git@e3853dd#egg=flashinfer-python"),
    (Arm, "deep-gemm", None, "deep_gemm @ https://example.org/deep_gemm-1.whl#sha256=00"),
    (Arm, "numexpr", None, "numexpr<2.14.0"),
    (Arm, "triton", None, "triton"),
    (Arm, "git", None, None),
    (Arm, "more-txt", None, None),
    (Arm, "einops", None, None),
]


@pytest.mark.parametrize(("kind", "name", "python", "line"), LINES)
def test_the_line_that_holds_here(kind: type[Machine], name: str, python: str | None, line: str | None) -> None:
    assert requirements.line_of(kind(), TEXT, name, python) == line


def test_what_is_no_requirement_is_told_where_it_is_judged() -> None:
    assert requirements.line_of(Machine(), "torch; nonsense ==\n", "torch") == "torch; nonsense =="


def test_pip_reads_the_same_names(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text(TEXT)
    (tmp_path / "more.txt").write_text("")
    (tmp_path / "constraints.txt").write_text("")
    program = (
        "import sys; from pip._internal.req.req_file import parse_requirements\n"
        "from pip._internal.network.session import PipSession\n"
        "for r in parse_requirements(sys.argv[1], session=PipSession()):\n"
        "    if not r.constraint: print(r.requirement)\n"
    )
    done = run(PYTHON, "-c", program, tmp_path / "requirements.txt")
    assert tuple(line.strip() for line in done.splitlines()) == requirements.lines(TEXT)
