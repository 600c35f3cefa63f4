"""Patterns against set algebra, and against Ansible: subscripts, globs, regular expressions."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from k3env.errors import InventoryError
from k3env.inventory import Inventory, regexes
from tests.unit.inventory.conftest import Make
from tests.unit.inventory.witness import Ansible

GROUPS = {
    "red": ["n01", "n02", "n03"],
    "blue": ["n03", "n04"],
    "green": ["m1", "m2", "n01"],
    "none": [],
}
TEXT = "\n".join(f"{name}: {{hosts: {{{', '.join(f'{host}: ' for host in hosts)}}}}}" for name, hosts in GROUPS.items())
TEXT += "\nboth: {children: {red: , blue: }}\nall: {hosts: {lone: }}\n"
EVERY = {"lone", "n01", "n02", "n03", "n04", "m1", "m2"}
SETS = {name: set(hosts) for name, hosts in GROUPS.items()} | {
    "both": {"n01", "n02", "n03", "n04"},
    "all": EVERY,
    "lone": {"lone"},
    "n[02-04]": {"n02", "n03", "n04"},
    "m*": {"m1", "m2"},
    "n0?": {"n01", "n02", "n03", "n04"},
    "~n0[13]$": {"n01", "n03"},
    "n01": {"n01"},
}

_TERM = st.tuples(st.sampled_from(["", "", "&", "!"]), st.sampled_from(sorted(SETS)))


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(terms=st.lists(_TERM, min_size=1, max_size=5), separator=st.sampled_from([",", " , "]))
def test_patterns_are_set_algebra(terms: list[tuple[str, str]], separator: str, inventory: Make) -> None:
    hosts = inventory(TEXT)
    united = [SETS[name] for sign, name in terms if not sign]
    wanted = set().union(*united) if united else set(EVERY)
    for sign, name in terms:
        if sign == "&":
            wanted &= SETS[name]
    for sign, name in terms:
        if sign == "!":
            wanted -= SETS[name]
    texts = [sign + name for sign, name in terms]
    patterns = [separator.join(texts)]
    if all(sign for sign, _ in terms[1:]) and not any(":" in text or text[0] in "~" for text in texts):
        patterns.append(":".join(texts))
    for pattern in patterns:
        if wanted:
            assert {host.name for host in hosts.select(pattern)} == wanted
        else:
            with pytest.raises(InventoryError, match="means no host"):
                hosts.select(pattern)


AGREED = [
    *("all", "red", "both", "red,blue", "red:blue", "both:!blue", "both:&green", "!red", "&red", "all:!both:!green"),
    *("n*", "*", "*0*", "m?", "r*", "*e*", "~n0[13]", "~(red|m)", "~.*", "~m", "ungrouped", "lone", "n01,n04"),
    *("red[0]", "red[2]", "red[-1]", "red[-3]", "red[0:1]", "red[1:]", "red[0:0]", "red[1:99]", "both[1:2]", "both[3]"),
    *("all[0]", "all[-1]", "all[1:3]", "n*[0]", "n0*[1:2]", "red[0],blue[1]", "both:!red[0:1]", "green[2]:&red"),
]


def test_ansible_means_the_same_hosts(ansible: Ansible, inventory: Make, tmp_path: Path) -> None:
    hosts = inventory(TEXT)
    wanted = ansible.patterns([tmp_path / "hosts.yml"], AGREED)
    assert {pattern: [host.name for host in hosts.select(pattern)] for pattern in AGREED} == wanted


# pattern, column, part of the message, part of expected or remedy
WRONG = [
    ("red[3]", 4, "red has 3 hosts, none at [3]", "0 to 2"),
    ("red[-4]", 4, "red has 3 hosts, none at [-4]", "0 to 2"),
    ("red[3:9]", 4, "none at [3:9]", "0 to 2"),
    ("red[2:1]", 5, "ends before it begins", "red[1:2]"),
    ("none[0]", 5, "none has 0 hosts", ""),
    ("rde[0:1]", 6, "with a dash", "0-1"),
    ("n[0]", 1, "no host or group n0", ""),
    ("x*[0]", 1, "matches no host", ""),
    ("red[0][1]", 7, "next to each other", ""),
    ("red[-1:2]", 7, "with a dash", ""),
]


@pytest.mark.parametrize("pattern, column, message, detail", WRONG, ids=[case[0] for case in WRONG])
def test_subscripts_that_are_wrong(pattern: str, column: int, message: str, detail: str, inventory: Make) -> None:
    with pytest.raises(InventoryError) as caught:
        inventory(TEXT).select(pattern)
    finding = caught.value.finding
    assert (message in finding.message, finding.subject) == (True, f"--hosts:{column}")
    assert detail in f"{finding.expected} {finding.remedy}"


def test_brackets_behind_a_group_and_behind_anything_else(inventory: Make) -> None:
    def meant(hosts: Inventory, pattern: str) -> list[str]:
        return [host.name for host in hosts.select(pattern)]

    hosts = inventory("gpu: {hosts: {x: , y: , z: }}\nall: {hosts: {'gb[1:3]': , 'gpu[1:2]': }}\n")
    assert meant(hosts, "gpu[0]") == ["x"]
    assert meant(hosts, "gpu[0:1]") == ["x", "y"]
    # A dash makes it a range of names, whatever stands before it.
    assert meant(hosts, "gpu[1-2]") == ["gpu1", "gpu2"]
    assert meant(hosts, "gb[3]") == ["gb3"]
    with pytest.raises(InventoryError, match=r"gpu\[1\] is gpu1, and the host 1 of the group gpu too") as caught:
        hosts.select("gpu[1]")
    assert caught.value.finding.remedy == "write gpu1 for that, or gpu[1:1] for a host of the group"
    assert meant(hosts, "gpu[1:1]") == ["y"]


def test_hosts_of_no_inventory_can_be_taken_away(inventory: Make) -> None:
    hosts = inventory("gpu:\n", adhoc_allowed=True)
    assert [host.name for host in hosts.select("gb[01-04],!gb03,!*4")] == ["gb01", "gb02"]
    with pytest.raises(InventoryError, match="no host or group gb07"):
        hosts.select("gb[01-04],!gb07")


def test_addresses_of_the_inventory(inventory: Make) -> None:
    hosts = inventory("all: {hosts: {'::1': {ansible_user: a}, '[2001:db8::5]:2200': , 'fe80::[1:2]': }}\n")
    assert [(host.name, host.address.port) for host in hosts.select("::1,[2001:db8::5]:23")] == [
        ("::1", None),
        ("2001:db8::5", 23),
    ]
    assert hosts.hosts["2001:db8::5"].address.port == 2200
    assert [host.name for host in hosts.select("fe80*")] == ["fe80::1", "fe80::2"]


@pytest.mark.parametrize("expression", ["(n+)+x", "(n|n)*x", "(a?){40}a{40}", "(.*)*(.*)*x$"])
def test_a_regular_expression_is_bounded_in_time(
    expression: str, inventory: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(regexes, "TIMEOUT_S", 0.4)
    hosts = inventory(f"all: {{hosts: {{{'n' * 60}: , {'a' * 39}: }}}}\n")
    begun = time.monotonic()
    with pytest.raises(InventoryError, match=r"takes more than 0.4 s|matches no host"):
        hosts.select(f"~{expression}")
    assert time.monotonic() - begun < 3


def test_a_regular_expression_of_many_choices_still_works(inventory: Make) -> None:
    hosts = inventory(TEXT)
    assert [host.name for host in hosts.select("~^(n0[12]+|m.*)$")] == ["n01", "n02", "m1", "m2"]
    with pytest.raises(InventoryError, match="longer than 1000 characters"):
        hosts.select("~" + "n" * 1001)
