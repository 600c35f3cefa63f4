"""KeptRun: what a node says of a run that it keeps, to whoever asks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

RUNNING, ENDED, LOST = "running", "ended", "lost"
STATES = (RUNNING, ENDED, LOST)


@dataclass(frozen=True)
class KeptTask:
    """A task of its plan."""

    id: str
    name: str
    module: str
    ignore_errors: bool = False
    skip: Optional[str] = None
    parameters: dict[str, Any] = field(default_factory=dict)
    """Only those of `verify`: checks across nodes are judged by whoever follows."""


@dataclass(frozen=True)
class KeptRun:
    """A run on this node, in one of its plays."""

    run: str
    """Run and play, as in Start: "20261130-081500-1f2e3d.1"."""
    host: str
    """The node's name where the run was begun."""
    state: str
    """running: its worker is there; ended: it said so; lost: its worker is gone without an end."""
    owner: str = ""
    """Who began it: "user@controller"."""
    what: str = ""
    """"trtllm: TensorRT LLM for Kimi K3"."""
    since: float = 0.0
    """Seconds since 1970, on the node's clock."""
    mode: str = ""
    status: str = ""
    """How it ended: ok, failed or cancelled."""
    done: int = 0
    """Tasks that are behind it."""
    count: int = 0
    """Tasks of its plan."""
    task: str = ""
    """The name of the task that was begun last."""
    text: str = ""
    """How far that is."""
    fraction: Optional[float] = None
    profile: dict[str, Any] = field(default_factory=dict)
    """Its plan's; this and the tasks only where this one run was asked for."""
    tasks: tuple[KeptTask, ...] = ()
    """Of many, each line has some."""

    @property
    def name(self) -> str:
        """The run, without its play."""
        return self.run.rpartition(".")[0]

    @property
    def play(self) -> int:
        """Which of the run's plays, from 1."""
        return int(self.run.rpartition(".")[2])
