"""Whatever is written, it is a playbook or an error at a place: no input gives a traceback."""

from __future__ import annotations

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from k3env.documents.nodes import Node, Position
from k3env.documents.templates import Scope
from k3env.documents.yaml import loads
from k3env.errors import DocumentError, K3Error
from k3env.playbook import Options, compile_playbook, keywords
from k3env.playbook.plays import read
from k3env.protocol import codec
from tests.unit.playbook.conftest import host

AT = Position("p.yml", 1, 1)
_TEXT = st.sampled_from([
    "x", "/x", "all", "{{ x }}", "{{ nope }}", "{{ x.y }}", "{{ 1 / 0 }}", "{{ [1] * 3 }}", "{% for %}", "{{", "{# #}",
    "x == 1", "x is defined", "not", "", "0644", "k3", "~/x", "a,b", "env:X", "{{ range(10 ** 9) }}", "é\u2028", "\x00",
])  # fmt: skip
_SCALARS = st.one_of(_TEXT, st.integers(-5, 10**30), st.booleans(), st.none(), st.floats(), st.just([]), st.just({}))
_MODULES = ("demo", "file", "copy", "template", "command", "verify", "cache_dirs")
_PARAMETERS = (
    "path",
    "dest",
    "src",
    "content",
    "mode",
    "state",
    "argv",
    "checks",
    "base",
    "jobs",
    "secret",
    "read_only",
)
_KEYS = (
    *keywords.PLAY,
    *keywords.TASK,
    *keywords.BLOCK,
    *keywords.IMPORT_TASKS,
    *_MODULES,
    "rescue",
    "register",
    "roles",
)

_values: Any = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from((*_KEYS, *_PARAMETERS, "a-b", "item")), inner, max_size=4),
    ),
    max_leaves=12,
)
_parameters = st.dictionaries(st.sampled_from(_PARAMETERS), _values, max_size=4)
_task = st.builds(
    lambda module, parameters, rest: {**rest, module: parameters},
    st.sampled_from(_MODULES),
    st.one_of(_parameters, _values),
    st.dictionaries(st.sampled_from(keywords.TASK), _values, max_size=3),
)
_tasks = st.recursive(
    _task,
    lambda inner: st.builds(
        lambda block, rest: {**rest, "block": block},
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(keywords.BLOCK), _values, max_size=2),
    ),
    max_leaves=4,
)
_play = st.builds(
    lambda tasks, rest: {"hosts": "all", **rest, "tasks": tasks},
    st.lists(_tasks, min_size=1, max_size=2),
    st.dictionaries(st.sampled_from(keywords.PLAY), _values, max_size=2),
)


@settings(max_examples=250, deadline=None)
@given(st.one_of(st.lists(_play, max_size=2), _values))
@example([{"hosts": "all", "tasks": [{"demo": {"path": "/x"}, "loop": "{{ [[]] * 2 }}", "when": "item"}]}])
def test_no_playbook_gives_a_traceback(value: Any) -> None:
    try:
        book = read(Node.of(value, AT), "p.yml")
        variables = {"x": 1, "y": "{{ y }}", "big": ["a"] * 3}
        (plans, *_) = compile_playbook(book, [[host(**variables)] for _ in book.plays], Options())
        for made in plans.values():
            codec.dumps(made.plan)
    except K3Error as error:
        assert str(error)


_PIECES = st.sampled_from([
    "{{", "}}", "{%", "%}", "{#", "#}", " x ", "|", "default(1)", "length", "(", ")", "[0]", ".a", "'", "~", "+", "*",
    "3", "for", "in", "if", "endfor", "endif", "range", "set", "raw", "endraw", "\n", "loop", "self",
    "%", "none", "cycler", "{", ":",
])  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(_PIECES, max_size=12))
def test_no_template_gives_a_traceback(pieces: list[str]) -> None:
    text = "".join(pieces)
    scope = Scope({"x": Node.of({"a": [1]}, AT)})
    for work in (lambda: scope.render(Node(text, AT)), lambda: scope.render_file(text, "t.j2")):
        try:
            work()
        except DocumentError as error:
            assert error.finding.subject


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=60), st.text("-: {}[]&*!|>'\"#%@`\t\n0aé?,<=~", max_size=40)))
def test_no_yaml_gives_a_traceback(data: bytes | str) -> None:
    try:
        read(loads(data, "p.yml").root, "p.yml")
    except DocumentError as error:
        assert error.finding.subject.startswith("p.yml")
