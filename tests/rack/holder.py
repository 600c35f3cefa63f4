"""The process that a rack hangs on: PID 1 of its namespaces. With it everything goes, whatever ended it.

Run by `unshare --net --mount --uts --ipc --pid --fork --mount-proc --kill-child`. Lines on stdin are requests,
{"start": [nodes]} and {"forget": [directories]}; each is answered by a line on stdout, with the pids of the nodes.
At the end of its input it ends.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
from typing import Any

from tests.rack import kernel, machine

CONTROLLER = "10.99.255.1"
CONTROLLER6 = "fd99::ff:1"
BRIDGE = "br0"


def main() -> None:
    """Serve until the input ends."""
    kernel.set_hostname("controller")
    _ip(
        f"link set lo up\nlink add {BRIDGE} type bridge\nlink set {BRIDGE} up\naddr add {CONTROLLER}/16 dev {BRIDGE}\n"
        f"addr add {CONTROLLER6}/64 dev {BRIDGE} nodad\n"
    )
    ended, end = os.pipe()
    for descriptor in (ended, end):
        os.set_blocking(descriptor, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(end, warn_on_full_buffer=False)
    print(json.dumps("ready"), flush=True)
    rest = b""
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            ready = [key.fd for key, _ in selector.select()]
            if ended in ready:
                os.read(ended, 1 << 16)
                _reap()
            if 0 in ready:
                data = os.read(0, 1 << 16)
                if not data:
                    return
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    _answer(json.loads(line))


def _answer(request: dict[str, list[Any]]) -> None:
    try:
        specs = [machine.Spec(**{**spec, "sshd": tuple(spec["sshd"])}) for spec in request.get("start", ())]
        for spec in specs:
            machine.disk(spec)
        for directory in request.get("forget", ()):
            machine.forget(directory)
        answer: Any = machine.start(specs, _plug)
    except Exception as error:
        answer = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps(answer), flush=True)


def _plug(nodes: list[tuple[machine.Spec, int]]) -> None:
    _ip(
        "".join(
            f"link add {spec.interface} type veth peer name eth0 netns {pid}\n"
            f"link set {spec.interface} master {BRIDGE} up\n"
            for spec, pid in nodes
        )
    )


def _ip(commands: str) -> None:
    subprocess.run(["ip", "-batch", "-"], input=commands, text=True, check=True)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return


if __name__ == "__main__":
    main()
