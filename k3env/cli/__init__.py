"""What a person types: Invoke tasks that parse, call one wing, and turn the outcome into an exit code."""

from __future__ import annotations

from invoke.collection import Collection


def namespace() -> Collection:
    """Return all tasks of k3env."""
    from k3env.cli import provision, runs, sandbox

    tasks = Collection(*provision.TASKS, *runs.TASKS)
    tasks.add_collection(Collection("sandbox", *sandbox.TASKS))
    return tasks
