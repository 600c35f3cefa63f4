"""facts: read what checks would read, and tell it; change nothing, judge nothing."""

from __future__ import annotations

import base64
import tempfile
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from k3env.errors import TaskFailed
from k3env.node.modules import Module
from k3env.node.modules.verify import Verify

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.protocol.finding import Finding
    from k3env.protocol.profile import Profile

PART_BYTES = 40_000
RECORDING_BYTES = 8 << 20
"""More than this, compressed, is not sent."""
RECORDING = "recording"


@dataclass(frozen=True)
class Facts(Module):
    """Read the facts that checks judge, for people and for tests."""

    checks: tuple[str, ...] = ("*",)
    """Whose facts: ids of checks, or globs."""
    record: bool = False
    """Send all that was read, as a recording, with names, addresses, UUIDs and serial numbers replaced."""

    def __post_init__(self) -> None:
        Verify(self.checks)

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Read the facts side by side, and tell them.

        Raises TaskFailed for a recording that is too large to be sent.
        """
        from k3env.node import checks
        from k3env.node.across import telling
        from k3env.node.facts import Facts as Collected

        rules = checks.select(self.checks)
        facts = tuple(fact for rule in rules for fact in rule.facts)
        if not self.record:
            machine.tell(telling(rules, Collected(machine, profile).collect(facts)))
            return ()
        from k3env.node.recordings.recorder import Recorder

        with tempfile.TemporaryDirectory(prefix="k3env-recording-") as directory:
            recorder = Recorder(directory, machine)
            machine.tell(telling(rules, Collected(recorder, profile).collect(facts)))
            run, _, rest = machine.name.rpartition("-")[0].partition(".")
            files = recorder.finish(run, profile, (rest.partition("-")[2],))
        _send(machine, files)
        return ()


def _send(machine: Machine, files: dict[str, bytes]) -> None:
    from k3env.node.recordings.recorded import packed

    data = base64.b85encode(zlib.compress(packed(files))).decode()
    if len(data) > RECORDING_BYTES:
        raise TaskFailed(
            "the recording is too large to be sent",
            expected=f"at most {RECORDING_BYTES >> 20} MiB",
            found=f"{len(data) >> 20} MiB",
            remedy="record fewer checks: --checks 'gpu.*'",
        )
    for at in range(0, len(data), PART_BYTES):
        machine.tell({f"{RECORDING}.{at // PART_BYTES:04d}": data[at : at + PART_BYTES]})
