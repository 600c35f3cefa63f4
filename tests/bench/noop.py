"""What a play costs that finds all as wanted, beside `ssh true`: `invoke bench.noop`.

The environment is the sandbox's, built once. The node is this machine, reached as a local one, and sees the checkout
on a local disk and on slow filesystems: see slow.py for what these are. Its python3 is an interpreter, as a node's is,
and no shim in front of one. All is measured in turns within one run; every figure is a median.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from k3env.sandbox import upstream
from tests.bench import slow
from tests.netfs import preloaded
from tests.sandbox.cli import Site
from tests.sshd import sshd

ROUNDS = 7
BUDGET_S = 1.5
"""Of the whole command, a controller's start among it."""
TRIPS_US = (200, 1000)
"""Round trips of a good network filesystem, and of a poor one."""


def main() -> int:
    """Measure, print a table, and return 1 if the budget is not kept."""
    with tempfile.TemporaryDirectory(prefix="k3env-bench-") as name:
        root = Path(name)
        site = Site(root / "state")
        made = site.provision(hosts="tray-01")
        if made.code != 0:
            print(made.err, file=sys.stderr)
            return 1
        rows = _measured(site, root)
    if slow.no_mounts():
        print(f"not measured on a mounted filesystem: {slow.no_mounts()}")
    floor = rows["ssh true"]
    print(f"{'':44}{'median':>9}{'of ssh true':>13}{'calls':>8}{'budget':>9}")
    over = False
    for what, (took, calls) in rows.items():
        budget = BUDGET_S if what.startswith("nothing to do") else None
        over = over or (budget is not None and took > budget)
        told = f"{budget:g} s" if budget else ""
        late = "  OVER" if budget is not None and took > budget else ""
        print(f"{what:<44}{took:>7.2f} s{took / floor[0]:>13.1f}{calls:>8}{told:>9}{late}")
    return int(over)


def _measured(site: Site, root: Path) -> dict[str, tuple[float, str]]:
    variables = {**_pins(site), "k3env_state_dir": str(root / "node")}
    play = site.argv("provision", "--hosts", "localhost", "--connection", "local", "--skip-tags", "always,verify")
    for name, value in variables.items():
        play += ["--extra-vars", f"{name}={value}"]
    (root / "home").mkdir()
    interpreter = os.path.dirname(os.path.realpath(getattr(sys, "_base_executable", sys.executable)))
    path = f"{interpreter}:{os.environ.get('PATH', os.defpath)}"
    plain = {**site.environment(), "HOME": str(root / "home"), "PATH": path}
    _run(play, plain)  # makes the caches' base, and what differs on this host
    with sshd(root / "sshd") as server, ExitStack() as stack:
        true = ["ssh", "-F", "/dev/null", "-i", str(server.key), "-p", str(server.port)]
        true += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        true += ["127.0.0.1", "true"]
        cases = {"ssh true": (true, plain), "nothing to do, a local disk": (play, plain)}
        asked = {}
        for trip in TRIPS_US:
            if not slow.no_mounts():
                work = root / f"mounted-{trip}"
                within = stack.enter_context(slow.mounted(site.checkout.parent, work, trip))
                name = f"nothing to do, mounted, {trip / 1000:g} ms a request"
                cases[name], asked[name] = ([*within, *play], plain), work / "trips"
        library = preloaded(Path(__file__).parent / "slow.c", root)
        for trip in TRIPS_US:
            name = f"nothing to do, {trip / 1000:g} ms a call"
            told = {"LD_PRELOAD": str(library), "SLOW_ROOT": str(site.checkout), "SLOW_US": str(trip)}
            cases[name] = (play, {**plain, **told})
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(ROUNDS):
            for name, (argv, environment) in cases.items():
                times[name].append(_run(argv, environment))
        _run(play, {**cases[name][1], "SLOW_COUNT": str(root / "calls")})
    calls = (root / "calls").read_text()
    if "--calls" in sys.argv:
        print(calls)
    counts = {name: str(round(int(file.read_text()) / ROUNDS)) for name, file in asked.items()}
    counts |= {name: str(len(calls.splitlines())) for name in cases if name.endswith("a call")}
    return {name: (statistics.median(taken), counts.get(name, "")) for name, taken in times.items()}


def _pins(site: Site) -> dict[str, str]:
    """Return the variables of a tray."""
    commits = upstream.make(site.rack / "upstream")
    made = {"trtllm_repo": str(site.checkout), "cache_base": "~/cache"}
    for prefix, name in (("trtllm", upstream.TRTLLM), ("flashinfer", upstream.FLASHINFER)):
        made[f"{prefix}_url"] = (site.rack / "upstream" / name).as_uri()
        made[f"{prefix}_commit"] = commits[name][upstream.PINNED[name]]
    return made


def _run(argv: Sequence[str], environment: dict[str, str]) -> float:
    """Return what a command takes, seconds.

    Raises CalledProcessError with its words on stderr if it fails.
    """
    begun = time.perf_counter()
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
    took = time.perf_counter() - begun
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        done.check_returncode()
    return took


if __name__ == "__main__":
    os.environ.pop("LD_PRELOAD", None)
    sys.exit(main())
