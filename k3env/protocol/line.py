"""How events stand on lines: their kinds, their size, the marker before them. Imports nothing: nodes read it first."""

from __future__ import annotations

VERSION = 1
PLAN_VERSION = 1
FINISH = "finish"  # of a plan: what becomes of its worker when nobody follows it
LINE_BYTES = 64 * 1024

# Kinds, in the order in which a run sends them. `hello` and `lost` are the boot code's and have no sequence number.
HELLO = "hello"
BEGIN = "begin"  # the worker is up: data {tasks, findings}
TASK = "task"  # a task begins: data {module, name}
WAITING = "waiting"  # somebody holds the lease: data {owner, since_s, progress}
APPLY = "apply"  # changes are being made: data {changes}
PROGRESS = "progress"  # data {text, fraction}
FACTS = "facts"  # what checks across nodes compare: data {facts: {name: value}}, as a node read it
RESULT = "result"  # data: a Result
END = "end"  # data {status}
LOST = "lost"  # the worker is gone without an end
PONG = "pong"  # the answer to a ping: whoever passes the journal on is awake
KEPT = "kept"  # the answer to `list`, one line a run: data: a KeptRun

# What the controller itself has to say of a host stands in the same stream; these never come from a node.
ROAD = "road"  # data {message}: connected, reconnecting
UNREACHABLE = "unreachable"  # data {finding}
FAILED = "failed"  # data {finding}: the node can't be used, was rebooted, its worker is gone
NOTRUN = "notrun"  # data {message}: nothing more is done there, by whose wish

KINDS = (HELLO, BEGIN, TASK, WAITING, APPLY, PROGRESS, FACTS, RESULT, END, LOST, KEPT, PONG)


def marker(run: str) -> bytes:
    """Return what stands before each line of a run."""
    return b"k3env:" + run.encode("ascii") + b" "
