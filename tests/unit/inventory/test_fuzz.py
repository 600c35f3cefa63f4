"""Whatever is in files and on the command line: an error with a message, never a traceback, and in time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from k3env.documents import jsontext, yaml
from k3env.errors import DocumentError, K3Error
from k3env.inventory import Inventory, listing, shown
from k3env.inventory.tree import Tree
from tests.unit.inventory.conftest import Make

QUICK = settings(max_examples=150, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture])

_WORDS = st.sampled_from(
    [
        *("all", "ungrouped", "a", "b", "hosts", "vars", "children", "h[1:3]", "h[1-3]", "h:22", "::1", "..", "", "é"),
        *("ansible_host", "ansible_port", "ansible_group_priority", "plugin", "_meta", "{{ x }}", "[", "-x", "\x00"),
    ]
)
_LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), _WORDS, st.text(max_size=5))
_TREES = st.recursive(
    _LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=4)),
    max_leaves=20,
)


def use(path: Path) -> None:
    """Load an inventory and print it."""
    try:
        found = Inventory.load([path], adhoc_allowed=True)
    except K3Error as error:
        assert error.finding.message and error.finding.subject
        return
    assert json.loads(shown.dumps(shown.listing(found, list(found.hosts))))["_meta"]
    assert shown.graph(found, with_variables=True).startswith("@all:")


@QUICK
@given(tree=st.dictionaries(_WORDS, _TREES, min_size=1, max_size=4))
def test_trees(tree: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(json.dumps(tree))
    use(path)


@QUICK
@given(data=st.binary(max_size=60))
def test_bytes(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_bytes(data)
    use(path)


@QUICK
@given(tree=st.dictionaries(_WORDS, _TREES))
def test_listings(tree: dict[str, object]) -> None:
    try:
        listing.read(jsontext.loads(json.dumps(tree), "x --list"), Tree())
    except DocumentError as error:
        assert error.finding.message


_JSON = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8"))
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=15,
).filter(lambda value: "\\u0000" not in json.dumps(value))


@QUICK
@given(value=_JSON, indent=st.sampled_from([None, 1, "\t"]), ascii_only=st.booleans())
def test_json_is_read_as_python_reads_it(value: object, indent: object, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)  # type: ignore[arg-type]
    assert json.dumps(jsontext.loads(text, "x").plain) == json.dumps(value)


@QUICK
@given(text=st.text(alphabet='{}[],:"\\ \n0123e+-.truefalsnu', max_size=20))
def test_json_that_python_refuses_is_refused(text: str) -> None:
    try:
        wanted = json.loads(text)
    except ValueError:
        with pytest.raises(DocumentError):
            jsontext.loads(text, "x")
        return
    try:
        found = jsontext.loads(text, "x").plain
    except DocumentError as error:
        assert "twice" in error.finding.message
        return
    assert json.dumps(found) == json.dumps(wanted)


_PATTERN = st.one_of(
    st.text(alphabet=st.sampled_from("ab1[]-:,&!~*?@. \\(|)+{}s"), max_size=16),
    st.lists(st.sampled_from(["a", "b1", "[0]", "[-1]", "[0:1]", "[1-2]", ":", ",", "&", "!", "~", "*", "@", "::1"]))
    .map("".join)
    .map(lambda text: text[:30]),
)


@QUICK
@given(pattern=_PATTERN, limit=st.one_of(st.none(), _PATTERN), adhoc=st.booleans())
def test_patterns(pattern: str, limit: str | None, adhoc: bool, inventory: Make) -> None:
    hosts = inventory("a: {hosts: {'b[1:3]': }}\nb: {hosts: {b2: , c: }}\n", adhoc_allowed=adhoc)
    try:
        chosen = hosts.select(pattern, limit)
    except K3Error as error:
        assert error.finding.message
    else:
        assert chosen and len({host.name for host in chosen}) == len(chosen)


def test_a_long_chain_of_groups(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    chain = "".join(f"g{number}: {{children: {{g{number + 1}: }}}}\n" for number in range(1500))
    path.write_text(chain + "g1500: {hosts: {h: }}\n")
    use(path)


def test_deep_json(tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text("[" * 100_000 + "]" * 100_000)
    with pytest.raises(DocumentError, match="nest"):
        Inventory.load([path])
    with pytest.raises(DocumentError, match="too deeply nested"):
        yaml.loads('{"a": ' * 200 + "1" + "}" * 200, "x", yaml.ANSIBLE)
