"""hf_snapshot: a model of Hugging Face's hub at one commit, in a directory, whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Optional

from k3env.node.modules import Module

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.node.modules._snapshot import Staging
    from k3env.protocol.finding import Change, Finding
    from k3env.protocol.profile import Profile


@dataclass(frozen=True)
class HfSnapshot(Module):
    """Fetch a model's files into a directory, at a commit, each compared with the digest that the hub has of it.

    A file appears in its place whole or not at all; what was begun is gone on with. Files that are there already are
    compared and kept. `<target>/.k3env/snapshot.json` says what was proven, with each file's size and time: while
    they are so, nothing is asked and nothing read again. On a shared path one node fetches, and the others wait.
    """

    SECRETS: ClassVar[tuple[str, ...]] = ("token", "environment")

    repo_id: str
    """OWNER/NAME, such as moonshotai/Kimi-K3."""
    revision: str
    """The commit, all 40 hexadecimal digits."""
    target: str
    """Absolute path of the directory that is to hold the files themselves, without links into a cache."""
    include: tuple[str, ...] = ()
    """Patterns of paths to fetch; none: all."""
    exclude: tuple[str, ...] = ()
    """Patterns of paths to leave out."""
    endpoint: Optional[str] = None
    """The hub, or a mirror of it; unset: the node's HF_ENDPOINT, else https://huggingface.co."""
    token: Optional[str] = None
    """`{secret: env:HF_TOKEN}`; unset: the node's HF_TOKEN, else none. It goes to the endpoint alone, in a header."""
    jobs: int = 8
    """Files at once."""
    stall_s: float = 60.0
    """How long a server may send nothing, seconds."""

    def __post_init__(self) -> None:
        from k3env.node.modules import _snapshot

        _snapshot.check(self.repo_id, self.revision, self.target, self.endpoint)
        if not 1 <= self.jobs <= 64:
            raise ValueError(f"jobs must be from 1 to 64, found {self.jobs}")
        if self.stall_s <= 0:
            raise ValueError(f"stall_s must be above 0, found {self.stall_s:g}")

    def writes(self) -> tuple[str, ...]:
        """Return the target."""
        return (self.target,)

    def disturbs(self) -> tuple[str, ...]:
        """Return the target."""
        return (self.target,)

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return what is missing; no server is asked.

        Raises Refused for patterns that leave nothing.
        """
        return self._staging().changes(machine)

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Fetch it.

        Raises Refused where access, room or a shard is lacking, before weights come; TaskFailed later.
        """
        self._staging().apply(machine)

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return what of which repository is there, as it was when its content was compared."""
        return self._staging().reasons(machine)

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Warn of shards in the target that are not the repository's."""
        return self._staging().judge(machine)

    def _staging(self) -> Staging:
        from k3env.node.modules._snapshot import Staging
        from k3env.node.web.hub import MODEL

        return Staging(
            MODEL, self.repo_id, self.revision, self.target, self.include, self.exclude, self.endpoint, self.token,
            self.jobs, self.stall_s,
        )  # fmt: skip
