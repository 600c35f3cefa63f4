"""invoke bundle: a playbook's checks as one file that runs on a node by itself."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k3env.cli.command import command
from k3env.cli.options import PLAYING, Option, parse
from k3env.cli.readonly import refuse_more
from k3env.errors import UsageError

if TYPE_CHECKING:
    from k3env.node.preflight.bundle import Bundle

DEFAULT_OUTPUT = "k3env-preflight.pyz"
DEFAULT_PYTHON = "/usr/bin/python3"
_NAMES = ("playbook", "site_file", "extra_vars", "tags", "skip_tags")
_OPTIONS = (
    *(option for option in PLAYING if option.name in _NAMES),
    Option("output_file", f"the file to make (default: {DEFAULT_OUTPUT})"),
    Option("python", f"absolute path of the nodes' Python (default: {DEFAULT_PYTHON})"),
)


@command(*_OPTIONS)
def bundle(**raw: Any) -> int:
    """Make one file of a playbook's checks, for prolog, sbatch, health check and initContainer (default: preflight)."""
    from k3env import payload
    from k3env.protocol import codec

    python = str(raw.pop("python") or DEFAULT_PYTHON)
    target = Path(str(raw.pop("output_file") or DEFAULT_OUTPUT))
    if not os.path.isabs(python) or set(python) & set(" \t\n"):
        raise UsageError(
            f"--python {python} is no absolute path",
            expected="an absolute path without blanks",
            found=python,
            remedy=f"for example --python {DEFAULT_PYTHON}",
        )
    options = parse(raw)
    made = compiled(replace(options, playbook=options.playbook or "preflight"))
    pythons = _pythons(python)
    data = payload.pyz(codec.dumps(made).encode(), python, pythons)
    _write(target, data)
    print(f"{target}: {len(made.checks)} checks, {len(data) >> 10} KiB, for {python}")
    if python not in pythons:
        print(
            f"warning: {python} can't be run here; if the nodes' is not {sys.version_info[0]}.{sys.version_info[1]}, "
            "each start takes a quarter of a second longer: make the file on such a node",
            file=sys.stderr,
        )
    return 0


def compiled(options: Any) -> Bundle:
    """Return a playbook compiled for no host, with the index of all checks.

    Raises UsageError for a playbook that does more than verify, DocumentError where a value can't be used.
    """
    from k3env import __version__
    from k3env.cli.asked import asked
    from k3env.node import checks
    from k3env.node.preflight.bundle import USER, Bundle, Entry
    from k3env.playbook import compile_alone, load
    from k3env.protocol import codec

    playbook = load(options.playbook)
    plans = compile_alone(playbook, asked(options), USER)
    refuse_more(task for plan in plans for task in plan.tasks)
    for task in (task for plan in plans for task in plan.tasks if task.skip is None):
        if task.become_user or task.environment:
            raise UsageError(
                f"{task.position}: a bundle runs its checks as who starts it",
                expected="verify: with nothing around it",
                found="become_user" if task.become_user else "environment",
                remedy="leave that out; root reads what belongs to a job's user as that user",
            )
    if not any(task.skip is None for plan in plans for task in plan.tasks):
        raise UsageError(
            "no task is left to run", expected="at least one task", found="none", remedy="see the playbook's tags"
        )
    index = {
        rule.id: Entry(rule.scope, rule.severity, " ".join(rule.doc.split()), rule.contexts)
        for rule in checks.select(("*",))
    }
    encoded = tuple(codec.encode(plan) for plan in plans)
    return Bundle(__version__, playbook.name, encoded, dict(sorted(index.items())))


def _pythons(python: str) -> list[str]:
    """Return the interpreters to compile for: the nodes' where it can be run here, and our own."""
    import subprocess

    own = sys.executable
    found = []
    for path in (python, own):
        try:
            done = subprocess.run(
                [path, "-c", "import sys; print(sys.implementation.cache_tag, sys.version_info >= (3, 9))"],
                capture_output=True, text=True, timeout=30,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            continue
        if done.returncode == 0 and done.stdout.split()[1:] == ["True"]:
            found.append(path)
    return found


def _write(path: Path, data: bytes) -> None:
    from k3env.node.machine import Machine

    try:
        Machine().write(str(path.absolute()), data, 0o755)
    except OSError as error:
        raise UsageError(
            f"{path} can't be written: {error.strerror}",
            expected="a file in a directory that you may write",
            found=str(path),
            remedy="give another one: --output-file PATH",
        ) from None


TASKS = (bundle,)
