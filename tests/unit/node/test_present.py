"""Processes that /proc does not show are there all the same: a real /proc with hidepid, two users."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.security.other import needs_root

LOOK = """
import json, os, sys
from k3env.node.leases import inuse
from k3env.node.leases import lease
from k3env.node.leases import lease_look
from k3env.node.leases import present
from k3env.node.leases.lease_files import Owner

space, node = os.readlink("/proc/self/ns/pid"), os.uname().nodename
os.setgroups([])
os.setgid(65534)
os.setuid(65534)

def judged(pid):
    owner = Owner("a", node, "b", pid, space, "r", "1.1")
    marker = inuse.Marker("m", "a", "b", space, pid, "1", "ann", "", "", 0.0, 1)
    gone = [present.is_gone(pid), lease.is_gone(owner, owner), lease_look.is_gone_here(owner, "b")]
    return [os.path.exists(f"/proc/{pid}/stat"), gone, inuse._is_here(marker, "b")]

names = ("hidden", "own", "none", "huge", "zero")
print(json.dumps({name: judged(int(pid)) for name, pid in zip(names, sys.argv[1:])}))
"""


@needs_root
@pytest.mark.parametrize("hidden", ["1", "2"])
def test_a_process_of_another_user_is_not_taken_for_gone(hidden: str) -> None:
    # Root's own sleep is what the other user must not see.
    shell = f'mount -o remount,hidepid={hidden} /proc || exit; sleep 60 & exec "$0" -c "$1" $! $$ 99999 $((1<<62)) 0'
    inside = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", shell]
    done = subprocess.run([*inside, sys.executable, LOOK], capture_output=True, text=True, check=True, timeout=60)
    found = json.loads(done.stdout)
    # What is hidden may be alive: of a marker, its counter decides.
    assert found["hidden"] == [False, [False] * 3, None]
    assert found["own"] == [True, [False] * 3, False], "its start is another one"
    for name in ("none", "huge", "zero"):
        assert found[name] == [False, [True] * 3, False]
