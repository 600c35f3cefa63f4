"""The rack itself: quick to build, apart from this machine, gone without a trace."""

from __future__ import annotations

import os
import time
from pathlib import Path

from tests.rack.bed import Bed
from tests.rack.processes import all_processes
from tests.rack.row import Ground


def test_four_nodes_start_quickly_and_are_apart(bed: Bed, tmp_path: Path) -> None:
    begun = time.monotonic()
    with Ground(bed, tmp_path).site("a", "b", "c", "d") as site:
        took = time.monotonic() - begun
        names = {name: node.run("hostname").stdout.strip() for name, node in site.nodes.items()}
        assert names == {name: name for name in "abcd"}
        boots = {node.run("cat", "/proc/sys/kernel/random/boot_id").stdout for node in site.nodes.values()}
        assert len(boots) == 4
        site.nodes["a"].run("sh", "-c", "echo x | tee /tmp/x /var/tmp/x /root/x /shared/x")
        others = [site.nodes["b"].path(f"/{name}/x").exists() for name in ("tmp", "var/tmp", "root", "shared")]
        assert others == [False, False, False, True]
        assert site.nodes["a"].processes() == []
    assert took < 2, f"{took:.2f} s"


def test_a_reboot_keeps_the_disk_and_nothing_else(bed: Bed, tmp_path: Path) -> None:
    with Ground(bed, tmp_path).site("a") as site:
        before = site.node.run("cat", "/proc/sys/kernel/random/boot_id").stdout
        site.node.run("touch", "/tmp/x", "/var/tmp/x")
        site.node.power_off()
        site.node.power_on()
        assert site.node.path("/var/tmp/x").exists() and not site.node.path("/tmp/x").exists()
        assert site.node.run("cat", "/proc/sys/kernel/random/boot_id").stdout != before


def test_nothing_is_left_of_a_bed(tmp_path: Path) -> None:
    with Bed(tmp_path) as bed, Ground(bed, tmp_path / "sites").site("a") as site:
        site.node.script("/opt/stay", "trap '' TERM HUP; sleep 1000")
        site.node.run("sh", "-c", "setsid /opt/stay >/dev/null 2>&1 </dev/null &")
        inside = [item.pid for item in all_processes() if len(item.inner) > 1 and "/opt/stay" in item.command]
        assert inside
        link = site.node.spec.interface
    assert not [pid for pid in inside if os.path.exists(f"/proc/{pid}/exe")]
    assert not os.path.exists(f"/sys/class/net/{link}")
    assert str(tmp_path) not in Path("/proc/mounts").read_text()
