"""Selection: which tasks of a playbook --tags, --skip-tags and --start-at-task leave in, as Ansible does."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase

from k3env.errors import UsageError, nearest
from k3env.playbook.plays import Play
from k3env.playbook.tasks import Task

ALWAYS, NEVER = "always", "never"
_SPECIAL = ("all", "tagged", "untagged", ALWAYS, NEVER)
Left = dict[tuple[int, int], str]
"""Why tasks are left out, by the numbers of play and task, from 0."""


def left_out(
    plays: Sequence[Play],
    tags: Collection[str] = (),
    skip_tags: Collection[str] = (),
    start_at_task: str | None = None,
) -> Left:
    """Return the tasks that don't run, and why.

    Raises UsageError for an unknown tag or task, with the nearest, and when no task is left.
    """
    tasks = [((at, number), task) for at, play in enumerate(plays) for number, task in enumerate(play.tasks)]
    _check_tags([task for _, task in tasks], tags, "--tags")
    _check_tags([task for _, task in tasks], skip_tags, "--skip-tags")
    started = start_at_task is None
    reasons: Left = {}
    for key, task in tasks:
        started = started or _is_named(task, start_at_task)
        if not started:
            reasons[key] = "start-at-task"
        elif not runs(task.tags, tags, skip_tags):
            reasons[key] = _by_tags(task.tags, tags, skip_tags)
    if not started:
        raise _unknown("--start-at-task", str(start_at_task), [task.title for _, task in tasks])
    if len(reasons) == len(tasks):
        raise UsageError(
            "no task is left to run",
            expected="at least one task",
            found=f"{len(tasks)} tasks, all of them left out",
            remedy="look at --tags, --skip-tags and --start-at-task",
        )
    return reasons


def runs(tags: Collection[str], only: Collection[str], skip: Collection[str]) -> bool:
    """Return whether a task with these tags runs. Source: Ansible's Taggable.evaluate_tags, 2.19."""
    own = set(tags) or {"untagged"}
    wanted = set(only) or {"all"}
    tagged = own != {"untagged"}
    run = (
        ALWAYS in own
        or bool(own & wanted)
        or (NEVER not in own and ("all" in wanted or ("tagged" in wanted and tagged)))
    )
    if "all" in skip:
        return run and ALWAYS in own and ALWAYS not in skip
    return run and not own & set(skip) and not ("tagged" in skip and tagged)


def _by_tags(own: Collection[str], only: Collection[str], skip: Collection[str]) -> str:
    """Return what left a task out, as it was typed."""
    kept_out = bool(skip) and runs(own, only, ())
    typed = f"--skip-tags {','.join(skip)}" if kept_out else f"--tags {','.join(only)}" if only else "tag never"
    return f"tags: {', '.join(own) or 'none'}; {typed}"


def _is_named(task: Task, name: str | None) -> bool:
    return name is not None and (task.title == name or fnmatchcase(task.title, name))


def _check_tags(tasks: Sequence[Task], tags: Collection[str], option: str) -> None:
    known = sorted({tag for task in tasks for tag in task.tags})
    for tag in tags:
        if tag not in known and tag not in _SPECIAL:
            raise _unknown(option, tag, known)


def _unknown(option: str, name: str, known: Sequence[str]) -> UsageError:
    meant = nearest(name, list(known))
    return UsageError(
        f"{option} {name}: the playbook has none of this name",
        expected="one of " + ", ".join(dict.fromkeys(known)),
        found=name,
        remedy=f"did you mean {meant}?" if meant else None,
    )
