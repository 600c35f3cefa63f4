"""What the agent and the road cost, taken in one run: `invoke bench.agent`.

The floor is the node's own interpreter, started and ended; every figure stands beside its budget from the design.
"""

from __future__ import annotations

import multiprocessing
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from k3env import payload
from k3env.connections.host_keys import Key
from k3env.connections.road import Road
from k3env.connections.ssh import Settings, SshConnection
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.plan import Plan, Start, Task
from k3env.runner.host import Follower, Limits, Target, Wish
from k3env.runner.session import Work
from k3env.sandbox import Endpoint, Rack
from tests.agent import Agent
from tests.proxy import Proxy

ROUNDS, HOSTS = 30, 4


def main() -> int:
    """Measure, print a table, and return 1 if a budget is not kept."""
    rows = [*_node(), *_road()]
    print(f"{'':52}{'measured':>10}{'budget':>10}")
    for name, measured, budget, unit in rows:
        allowed = f"{budget:g} {unit}" if budget is not None else ""
        over = "  OVER" if budget is not None and measured > budget else ""
        print(f"{name:<52}{measured:>7.1f} {unit:<2}{allowed:>10}{over}")
    return int(any(budget is not None and measured > budget for _, measured, budget, _ in rows))


def _node() -> list[tuple[str, float, float | None, str]]:
    """Start to hello, and to the end of a plan without tasks, over an interpreter that does nothing."""
    python = str(Path(getattr(sys, "_base_executable", sys.executable)).resolve())
    times: dict[str, list[float]] = {"floor": [], "bare": [], "hello": [], "end": []}
    with tempfile.TemporaryDirectory() as root:
        Agent(Path(root), python=python).follow()
        for _ in range(ROUNDS):
            times["floor"].append(_seconds(lambda: subprocess.run([python, "-c", "pass"], check=True)))
            times["bare"].append(_seconds(lambda: subprocess.run([python, "-I", "-S", "-c", "pass"], check=True)))
            times["hello"].append(_hello(Path(root), python))
            times["end"].append(_seconds(lambda: Agent(Path(root), python=python).follow()))
    took = {name: 1000 * statistics.median(values) for name, values in times.items()}
    return [
        ("python3 -c pass", took["floor"], None, "ms"),
        ("python3 -I -S -c pass", took["bare"], None, "ms"),
        ("start to hello, over python3 -c pass", took["hello"] - took["floor"], 5, "ms"),
        ("start to hello, over python3 -I -S -c pass", took["hello"] - took["bare"], None, "ms"),
        ("start to end of an empty plan, over -c pass", took["end"] - took["floor"], 20, "ms"),
        ("start to end of an empty plan, over -I -S", took["end"] - took["bare"], None, "ms"),
    ]


def _road() -> list[tuple[str, float, float | None, str]]:
    """A converged play of one directory and one check, first through counting proxies, then straight."""
    with tempfile.TemporaryDirectory() as root, _rack(Path(root) / "rack") as ends:
        base = next(iter(ends.values())).variables["cache_base"]
        tasks = (
            Task("1.1", "caches", "cache_dirs", {"base": base}),
            Task("1.2", "driver", "verify", {"checks": ["gpu.driver.version"]}),
        )
        work = Work(payload.boot_code(), payload.build(), codec.dumps(Plan(tasks)).encode())
        road, counts = Road(), []
        for host, end in ends.items():
            _follow("first", host, end, end.port, road, work)
            with Proxy(end.port) as proxy:
                _follow("counted", host, end, proxy.port, road, work)
                counts.append(proxy.count)
        begun = time.process_time()
        for number in range(3):
            for host, end in ends.items():
                _follow(f"b{number}", host, end, end.port, road, work)
        cpu = 1000 * (time.process_time() - begun) / (3 * len(ends))
    return [
        ("connections, converged play", max(count.connections for count in counts), 1, ""),
        ("round trips, converged play", max(count.turns for count in counts), 11, ""),
        ("sent to a host, converged play", max(count.bytes_up for count in counts) / 1024, 20, "KB"),
        ("controller CPU a host, after start-up", cpu, 10, "ms"),
    ]


@contextmanager
def _rack(root: Path) -> Iterator[dict[str, Endpoint]]:
    """Run trays in a process of their own, so that their CPU time isn't the controller's."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def serve() -> None:
        with Rack(root) as rack:
            theirs.send(rack.start({f"tray-{number}": {"gpu": "GB300"} for number in range(HOSTS)}))
            theirs.recv()

    child = context.Process(target=serve)
    child.start()
    try:
        yield ours.recv()
    finally:
        ours.send(None)
        child.join(10)


def _follow(run: str, host: str, end: Endpoint, port: int, road: Road, work: Work) -> None:
    settings = Settings("127.0.0.1", port, end.user, end.private_key, Key(*end.host_key.split()))
    state, digest = end.variables["k3env_state_dir"], payload.build().digest
    events: list[Event] = []
    start = Start(f"{run}.1", host, payload=digest, state_dir=state, overlay=end.overlay)
    target = Target(host, lambda: SshConnection(settings, road), work, start)
    Follower(target, Limits(), lambda _, event: events.append(event), Wish()).follow()
    assert events[-1].kind == "end" and events[-1].data["status"] == "ok", events


def _hello(root: Path, python: str) -> float:
    agent = Agent(root, python=python)
    begun = time.perf_counter()
    marks: list[float] = []
    agent.follow(on_hello=lambda: marks.append(time.perf_counter() - begun))
    return marks[0]


def _seconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


if __name__ == "__main__":
    sys.exit(main())
