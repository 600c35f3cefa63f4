"""The plain part of YAML, with PyYAML as the oracle: the same value, or refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from k3env.node.plainyaml import NotPlain, loads

READ = [
    "",
    "# nothing\n",
    "---\na: 1\n",
    "a: 1\nb: text\nc: 0.25\nd: true\ne: null\nf:\ng: ~\n",
    "a: yes\nb: off\nc: 'yes'\nd: \"on\"\n",
    "tensor_parallel_size: 16 # all\n",
    "kv_cache_config:\n  enable_block_reuse: false\n  mamba:\n    interval: 256\nx: 1\n",
    "a:\n- 1\n- two\n- b: 1\n  c: 2\n- - 3\n  - 4\nz: 0\n",
    "a:\n    - 1\n    -\n      b: 1\n",
    "a: [1, 2.5, x y, 'q, r', [3], {b: c}]\nb: {}\nc: []\n",
    "a: {b: 1, c: [x], d: , 'e f': g}\n",
    "url: http://host:8001/v1#x\npath: /shared/model\n",
    "a: 1e-3\nb: 1.0e-3\nc: 1_000\nd: -5\ne: +7\nf: .5\n",
    "'quoted key': 1\n\"other\": it's\n",
    "a: x#y\nb: 'it''s'\n",
    "- a\n- b\n",
    "just a text\n",
    "urls: [localhost:8001, 'b:2']\n",
    "a-b.c/d: 1\n-x: 2\n",
    "\ufefftensor_parallel_size: 16\nb: 1\n",
    "\ufeff# mark\na: 1\n",
    "a: +.5\nb: -.5\nc: .5\nd: -0.5\ne: +.5e+3\n",
]
REFUSED = [
    "a: &x 1\nb: *x\n",
    "a: !!str 1\n",
    "a: |\n  text\n",
    "a: >\n  text\n",
    "a: 010\n",
    "a: 0x1f\n",
    "a: 1:30\n",
    "a: 2026-11-30\n",
    "a: .inf\n",
    "<<: {a: 1}\n",
    "a: 1\na: 2\n",
    "a:\t1\n",
    "a: 1\n---\nb: 2\n",
    "a: 1\n  b: 2\n",
    "a: text\n  goes on\n",
    'a: "esc\\n"\n',
    "a: [1, 2\n",
    "a: {b: 1\n",
    "a: 'no end\n",
    "? a\n: b\n",
    "a: [1]]\n",
    "a: b: c\n",
    "  a: 1\n b: 2\n",
    "1: a\n",
    "{a: 1, a: 2}\n",
    "\n".join(" " * depth + "a:" for depth in range(40)),
]


@pytest.mark.parametrize("text", READ)
def test_read_as_pyyaml_reads_it(text: str) -> None:
    assert loads(text) == yaml.safe_load(text)


@pytest.mark.parametrize("text", REFUSED)
def test_refused_with_its_line(text: str) -> None:
    with pytest.raises(NotPlain, match=r"line \d+: "):
        loads(text)


def agrees(text: str) -> bool:
    """Return whether a text was read as PyYAML reads it; one that is refused says nothing."""
    try:
        found = loads(text)
    except NotPlain:
        return False
    assert found == yaml.safe_load(text), text
    return True


words = st.one_of(
    st.text(alphabet="abz01 .-_:#'/,[]{}", max_size=8), st.sampled_from(["yes", "1", "0.5", "null", "08"])
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-99, 9999), st.sampled_from([0.25, 1.5, -2.0]), words)
keys = st.text(alphabet="abcxyz_", min_size=1, max_size=6).filter(lambda key: key not in ("y", "n"))
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3), max_leaves=8
)


@settings(deadline=None)
@given(st.dictionaries(keys, values, max_size=4), st.sampled_from([True, False, None]))
def test_what_pyyaml_writes(value: dict[str, Any], flow: bool | None) -> None:
    agrees(yaml.safe_dump(value, default_flow_style=flow, width=10_000))


@settings(deadline=None, max_examples=500)
@given(st.lists(st.text(alphabet="ab1: -#'\"[]{},\\&*!|>\t~%", max_size=10), max_size=4))
def test_any_text_is_read_as_pyyaml_reads_it_or_refused(lines: list[str]) -> None:
    agrees("\n".join(lines))
