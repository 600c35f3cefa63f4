"""Drivers x machines x the fabric's states x every odd cell x every way in which a tool can fail.

No text makes a collector or a check raise, and none turns what could not be read into a pass.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k3env.node import checks
from k3env.node.checks import Check
from k3env.node.facts import read
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.finding import STATUSES, Finding, Unreadable
from k3env.protocol.profile import Gpu, Profile
from tests.unit.node.played import DENIED, HANGS, KILLED, MISSING, Answer, Played, Said, tray

RULES = checks.select(("gpu.*", "nvlink.*"))
DRIVERS = ("580.105.08", "610.43.02", "616.10.01")
FAILURES = {
    "hangs": HANGS,
    "is killed": KILLED,
    "is missing": MISSING,
    "may not be run": DENIED,
    "is cut off": Said("00000008:06:00.0, NVID"),
    "is no UTF-8": Said(b"\xff\xfe\x00\x80\n"),
    "is refused": Said("Failed to initialize NVML: Unknown Error\n", 255),
    "says something else": Said("Happy new year\n"),
}


def judged(machine: Machine, profile: Profile, rules: tuple[Check, ...] = RULES) -> dict[str, Finding]:
    """Return the findings by id; facts cross a pipe, as between an agent's processes."""
    facts = dict.fromkeys(fact for rule in rules for fact in rule.facts)
    values = {fact: crossed(fact, read(fact, machine, profile)) for fact in facts}
    return {rule.id: checks.judge(rule, values, profile) for rule in rules}


def crossed(fact: Any, value: Any) -> Any:
    kind = Unreadable if isinstance(value, Unreadable) else codec.hints(fact)["return"]
    return codec.decode(kind, codec.encode(value))


def told(findings: dict[str, Finding], *statuses: str) -> set[str]:
    return {id for id, finding in findings.items() if finding.status in statuses}


def profile(gpu: str) -> Profile:
    arch = "100-real" if gpu in ("GB200", "B200") else "103-real"
    return Profile(gpu=Gpu(count=4 if gpu.startswith("GB") else 8, arch=arch), at_rank=True)


# Machines and drivers

MACHINES: dict[str, tuple[set[str], set[str], set[str]]] = {
    # fail, warn, skip; the rest passes
    "GB300": (set(), set(), {"nvlink.fabric_manager"}),
    "GB200": (set(), set(), {"nvlink.fabric_manager"}),
    "B300": (set(), {"gpu.platform"}, {"nvlink.domain", "nvlink.health", "IMEX"}),
    "B200": (set(), {"gpu.platform"}, {"nvlink.domain", "nvlink.health", "IMEX"}),
    "H200": ({"gpu.cc", "nvlink.domain"}, {"gpu.platform"}, {"nvlink.health", "nvlink.fabric_manager", "IMEX"}),
}
IMEX = {rule.id for rule in RULES if rule.id.startswith("nvlink.imex")}
ALWAYS = {"gpu.driver.pin", "gpu.arch_built"}


@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("gpu", MACHINES)
def test_machines(tmp_path: Path, gpu: str, driver: str) -> None:
    machine = tray(tmp_path, gpu, driver=driver).machine
    found = judged(machine, profile(gpu))
    failed, warned, skipped = MACHINES[gpu]
    wanted = (skipped - {"IMEX"}) | (IMEX if "IMEX" in skipped else set()) | ALWAYS
    assert (told(found, "fail"), told(found, "warn"), told(found, "skip")) == (failed, warned, wanted)
    assert told(found, "unknown") == set()
    assert not [words for words in machine.asked if words in ("nvidia-smi", "nvidia-smi -L")], "nobody reads the banner"
    if gpu == "H200":
        assert found["gpu.cc"].found is not None and found["gpu.cc"].found.startswith("9.0 (NVIDIA H200")
        assert "zeros" in (found["nvlink.domain"].found or "")


def test_a_gb10(tmp_path: Path) -> None:
    """Its memory has no size, its fabric is N/A; it is told that it is not supported."""
    played = tray(tmp_path, gpus=1, cells={"compute_cap": "12.1", "memory.total": "[N/A]", "memory.used": "[N/A]"})
    (tmp_path / "sys/bus/pci/devices/0008:06:00.0/device").write_text("0x2e12\n")
    found = judged(played.machine, profile("GB300"))
    assert {"gpu.cc", "gpu.count"} <= told(found, "fail")
    assert "not supported" in (found["gpu.cc"].remedy or "")
    assert found["gpu.mem_used"].status == "unknown"
    assert told(found, "pass") & (IMEX | {"gpu.platform"}) == set()


def test_no_gpu_at_all(tmp_path: Path) -> None:
    found = judged(tray(tmp_path, gpus=0).machine, profile("GB300"))
    assert "gpu.count" in told(found, "fail") and "gpu.cc" in told(found, "fail")
    passed = told(found, "pass")
    assert {id for id in passed if not id.startswith("gpu.driver")} <= {
        "gpu.nvml.responsive",
        "gpu.procs",
        "gpu.xid",
        "gpu.xid_app",
    }


# The fabric of one tray, in the words of nvidia-smi


@pytest.mark.parametrize(
    ("cells", "state", "domain", "health"),
    [
        ({}, "pass", "pass", "pass"),
        ({"state": "N/A", "status": "N/A", "cliqueId": "N/A", "clusterUuid": "N/A"}, "fail", "fail", "pass"),
        ({"state": "Not Supported", "cliqueId": "0"}, "fail", "fail", "pass"),
        ({"state": "Not Started", "status": "N/A"}, "fail", "unknown", "pass"),
        ({"state": "In Progress"}, "fail", "unknown", "pass"),
        ({"status": "Insufficient Resources"}, "fail", "unknown", "pass"),
        ({"clusterUuid": "00000000-0000-0000-0000-000000000000", "cliqueId": "0"}, "pass", "fail", "pass"),
        ({"cliqueId": "32766"}, "pass", "pass", "pass"),
        ({"health.summary": "Unhealthy"}, "fail", "pass", "pass"),
        ({"health.summary": "Limited Capacity"}, "pass", "pass", "warn"),
        ({"health.bandwidth": "Degraded"}, "pass", "pass", "warn"),
        ({"health.route_unhealthy": "True"}, "pass", "pass", "warn"),
        ({"health.access_timeout_recovery": "True"}, "pass", "pass", "warn"),
        ({"health.incorrect_configuration": "Insufficient NVLinks"}, "fail", "pass", "pass"),
        ({"health.summary": "N/A"}, "pass", "pass", "pass"),
    ],
)
@pytest.mark.parametrize("driver", DRIVERS)
def test_the_fabric(tmp_path: Path, driver: str, cells: dict[str, str], state: str, domain: str, health: str) -> None:
    ill = {f"fabric.{name}": text for name, text in cells.items()}
    found = judged(tray(tmp_path, driver=driver, cells=ill).machine, profile("GB300"))
    seen = [found[id].status for id in ("nvlink.state", "nvlink.domain", "nvlink.health")]
    assert seen == [state, domain, health]


# Odd cells. What each value's check is, is the table.

ODD = (
    *("N/A", "[N/A]", "[Not Supported]", "[Unknown Error]", "[GPU requires reset]", "[GPU is lost]", "", "ERR!"),
    *("[Insufficient Permissions]", "[Requested functionality has been deprecated]", "gibberish", "\ufffd\ufffd"),
)
JUDGES = {
    "compute_cap": ("gpu.cc",),
    "gpu_recovery_action": ("gpu.recovery",),
    "remapped_rows.pending": ("gpu.rowremap",),
    "remapped_rows.failure": ("gpu.rowremap",),
    "ecc.errors.uncorrected.volatile.total": ("gpu.ecc",),
    "mig.mode.current": ("gpu.mig",),
    "compute_mode": ("gpu.compute_mode", "gpu.exclusive"),
    "memory.used": ("gpu.mem_used",),
    "persistence_mode": ("gpu.persistence",),
    "clocks_event_reasons.active": ("gpu.throttle",),
    "power.limit": ("gpu.power_cap",),
    "power.default_limit": ("gpu.power_cap",),
    "fabric.state": ("nvlink.state", "nvlink.domain"),
    "fabric.status": ("nvlink.state", "nvlink.domain"),
    "fabric.cliqueId": ("nvlink.domain",),
    "fabric.clusterUuid": ("nvlink.domain",),
    "fabric.health.bandwidth": ("nvlink.health",),
}


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("field", JUDGES)
def test_an_odd_cell_never_passes(tmp_path: Path, field: str, odd: str) -> None:
    found = judged(tray(tmp_path, cells={field: odd}).machine, profile("GB300"))
    if field == "fabric.health.bandwidth" and odd == "N/A":
        return  # many systems say so; it is accepted
    assert not [id for id in JUDGES[field] if found[id].status == "pass"], odd


@pytest.mark.parametrize("odd", ["[GPU is lost]", "[GPU requires reset]"])
def test_a_lost_gpu_is_told_by_any_cell(tmp_path: Path, odd: str) -> None:
    found = judged(tray(tmp_path, cells={"persistence_mode": odd}).machine, profile("GB300"))
    assert found["gpu.recovery"].status == "fail"


# Tools that fail

OF_TOOL = {
    "nvidia-smi": {
        "gpu.nvml.responsive",
        *(
            "gpu.driver.mismatch",
            "gpu.count",
            "gpu.cc",
            "gpu.recovery",
            "gpu.rowremap",
            "gpu.repair",
            "gpu.ecc",
            "gpu.mig",
        ),
        *("gpu.compute_mode", "gpu.exclusive", "gpu.procs", "gpu.mem_used", "gpu.persistence", "gpu.throttle"),
        *("gpu.power_cap", "nvlink.links", "nvlink.state", "nvlink.domain", "nvlink.health"),
    },
    "nvidia-imex-ctl": {"nvlink.imex_daemon", "nvlink.imex_domain", "nvlink.imex_peers", "nvlink.imex_version"},
    "journalctl": {"gpu.xid", "gpu.xid_app"},
}


@pytest.mark.parametrize("failure", FAILURES)
@pytest.mark.parametrize("tool", OF_TOOL)
def test_a_tool_that_fails_passes_nothing_of_it(tmp_path: Path, tool: str, failure: str) -> None:
    played = tray(tmp_path)
    played.programs[tool] = FAILURES[failure]
    found = judged(played.machine, profile("GB300"))
    assert told(found, "pass") & OF_TOOL[tool] == set()
    others = set(found) - OF_TOOL[tool] - ALWAYS - {"nvlink.fabric_manager"}
    assert others <= told(found, "pass"), "the rest still runs"


@pytest.mark.parametrize("failure", FAILURES)
def test_a_manager_that_can_not_be_asked(tmp_path: Path, failure: str) -> None:
    played = tray(tmp_path, "B300")
    played.programs["systemctl"] = FAILURES[failure]
    assert judged(played.machine, profile("B300"))["nvlink.fabric_manager"].status == "unknown"


# Public reports


def masked(played: Played) -> None:
    (played.directory / "dev/nvidia2").unlink()


def replaced(program: str, answer: Said) -> Callable[[Played], None]:
    def replace(played: Played) -> None:
        played.programs[program] = answer

    return replace


def without(path: str) -> Callable[[Played], None]:
    def remove(played: Played) -> None:
        (played.directory / path).unlink()
        (played.directory / path).parent.rmdir()

    return remove


def prefixed(played: Played) -> None:
    """Let a line about a lost GPU stand before the rows of the other three."""
    masked(played)
    smi = played.programs["nvidia-smi"]

    def answer(words: tuple[str, ...]) -> Said:
        said = smi(words) if callable(smi) else smi
        return Said(f"Unable to determine the device handle for GPU0018:06:00.0: Unknown Error\n{said.stdout}", 0)

    played.programs["nvidia-smi"] = answer


MISMATCH = Said("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161\n", 18)
REPORTS: dict[str, tuple[Callable[[Played], None], dict[str, str], dict[str, str]]] = {
    "1 mismatch": (
        replaced("nvidia-smi", MISMATCH),
        {},
        {"gpu.driver.mismatch": "fail", "gpu.nvml.responsive": "skip"},
    ),
    "2 device handle": (prefixed, {}, {"gpu.count": "fail", "gpu.mig": "pass", "gpu.repair": "pass"}),
    "2 masked": (masked, {}, {"gpu.count": "fail"}),
    "8 hangs": (replaced("nvidia-smi", HANGS), {}, {"gpu.nvml.responsive": "fail", "gpu.count": "unknown"}),
    "10 in progress": (lambda _: None, {"fabric.state": "In Progress"}, {"nvlink.state": "fail"}),
    "12 resources": (
        lambda _: None,
        {"fabric.status": "Insufficient Resources", "fabric.clusterUuid": "0" * 8 + "-0000-0000-0000-" + "0" * 12},
        {"nvlink.state": "fail", "nvlink.domain": "fail"},
    ),
    "18 no manager": (lambda _: None, {}, {"nvlink.fabric_manager": "skip"}),
    "20 no channel": (without("dev/nvidia-caps-imex-channels/channel0"), {}, {"nvlink.imex_channel": "fail"}),
}


@pytest.mark.parametrize("report", REPORTS)
def test_public_reports(tmp_path: Path, report: str) -> None:
    harm, cells, wanted = REPORTS[report]
    played = tray(tmp_path, cells=cells)
    harm(played)
    found = judged(played.machine, profile("GB300"))
    assert {id: found[id].status for id in wanted} == wanted


def test_a_health_mask_of_0xaa_is_healthy() -> None:
    """Public report 19: in its two-bit fields 1 is bad, and 2 is good."""
    from types import SimpleNamespace

    from k3env.node.facts import nvml

    out = SimpleNamespace(state=3, status=0, clique=1, uuid=bytes(16), mask=0x1AA, summary=1)
    found = nvml._fabric(out)
    assert found["fabric.health.bandwidth"] == "Full"
    assert found["fabric.health.route_unhealthy"] == "False"
    assert found["fabric.health.incorrect_configuration"] == "None"
    out.mask = 0x455
    assert nvml._fabric(out)["fabric.health.bandwidth"] == "Degraded"
    assert nvml._fabric(out)["fabric.health.incorrect_configuration"] == "No Partition"


# Any text

TEXT = st.one_of(
    st.binary(max_size=200),
    st.text(max_size=200).map(lambda text: text.encode("utf-8", "replace")),
    st.lists(
        st.sampled_from(
            ["00000008:06:00.0", ", ", "GPU 0: x", "\n", " Link 0: ", "Xid (PCI:x): 79", "{", "[N/A]", "\t"]
        )
    ).map(lambda parts: "".join(parts).encode()),
)
SAID = st.builds(
    Said,
    TEXT,
    st.one_of(st.none(), st.sampled_from([0, 1, 2, 6, 9, 14, 18, 127, 255, -9])),
    st.text(max_size=50),
    st.booleans(),
)


@pytest.fixture(scope="module")
def healthy(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return tray(tmp_path_factory.mktemp("healthy"))


@settings(max_examples=150, deadline=None)
@given(SAID, SAID, SAID, st.sampled_from(["job", "prolog", "hc"]))
def test_no_text_makes_anything_raise(healthy: Played, smi: Said, imex: Said, log: Said, context: str) -> None:
    programs: dict[str, Answer] = {
        "nvidia-smi": smi,
        "nvidia-imex-ctl": imex,
        "journalctl": log,
        "systemctl": log,
        "dmesg": log,
    }
    found = judged(Played(healthy.directory, programs).machine, Profile(context=context))
    assert {finding.status for finding in found.values()} <= set(STATUSES)
    assert not [item.message for item in found.values() if "itself failed" in item.message]


CUT = {
    "--query-gpu=pci.bus_id,name": {"gpu.count", "gpu.cc", "gpu.driver.mismatch", "gpu.nvml.responsive"},
    "--query-gpu=pci.bus_id,gpu_recovery": {"gpu.recovery", "gpu.rowremap", "gpu.mig", "gpu.power_cap", "gpu.ecc"},
    "--query-gpu=pci.bus_id,fabric": {"nvlink.state", "nvlink.domain", "nvlink.health"},
    "-q": {"gpu.repair"},
    "nvlink": {"nvlink.links"},
}


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(list(CUT)), st.floats(0, 1, exclude_max=True), st.binary(max_size=3))
def test_an_answer_that_is_cut_off_within_a_line_passes_nothing(
    healthy: Played, kind: str, at: float, junk: bytes
) -> None:
    whole = healthy.programs["nvidia-smi"]

    def answer(words: tuple[str, ...]) -> Said:
        said = whole(words) if callable(whole) else whole
        if not words[1].startswith(kind):
            return said
        text = str(said.stdout).encode()
        cut = text[: int(len(text) * at)].rstrip(b"\n") + junk.replace(b"\n", b"")
        return Said(cut or b"0")

    found = judged(Played(healthy.directory, {**healthy.programs, "nvidia-smi": answer}).machine, profile("GB300"))
    assert told(found, "pass") & CUT[kind] == set()


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30), st.integers(0, 3))
def test_any_cell_is_read_or_kept(text: str, index: int) -> None:
    from k3env.node.facts.smi import value

    found = value(text)
    assert found is None or found == text.strip()
