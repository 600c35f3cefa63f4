"""Templates: types, laziness, and every way in which one fails."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k3env.documents.nodes import Node, Position, Text
from k3env.documents.templates import MISSING, Scope
from k3env.errors import DocumentError
from k3env.protocol.secret import Secret

TASK = Position("play.yml", 12, 5)
REMEDIES = {"trtllm_commit": "--extra-vars trtllm_commit=…"}
VARIABLES = {
    "one": 1,
    "word": "x",
    "version": "1.10",
    "flag": False,
    "nothing": None,
    "items": [1, "{{ word }}"],
    "settings": {"deep": {"er": "{{ one }}"}},
    "chain": "{{ link }}/c",
    "link": "{{ word }}/b",
    "mine": "{{ mine | default(1) }}",
    "round": "{{ trip }}",
    "trip": "{{ [round] }}",
    "broken": "{{ nope }}/x",
    "token": {"secret": "env:HF_TOKEN"},
    "mistold": {"secret": "envv:HF_TOKEN"},
    "dict": "a variable",
    "text_false": Text("false"),
    "text_4": Text("4"),
    "text_list": Text('["a"]'),
    "text_of": Text("{{ word }}/y"),
}


def scope() -> Scope:
    """Return a scope in which each variable stands in a line of its own."""
    nodes = {
        name: Node.of(value, Position("vars.yml", line, 3)) for line, (name, value) in enumerate(VARIABLES.items(), 1)
    }
    return Scope(nodes, REMEDIES)


RENDERED = [
    ("plain", "plain"),
    ("{{ one }}", 1),
    ("{{one}}", 1),
    ("{{- one -}}", 1),
    ("{{ one + 1 }}", 2),
    ("{{ flag }}", False),
    ("{{ nothing }}", None),
    ("{{ version }}", "1.10"),
    ("{{ items }}", [1, "x"]),
    ("{{ settings.deep.er }}", 1),
    ("{{ settings }}", {"deep": {"er": 1}}),
    ("{{ token }}", Secret("env:HF_TOKEN")),
    ("{{ chain }}", "x/b/c"),
    ("{{ dict }}", "a variable"),
    ("x{{ one }}", "x1"),
    ("{{ one }}{{ word }}", "1x"),
    (" {{ one }}", " 1"),
    ("{{ one }}\n", "1\n"),
    ("{{ '}}' }}", "}}"),
    ("{# note #}{{ one }}", "1"),
    ("{% if flag %}a{% else %}b{% endif %}", "b"),
    ("{% for item in items %}{{ item }},{% endfor %}", "1,x,"),
    ("{{ items | map('string') }}", ["1", "x"]),
    ("{{ range(3) }}", [0, 1, 2]),
    ("{{ nope | default(7) }}", 7),
    ("{{ broken | default(7) }}", 7),
    ("{{ one if one else broken }}", 1),
    ("{{ one if flag }}", None),
    ("{{ nope is defined }}", False),
    ("{{ text_4 }}", Text("4")),
    ("{{ text_4 == 4 }}", True),
    ("{{ text_4 == 5 }}", False),
    ("{{ not text_false }}", True),
    ("{{ 'on' if text_false else 'off' }}", "off"),
    ("{{ text_false == false }}", True),
    ("{{ text_false in ['true', 'false'] }}", True),
    ("{{ text_of }}", Text("x/y")),
    ({"a": ["{{ one }}", {"b": "{{ word }}!"}]}, {"a": [1, {"b": "x!"}]}),
    ({"secret": "prompt"}, Secret("prompt")),
]


@pytest.mark.parametrize("source, value", RENDERED, ids=[str(source) for source, _ in RENDERED])
def test_renders(source: object, value: object) -> None:
    rendered = scope().render(Node.of(source, TASK))
    assert rendered == value
    assert type(rendered) is type(value)


# source, line of vars.yml that is wrong (None: the task), part of the message, part of what is found or to be done
FAILING = [
    ("{{ wrod }}", None, "wrod is not defined", "did you mean word?"),
    ("a {{ wrod }}", None, "wrod is not defined", "did you mean word?"),
    ("{{ trtllm_commit }}", None, "trtllm_commit is not defined", "--extra-vars trtllm_commit="),
    ("{{ zzzzzzzz }}", None, "zzzzzzzz is not defined", "default("),
    ("{{ broken }}", "broken", "nope is not defined", ""),
    ("{{ [broken] }}", "broken", "nope is not defined", ""),
    ("{{ one if nope is defined else broken }}", "broken", "nope is not defined", ""),
    ("{{ round }}", "round", "refers to itself", "round -> trip -> round"),
    ("x{{ mine | upper }}", "mine", "refers to itself", "mine -> mine"),
    ("{{ settings.depe }}", None, "no attribute 'depe'", ""),
    ("{{ one.two.three }}", None, "has no attribute 'two'", ""),
    ("{{ one / 0 }}", None, "division by zero", ""),
    ("{{ one > word }}", None, "not supported between", ""),
    ("{{ one ", None, "is no template", ""),
    ("{{ }}", None, "is no template", ""),
    ("{{ one | nofilter }}", None, "is no template", ""),
    ("{% include 'x' %}", None, "no loader", ""),
    ("x{{ nothing }}", None, "null can't stand within text", ""),
    ("x{{ token }}", None, "a secret can't stand within other text", ""),
    ("{{ mistold }}", "mistold", "refers to no secret", "did you mean env?"),
    ("{{ items.append(3) }}", None, "unsafe", ""),
    ("{{ ''.__class__.__mro__ }}", None, "unsafe", ""),
    ("{{ cycler }}", None, "not defined", ""),
    ("{{ [cycler] }}", None, "not a value", ""),
    ("{{ {1: 2} }}", None, "not text", ""),
    ("{{ lipsum() }}", None, "lipsum", ""),
    ("{{ items | random }}", None, "is no template", ""),
]


@pytest.mark.parametrize("source, where, message, detail", FAILING, ids=[case[0] for case in FAILING])
def test_fails_where_it_is_wrong(source: str, where: str | None, message: str, detail: str) -> None:
    with pytest.raises(DocumentError) as caught:
        scope().render(Node.of(source, TASK))
    finding = caught.value.finding
    place = TASK if where is None else Position("vars.yml", list(VARIABLES).index(where) + 1, 3)
    assert finding.subject == str(place)
    assert message in finding.message
    assert detail in f"{finding.found} {finding.remedy}"


CONDITIONS = [
    (True, True),
    ("one == 1", True),
    ("flag", False),
    ("not flag", True),
    ("text_false", False),
    ("not text_false", True),
    ("nothing is none", True),
    ("nope is defined and nope.x", False),
    ("version == '1.10'", True),
    (["one == 1", "word == 'x'"], True),
    (["one == 1", "word == 'y'"], False),
    ([], True),
]


@pytest.mark.parametrize("condition, truth", CONDITIONS, ids=[str(condition) for condition, _ in CONDITIONS])
def test_conditions(condition: object, truth: bool) -> None:
    assert scope().holds(Node.of(condition, TASK)) is truth


WRONG_CONDITIONS = [
    ("one", "neither true nor false", "the number 1"),
    ("word", "neither true nor false", 'the text "x"'),
    ("nothing", "neither true nor false", "null"),
    ("{{ flag }}", "without braces", "write flag"),
    ("wrod", "wrod is not defined", "word"),
    ("one ==", "is no template", ""),
    (7, "must be text", "the number 7"),
    ({"a": 1}, "must be a list", "a mapping"),
]


@pytest.mark.parametrize(
    "condition, message, detail", WRONG_CONDITIONS, ids=[str(case[0]) for case in WRONG_CONDITIONS]
)
def test_conditions_that_are_none(condition: object, message: str, detail: str) -> None:
    with pytest.raises(DocumentError) as caught:
        scope().holds(Node.of(condition, TASK))
    finding = caught.value.finding
    assert (finding.subject, message in finding.message) == (str(TASK), True)
    assert detail in f"{finding.found} {finding.remedy}"


def test_the_variables_used_are_recorded_with_those_they_refer_to() -> None:
    known = scope()
    known.render(Node.of("{{ chain }} {{ nope | default('') }}", TASK))
    assert set(known.used) == {"chain", "link", "word", "nope"}
    assert known.used["nope"] is MISSING


def test_values_are_not_rendered_twice() -> None:
    known = Scope({"raw": Node.of("{% raw %}{{ one }}{% endraw %}", TASK), "outer": Node.of("<{{ raw }}>", TASK)})
    assert known.render(Node.of("{{ outer }}", TASK)) == "<{{ one }}>"


def test_jinja_is_not_imported_without_an_expression() -> None:
    program = (
        "import sys; from k3env.documents.nodes import Node, Position; from k3env.documents.templates import Scope\n"
        "p = Position('x'); s = Scope({'a': Node.of([1], p)})\n"
        "assert s.render(Node.of({'b': '{{ a }}', 'c': 'd'}, p)) == {'b': [1], 'c': 'd'}\n"
        "assert 'jinja2' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet="{}%# abxone|.()[]'\"+-~", max_size=30))
def test_no_template_gives_a_traceback(source: str) -> None:
    try:
        scope().render(Node.of(source, TASK))
    except DocumentError as error:
        assert error.finding.subject


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=30).filter(lambda text: "{" not in text))
def test_text_without_braces_is_itself(source: str) -> None:
    assert scope().render(Node.of(source, TASK)) == source


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 2000000 }}",
        "{{ 2000000 * [1] }}",
        "{{ 9 ** 99999 }}",
        "{{ 9 ** 1000 * 9 ** 1000 }}",
        "{{ '%2000000d' % 1 }}",
        "{{ '%*d' % (2000000, 1) }}",
        "{{ '{:2000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 2000000) }}",
        "{{ '%2000000d' | format(1) }}",
        "{{ 'x' | center(2000000) }}",
        "{{ 'x'.ljust(2000000) }}",
        "{{ 'a\nb' | indent(2000000) }}",
        "{{ ('x' * 9999) | replace('x', 'y' * 9999) }}",
        "{{ ('x' * 9999).replace('x', 'y' * 9999) }}",
        "{% for x in range(99999) %}{% for x in range(99999) %}{{ x }}{% endfor %}{% endfor %}",
        "{{ [range(99999)] * 99 }}",
        "{{ ('ffff' * 9999) | int(0, 16) }}",
    ],
)
def test_too_much_is_refused(source: str) -> None:
    with pytest.raises(DocumentError) as caught:
        scope().render(Node.of(source, TASK))
    assert caught.value.finding.subject == str(TASK)
    assert "MiB" in caught.value.finding.message or "bits" in caught.value.finding.message


@pytest.mark.parametrize(
    "source, wanted",
    [
        ("{{ '100%% of %s on 20261130' % 'x' }}", "100% of x on 20261130"),
        ("{{ '%5.1f' | format(2) }}", "  2.0"),
        ("{{ '{:>4}:20261130'.format('x') }}", "   x:20261130"),
        ("{{ 'ab' * 2 + 'c' }}", "ababc"),
        ("{{ 2 ** 64 % 10 }}", 6),
        ("{{ 'a\nb' | indent }}", "a\n    b"),
    ],
)
def test_what_is_small_is_left_alone(source: str, wanted: object) -> None:
    assert scope().render(Node.of(source, TASK)) == wanted


@pytest.mark.parametrize("body", ["{{ v%d }}", "{{ v%d }}!", "{{ v%d | default(1) }}"])
def test_a_long_chain_of_variables_is_refused_where_it_gets_too_long(body: str) -> None:
    nodes = {f"v{at}": Node.of(body % (at + 1), Position("v.yml", at + 1, 1)) for at in range(3000)}
    with pytest.raises(DocumentError) as caught:
        Scope(nodes).render(Node.of("{{ v0 }}", TASK))
    assert caught.value.finding.subject == "v.yml:51:1"
    assert "too many others" in caught.value.finding.message


def test_variables_that_nest_one_another_deeply_are_refused() -> None:
    nodes = {f"v{at}": Node.of([[[[f"{{{{ v{at + 1} }}}}"]]]], Position("v.yml", at + 1, 1)) for at in range(40)}
    nodes["v40"] = Node.of("x", Position("v.yml", 41, 1))
    with pytest.raises(DocumentError, match="deeply nested"):
        Scope(nodes).render(Node.of("{{ v0 }}", TASK))


@pytest.mark.parametrize("body", ["{{ v%d }}{{ v%d }}", ["{{ v%d }}", "{{ v%d }}"], "{{ [v%d, v%d] }}"])
def test_variables_that_double_one_another_are_refused(body: object) -> None:
    def filled(part: object, at: int) -> object:
        return [filled(item, at) for item in part] if isinstance(part, list) else str(part).replace("%d", str(at + 1))

    nodes = {f"v{at}": Node.of(filled(body, at), Position("v.yml", at + 1, 1)) for at in range(40)}
    nodes["v40"] = Node.of("x", Position("v.yml", 41, 1))
    with pytest.raises(DocumentError, match="MiB"):
        Scope(nodes).render(Node.of("{{ v0 }}", TASK))


@pytest.mark.parametrize(
    "source",
    [
        "a{{ word.upper }}",
        "a{{ dict.__class__ }}",
        "a{{ word.encode() }}",
        "a{{ namespace(b=1) }}",
        "a{{ joiner() }}",
        "a{{ items | map('upper') }}",
        "a{{ [token] }}",
    ],
)
def test_what_is_no_value_is_refused_within_text(source: str) -> None:
    with pytest.raises(DocumentError) as caught:
        scope().render(Node.of(source, TASK))
    assert caught.value.finding.subject == str(TASK)
