"""The table of contexts, and what may stop a job."""

from __future__ import annotations

from itertools import product

import pytest

from k3env.protocol.context import CONTEXTS, DEFAULT, of_scope, severity, stops
from k3env.protocol.finding import SCOPES, SEVERITIES, STATUSES, Finding


def test_the_table() -> None:
    assert {name: (item.scopes, item.seconds, item.fail_open) for name, item in CONTEXTS.items()} == {
        "hc": (("node",), 5.0, True),
        "prolog": (("node",), 5.0, True),
        "job": (SCOPES, 60.0, False),
        "login": (("static",), 3.0, False),
        "image": (("static",), 60.0, False),
    }
    assert DEFAULT in CONTEXTS


@pytest.mark.parametrize(
    ("scope", "contexts"),
    [("node", "hc prolog job"), ("rank", "job"), ("static", "job login image"), ("across", "job")],
)
def test_a_scope_has_its_contexts(scope: str, contexts: str) -> None:
    assert of_scope(scope) == tuple(contexts.split())


def test_one_kind_of_finding_stops() -> None:
    stopping = [
        combination
        for combination in product(STATUSES, SEVERITIES, SCOPES)
        if stops(Finding("x.y", combination[0], combination[1], combination[2]))
    ]
    assert stopping == [("fail", "fail", "node")]


@pytest.mark.parametrize(
    ("site", "told"),
    [
        ({}, "fail"),
        ({"gpu.count": "info"}, "info"),
        ({"gpu.*": "warn"}, "warn"),
        ({"gpu.*": "warn", "gpu.c*": "info"}, "info"),
        ({"gpu.count": "info", "[g]pu.count": "warn"}, "info"),
        ({"gpu.coun?": "warn", "gpu.count": "info"}, "info"),
        ({"*gpu.*count*": "warn", "gpu.count": "info"}, "info"),
        ({"gpu.cc": "warn"}, "fail"),
    ],
)
def test_a_site_says_how_much_a_check_matters(site: dict[str, str], told: str) -> None:
    assert severity("gpu.count", "fail", site) == told
