"""The worker: goes through a plan's tasks and writes the run's journal.

It imports what does the work only when there is some, and until then takes the plan as the JSON that it is:
dataclasses and typing alone cost a node 13 ms.
"""

from __future__ import annotations

import json
import os
import time

from k3env.node import about
from k3env.node.cancel import Cancel
from k3env.protocol.line import BEGIN, END, FINISH, PLAN_VERSION, RESULT, TASK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Callable, Optional

    from k3env.node.journal import Journal
    from k3env.node.performer import Performer

    Emit = Callable[[str, Optional[str], dict[str, Any]], None]


def work(
    plan: dict[str, Any],
    emit: Emit,
    perform: Callable[[dict[str, Any]], dict[str, Any]],
    findings: Sequence[dict[str, Any]] = (),
) -> None:
    """Run all tasks; a failed one that is not ignored ends the run. `findings` are about the run as a whole."""
    emit(BEGIN, None, {"tasks": len(plan["tasks"]), **({"findings": list(findings)} if findings else {})})
    status = "ok"
    for task in plan["tasks"]:
        emit(TASK, task["id"], {"module": task["module"], "name": task["name"]})
        if task.get("skip") is not None:
            emit(RESULT, task["id"], {"status": "skipped", "message": task["skip"]})
            continue
        begun = time.monotonic()
        result = perform(task)
        emit(RESULT, task["id"], {**result, "duration_s": round(time.monotonic() - begun, 3)})
        if result["status"] == "cancelled" or (result["status"] == "failed" and not task.get("ignore_errors")):
            status = result["status"]
            break
    emit(END, None, {"status": status})


def main(start: dict[str, Any], plan: bytes, secrets: bytes, run_dir: str, notify: int) -> int:
    """Run a plan and journal it; called by the boot code in a process of its own session."""
    from k3env.node.journal import Journal

    journal = Journal(run_dir, notify)
    cancel = Cancel()
    cancel.install()
    wanted = json.loads(plan)
    # contextlib alone takes longer to import than all that an empty plan needs.
    try:  # noqa: SIM105
        about.write(run_dir, start, wanted)
    except OSError:
        pass  # a full disk: then nobody else finds this run, and the journal says why
    if wanted.get("version", PLAN_VERSION) != PLAN_VERSION:
        return _refuse(journal, "run.plan", "the plan is of another version", "use one k3env on controller and node")
    if _changes(wanted):
        from k3env.node.followers import claim_changes

        busy = claim_changes(start)
        if busy is not None:
            return _refuse(journal, "run.busy", *busy)
    findings: list[dict[str, Any]] = []
    if wanted.get("when_unfollowed", FINISH) == FINISH and _changes(wanted):
        from k3env.node.lasting import look

        findings = look(start, os.path.dirname(os.path.dirname(run_dir)))
        refusing = [finding for finding in findings if finding["status"] == "fail"]
        if refusing:
            journal.append(END, None, {"status": "failed", "findings": refusing})
            return 1
    values: dict[str, str] = json.loads(secrets)
    emit = _masked(journal, values)
    performer: list[Performer] = []

    def perform(task: dict[str, Any]) -> dict[str, Any]:
        from k3env.node.performer import Performer

        if not performer:
            performer.append(Performer.begin(start, wanted, values, run_dir, emit, cancel))
        return performer[0].perform(task)

    work(wanted, emit, perform, findings)
    if performer:
        from k3env.node.prune import prune

        prune(os.path.dirname(os.path.dirname(run_dir)), os.path.basename(run_dir), start["payload"])
    return 0


def _changes(plan: dict[str, Any]) -> bool:
    tasks = [task for task in plan["tasks"] if task.get("skip") is None]
    return plan.get("mode", "apply") == "apply" and any(task["module"] != "verify" for task in tasks)


def _refuse(journal: Journal, id: str, message: str, remedy: str) -> int:
    finding = {"id": id, "status": "fail", "message": message, "remedy": remedy}
    journal.append(END, None, {"status": "failed", "findings": [finding]})
    return 1


def _masked(journal: Journal, secrets: dict[str, str]) -> Emit:
    if not secrets:
        return journal.append
    from k3env.protocol.secret import masked

    hidden = tuple(secrets.values())
    return lambda kind, task, data: journal.append(kind, task, masked(data, hidden))
