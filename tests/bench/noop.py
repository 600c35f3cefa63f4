"""What a play costs that finds all as wanted, beside `ssh true`: `invoke bench.noop`.

The environment is the sandbox's, built once. The node is this machine, reached as a local one, so that its processes,
git among them, see the checkout through a library that makes each call below it take a round trip. All is measured in
turns within one run; every figure is a median.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from k3env.sandbox import upstream
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
    floor = rows["ssh true"]
    print(f"{'':44}{'median':>9}{'of ssh true':>13}{'calls':>8}{'budget':>9}")
    over = False
    for what, (took, calls) in rows.items():
        budget = BUDGET_S if what.startswith("nothing to do") else None
        over = over or (budget is not None and took > budget)
        told = f"{budget:g} s" if budget else ""
        late = "  OVER" if budget is not None and took > budget else ""
        print(f"{what:<44}{took:>7.2f} s{took / floor[0]:>13.1f}{calls or '':>8}{told:>9}{late}")
    return int(over)


def _measured(site: Site, root: Path) -> dict[str, tuple[float, int]]:
    library = preloaded(Path(__file__).parent / "slow.c", root)
    variables = {**_pins(site), "k3env_state_dir": str(root / "node")}
    play = site.argv("provision", "--hosts", "localhost", "--connection", "local", "--skip-tags", "always,verify")
    for name, value in variables.items():
        play += ["--extra-vars", f"{name}={value}"]
    (root / "home").mkdir()
    plain = {**site.environment(), "HOME": str(root / "home")}
    _run(play, plain)  # makes the caches' base, and what differs on this host
    with sshd(root / "sshd") as server:
        true = ["ssh", "-F", "/dev/null", "-i", str(server.key), "-p", str(server.port)]
        true += ["-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"]
        true += ["127.0.0.1", "true"]
        cases = {"ssh true": (true, plain), "nothing to do, a local disk": (play, plain)}
        for trip in TRIPS_US:
            slow = {**plain, "LD_PRELOAD": str(library), "SLOW_ROOT": str(site.checkout), "SLOW_US": str(trip)}
            cases[f"nothing to do, {trip / 1000:g} ms a call"] = (play, slow)
        times: dict[str, list[float]] = {name: [] for name in cases}
        for _ in range(ROUNDS):
            for name, (argv, environment) in cases.items():
                times[name].append(_run(argv, environment))
        last = cases[f"nothing to do, {TRIPS_US[-1] / 1000:g} ms a call"][1]
        _run(play, {**last, "SLOW_COUNT": str(root / "calls")})
    calls = len((root / "calls").read_text().splitlines())
    if "--calls" in sys.argv:
        print((root / "calls").read_text())
    return {name: (statistics.median(taken), calls if "a call" in name else 0) for name, taken in times.items()}


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
