"""The hosts of an earlier run that have to be looked at again."""

from __future__ import annotations

from collections.abc import Sequence

from k3env.errors import UsageError
from k3env.protocol.folding import fold
from k3env.protocol.line import FAILED, NOTRUN, UNREACHABLE
from k3env.runner.record import Record, records

LAST = "last"
_LOST = (FAILED, UNREACHABLE)


def failed_in(run: str) -> Sequence[str]:
    """Return the failed and unreachable hosts of a run, named whole, by its beginning, or as `last`.

    Raises UsageError for a run that is not known, whose record is damaged, whose end was not seen on all of its hosts,
    or that has no such host.
    """
    record = last() if run == LAST else Record.find(run, "see which were begun from here: invoke runs")
    statuses = {name: host.status for name, host in record.outcome().hosts.items()}
    unknown = sorted(record.unfinished() - {name for name, status in statuses.items() if status in _LOST})
    if unknown:
        raise UsageError(
            f"how run {record.directory.name} ended on {fold(unknown)} is not known here",
            expected="a run that was followed to its end",
            found="a run that was left to itself, or that goes on",
            remedy=f"invoke attach {record.directory.name} tells its end; then this again",
        )
    found = [name for name, status in statuses.items() if status in _LOST]
    if not found:
        left_out = sum(status == NOTRUN for status in statuses.values())
        raise UsageError(
            f"no host of run {record.directory.name} failed or was unreachable"
            + (f"; {left_out} of {len(statuses)} were not run" if left_out else ""),
            expected="a host that failed or was unreachable",
            found=", ".join(sorted(set(statuses.values()))),
            remedy="see: invoke runs",
        )
    return found


def last() -> Record:
    """Return the newest run.

    Raises UsageError when there is none.
    """
    known = records()
    if not known:
        raise UsageError(
            "no run was begun from here yet",
            expected="a run that is known here",
            found="none",
            remedy="name the hosts; see: invoke runs",
        )
    # A name begins with the second in which its run began; two of one second are told apart by their files.
    return max(known, key=lambda record: (record.directory.name[:15], _written(record)))


def _written(record: Record) -> int:
    try:
        return (record.directory / "run.json").stat().st_mtime_ns
    except OSError:  # it has just been removed
        return 0
