"""Commands that only check refuse playbooks that do more."""

from __future__ import annotations

from collections.abc import Iterable

from k3env.errors import UsageError
from k3env.playbook.compile import READ_ONLY
from k3env.protocol.plan import Task


def refuse_more(tasks: Iterable[Task]) -> None:
    """Refuse a task that may change something.

    Raises UsageError, at its place.
    """
    for task in tasks:
        if task.skip is None and task.module != READ_ONLY:
            raise UsageError(
                f"{task.position}: {task.module} may change something, this command only checks",
                expected=f"tasks with {READ_ONLY}:",
                found=task.module,
                remedy="leave that task out by --tags or --skip-tags, or take the playbook preflight",
            )
