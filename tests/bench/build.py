"""What downloads beside the compile are worth: `invoke bench.build`.

The checkout is the sandbox's miniature, which compiles for as long as it is told to. Its FlashInfer is a repository of
some MB behind a real `git daemon` and a proxy that lets so many bytes a second through; so is no other download. All is
measured in turns within one run; every figure is a median. What counts is the ratio: a real build takes an hour, and a
real download minutes.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from k3env.sandbox import upstream
from tests.sandbox.cli import Site
from tests.sandbox.test_offline import TOOLS
from tests.unit.fetching.served import daemon
from tests.unit.node import ground

ROUNDS = 3
COMPILE_S = 8
SOURCES_MIB, MIB_PER_S = 8, 1
_CHUNK = 1 << 15


def main() -> int:
    """Measure, and print a table."""
    with tempfile.TemporaryDirectory(prefix="k3env-bench-") as name:
        root = Path(name)
        commits = upstream.make(root / "served")
        sources = root / "work"
        ground.run("git", "clone", "--quiet", root / "served" / upstream.FLASHINFER, sources)
        (sources / "3rdparty").mkdir()
        (sources / "3rdparty/sources.bin").write_bytes(os.urandom(SOURCES_MIB << 20))
        pinned = ground.commit(sources, "with its sources")
        ground.git(sources, "push", "--quiet", "origin", "HEAD:refs/heads/with-sources")
        with daemon(root / "served") as url, throttled(int(url.rpartition(":")[2])) as port:
            given = {
                "trtllm_repo": str(root / "TensorRT-LLM"),
                "trtllm_url": str(root / "served" / upstream.TRTLLM),
                "trtllm_commit": commits[upstream.TRTLLM][upstream.PINNED[upstream.TRTLLM]],
                "flashinfer_url": f"git://127.0.0.1:{port}/{upstream.FLASHINFER}",
                "flashinfer_commit": pinned,
                "cache_base": str(root / "cache"),
                "k3env_state_dir": str(root / "node"),
            }
            (root / "vars.yml").write_text(json.dumps(given))
            print(_table(_measured(root, given)))
    return 0


def _measured(root: Path, given: dict[str, str]) -> dict[str, float]:
    site = Site(root / "state")
    environment = _environment(site, root)
    times: dict[str, list[float]] = {}

    def timed(what: str, *argv: str) -> float:
        begun = time.perf_counter()
        done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            done.check_returncode()
        times.setdefault(what, []).append(time.perf_counter() - begun)
        return times[what][-1]

    def provision(tags: str) -> list[str]:
        words = ("--hosts", "localhost", "--connection", "local", "--tags", tags, "--skip-tags", "always,verify")
        return site.argv("provision", *words, "--extra-vars", f"@{root}/vars.yml")

    for _ in range(ROUNDS):
        shutil.rmtree(root / "clone", ignore_errors=True)
        timed("the download by itself", "git", "clone", "--quiet", given["flashinfer_url"], str(root / "clone"))
        shutil.rmtree(given["trtllm_repo"], ignore_errors=True)
        after = timed("the build by itself", *provision("build")) + timed(
            "the packages by themselves", *provision("deps")
        )
        again = timed("nothing to do", *provision("build,deps"))
        # Two runs cost one more start and look than one.
        times.setdefault("one after the other", []).append(after - again)
        shutil.rmtree(given["trtllm_repo"])
        timed("the downloads beside the build", *provision("build,deps"))
    return {what: statistics.median(taken) for what, taken in times.items()}


def _environment(site: Site, root: Path) -> dict[str, str]:
    programs = root / "bin"
    programs.mkdir()
    for name, says in TOOLS.items():
        (programs / name).write_text(f"#!/bin/sh\necho '{says}'\n")
        (programs / name).chmod(0o755)
    (programs / "python3").symlink_to(ground.PYTHON)
    own = {"HOME": str(root), "PATH": f"{programs}:{os.environ.get('PATH', os.defpath)}", "LANG": "C.UTF-8"}
    return {**site.environment(), **own, "K3ENV_MINIATURE_SECONDS": str(COMPILE_S)}


def _table(rows: dict[str, float]) -> str:
    whole = rows["one after the other"]
    head = f"compiling takes {COMPILE_S} s; FlashInfer has {SOURCES_MIB} MiB at {MIB_PER_S} MiB/s\n"
    head += f"{'':34}{'median':>9}{'of one after the other':>25}\n"
    return head + "\n".join(f"{what:<34}{took:>7.2f} s{took / whole:>25.2f}" for what, took in rows.items())


@contextmanager
def throttled(port: int) -> Iterator[int]:
    """Forward connections to a port of this machine, so many bytes a second towards who asks; yields the port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, port), daemon=True).start()
        yield listener.getsockname()[1]


def _accept(listener: socket.socket, port: int) -> None:
    while True:
        try:
            near, _ = listener.accept()
        except OSError:
            return
        far = socket.create_connection(("127.0.0.1", port))
        for source, target, pause in ((near, far, 0.0), (far, near, _CHUNK / (MIB_PER_S << 20))):
            threading.Thread(target=_forward, args=(source, target, pause), daemon=True).start()


def _forward(source: socket.socket, target: socket.socket, pause: float) -> None:
    try:
        while data := source.recv(_CHUNK):
            target.sendall(data)
            time.sleep(pause * len(data) / _CHUNK)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return


if __name__ == "__main__":
    sys.exit(main())
