"""The kernel's log: what the NVIDIA driver wrote there about GPUs and switches that err."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional, Union

from k3env.k3 import xid
from k3env.node.facts import privileged
from k3env.node.machine import Machine
from k3env.protocol.finding import Evidence, Unreadable, excerpt, printable
from k3env.protocol.profile import Profile

if TYPE_CHECKING:
    from k3env.node.process import Completed

PATTERN = "NVRM: Xid|SXid"
ANSWER_S = 3.0
_LINE = re.compile(r"\b(S?Xid) \(([^)]*)\): (\d{1,5})(.*)")
_SECONDS = re.compile(r"\[\s*(\d+)\.\d+\]")
_REFUSED = re.compile(
    r"insufficient permissions|not seeing messages|no journal files|not permitted|denied", re.IGNORECASE
)
_LAST_BYTES = 160


@dataclass(frozen=True)
class Line:
    """What one GPU or switch wrote of one kind, as often as it did."""

    kind: str
    """Xid of a GPU, SXid of an NVSwitch."""
    bus_id: str
    code: int
    text: str
    """What stood behind the code, the last time."""
    count: int = 1


@dataclass(frozen=True)
class KernelLog:
    """The Xids since boot, and no older than `hours`."""

    lines: tuple[Line, ...]
    hours: float
    source: tuple[Evidence, ...] = ()


@privileged
def kernel_log(machine: Machine, profile: Profile) -> Union[KernelLog, Unreadable]:
    """Read the Xids of this boot, from the journal, and where that can't be read from the kernel's ring.

    An empty answer counts only from a reader who may see the kernel's messages: a user without that right gets one too.
    """
    hours = profile.gpu.xid_hours
    journal = _journal(machine, hours)
    if not isinstance(journal, Unreadable):
        return journal
    ring = _ring(machine, hours)
    if not isinstance(ring, Unreadable):
        return ring
    return Unreadable(f"{journal.reason}; {ring.reason}", journal.evidence or ring.evidence)


def _journal(machine: Machine, hours: float) -> Union[KernelLog, Unreadable]:
    """Ask journalctl. It ends with 1 where nothing matches, and says so on standard output."""
    minutes = max(1, round(hours * 60))
    argv = ("journalctl", "-k", "-b", f"--since=-{minutes}min", f"--grep={PATTERN}", "-o", "short-iso", "--no-pager")
    done = machine.run(argv, timeout_s=ANSWER_S)
    told = done.stderr.decode("utf-8", "replace").strip()
    if done.timed_out or done.exit_code not in (0, 1) or _REFUSED.search(told):
        return _unreadable(done, told)
    lines = _lines(done.text.splitlines())
    # "-- No entries --" stands alone, or behind "-- Logs begin at …"; nothing at all is no answer.
    is_empty = bool(done.text.strip()) and all(line.startswith("--") for line in done.text.splitlines())
    if not lines and (told or not is_empty):
        return _unreadable(done, told or done.text.strip())
    return KernelLog(lines, hours, (Evidence(done.evidence().source, done.exit_code, excerpt(done.stdout)),))


def _ring(machine: Machine, hours: float) -> Union[KernelLog, Unreadable]:
    """Ask dmesg: "[12345.678901] NVRM: Xid …", seconds since boot. Its oldest lines are overwritten."""
    done = machine.run(("dmesg",), timeout_s=ANSWER_S)
    told = done.stderr.decode("utf-8", "replace").strip()
    if not done.ok or _REFUSED.search(told):
        return _unreadable(done, told)
    if not done.text.strip():
        return _unreadable(done, "it is empty")
    oldest = _uptime_s(machine) - hours * 3600
    recent = [line for line in done.text.splitlines() if _LINE.search(line) and _is_since(line, oldest)]
    source = Evidence("dmesg", done.exit_code, excerpt("\n".join(recent).encode()))
    return KernelLog(_lines(recent), hours, (source,))


def _unreadable(done: Completed, told: str) -> Unreadable:
    why = "no answer" if done.timed_out else told.partition("\n")[0] or f"it ended with {done.exit_code}"
    return Unreadable(f"{done.argv[0]}: {printable(why)}", done.evidence())


def _lines(lines: list[str]) -> tuple[Line, ...]:
    found: dict[tuple[str, str, int, bool], Line] = {}
    for line in lines:
        match = _LINE.search(line)
        if match is None:
            continue
        kind, address, code, text = (
            match.group(1),
            match.group(2).replace("PCI:", ""),
            int(match.group(3)),
            match.group(4),
        )
        # What is fatal and what is not stand apart: a later line must not hide the graver one.
        key = (kind, address, code, xid.is_fatal(text))
        count = found[key].count + 1 if key in found else 1
        found[key] = Line(kind, printable(address), code, printable(text.strip(" ,"))[:_LAST_BYTES], count)
    return tuple(found.values())


def _uptime_s(machine: Machine) -> float:
    try:
        return float(machine.text("/proc/uptime").split()[0])
    except (OSError, ValueError, IndexError):
        return 0.0  # all of this boot, then


def _is_since(line: str, oldest_s: float) -> bool:
    found: Optional[re.Match[str]] = _SECONDS.match(line)
    return found is None or int(found.group(1)) >= oldest_s
