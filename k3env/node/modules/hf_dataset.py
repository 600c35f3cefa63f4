"""hf_dataset: a data set of Hugging Face's hub at one commit, as files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Optional

from k3env.node.modules import Module

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.node.modules._snapshot import Staging
    from k3env.protocol.finding import Change


@dataclass(frozen=True)
class HfDataset(Module):
    """Fetch a data set's files into a directory, at a commit, as `hf_snapshot` does a model's.

    `trtllm-eval … gsm8k --dataset_path TARGET` reads openai/gsm8k from there.
    """

    SECRETS: ClassVar[tuple[str, ...]] = ("token", "environment")

    repo_id: str
    """OWNER/NAME, such as openai/gsm8k."""
    revision: str
    """The commit, all 40 hexadecimal digits."""
    target: str
    """Absolute path of the directory that is to hold the files."""
    include: tuple[str, ...] = ()
    """Patterns of paths to fetch; none: all."""
    endpoint: Optional[str] = None
    """The hub, or a mirror of it; unset: the node's HF_ENDPOINT, else https://huggingface.co."""
    token: Optional[str] = None
    """`{secret: env:HF_TOKEN}`; unset: the node's HF_TOKEN, else none. It goes to the endpoint alone, in a header."""

    def __post_init__(self) -> None:
        from k3env.node.modules import _snapshot
        from k3env.node.web.hub import DATASET

        _snapshot.check(self.repo_id, self.revision, self.target, self.endpoint, DATASET)

    def writes(self) -> tuple[str, ...]:
        """Return the target."""
        return (self.target,)

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return what is missing; no server is asked.

        Raises Refused for patterns that leave nothing.
        """
        return self._staging().changes(machine)

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Fetch it.

        Raises Refused where access or room is lacking, TaskFailed later.
        """
        self._staging().apply(machine)

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return what of which repository is there, as it was when its content was compared."""
        return self._staging().reasons(machine)

    def _staging(self) -> Staging:
        from k3env.node.modules._snapshot import Staging
        from k3env.node.web.hub import DATASET

        return Staging(
            DATASET, self.repo_id, self.revision, self.target, self.include, (), self.endpoint, self.token, 4, 60.0
        )
