"""Plan: what is to be done on a node. Start: by whom, for which run, from where on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from k3env.protocol.line import FINISH as FINISH
from k3env.protocol.line import PLAN_VERSION

APPLY, CHECK = "apply", "check"
STOP = "stop"


@dataclass(frozen=True)
class Task:
    """One module with its final parameters."""

    id: str
    """Unique within its run: "PLAY.TASK", both counted from 1; for an item of a loop "PLAY.TASK.ITEM"."""
    name: str
    module: str
    parameters: dict[str, Any] = field(default_factory=dict)
    become_user: Optional[str] = None
    """Run as this user; None: the plan's user."""
    environment: dict[str, Any] = field(default_factory=dict)
    """Name to text, or to the placeholder of a secret."""
    timeout_s: Optional[float] = None
    """Wall clock for the whole task; None: the module's own deadlines."""
    retries: int = 0
    """More tries after a failure."""
    delay_s: float = 5.0
    """Pause before each of them."""
    ignore_errors: bool = False
    skip: Optional[str] = None
    """Why tags or `when` leave the task out."""
    position: str = ""
    """"playbooks/trtllm.yml:12:5"."""


@dataclass(frozen=True)
class Plan:
    """Tasks in order, with the profile that checks compare with.

    It knows no run, host, time or secret: hosts with equal values share one plan.
    """

    tasks: tuple[Task, ...]
    profile: dict[str, Any] = field(default_factory=dict)
    """The JSON form of a Profile; a node decodes it when a task needs it."""
    mode: str = APPLY
    when_unfollowed: str = FINISH
    """What becomes of the worker when nobody follows it any more."""
    user: Optional[str] = None
    """k3_user: whose files these are; None: the connecting user."""
    force_in_use: bool = False
    """Change a checkout also while somebody serves from it."""
    explain: bool = False
    """Say of each task that had nothing to do what was looked at and found right."""
    version: int = PLAN_VERSION


@dataclass(frozen=True)
class Start:
    """What goes before the plan; the node's boot code reads it as JSON."""

    run: str
    """Run and play: "20261130-081500-1f2e3d.1". Also the marker of the lines that come back."""
    host: str
    """The controller's name for the node."""
    owner: str = ""
    """Who started the run, for people: "user@controller"."""
    peers: int = 1
    """How many hosts this play has."""
    number: int = 0
    """This one's place among them, from 0: what one node does for all, the first does."""
    after: int = 0
    """The sequence number of the last event that the controller has."""
    action: str = "run"
    """run: start the worker, or follow the one that is there; follow: only follow; cancel: end it; list: say which runs
    the node keeps."""
    payload: str = ""
    """SHA-256 of the zip that travels."""
    state_dir: Optional[str] = None
    """None: /var/tmp/k3env-<uid>."""
    overlay: Optional[str] = None
    """A directory that the machine's files are looked up in first; only simulated nodes have one."""
    jobs: str = ""
    """Slurm jobs that may run on the node while it is changed, with commas between; "*": any."""
    what: str = ""
    """What is done, for people: "trtllm: TensorRT LLM for Kimi K3". For `list`: the run that is meant; "": all."""
    detached: bool = False
    """Nobody will follow: a run that can't outlive its connection is refused."""
