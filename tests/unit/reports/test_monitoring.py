"""JUnit, Nagios and Prometheus, read by who reads them: an XML parser, the guidelines' grammar, prometheus_client."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from k3env.protocol.finding import STATUSES, Evidence, Finding
from k3env.protocol.outcome import Outcome
from k3env.reports.monitoring import junit, nagios, nagios_code, one_line, prometheus
from tests.unit.reports.test_verdict import BAD, DARK, LEFT, NODE, RANK, WARN, outcome

HOSTILE = '\x00\x1b[31m<a b="c">&amp;]]>|\'\n\t=\\ \u202e\ufffe\ud800 ${x}'
EVIL = Finding(
    "gpu.count", "fail", subject=HOSTILE, message=HOSTILE, found=HOSTILE, evidence=(Evidence(HOSTILE, 1, HOSTILE),)
)
ALL = outcome(a=(NODE, RANK, WARN, BAD, DARK, LEFT), b=(NODE, EVIL), c=())

# The parts of the JUnit XSD that readers rely on: elements, their order, their required attributes.
ATTRIBUTES = {
    "testsuites": {"name", "tests", "failures", "errors", "skipped", "time"},
    "testsuite": {"name", "hostname", "tests", "failures", "errors", "skipped", "time", "timestamp"},
    "testcase": {"classname", "name", "time"},
    "failure": {"message", "type"},
    "error": {"message", "type"},
    "skipped": {"message"},
    "system-out": set(),
}
CHILDREN = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "skipped", "system-out"},
}


def read(text: str) -> ElementTree.Element:
    """Return a document that a JUnit reader accepts."""
    root = ElementTree.fromstring(text.encode())  # noqa: S314 - we wrote it
    assert root.tag == "testsuites"
    for element in root.iter():
        assert set(element.attrib) == ATTRIBUTES[element.tag], element.tag
        assert {child.tag for child in element} <= CHILDREN.get(element.tag, set())
        if element.tag == "testcase":
            assert len(element) <= 1
        if element.tag in ("testsuites", "testsuite"):
            cases = list(element.iter("testcase"))
            assert int(element.attrib["tests"]) == len(cases)
            for name, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
                assert int(element.attrib[name]) == sum(case.find(tag) is not None for case in cases)
    return root


def test_junit() -> None:
    root = read(junit(ALL))
    a, b, c = root
    assert [(case.get("classname"), case.get("name"), [child.tag for child in case]) for case in a] == [
        ("gpu", "gpu.count", []),
        ("system", "system.limits", []),
        ("gpu", "gpu.ecc", ["system-out"]),
        ("gpu", "gpu.count", ["failure"]),
        ("gpu", "gpu.xid", ["error"]),
        ("system", "system.limits", ["skipped"]),
    ]
    assert b.get("errors") == "0" and [child.tag for child in c[0]] == ["failure"]
    failure = b[1][0]
    assert '\\x1b[31m<a b="c">&amp;]]>|\'' in (failure.get("message") or "")
    assert "seen: " in (failure.text or "")


def test_warnings_fail_where_that_is_asked_for() -> None:
    one = outcome(a=(NODE, WARN))
    assert read(junit(one)).get("failures") == "0" and read(junit(one, fail_on_warn=True)).get("failures") == "1"


@pytest.mark.parametrize(
    ("found", "code", "strict", "line"),
    [
        ((NODE, RANK), 0, 0, "PREFLIGHT OK - 2 passed |"),
        ((NODE, WARN), 1, 2, "PREFLIGHT WARNING - gpu.ecc: expected none, found 2; 1 warned, 1 passed |"),
        ((NODE, BAD, DARK), 2, 2, "PREFLIGHT CRITICAL - gpu.count: expected 4 GPUs, found 3; 1 failed, 1 unknown, "),
        ((NODE, DARK, WARN), 3, 2, "PREFLIGHT UNKNOWN - gpu.xid: not allowed to read the kernel log; 1 unknown, "),
        ((), 3, 3, "PREFLIGHT UNKNOWN - not reached: a; run.timeout [a]: the host did not answer in time; 1 failed |"),
    ],
)
def test_nagios(found: tuple[Finding, ...], code: int, strict: int, line: str) -> None:
    one = outcome(a=found)
    assert (nagios_code(one), nagios_code(one, fail_on_warn=True)) == (code, strict)
    assert nagios(one).startswith(line)


def test_nothing_is_no_ok() -> None:
    assert nagios_code(Outcome("r", "2026-11-30T08:00:00Z")) == 3


PERFDATA = re.compile(r"[a-z]+=[0-9.]+s?;;;0")


def check_nagios(text: str) -> None:
    """Read a plugin's output: a line of text, a bar and performance data; more lines without a bar."""
    first, *more = text.rstrip("\n").split("\n")
    said, bar, data = first.partition(" | ")
    assert bar and re.match(r"PREFLIGHT (OK|WARNING|CRITICAL|UNKNOWN) - .", said)
    assert all(PERFDATA.fullmatch(word) for word in data.split(" ")) and len(first) < 1024
    assert not any("|" in line for line in (said, *more)) and all(line.isprintable() for line in (first, *more))


def check_prometheus(text: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Read the text as Prometheus does; no series stands there twice, and each family has its help and type."""
    families = {
        family.name: [(sample.labels, sample.value) for sample in family.samples]
        for family in text_string_to_metric_families(text)
    }
    for name, samples in families.items():
        assert len({tuple(sorted(labels.items())) for labels, _ in samples}) == len(samples), name
        assert f"# HELP {name} " in text and text.count(f"# TYPE {name} gauge\n") == 1
    assert text.endswith("\n")
    return families


def test_prometheus() -> None:
    families = check_prometheus(prometheus(ALL, 2, 1796000000.5))
    checks = families["k3env_check_status"]
    states = {(labels["node"], labels["check"], labels["subject"]): labels["status"] for labels, _ in checks}
    assert states["a", "gpu.count", ""] == "fail", "the worst of two counts"
    assert states["a", "system.limits", ""] == "pass"
    assert all(value == 1 for _, value in checks)
    counted = {(labels["node"], labels["status"]): value for labels, value in families["k3env_preflight_checks"]}
    assert counted["a", "fail"] == 1 and counted["b", "pass"] == 1 and len(counted) == 3 * len(STATUSES)
    assert [value for _, value in families["k3env_preflight_reached"]] == [1, 1, 0]
    assert families["k3env_preflight_exit_code"] == [({}, 2)]
    assert families["k3env_preflight_completion_timestamp_seconds"] == [({}, 1796000000.5)]


def test_hostile_texts() -> None:
    check_nagios(nagios(ALL))
    check_prometheus(prometheus(ALL, 2, 0))
    assert one_line(EVIL).isprintable()


@given(st.text(max_size=40), st.text(max_size=40), st.sampled_from(STATUSES))
def test_any_text_is_read_by_all(subject: str, message: str, status: str) -> None:
    item = replace(EVIL, subject=subject, message=message, status=status, expected=message, remedy=subject)
    one = outcome(a=(item, NODE))
    read(junit(one))
    check_nagios(nagios(one))
    check_prometheus(prometheus(one, 0, 0))
