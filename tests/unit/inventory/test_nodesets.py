"""Node sets and ranges: what they expand to, and which character is wrong."""

from __future__ import annotations

import itertools

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from hypothesis import given, settings
from hypothesis import strategies as st

from k3env.inventory.nodesets import MAX_HOSTS, BadNodeSet, expand
from k3env.inventory.ranges import expand_range, is_range

GOOD = {
    "gb300-[01-04,7]": "gb300-01 gb300-02 gb300-03 gb300-04 gb300-7",
    "gb[001-004]-nvl[1-2]": " ".join(f"gb{n:03}-nvl{m}" for n in range(1, 5) for m in (1, 2)),
    "rack[0-1]_blade[0-1]": "rack0_blade0 rack0_blade1 rack1_blade0 rack1_blade1",
    "c438-[062,104]": "c438-062 c438-104",
    "[1-3].rack.local": "1.rack.local 2.rack.local 3.rack.local",
    "[01-03]gb": "01gb 02gb 03gb",
    "n[9-11]": "n9 n10 n11",
    "n[099-100]": "n099 n100",
    "n[1-9/4]": "n1 n5 n9",
    "n[0]": "n0",
    "n[1-2]5": "n15 n25",
    "r02c[03-04]x": "r02c03x r02c04x",
}


@pytest.mark.parametrize("text", GOOD)
def test_expands(text: str) -> None:
    assert sorted(expand(text)) == sorted(GOOD[text].split())


# text, offset of the character, part of the message, part of the remedy
BAD = [
    ("n[3-1]", 2, "ends before it begins", "1-3"),
    ("n[01-3]", 2, "different numbers of digits", "01-03"),
    ("n[1-03]", 2, "different numbers of digits", "01-03"),
    ("n[01-100]", 2, "different numbers of digits", "001-100"),
    ("n[1,01-3]", 4, "different numbers of digits", "01-03"),
    ("n[1-3", 1, "not closed", "]"),
    ("rack[0-1]_blade[0-1", 15, "not closed", "]"),
    ("n1-3]", 4, "never opened", ""),
    ("n[1-2],x", 6, "can't be in a host name", ""),
    ("n[1-2]!n1", 6, "can't be in a host name", ""),
    ("n[1-2]]", 6, "never opened", ""),
    ("n[[1-2]]", 1, "not closed", ""),
    ("n[]", 2, "empty", "[01-04,7]"),
    ("n[1,]", 4, "a number is missing", "comma"),
    ("n[,1]", 2, "a number is missing", "comma"),
    ("n[1,,2]", 4, "a number is missing", "comma"),
    ("n[a-c]", 2, "no range of numbers", ""),
    ("n[1-c]", 4, "no range of numbers", ""),
    ("n[-3]", 2, "no range of numbers", ""),
    ("n[1-]", 4, "no range of numbers", ""),
    ("n[1-2-3]", 5, "no range of numbers", ""),
    ("n[ 1-2 ]", 2, "no range of numbers", ""),
    ("n[1-3/]", 6, "no range of numbers", ""),
    ("n[1-3/0]", 6, "never ends", ""),
    ("n[1/2]", 3, "no range of numbers", ""),
    ("gb300[:2]", 6, "begin with number 0", "write gb300[0:2]"),
    ("n[1:3]", 3, "with a dash", "1-3"),
    ("n[1-2][3-4]", 6, "next to each other", ""),
    ("n[1-999999999]", 2, "more than 65536 hosts", ""),
    ("n[1-300]x[1-300]", 10, "more than 65536 hosts", ""),
    ("n[1-99999999999999999999]", 2, "too long", ""),
]


@pytest.mark.parametrize("text, at, message, remedy", BAD, ids=[case[0] for case in BAD])
def test_points_at_what_is_wrong(text: str, at: int, message: str, remedy: str) -> None:
    with pytest.raises(BadNodeSet) as caught:
        expand(text)
    if "no range" in message:
        # At the first character that can't belong to a range, which is never before the part.
        assert text.index("[") < caught.value.at <= max(at, len(text) - 1)
    else:
        assert caught.value.at == at
    assert message in caught.value.message
    assert remedy in (caught.value.remedy or "")


def test_as_many_as_slurm_and_no_more() -> None:
    assert len(expand(f"n[1-{MAX_HOSTS}]")) == MAX_HOSTS
    with pytest.raises(BadNodeSet):
        expand(f"n[0-{MAX_HOSTS}]")


_NUMBER = st.integers(0, 120)
_RANGE = st.tuples(_NUMBER, st.integers(0, 15), st.integers(0, 3), st.sampled_from(["", "/1", "/2", "/7"])).map(
    lambda drawn: f"{drawn[0]:0{drawn[2]}}-{drawn[0] + drawn[1]:0{drawn[2]}}{drawn[3]}"
)
_INSIDE = st.lists(st.one_of(_NUMBER.map(str), _RANGE), min_size=1, max_size=3).map(",".join)
_NODESET = st.lists(st.tuples(st.sampled_from(["n", "gb-", "r.x", "_"]), _INSIDE), min_size=1, max_size=2).map(
    lambda parts: "".join(f"{name}[{inside}]" for name, inside in parts)
)


@settings(max_examples=200, deadline=None)
@given(_NODESET)
def test_agrees_with_clustershell(text: str) -> None:
    try:
        wanted = sorted(NodeSet(text, resolver=RESOLVER_NOGROUP))
    except NodeSetException:
        with pytest.raises(BadNodeSet):
            expand(text)
    else:
        assert sorted(expand(text)) == wanted


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="n[]0123-,/:x", min_size=1, max_size=14).filter(lambda text: "[" in text))
def test_no_text_gives_another_error(text: str) -> None:
    try:
        names = expand(text)
    except BadNodeSet as bad:
        assert 0 <= bad.at <= len(text)
    else:
        assert names and all("[" not in name for name in names)


RANGES = {
    "gb[01:04]": ["gb01", "gb02", "gb03", "gb04"],
    "n[8:11]": ["n8", "n9", "n10", "n11"],
    "n[8:011]": ["n8", "n9", "n10", "n11"],
    "n[:2]": ["n0", "n1", "n2"],
    "x[a:c]": ["xa", "xb", "xc"],
    "x[a:g:3]": ["xa", "xd", "xg"],
    "n[1:10:4]": ["n1", "n5", "n9"],
    "n[01:10:9]": ["n01", "n10"],
    "db[1:2]-[a:b]": ["db1-a", "db1-b", "db2-a", "db2-b"],
    "[1:2].rack": ["1.rack", "2.rack"],
}


@pytest.mark.parametrize("text", RANGES)
def test_expands_as_ansible_does(text: str) -> None:
    assert is_range(text)
    assert expand_range(text) == RANGES[text]


BAD_RANGES = [
    ("n[3:1]", 2, "ends before it begins"),
    ("n[c:a]", 2, "ends before it begins"),
    ("n[01:3]", 2, "different numbers of digits"),
    ("n[1:]", 4, "no end"),
    ("n[1:3:0]", 6, "above 0"),
    ("n[1:3:x]", 6, "above 0"),
    ("n[1:3:1:1]", 2, "a begin, an end and a step"),
    ("n[1:x]", 2, "from number to number"),
    ("n[1:3,7]", 2, "from number to number"),
    ("n[1:2]]", 6, "belongs to no range"),
    ("n[1:70000]", 2, "more than 65536"),
    ("n[1:300]x[1:300]", 10, "more than 65536"),
]


@pytest.mark.parametrize("text, at, message", BAD_RANGES, ids=[case[0] for case in BAD_RANGES])
def test_points_at_what_is_wrong_in_a_range(text: str, at: int, message: str) -> None:
    with pytest.raises(BadNodeSet) as caught:
        expand_range(text)
    assert (caught.value.at, message in caught.value.message) == (at, True)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 99), st.integers(0, 99), st.integers(1, 9), st.integers(1, 3))
def test_a_range_of_numbers_has_them_all(begin: int, length: int, step: int, width: int) -> None:
    end = begin + length
    text = f"n[{begin:0{width}}:{end:0{width}}:{step}]x[a:b]"
    low = f"{begin:0{width}}"
    if low.startswith("0") and len(low) > 1 and len(low) != len(f"{end:0{width}}"):
        return
    padding = width if low.startswith("0") and len(low) > 1 else 0
    wanted = [
        f"n{number:0{padding}}x{letter}" for number, letter in itertools.product(range(begin, end + 1, step), "ab")
    ]
    assert expand_range(text) == wanted
