"""k3env-preflight.pyz: check this node by the plans inside, and say it in one of several forms. No journal is kept."""

from __future__ import annotations

import os
import signal
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Optional

from k3env.errors import EXIT_FAILED, EXIT_OK, EXIT_USAGE, K3Error, UsageError
from k3env.node.preflight import arguments, bundle
from k3env.node.preflight.arguments import Arguments
from k3env.node.preflight.bundle import Bundle
from k3env.node.privilege import reader as readers
from k3env.protocol.context import CONTEXTS, DEFAULT, stops
from k3env.protocol.finding import FAIL, UNKNOWN, WARN, Result

if TYPE_CHECKING:
    from types import FrameType

    from k3env.protocol.outcome import Outcome
    from k3env.protocol.plan import Plan

MARGIN_S = 0.5
"""What is kept of the context's time for judging and telling."""
TASK_SCRIPTS = ("prolog_task", "epilog_task")
CONTROLLER_SCRIPTS = ("prolog_slurmctld", "epilog_slurmctld")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""Slurm gives its scripts none."""


def main(words: list[str], context: str, started: float) -> int:
    """Do what the command line says; `started` is on time.monotonic(). Returns the exit code."""
    asked = Arguments()
    begun = time.time()
    signal.signal(signal.SIGTERM, _interrupted)
    os.environ.setdefault("PATH", PATH)
    try:
        reducing = words[:1] == ["reduce"]
        asked = arguments.parse(words[1:] if reducing else words)
        if reducing:
            return _reduce(_bundle(), asked, Surroundings.here(DEFAULT, begun, started))
        return _run(_bundle(), asked, Surroundings.here(context, begun, started))
    except K3Error as error:
        return _refused(error, asked, context, begun)


@dataclass(frozen=True)
class Surroundings:
    """Where this program runs."""

    context: str
    begun: float
    """Seconds since 1970."""
    started: float
    """On time.monotonic()."""
    script: str = ""
    """Slurm's word for the script that this is, or that has started it."""
    node: str = ""

    @classmethod
    def here(cls, context: str, begun: float, started: float) -> Surroundings:
        """Look at ourselves."""
        node = os.environ.get("SLURMD_NODENAME") or os.uname().nodename.partition(".")[0]
        return cls(context, begun, started, os.environ.get("SLURM_SCRIPT_CONTEXT", ""), node)

    @property
    def fail_open(self) -> bool:
        """Whether only a failed check of the node may have an effect."""
        return CONTEXTS[self.context].fail_open

    @property
    def ends(self) -> float:
        """When facts must be read, on time.monotonic()."""
        return self.started + CONTEXTS[self.context].seconds - MARGIN_S


def _bundle() -> Bundle:
    found = bundle.inside(readers.name())
    if found is None or found.version != bundle.VERSION:
        raise UsageError(
            "there is no plan in this file",
            expected="a file that invoke bundle made",
            found=sys.argv[0],
            remedy="make one: invoke bundle --playbook preflight --output-file k3env-preflight.pyz",
        )
    return found


def _run(found: Bundle, asked: Arguments, where: Surroundings) -> int:
    if asked.help:
        return _print(arguments.HELP)
    if asked.version:
        return _print(f"k3env {found.k3env}, {found.playbook}")
    if asked.list or asked.explain is not None:
        from k3env.node.preflight import explained

        return _print(explained.listed(found) if asked.list else explained.check(found, str(asked.explain)))
    if where.script in CONTROLLER_SCRIPTS and asked.context is None:
        raise UsageError(
            f"{where.script} runs beside slurmctld, which is no node",
            expected="Prolog, Epilog, TaskProlog or HealthCheckProgram",
            found=where.script,
            remedy="set Prolog= in slurm.conf, not PrologSlurmctld=",
        )
    from k3env.node.preflight import telling

    lines: list[str] = []
    say = lines.append if asked.output_file is not None or where.fail_open else _print_now
    telling_of = partial(telling.prepare, asked)
    outcome = _check(found, where, say if asked.output == "jsonl" else None, telling_of, asked.probe_dir)
    if not any(True for _ in outcome.findings()):
        raise UsageError(
            f"nothing was checked: no check of this file belongs to the context {where.context}",
            expected="at least one check",
            found="none",
            remedy="see --list",
        )
    code = exit_code(outcome, asked, where)
    untold = tuple(item for item in outcome.findings() if item.status in (FAIL, UNKNOWN))
    if where.fail_open and untold:
        telling.to_syslog(untold)
    if asked.drain:
        _drain(outcome, where)
    try:
        text = "\n".join((*lines, telling.rendered(outcome, asked, where.context, code)))
        telling.tell(text, asked.output_file, where.script if asked.output == "text" else "")
        sys.stdout.flush()
    except (OSError, K3Error) as error:
        # A full disk, or a reader that has left, takes nothing back of what was found.
        if not where.fail_open:
            raise
        _untold(error)
    return code


def _reduce(found: Bundle, asked: Arguments, where: Surroundings) -> int:
    """Read the lines of all nodes of a job, and tell of them together."""
    from k3env.node import reduce
    from k3env.node.preflight import telling
    from k3env.protocol import codec
    from k3env.protocol.plan import Plan
    from k3env.reports.document import timestamp

    plans: list[Plan] = [codec.decode(Plan, plan) for plan in found.plans]
    tasks = tuple(task for plan in plans for task in plan.tasks)
    heard = reduce.hear(sys.stdin.buffer)
    hosts = reduce.expected(os.environ)
    outcome = reduce.reduce(replace(plans[0], tasks=tasks), heard, hosts, timestamp(where.begun))
    outcome = replace(outcome, duration_s=time.monotonic() - where.started)
    code = exit_code(outcome, asked, where)
    telling.tell(telling.rendered(outcome, asked, where.context, code), asked.output_file)
    return code


def exit_code(outcome: Outcome, asked: Arguments, where: Surroundings) -> int:
    """Return the exit code: Nagios' own, that of the context, or that of every run."""
    strict = asked.fail_on == WARN
    if asked.output == "nagios" and where.context != "prolog":
        from k3env.reports.monitoring import nagios_code

        return nagios_code(outcome, fail_on_warn=strict)
    if where.fail_open:
        held = [replace(item, status=FAIL) if strict and item.status == WARN else item for item in outcome.findings()]
        held = [replace(item, severity=FAIL) if strict and item.severity == WARN else item for item in held]
        return EXIT_FAILED if any(map(stops, held)) else EXIT_OK
    code = outcome.exit_code()
    if strict and code in (EXIT_OK, 3) and any(item.status == WARN for item in outcome.findings()):
        return EXIT_FAILED
    # Slurm ends a task for every other exit code than 0: what is not known is no reason to.
    return EXIT_OK if where.script in TASK_SCRIPTS and code != EXIT_FAILED else code


def _check(
    found: Bundle,
    where: Surroundings,
    say: Optional[Callable[[str], None]],
    meanwhile: Callable[[], object],
    probe_dir: Optional[str],
) -> Outcome:
    """Run the plans, as the JSON that they are; each event is said as a line where somebody reads them."""
    from k3env.node.preflight.judging import Judging
    from k3env.protocol import codec
    from k3env.protocol.line import BEGIN, END, FACTS, RESULT, TASK

    events: list[tuple[str, float, Optional[str], dict[str, Any]]] = []

    def add(kind: str, task: Optional[str], data: dict[str, Any]) -> None:
        events.append((kind, time.time(), task, data))
        if say is not None:
            from k3env.protocol.event import Event
            from k3env.reports.document import event_line

            say(event_line("", where.node, Event(kind, len(events), time.time(), task, data)))

    tasks = [task for plan in found.plans for task in plan["tasks"]]
    failed = False
    add(BEGIN, None, {"tasks": len(tasks)})
    for plan in found.plans:
        judging = Judging(found, plan.get("profile", {}), where.context, where.ends, say is not None, probe_dir)
        for task in plan["tasks"]:
            add(TASK, task["id"], {"module": task["module"], "name": task["name"]})
            if task.get("skip") is not None:
                add(RESULT, task["id"], {"status": "skipped", "message": task["skip"]})
                continue
            begun = time.monotonic()
            judged = judging.judge(tuple(task["parameters"]["checks"]), meanwhile)
            for name, value in judged.facts.items():
                add(FACTS, task["id"], {"facts": {name: value}})  # one a line: a line is at most 64 KiB
            bad = any(item.status == FAIL for item in judged.findings)
            failed = failed or (bad and not task.get("ignore_errors"))
            took = round(time.monotonic() - begun, 3)
            result = Result("failed" if bad else "ok", "", (), judged.findings, took)
            add(RESULT, task["id"], codec.encode(result))
    add(END, None, {"status": "failed" if failed else "ok"})
    return _folded(found, where, events)


def _folded(
    found: Bundle, where: Surroundings, events: list[tuple[str, float, Optional[str], dict[str, Any]]]
) -> Outcome:
    from k3env.protocol import codec
    from k3env.protocol.event import Event
    from k3env.protocol.outcome import Fold
    from k3env.protocol.plan import Task
    from k3env.reports.document import timestamp

    tasks = [codec.decode(Task, task) for plan in found.plans for task in plan["tasks"]]
    folding = Fold("", timestamp(where.begun), {where.node: tasks})
    for number, (kind, at, task, data) in enumerate(events, 1):
        folding.add(where.node, Event(kind, number, at, task, data))
    return folding.outcome(time.monotonic() - where.started)


def _untold(error: Exception) -> None:
    from k3env.node.__main__ import tell
    from k3env.reports import text

    tell(True, f"what was found could not be told: {error}")
    if isinstance(error, K3Error):
        print(text.finding(error.finding), file=sys.stderr)


def _drain(outcome: Outcome, where: Surroundings) -> None:
    stopping = tuple(item for item in outcome.findings() if stops(item))
    if not stopping:
        return
    from k3env.node.machine import Machine
    from k3env.node.preflight import drain

    sys.stdout.flush()
    drain.detach(Machine(), where.node, drain.reason(stopping))


def _refused(error: K3Error, asked: Arguments, context: str, begun: float) -> int:
    """Tell of an error of usage; where we fail open, it stops nothing."""
    from k3env.reports import document, text

    open_ = CONTEXTS[context].fail_open
    code = EXIT_OK if open_ else EXIT_USAGE
    if asked.output == "nagios" and context != "prolog":
        code = 3
        print(f"PREFLIGHT UNKNOWN - {error}")
    if asked.output in ("json", "jsonl"):
        print(document.error_document(sys.argv, error.finding, code, begun, time.time() - begun))
    print(text.finding(error.finding), file=sys.stderr)
    if open_:
        import syslog

        syslog.openlog("k3env-preflight", syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_ERR, f"{error}; nothing was checked")
    return code


def _print_now(line: str) -> None:
    print(line, flush=True)


def _print(text: str) -> int:
    print(text)
    return EXIT_OK


def _interrupted(number: int, frame: Optional[FrameType]) -> NoReturn:
    raise KeyboardInterrupt
