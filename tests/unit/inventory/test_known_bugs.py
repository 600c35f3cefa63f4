"""What other tools got wrong about inventories, by their own reports."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet
from hypothesis import given, settings
from hypothesis import strategies as st

from k3env.errors import DocumentError, InventoryError
from k3env.inventory.nodesets import BadNodeSet, expand
from k3env.protocol.folding import fold
from tests.unit.inventory.conftest import Make


@pytest.mark.parametrize("key", ["'[1:3].rack.local'", "'[01-03]gb'", '"[1:3].rack.local"'])
def test_a_line_that_begins_with_a_range_is_no_header(key: str, inventory: Make) -> None:
    """ansible#17342, #15331."""
    assert len(inventory(f"all:\n  hosts:\n    {key}:\n").hosts) == 3


def test_a_range_that_needs_quotes_says_so(inventory: Make) -> None:
    with pytest.raises(DocumentError) as caught:
        inventory("all:\n  hosts:\n    [1:3].rack.local:\n")
    assert caught.value.finding.subject.startswith("hosts.yml:3:")


def test_a_host_of_a_group_and_its_child_counts_once(inventory: Make) -> None:
    """ansible#80059."""
    found = inventory("parent: {hosts: {h: , i: }, children: {child: {hosts: {h: }}}}\n")
    assert [host.name for host in found.select("parent", "child")] == ["h"]
    assert [host.name for host in found.select("parent,child,h")] == ["h", "i"]
    assert found.groups["parent"] == ("h", "i")


def test_entries_that_are_all_commented_out(inventory: Make) -> None:
    """ansible#47254."""
    found = inventory("gpu:\n  hosts:\n    # n1\n  vars:\n    # a: 1\nall: {hosts: {h: }}\n")
    assert found.groups["gpu"] == ()
    with pytest.raises(InventoryError, match="means no host"):
        found.select("gpu")


def test_keys_given_twice(inventory: Make) -> None:
    """ansible#16903, #66786: the last one won; told apart from merge keys."""
    with pytest.raises(DocumentError, match="n1 is given twice"):
        inventory("all:\n  hosts:\n    n1: {a: 1}\n    n1: {a: 2}\n")
    merged = inventory("all:\n  hosts:\n    n0: &base {a: 1, b: 1}\n    n1: {<<: *base, a: 2}\n")
    assert {key: node.plain for key, node in merged.hosts["n1"].variables.items()} == {"a": 2, "b": 1}


VALUES = {
    "123#456": "123#456",
    '"123456."': "123456.",
    "'123456.'": "123456.",
    "'0123'": "0123",
    "1e3": "1e3",
    "'!x'": "!x",
    "'%h'": "%h",
    '"pa\\"ss#1"': 'pa"ss#1',
    "node.site.": "node.site.",
    "'{'": "{",
}


@pytest.mark.parametrize("written", VALUES)
def test_values_are_neither_cut_nor_retyped(written: str, inventory: Make) -> None:
    """ansible#6147, #7053, #77617, #69066."""
    found = inventory(f"all: {{hosts: {{h: {{password: {written}}}}}}}\n")
    assert found.hosts["h"].variables["password"].plain == VALUES[written]


def test_octal_is_warned_about(inventory: Make) -> None:
    found = inventory("all: {hosts: {h: {mode: 0123}}}\n")
    assert found.hosts["h"].variables["mode"].plain == 83
    assert [(warning.id, warning.subject) for warning in found.warnings] == [("document.surprise", "hosts.yml:1:25")]


FOLDED = {
    "sh-107-06,sh-110-15": "sh-107-06,sh-110-15",
    "r02c[03-04],r14c[11-13]": "r02c[03-04],r14c[11-13]",
    "node541,node542,node0541,node0542": "node[541-542,0541-0542]",
    "logstash2,logstash03": "logstash[2,03]",
}


@pytest.mark.parametrize("names", FOLDED)
def test_padding_is_kept(names: str) -> None:
    """clustershell#429, #293, #524."""
    expanded = sorted(NodeSet(names, resolver=RESOLVER_NOGROUP))
    folded = fold(expanded)
    assert sorted(NodeSet(folded, resolver=RESOLVER_NOGROUP)) == expanded
    assert sorted(name for part in _terms(folded) for name in expand(part)) == expanded
    assert sorted(_terms(folded)) == sorted(_terms(FOLDED[names]))


@pytest.mark.parametrize(
    "pattern, hosts",
    [
        ("rack[0-1]_blade[0-1]", "rack0_blade0 rack0_blade1 rack1_blade0 rack1_blade1"),
        ("c427-032,c429-002", "c427-032 c429-002"),
        ("c438-[062,104]", "c438-062 c438-104"),
        (" n[1-2] , n4 ", "n1 n2 n4"),
    ],
)
def test_what_home_grown_parsers_of_slurm_break_on(pattern: str, hosts: str, inventory: Make) -> None:
    """NVIDIA/cloudai#1023, OSC/ood_core#54."""
    found = inventory("gpu:\n", adhoc_allowed=True).select(pattern)
    assert sorted(host.name for host in found) == hosts.split()


@pytest.mark.parametrize(
    "pattern, message, column",
    [
        ("n1,", "a name is missing", 4),
        ("n[1-2", "not closed", 2),
        ("n[]", "empty", 3),
        ("n[1-999999999]", "more than 65536 hosts", 3),
        ("n[ 1-2]", "holds a space", 1),
    ],
)
def test_what_they_take_in_silence(pattern: str, message: str, column: int, inventory: Make) -> None:
    with pytest.raises(InventoryError, match=message) as caught:
        inventory("gpu:\n", adhoc_allowed=True).select(pattern)
    assert caught.value.finding.subject == f"--hosts:{column}"


_NUMBER = st.tuples(st.integers(0, 130), st.integers(1, 3)).map(lambda drawn: f"{drawn[0]:0{drawn[1]}}")
_PART = st.tuples(st.sampled_from(["n", "gb-", "r1c", "x.y"]), st.lists(_NUMBER, min_size=1, max_size=4))
_HOSTLIST = st.lists(_PART.map(lambda part: f"{part[0]}[{','.join(part[1])}]"), min_size=1, max_size=3)


@settings(max_examples=200, deadline=None)
@given(parts=_HOSTLIST)
def test_folding_undoes_expanding(parts: list[str]) -> None:
    names = {name for part in parts for name in expand(part)}
    assert names == set(NodeSet(",".join(parts), resolver=RESOLVER_NOGROUP))
    folded = fold(names)
    assert set(NodeSet(folded, resolver=RESOLVER_NOGROUP)) == names
    assert {name for part in _terms(folded) for name in expand(part)} == names


def _terms(folded: str) -> list[str]:
    depth, parts = 0, [""]
    for char in folded:
        depth += {"[": 1, "]": -1}.get(char, 0)
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


@pytest.mark.parametrize("number", ["n[08-11]", "n[8-11]", "n[098-101]"])
def test_ends_of_one_width(number: str) -> None:
    if number == "n[08-11]":
        assert expand(number)[0] == "n08"
        with pytest.raises(BadNodeSet):
            expand("n[08-100]")
    assert len(expand(number)) == 4
