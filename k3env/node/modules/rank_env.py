"""rank_env: the environment that every rank sources inside its container."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Optional

from k3env.errors import Refused, TaskFailed
from k3env.node.modules import Module
from k3env.protocol.container import Container
from k3env.protocol.finding import Change

if TYPE_CHECKING:
    from k3env.node.machine import Machine

NAME = "rank_env.sh"


@dataclass(frozen=True)
class RankEnv(Module):
    """Write `<repo>/.k3env/rank_env.sh`, which gives each rank caches of its own on the node.

    The file depends on these parameters alone. Which TensorRT LLM, FlashInfer, Triton and image the caches belong to
    is found when a rank sources it: Triton and half of the packages live in the image, which no node can look into
    before the job's container has started, and a FlashInfer that was replaced since gets fresh caches at once.
    """

    repo: str
    """Absolute path of the TensorRT LLM checkout, the same on every node and in the container."""
    base: str
    """The node-local cache base that `cache_dirs` made, mounted into the container at the same path. A `~/` at its
    beginning is the home of the rank's user."""
    venv: Optional[str] = None
    """The checkout's virtual environment; unset: `.venv-X.Y` in the checkout, by the container's Python."""
    container: Container = Container()
    """The image of the ranks; its name is part of what the caches belong to."""
    open_files: int = 65536
    """Files that a rank must be able to open."""

    def __post_init__(self) -> None:
        for name in ("repo", "base", "venv"):
            value = getattr(self, name)
            if name == "base" and value.startswith("~/"):
                value = value[1:]
            # PATH and container mounts separate paths by a colon, and have no way to write one.
            if value is not None and (not os.path.isabs(value) or ":" in value or not value.isprintable()):
                raise ValueError(f"{name} must be an absolute path without `:` and control characters, found {value!r}")
        if self.open_files < 1:
            raise ValueError(f"open_files must be at least 1, found {self.open_files}")

    @property
    def path(self) -> str:
        """Where the file is."""
        return os.path.join(self.repo, ".k3env", NAME)

    def writes(self) -> tuple[str, ...]:
        """Return the checkout: whatever changes something in it takes its lease."""
        return (self.repo,)

    def text(self) -> str:
        """Return what the file must hold."""
        import shlex

        from k3env.node.modules._rank_env_sh import SCRIPT

        values = {
            "REPO": shlex.quote(self.repo.rstrip("/")),
            "BASE": _in_shell(self.base.rstrip("/")),
            "VENV": shlex.quote((self.venv or "").rstrip("/")),
            "IMAGE": shlex.quote(self.container.image),
            "OPEN_FILES": str(self.open_files),
        }
        head, rest = SCRIPT.split("@VALUES@\n")
        return head + "".join(f"k3env_{name.lower()}={value}\n" for name, value in values.items()) + rest

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return the file if it is missing or differs, with the first line that does.

        Raises Refused if `.k3env` is a link.
        """
        directory = os.path.dirname(self.path)
        if os.path.islink(directory):
            raise Refused(
                f"{directory} is a symbolic link to {os.readlink(directory)}",
                expected="a directory in the checkout",
                found="a symbolic link",
                remedy=f"remove it: rm {directory}",
            )
        wanted = self.text()
        try:
            there = machine.text(self.path)
        except (FileNotFoundError, NotADirectoryError):
            return (Change(self.path, "absent", _short(wanted)),)
        return () if there == wanted else (_difference(self.path, there, wanted),)

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return which file is as it must be."""
        return (f"{self.path} is as it would be written, {_short(self.text())}",)

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Replace the file at once: a rank that sources it meanwhile reads the old one or the new one.

        Raises TaskFailed if there is no checkout, or if it can't be written to.
        """
        if not machine.is_dir(self.repo):
            raise TaskFailed(
                f"there is no checkout at {self.repo}",
                expected="a TensorRT LLM checkout",
                found="no such directory",
                remedy="run invoke build, or set trtllm_repo",
            )
        try:
            machine.make(os.path.dirname(self.path))
            machine.write(self.path, self.text().encode())
        except OSError as error:
            raise TaskFailed(
                f"{self.path} can't be written: {error.strerror}",
                expected=f"a checkout that uid {os.geteuid()} may write to",
                found=error.strerror or str(error),
                remedy="set k3_user to the owner of the checkout",
            ) from None


def _in_shell(path: str) -> str:
    """Quote a path for the shell; the home directory is the one of who sources the file."""
    import shlex

    return f'"$HOME"/{shlex.quote(path[2:])}' if path.startswith("~/") else shlex.quote(path)


def _difference(path: str, there: str, wanted: str) -> Change:
    lines = enumerate(zip_longest(there.splitlines(), wanted.splitlines()), 1)
    number, (old, new) = next(((at, pair) for at, pair in lines if pair[0] != pair[1]), (0, (None, None)))
    return Change(path, _line(there, number, old), _line(wanted, number, new))


def _line(text: str, number: int, line: Optional[str]) -> str:
    return f"{_short(text)}, line {number}: {'(none)' if line is None else line}"


def _short(text: str) -> str:
    import hashlib

    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
