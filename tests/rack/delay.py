"""Delay what goes over a node's cable, where the kernel has no netem: two taps and this process between them.

`python -m tests.rack.delay INTERFACE MILLISECONDS`, in the rack's network namespace; each way takes that long.
The end of this process takes the delay, and the node's connection, away.
"""

from __future__ import annotations

import contextlib
import fcntl
import heapq
import os
import select
import struct
import subprocess
import sys
import time

from tests.rack.holder import BRIDGE

_TUNSETIFF, _TAP, _NO_HEADER = 0x400454CA, 0x0002, 0x1000
_FRAME = 1 << 16


def _tap(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _TAP | _NO_HEADER))
    return descriptor


def main(interface: str, milliseconds: str) -> None:
    """Stand between the bridge and an interface until killed."""
    near, far, second = (f"{interface[:10]}-{end}" for end in ("n", "f", "b"))
    ends = {_tap(near): 0, _tap(far): 0}
    first, other = ends
    ends = {first: other, other: first}
    commands = (
        f"link add {second} type bridge\nlink set {second} up\nlink set {interface} nomaster\n"
        f"link set {interface} master {second}\nlink set {far} up\nlink set {far} master {second}\n"
        f"link set {near} up\nlink set {near} master {BRIDGE}\n"
    )
    subprocess.run(["ip", "-batch", "-"], input=commands, text=True, check=True)
    print("delayed", flush=True)
    _pass_on(ends, float(milliseconds) / 1000)


def _pass_on(ends: dict[int, int], delay_s: float) -> None:
    waiting: list[tuple[float, int, int, bytes]] = []
    count = 0
    while True:
        wait = max(0.0, waiting[0][0] - time.monotonic()) if waiting else None
        for end in select.select(list(ends), [], [], wait)[0]:
            with contextlib.suppress(BlockingIOError):
                while True:
                    count += 1
                    heapq.heappush(waiting, (time.monotonic() + delay_s, count, ends[end], os.read(end, _FRAME)))
        while waiting and waiting[0][0] <= time.monotonic():
            _, _, end, frame = heapq.heappop(waiting)
            with contextlib.suppress(OSError):
                os.write(end, frame)


if __name__ == "__main__":
    main(*sys.argv[1:])
