"""Unfolding of node sets, with ClusterShell as the oracle."""

from __future__ import annotations

import contextlib

import pytest
from ClusterShell.NodeSet import NodeSet
from hypothesis import given
from hypothesis import strategies as st

from k3env.protocol.folding import fold
from k3env.protocol.unfolding import unfold


@pytest.mark.parametrize(
    "text",
    [
        "gb300-01",
        "gb300-[01-04,07]",
        "gb300-[01-04],login1",
        "r[1-2]n[08-11]",
        "n[1-3]-ib,m[1,3,5].cluster1.org",
        "a,b,c",
        "n[099-101]",
    ],
)
def test_names_are_clustershells(text: str) -> None:
    assert sorted(unfold(text)) == sorted(NodeSet(text))


@pytest.mark.parametrize(
    "text",
    ["", ",", "n[", "n[1-", "n[2-1]", "n[a-b]", "n]1[", "n[1-2", "n[]", "n[1-99999999]", "a[1-300]b[1-300]", "n[-1]"],
)
def test_what_is_no_hostlist_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no|more than"):
        unfold(text)


@given(
    st.sets(
        st.builds(
            lambda p, n, w: f"{p}{n:0{w}d}",
            st.sampled_from(["n", "gb300-"]),
            st.integers(0, 130),
            st.sampled_from([1, 3]),
        ),
        min_size=1,
    )
)
def test_what_is_folded_unfolds_to_the_same(names: set[str]) -> None:
    assert set(unfold(fold(names))) == names


@given(st.text(alphabet="n1[]-,. ", max_size=12))
def test_any_text_is_names_or_refused(text: str) -> None:
    with contextlib.suppress(ValueError):
        assert unfold(text)
