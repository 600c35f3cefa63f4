"""Tell what a preflight has found: in the form that was asked for, to whom it was asked for."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Optional

from k3env.errors import UsageError

if TYPE_CHECKING:
    from k3env.node.preflight.arguments import Arguments
    from k3env.protocol.finding import Finding
    from k3env.protocol.outcome import Outcome

PROLOG_OF_TASK = "prolog_task"


def prepare(asked: Arguments) -> None:
    """Import what is needed when all is judged."""
    from k3env.protocol import event, outcome, plan  # noqa: F401

    if asked.output in ("json", "jsonl"):
        from k3env.reports import document  # noqa: F401
    elif asked.output == "text":
        from k3env.reports import verdict  # noqa: F401
    else:
        from k3env.reports import monitoring  # noqa: F401


def rendered(outcome: Outcome, asked: Arguments, context: str, code: int) -> str:
    """Return the outcome in the form that was asked for, without its last line end."""
    strict = asked.fail_on == "warn"
    if asked.output in ("json", "jsonl"):
        from k3env.reports import document

        return document.dumps(document.document(outcome, sys.argv, exit_code=code))
    if asked.output == "text":
        from k3env.reports import verdict

        return str(verdict.report(outcome, context, verbose=asked.verbose))
    from k3env.reports import monitoring

    if asked.output == "junit":
        return monitoring.junit(outcome, fail_on_warn=strict).rstrip("\n")
    if asked.output == "nagios":
        return monitoring.nagios(outcome, fail_on_warn=strict).rstrip("\n")
    return monitoring.prometheus(outcome, code, time.time()).rstrip("\n")


def tell(text: str, path: Optional[str], script: str = "") -> None:
    """Print a text, or write it to a file at once: readers see the old or the new one.

    Of TaskProlog's output Slurm shows a task's user the lines that begin with `print`.

    Raises UsageError if the file can't be written.
    """
    if path is not None:
        write(path, text + "\n")
        return
    if script == PROLOG_OF_TASK:
        text = "\n".join(f"print {line}" for line in text.splitlines())
    print(text, flush=True)


def write(path: str, text: str) -> None:
    """Replace a file at once.

    Raises UsageError if that can't be done.
    """
    from k3env.node.machine import Machine

    try:
        Machine().write(os.path.abspath(path), text.encode("utf-8", "replace"))
    except OSError as error:
        raise UsageError(
            f"{path} can't be written: {error.strerror}",
            expected="a file in a directory that this user may write",
            found=path,
            remedy="give another one: --output-file PATH",
        ) from None


def to_syslog(findings: tuple[Finding, ...]) -> None:
    """Keep what an exit code of 0 does not tell."""
    import syslog

    from k3env.protocol.finding import FAIL
    from k3env.reports.monitoring import one_line

    syslog.openlog("k3env-preflight", syslog.LOG_PID, syslog.LOG_DAEMON)
    for item in findings:
        syslog.syslog(syslog.LOG_ERR if item.status == FAIL else syslog.LOG_WARNING, one_line(item))
