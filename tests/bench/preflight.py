"""What k3env-preflight.pyz costs in a prolog, over what nobody can save: `invoke bench.preflight`.

That is the interpreter, started and ended, and what nvidia-smi takes for the queries that a prolog makes: the same
commands, side by side as there, and nothing else. All is taken in one run, in turns, so that the same machine in the
same mood is compared; every figure is a median. As root the file lies where root runs it.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from k3env import payload
from k3env.node import checks
from k3env.node.facts import read
from k3env.node.machine import Machine
from k3env.node.preflight.bundle import Bundle, Entry
from k3env.protocol import codec
from k3env.protocol.plan import Plan, Task
from k3env.protocol.profile import Paths, Profile

ROUNDS = 15
BUDGET_MS = 150.0
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
QUERY = ("--query-gpu=pci.bus_id,name,compute_cap,memory.total,driver_version", "--format=csv,noheader")
Row = tuple[str, float, "float | None"]


def main() -> int:
    """Measure, print a table, and return 1 if the prolog's budget is not kept."""
    python = _python()
    with tempfile.TemporaryDirectory(dir="/opt" if os.geteuid() == 0 else None, prefix="k3env-bench-") as name:
        os.chmod(name, 0o755)  # noqa: S103
        path = Path(name) / "k3env-preflight.pyz"
        path.write_bytes(payload.pyz(_bundle(), python, [python]))
        path.chmod(0o755)
        rows = _rows(python, path)
    print(f"{'':58}{'median':>8}{'budget':>8}")
    for name, measured, budget in rows:
        allowed = f"{budget:g}" if budget is not None else ""
        over = "  OVER" if budget is not None and measured > budget else ""
        print(f"{name:<58}{measured:>8.1f}{allowed:>8}{over}")
    return int(any(budget is not None and measured > budget for _, measured, budget in rows))


def _rows(python: str, path: Path) -> list[Row]:
    smi = shutil.which("nvidia-smi")
    commands: dict[str, list[str]] = {
        "python3 -c pass": [python, "-c", "pass"],
        "python3 -I -S -c pass": [python, "-I", "-S", "-c", "pass"],
        "--version": [str(path), "--version"],
        "hc": [str(path), "--context", "hc"],
        "prolog": [str(path), "--context", "prolog"],
        "job": [str(path), "--context", "job"],
    }
    if smi is not None:
        commands["query"] = [smi, *QUERY]
    queries = _queries() if smi is not None else []
    for argv in commands.values():
        _seconds([argv])  # the file system's cache is warm from now on
    times: dict[str, list[float]] = {name: [] for name in (*commands, "queries")}
    for _ in range(ROUNDS):
        for name, argv in commands.items():
            times[name].append(_seconds([argv]))
        times["queries"].append(_seconds(queries))
    took = {name: 1000 * statistics.median(values) for name, values in times.items()}
    query = took.get("query", 0.0)
    floor = took["python3 -c pass"] + took["queries"]
    return [
        ("python3 -c pass, ms", took["python3 -c pass"], None),
        ("python3 -I -S -c pass", took["python3 -I -S -c pass"], None),
        ("nvidia-smi, one query of five fields" if smi else "nvidia-smi: not here", query, None),
        (f"nvidia-smi, the prolog's {len(queries)} queries side by side", took["queries"], None),
        ("the file, --version", took["--version"], None),
        ("the file, context hc", took["hc"], None),
        ("the file, context prolog", took["prolog"], None),
        ("the file, context job", took["job"], None),
        ("prolog over python3 -c pass and its queries", took["prolog"] - floor, BUDGET_MS),
        ("prolog over python3 -c pass and one query", took["prolog"] - took["python3 -c pass"] - query, None),
        ("prolog over the first two, as a multiple", took["prolog"] / floor, None),
    ]


def _bundle() -> bytes:
    """Return what `invoke bundle` makes of the playbook preflight, with a cache base."""
    profile = Profile(paths=Paths(cache_base="/var/tmp/k3env-cache-root"))
    plan = Plan((Task("1.1", "The node", "verify", {"checks": ["*"]}),), codec.encode(profile))
    index = {rule.id: Entry(rule.scope, rule.severity, rule.doc, rule.contexts) for rule in checks.select(("*",))}
    return codec.dumps(Bundle("bench", "preflight", (codec.encode(plan),), index)).encode()


def _python() -> str:
    """Return the interpreter that nodes have, or our own without its environment."""
    return "/usr/bin/python3" if os.path.exists("/usr/bin/python3") else os.path.realpath(sys.executable)


def _queries() -> list[list[str]]:
    """Return the commands that the facts of a prolog give to nvidia-smi."""
    asked: list[list[str]] = []

    class Heard(Machine):
        def run(self, argv: Sequence[str], **keywords: Any) -> Any:
            if argv[0] == "nvidia-smi":
                asked.append(list(argv))
            return super().run(argv, **keywords)

    rules = [rule for rule in checks.select(("*",)) if rule.runs_in("prolog")]
    for fact in dict.fromkeys(fact for rule in rules for fact in rule.facts):
        read(fact, Heard(), Profile(context="prolog"))
    return asked


def _seconds(commands: Sequence[Sequence[str]]) -> float:
    """Return what commands take, side by side."""
    begun = time.perf_counter()
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": {"PATH": PATH}}
    for process in [subprocess.Popen(argv, **quiet) for argv in commands]:
        process.wait()
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
