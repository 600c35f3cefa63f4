"""A node that is played: files in an overlay, and commands that answer from a table, in this process."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Union

from k3env.node.machine import READ_BYTES, Machine
from k3env.node.process import Completed
from k3env.sandbox import overlay
from k3env.sandbox.spec import parse
from k3env.sandbox.standins import nvidia_smi


@dataclass(frozen=True)
class Said:
    """What a command said."""

    stdout: Union[str, bytes] = ""
    exit_code: Union[int, None] = 0
    stderr: str = ""
    timed_out: bool = False


HANGS = Said(exit_code=None, timed_out=True)
KILLED = Said(exit_code=-9)
MISSING = Said(exit_code=127, stderr="not found")
DENIED = Said(exit_code=126, stderr="Permission denied")

Answer = Union[Said, Callable[[tuple[str, ...]], Said]]


@dataclass
class Played:
    """A node's answers by program; `by_words` answers a whole command line before its program does."""

    directory: Path
    programs: dict[str, Answer] = field(default_factory=dict)
    by_words: dict[str, Answer] = field(default_factory=dict)

    @property
    def machine(self) -> PlayedMachine:
        return PlayedMachine(self)

    def file(self, path: str, text: str) -> None:
        place = self.directory / path.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text, encoding="utf-8")


class PlayedMachine(Machine):
    """The machine of a played node. It waits in no time, and keeps what was run."""

    def __init__(self, node: Played) -> None:
        super().__init__(overlay=str(node.directory), environment={"PATH": "/nowhere"})
        self.environment = {"PATH": "/nowhere"}
        self._node = node
        self.asked: list[str] = []
        self.waited_s = 0.0

    def exists(self, path: str) -> bool:
        return (self._node.directory / path.lstrip("/")).exists()

    def read(self, path: str, limit: int = READ_BYTES) -> bytes:
        """Read a file of the node; this machine's own container is none of its."""
        known = {"/proc/self/uid_map": b"0 0 4294967295\n", "/proc/self/cgroup": b"0::/\n"}
        return known[path] if path in known else super().read(path, limit)

    def which(self, program: str) -> str | None:
        return f"/usr/bin/{program}" if program in self._node.programs else None

    def wait(self, seconds: float) -> None:
        self.waited_s += seconds

    def run(self, argv: Sequence[str], **options: Any) -> Completed:
        words = tuple(argv)
        self.asked.append(" ".join(words))
        answer = self._node.by_words.get(" ".join(words), self._node.programs.get(words[0], MISSING))
        said = answer if isinstance(answer, Said) else answer(words)
        data = said.stdout if isinstance(said.stdout, bytes) else said.stdout.encode()
        return Completed(words, said.exit_code, data, said.stderr.encode(), said.timed_out)


def tray(directory: Path, gpu: str = "GB300", **wanted: Any) -> Played:
    """Return a tray of the sandbox, or another machine with such GPUs, with its tools played in this process."""
    board = overlay.GPUS[gpu]
    overlay.write(directory, overlay.compose("tray", parse("tray", {"gpu": gpu, "gpus": len(board.buses), **wanted})))
    files = directory / "tools"

    def smi(words: tuple[str, ...]) -> Said:
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = nvidia_smi.main([str(directory), *words[1:]])
        return Said(out.getvalue(), code)

    def imex(words: tuple[str, ...]) -> Said:
        name = {"-q": "state", "-N -j": "domain.json"}[" ".join(words[1:])]
        return Said((files / "imex" / name).read_text())

    def systemctl(words: tuple[str, ...]) -> Said:
        unit = files / "units" / words[2].removesuffix(".service")
        return Said(unit.read_text()) if unit.exists() else Said("inactive\n", 3)

    def journalctl(words: tuple[str, ...]) -> Said:
        lines = [line for line in (files / "kernel.log").read_text().splitlines() if "Xid" in line]
        return Said("".join(f"{line}\n" for line in lines)) if lines else Said("-- No entries --\n", 1)

    programs: dict[str, Answer] = {"nvidia-smi": smi, "systemctl": systemctl, "journalctl": journalctl}
    if board.board.is_coherent:
        programs["nvidia-imex-ctl"] = imex
    return Played(directory, programs)
