"""Nodes as Slurm shows them. What 22.05 prints is asked of a real one in tests/slurm; other forms stand here."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.errors import UsageError
from k3env.inventory.hosts import Address, Host
from k3env.runner import slurm
from k3env.runner.drain import Drain
from k3env.runner.slurm import Node

SHOWN = """\
NodeName=gb300-01 Arch=aarch64 CoresPerSocket=72 
   NodeAddr=10.0.0.1 NodeHostName=tray1 Version=24.05.4
   OS=Linux 6.8.0 State=NO Reason=none of these
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Comment=State=IDLE, said Bob
   Partitions=main 
{reason}
"""  # noqa: W291 - as scontrol prints it

# State, the line of the reason, drained, out, reason, by whom
NODES = [
    ("IDLE", "", False, "", "", ""),
    ("ALLOCATED+CLOUD", "", False, "", "", ""),
    ("IDLE*", "", False, "", "", ""),
    ("IDLE+NOT_RESPONDING", "", False, "", "", ""),
    ("MIXED+DRAIN", "   Reason=dimm 3 [RMA] [root@2026-11-30T11:03:53]", True, "DRAIN", "dimm 3 [RMA]", "root@2026"),
    (
        "IDLE+DRAIN",
        "   Reason=k3env: run 1 of a@b [root@2026-11-30T11:03:53]",
        True,
        "DRAIN",
        "k3env: run 1 of a@b",
        "root",
    ),
    (
        "DOWN*+DRAIN",
        "   Reason=Not responding [slurm@2026-11-30T11:03:53]",
        True,
        "DOWN DRAIN",
        "Not responding",
        "slurm",
    ),
    ("DOWN*", "   Reason=Not responding [slurm@2026-11-30T11:03:53]", False, "DOWN", "Not responding", "slurm"),
]


@pytest.fixture
def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scontrol that prints this file."""
    program = tmp_path / "scontrol"
    program.write_text(f'#!/bin/sh\n[ "$*" = "--all show node" ] && exec cat {tmp_path}/shown\nexit 9\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path / "shown"


@pytest.mark.parametrize("state, line, drained, out, reason, by", NODES)
def test_nodes(shown: Path, state: str, line: str, drained: bool, out: str, reason: str, by: str) -> None:
    shown.write_text(
        SHOWN.format(state=state, reason=line) + "\n" + SHOWN.format(state="IDLE", reason="").replace("01", "02")
    )
    found = slurm.nodes()
    assert list(found) == ["gb300-01", "gb300-02"] and not found["gb300-02"].out
    node: Node = found["gb300-01"]
    assert (node.drained, node.out, node.reason) == (drained, set(out.split()), reason)
    assert node.by.startswith(by) and node.aliases == {"gb300-01", "tray1", "10.0.0.1"}


@pytest.mark.parametrize("name, address", [("gb300-01", "x"), ("tray1", "x"), ("mine", "10.0.0.1"), ("mine", "tray1")])
def test_a_host_is_known_by_its_names_and_its_address(shown: Path, name: str, address: str) -> None:
    shown.write_text(SHOWN.format(state="IDLE", reason=""))
    Drain([Host(name, (), {}, Address(address))], 1.0, [])
    with pytest.raises(UsageError, match="Slurm does not know other"):
        Drain([Host("other", (), {}, Address("10.0.0.2"))], 1.0, [])


# What a node is when it was found fit, whose reason it has by then, what is said of it; "": resumed
AT_THE_END = [
    ("IDLE DRAIN", "ours", ""),
    ("ALLOCATED DRAIN", "ours", ""),
    ("DOWN DRAIN", "ours", "Slurm has it as DOWN+DRAIN"),
    ("IDLE FAIL DRAIN", "ours", "Slurm has it as DRAIN+FAIL+IDLE"),
    ("IDLE DRAIN", "k3env: run 2 of c@d", "its reason is no longer ours: k3env: run 2 of c@d"),
    ("IDLE DRAIN", "dimm 3", "its reason is no longer ours: dimm 3"),
    ("IDLE", "", "its reason is no longer ours: none"),
    ("", "", "its reason is no longer ours: no node any more"),
]


@pytest.mark.parametrize("states, reason, why", AT_THE_END)
def test_only_what_is_drained_by_us_and_nothing_else_is_resumed(
    monkeypatch: pytest.MonkeyPatch, states: str, reason: str, why: str
) -> None:
    """A stand-in for Slurm: no real node fails when it is told to."""
    reason = "k3env: run 1 of a@b" if reason == "ours" else reason
    free = Node("n1", frozenset(["n1"]), frozenset(["IDLE"]), "")
    at_the_end = {"n1": Node("n1", frozenset(["n1"]), frozenset(states.split()), reason)} if states else {}
    shown, resumed, said = [{"n1": free}, {"n1": free}, at_the_end], list[str](), list[str]()
    monkeypatch.setattr(slurm, "nodes", lambda: shown.pop(0))
    monkeypatch.setattr(slurm, "drain", lambda names, reason: None)
    monkeypatch.setattr(slurm, "jobs", lambda names: {})
    monkeypatch.setattr(slurm, "resume", resumed.extend)
    drain = Drain([Host("n1", (), {}, Address("n1"))], 1.0, [])
    drain.start("run 1 of a@b", said.append, ["n1"])
    hindered = drain.finish({"n1": ""})
    assert resumed == ([] if why else ["n1"])
    assert [str(error) for error in hindered.values()] == ([f"fit, but not resumed: {why}"] if why else [])
    assert any("stays drained" in line for line in said) is bool(why)
