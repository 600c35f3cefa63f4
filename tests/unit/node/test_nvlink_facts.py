"""NVLink, IMEX and the kernel's log, from what their tools say."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from k3env.node import checks
from k3env.node.facts import imex, kernel_log, nvlink, services
from k3env.node.facts.imex import Channels, Daemon, Domain, Peer
from k3env.node.facts.kernel_log import KernelLog, Line
from k3env.node.facts.nvlink import Fabric, GpuLinks, Links
from k3env.node.facts.services import Service
from k3env.protocol.finding import Unreadable
from k3env.protocol.profile import Profile
from tests.unit.node.played import DENIED, HANGS, KILLED, MISSING, Played, Said, tray

# Links. The text of 580.159.04 on H200, and what public reports show of Blackwell.

HOPPER = "GPU 0: NVIDIA H200 (UUID: GPU-1)\n" + "".join(f"\t Link {n}: 26.562 GB/s\n" for n in range(18))
BLACKWELL = "GPU 3: NVIDIA GB300 (UUID: GPU-2)\n\t Link 0: 53.125 GB/s\n\t Link 1: <inactive>\n"


def links(tmp_path: Path, said: Said) -> Links | Unreadable:
    return nvlink.links(Played(tmp_path, {"nvidia-smi": said}).machine)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        (HOPPER, (GpuLinks("0", tuple(range(18)), gb_s=(26.562,)),)),
        (BLACKWELL, (GpuLinks("3", (0,), (1,), gb_s=(53.125,)),)),
        ("GPU 0: NVIDIA GB10 (UUID: GPU-3)\n", (GpuLinks("0"),)),
        ("GPU 0: x (UUID: y)\n\t Link 0: N/A\n", (GpuLinks("0", strange=("N/A",)),)),
        ("GPU 0: x (UUID: y)\n\t Link 0: 0.000 GB/s\n", (GpuLinks("0", strange=("0.000 GB/s",)),)),
        ("GPU 0: x (UUID: y)\nall links are inactive\n", (GpuLinks("0", strange=("all links are inactive",)),)),
    ],
)
def test_links(tmp_path: Path, text: str, wanted: tuple[GpuLinks, ...]) -> None:
    found = links(tmp_path, Said(text))
    assert isinstance(found, Links)
    assert found.gpus == wanted


@pytest.mark.parametrize(
    "said",
    [
        *(HANGS, KILLED, MISSING, DENIED, Said(""), Said("NVML: Driver/library version mismatch\n", 18)),
        *(Said(HOPPER[:-9]), Said(b"\xff\xfe\n"), Said("Unable to determine the device handle\n")),
    ],
)
def test_links_that_can_not_be_told(tmp_path: Path, said: Said) -> None:
    assert isinstance(links(tmp_path, said), Unreadable)


# The fabric, and patience with it


def patient(tmp_path: Path, states: list[str], left_s: float | None) -> tuple[Fabric, float]:
    """Return the fabric of a tray whose state is another one each time, and how long it was waited for."""
    played = tray(tmp_path)
    query = "nvidia-smi --query-gpu=pci.bus_id,fabric.state"
    smi = played.programs["nvidia-smi"]

    def answer(words: tuple[str, ...]) -> Said:
        said = smi(words) if callable(smi) else smi
        state = states.pop(0) if len(states) > 1 else states[0]
        return Said(str(said.stdout).replace("Completed", state))

    played.programs["nvidia-smi"] = answer
    machine = played.machine
    machine.ends = None if left_s is None else time.monotonic() + left_s
    found = nvlink.fabric(machine)
    assert isinstance(found, Fabric) and machine.asked[0].startswith(query)
    return found, machine.waited_s


@pytest.mark.parametrize(
    ("states", "left_s", "waited_s", "last"),
    [
        (["Completed"], 100, 0.0, "Completed"),
        (["In Progress", "In Progress", "Completed"], 100, 4.0, "Completed"),
        (["Not Started"], 1000, nvlink.PATIENCE_S, "Not Started"),
        (["In Progress"], 5, 2.0, "In Progress"),  # a prolog has no more
        (["In Progress"], 1, 0.0, "In Progress"),
        (["In Progress"], None, 0.0, "In Progress"),
        (["Not Supported"], 100, 0.0, "Not Supported"),
    ],
)
def test_a_fabric_that_comes_up_is_given_time(
    tmp_path: Path, states: list[str], left_s: float | None, waited_s: float, last: str
) -> None:
    found, waited = patient(tmp_path, states, left_s)
    assert (found.waited_s, waited) == (waited_s, waited_s)
    assert {item.state for item in found.gpus} == {last}


# IMEX

READY = {"status": "READY", "host": "10.0.0.1", "hostName": "n1", "version": "580.95.05"}
CONNECTED = {"0": {"host": "10.0.0.1", "status": "CONNECTED"}, "1": {"host": "10.0.0.2", "status": "INVALID"}}


def imex_says(tmp_path: Path, said: Said) -> Any:
    return Played(tmp_path, {imex.CTL: said}).machine


@pytest.mark.parametrize(
    ("said", "state"),
    [
        (Said("READY\n"), "READY"),
        (Said("IMEX state: WAITING_FOR_PEERS\n"), "WAITING_FOR_PEERS"),
        (Said("", 1, "Error: could not connect to the IMEX service\n"), None),
        (Said("READY UNAVAILABLE\n"), None),
        (Said("ALREADY\n"), None),
        (Said(b"\xff\n"), None),
        (KILLED, None),
    ],
)
def test_the_daemon(tmp_path: Path, said: Said, state: str | None) -> None:
    found = imex.daemon(imex_says(tmp_path, said))
    assert isinstance(found, Daemon)
    assert (found.is_installed, found.state) == (True, state)


def test_no_daemon(tmp_path: Path) -> None:
    machine = Played(tmp_path).machine
    assert imex.daemon(machine) == Daemon(False, source=imex.daemon(machine).source)  # type: ignore[union-attr]
    found = imex.domain(machine)
    assert isinstance(found, Domain) and (found.status, found.said) == (None, "not installed")


def test_a_container_hides_what_it_lacks(tmp_path: Path) -> None:
    machine = Played(tmp_path).machine
    machine.environment["ENROOT_ROOTFS"] = "/run/enroot/x"
    for found in (imex.daemon(machine), imex.domain(machine)):
        assert isinstance(found, (Daemon, Domain)) and found.is_hidden


def test_a_domain(tmp_path: Path) -> None:
    nodes = {"0": {**READY, "connections": CONNECTED}, "1": {"status": "UNAVAILABLE", "host": "10.0.0.2"}}
    text = json.dumps({"nodes": nodes, "timestamp": "9/4/2026 00:37:39.905", "status": "DEGRADED"})
    found = imex.domain(imex_says(tmp_path, Said(f"some warning\n{text}\n")))
    assert isinstance(found, Domain)
    assert found.status == "DEGRADED"
    assert found.peers == (Peer("n1", "READY", "580.95.05", ("10.0.0.2",)), Peer("10.0.0.2", "UNAVAILABLE"))


@pytest.mark.parametrize(
    "said",
    [
        *(HANGS, Said('{"status": "UP"'), Said('{"nodes": [], "status": "UP"}'), Said('{"nodes": {"0": 1}}')),
        *(Said('{"nodes": {"0": {"status": "READY"}}, "status": "UP"}'), Said("{" * 100_000)),
    ],
)
def test_a_domain_that_can_not_be_told(tmp_path: Path, said: Said) -> None:
    assert isinstance(imex.domain(imex_says(tmp_path, said)), Unreadable)


def test_a_domain_that_nobody_tells(tmp_path: Path) -> None:
    found = imex.domain(imex_says(tmp_path, Said("", 1, "could not connect\n")))
    assert isinstance(found, Domain) and (found.status, found.said) == (None, "could not connect")


def test_channels_are_opened_in_their_order_until_one_could_be(tmp_path: Path) -> None:
    played = Played(tmp_path)
    (tmp_path / imex.CHANNELS.lstrip("/") / "channel2").mkdir(parents=True)
    for name in ("channel10", "channel11", "other"):
        played.file(f"{imex.CHANNELS}/{name}", "")
    played.file(imex.DEVICES, "242 nvidia-caps-imex-channels\n")
    found = imex.channels(played.machine)
    assert isinstance(found, Channels)
    assert [(item.path.rpartition("/")[2], item.error) for item in found.tried] == [
        ("channel2", "IsADirectoryError: Is a directory"),
        ("channel10", None),
    ]
    assert found.is_known


def test_no_channel(tmp_path: Path) -> None:
    played = Played(tmp_path)
    played.file(imex.DEVICES, "195 nvidia\n")
    assert imex.channels(played.machine).tried == ()
    assert imex.channels(played.machine).is_known is False


# Services


@pytest.mark.parametrize(
    ("said", "state"),
    [(Said("active\n"), "active"), (Said("inactive\n", 3), "inactive"), (Said("failed\n", 3), "failed")],
)
def test_a_service(tmp_path: Path, said: Said, state: str) -> None:
    found = services.service(Played(tmp_path, {"systemctl": said}).machine, "x")
    assert isinstance(found, Service)
    assert found.state == state


@pytest.mark.parametrize(
    "said", [HANGS, KILLED, MISSING, Said("System has not been booted with systemd\n", 1), Said(""), Said(b"\xff\n")]
)
def test_a_service_that_can_not_be_told(tmp_path: Path, said: Said) -> None:
    assert isinstance(services.service(Played(tmp_path, {"systemctl": said}).machine, "x"), Unreadable)


# The kernel's log

XID = "NVRM: Xid (PCI:0000:17:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
SXID = "nvidia-nvswitch3: SXid (PCI:0000:cb:00.0): 22013, Non-fatal, Link 62 Minion Link DLREQ interrupt"
OLD, NEW = "[   10.000000] ", "[90010.000000] "
NONE = Said("-- No entries --\n", 1)
HINT = "Hint: You are currently not seeing messages from other users and the system.\n"


def log(tmp_path: Path, journal: Said, ring: Said = MISSING, uptime: str = "90020.5 1.0\n") -> KernelLog | Unreadable:
    played = Played(tmp_path, {"journalctl": journal, "dmesg": ring})
    played.file("/proc/uptime", uptime)
    return kernel_log.kernel_log(played.machine, Profile())


@pytest.mark.parametrize(
    ("journal", "ring", "codes"),
    [
        (NONE, MISSING, []),
        (Said("-- Logs begin at Mon 2026-11-30 --\n-- No entries --\n", 0), MISSING, []),
        (Said(f"2026-11-30T05:44:20+0000 n1 kernel: {XID}\n"), MISSING, [79]),
        (Said(f"-- Journal begins --\n{XID}\n{SXID}\n{XID}\n"), MISSING, [79, 22013]),
        (Said("", 1, "No journal files were opened due to insufficient permissions.\n"), Said(f"{NEW}{XID}\n"), [79]),
        (Said("-- No entries --\n", 1, HINT), Said(f"{NEW}something\n"), []),
        (Said("", 1, "Compiled without pattern matching support\n"), Said(f"{OLD}{XID}\n{NEW}x\n"), []),
        (MISSING, Said(f"{XID}\n"), [79]),
        (HANGS, Said(f"{NEW}{XID}\n"), [79]),
    ],
)
def test_a_log(tmp_path: Path, journal: Said, ring: Said, codes: list[int]) -> None:
    found = log(tmp_path, journal, ring)
    assert isinstance(found, KernelLog)
    assert [line.code for line in found.lines] == codes


@pytest.mark.parametrize("order", [(0, 1), (1, 0), (0, 1, 0), (1, 0, 1)])
@pytest.mark.parametrize(
    "said",
    [
        [
            f"NVRM: Xid (PCI:0018:06:00): 149, NETIR_LINK_EVT  {word} XC0 i0 Link 08"
            for word in ("Fatal   ", "Nonfatal")
        ],
        [f"nvidia-nvswitch3: SXid (PCI:0000:cb:00.0): 20034, {word}, Link 30" for word in ("Fatal", "Non-fatal")],
    ],
    ids=["Xid", "SXid"],
)
def test_what_is_not_fatal_hides_nothing_that_is(tmp_path: Path, said: list[str], order: tuple[int, ...]) -> None:
    found = log(tmp_path, Said("".join(f"{said[at]}\n" for at in order)))
    assert isinstance(found, KernelLog)
    ((rule,), (other,)) = checks.select(("gpu.xid",)), checks.select(("gpu.xid_app",))
    judged = [checks.judge(item, {kernel_log.kernel_log: found}, Profile()).status for item in (rule, other)]
    assert judged == ["fail", "warn"] and sum(line.count for line in found.lines) == len(order)


def test_a_line(tmp_path: Path) -> None:
    found = log(tmp_path, Said(f"{XID}\n{XID}\n{SXID}\n"))
    assert isinstance(found, KernelLog)
    text = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
    assert found.lines == (
        Line("Xid", "0000:17:00", 79, text, 2),
        Line("SXid", "0000:cb:00.0", 22013, "Non-fatal, Link 62 Minion Link DLREQ interrupt"),
    )


@pytest.mark.parametrize(
    ("journal", "ring"),
    [
        (
            Said("-- No entries --\n", 1, HINT),
            Said("", 1, "dmesg: read kernel buffer failed: Operation not permitted\n"),
        ),
        (Said("", 0), Said("")),  # no answer is not an empty log
        (MISSING, MISSING),
        (HANGS, HANGS),
        (KILLED, KILLED),
        (Said("-- No entries --\n", 1, "No journal files were found.\n"), DENIED),
        (Said(b"\xff\xfe", 0), Said("", 1)),
    ],
)
def test_a_log_that_may_not_be_read_is_not_quiet(tmp_path: Path, journal: Said, ring: Said) -> None:
    assert isinstance(log(tmp_path, journal, ring), Unreadable)
