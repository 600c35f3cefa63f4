"""What a person types: Invoke tasks that parse, call one wing, and turn the outcome into an exit code."""

from __future__ import annotations

import sys

from invoke.collection import Collection


def namespace() -> Collection:
    """Return all tasks of k3env."""
    keep_bytecode()
    from k3env.cli import (
        bundle,
        describe,
        explain,
        facts,
        fetch,
        inventory,
        leases,
        preflight,
        provision,
        runs,
        sandbox,
        schema,
    )

    tasks = Collection(
        *provision.TASKS,
        *preflight.TASKS,
        *runs.TASKS,
        *leases.TASKS,
        *inventory.TASKS,
        *describe.TASKS,
        *explain.TASKS,
        *schema.TASKS,
        *bundle.TASKS,
        *facts.TASKS,
        *fetch.TASKS,
    )
    tasks.add_collection(Collection("sandbox", *sandbox.TASKS))
    return tasks


def keep_bytecode() -> None:
    """Let Python keep what it compiled, which Invoke turns off: compiling anew is most of what a start takes."""
    sys.dont_write_bytecode = bool(sys.flags.dont_write_bytecode)
