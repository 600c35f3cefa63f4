"""Folding of names, with ClusterShell as the oracle: it must unfold to the same names, and mostly fold alike."""

from __future__ import annotations

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from k3env.protocol.folding import fold


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([], ""),
        (["gb300-01"], "gb300-01"),
        (["gb300-01", "gb300-02", "gb300-03", "gb300-04", "gb300-07"], "gb300-[01-04,07]"),
        (["gb300-04", "gb300-01", "gb300-01"], "gb300-[01,04]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n08", "n09", "n10"], "n[08-10]"),
        (["n9", "n09", "n10"], "n[9,09-10]"),
        (["n099", "n100", "n99"], "n[99,099-100]"),
        (["login", "n1", "n2"], "login,n[1-2]"),
        (["n", "n1", "n2"], "n,n[1-2]"),
        (["r1-n01", "r1-n02", "r2-n01"], "r1-n[01-02],r2-n01"),
        (["n1.cluster1.org", "n2.cluster1.org"], "n[1-2].cluster1.org"),
        (["n1-ib", "n2-ib", "n3-ib"], "n[1-3]-ib"),
        (["10.0.0.9", "10.0.0.10", "10.0.1.1"], "10.0.0.[9-10],10.0.1.1"),
        (["[fe80::1]:22", "[fe80::2]:22"], "[fe80::1]:22,[fe80::2]:22"),
        (["7", "8"], "[7-8]"),
    ],
)
def test_examples(names: list[str], folded: str) -> None:
    assert fold(names) == folded


numbered = st.builds(
    lambda prefix, number, width, suffix: f"{prefix}{number:0{width}d}{suffix}",
    st.sampled_from(["n", "gb300-", "rack-a-", "x"]),
    st.integers(0, 1200),
    st.integers(1, 4),
    st.sampled_from(["", "-ib", ".site", ".rack7.site"]),
)
any_name = st.from_regex(r"[a-z][a-z0-9]{0,3}(-[a-z0-9]{1,3}){0,2}(\.[a-z][a-z0-9]{0,3}){0,2}", fullmatch=True)


@given(st.sets(st.one_of(numbered, any_name), max_size=40))
def test_it_unfolds_to_the_same_names(names: set[str]) -> None:
    assert set(NodeSet(fold(names))) == names


@given(st.sets(numbered, min_size=1, max_size=40))
def test_it_is_independent_of_the_order(names: set[str]) -> None:
    assert fold(sorted(names)) == fold(sorted(names, reverse=True))


@given(st.sets(st.integers(0, 2000), min_size=1, max_size=60), st.integers(1, 5))
def test_it_folds_as_clustershell_does(numbers: set[int], width: int) -> None:
    # Where numbers outgrow their padding ClusterShell joins 99 and 100 in some sets and not in others.
    fitting = {number % 10**width for number in numbers} if width > 1 else numbers
    names = [f"gb{number:0{width}d}" for number in fitting]
    assert fold(names) == str(NodeSet.fromlist(names))
