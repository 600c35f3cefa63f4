"""`run:RUN`: the hosts that failed in an earlier run, as a term of a pattern."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from k3env.errors import InventoryError, UsageError
from k3env.inventory import Inventory
from tests.unit.inventory.conftest import Make

FAILED = {"r1": ["n2", "n3"], "gone": ["n2", "old"]}


def earlier(run: str) -> Sequence[str]:
    if run not in FAILED:
        raise UsageError(f"no run {run}", remedy="did you mean r1?", expected="the name of one run")
    return FAILED[run]


@pytest.fixture
def hosts(inventory: Make) -> Inventory:
    return replace(inventory("all: {hosts: {'n[1:4]': }, children: {odd: {hosts: {n1: , n3: }}}}"), earlier=earlier)


# --hosts, --limit, what is left
CHOSEN = [
    ("run:r1", None, "n2 n3"),
    ("all", "run:r1", "n2 n3"),
    ("all", "run:r1:&odd", "n3"),
    ("all", "odd,run:r1", "n1 n2 n3"),
    ("all", "all:!run:r1", "n1 n4"),
    ("all", "!run:gone", "n1 n3 n4"),
    ("all", "odd:&run:r1", "n3"),
]


@pytest.mark.parametrize("pattern, limit, left", CHOSEN)
def test_terms(hosts: Inventory, pattern: str, limit: str | None, left: str) -> None:
    assert [host.name for host in hosts.select(pattern, limit)] == left.split()


# --hosts, --limit, and the words that say what is wrong
WRONG = [
    ("all", "run:r9", "no run r9", "did you mean r1?"),
    ("all", "run:", "no run ", "did you mean r1?"),
    ("all", "run:gone", "there is no host or group old", "add it"),
    ("n1", "run:r1", "leaves none", "look at --hosts"),
]


@pytest.mark.parametrize("pattern, limit, message, remedy", WRONG)
def test_what_is_wrong_is_said(hosts: Inventory, pattern: str, limit: str, message: str, remedy: str) -> None:
    with pytest.raises(InventoryError) as caught:
        hosts.select(pattern, limit)
    assert message in str(caught.value) and remedy in str(caught.value.finding.remedy)


def test_hosts_that_no_inventory_knows_are_found_again(inventory: Make) -> None:
    hosts = replace(inventory("all:\n", adhoc_allowed=True), earlier=lambda run: ["x:2222", "y"])
    assert [host.name for host in hosts.select("x:2222,z,y", "run:last")] == ["x:2222", "y"]


def test_an_inventory_without_records_knows_no_run(inventory: Make) -> None:
    with pytest.raises(InventoryError, match="no run r1"):
        inventory("all: {hosts: {n1: }}").select("run:r1")
