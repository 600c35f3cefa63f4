"""Small inputs that would become large, slow, or something else than data: YAML, templates, regular expressions."""

from __future__ import annotations

import re
import resource
import threading
import time
from pathlib import Path

import pytest

from k3env.documents import jsontext, limits, yaml
from k3env.documents.nodes import Node, Position
from k3env.documents.templates import Scope
from k3env.errors import DocumentError
from k3env.inventory import regexes
from k3env.k3.diagnoses.lookup import diagnose

CANARY = "canary"


def lines(count: int, line: str) -> str:
    return "\n".join(line.format(at=at, before=at - 1) for at in range(1, count)) + "\n"


LAUGHS = "a0: &a0 [lol,lol,lol,lol,lol,lol,lol,lol,lol]\n" + lines(
    40, "a{at}: &a{at} [*a{before},*a{before},*a{before},*a{before},*a{before},*a{before}]"
)
MERGES = "a0: &a0 {k: v}\n" + lines(
    40, "a{at}: &a{at} {{<<: [*a{before}, *a{before}], k{at}: *a{before}, l{at}: *a{before}}}"
)
YAML_BOMBS = {
    "aliases": LAUGHS,
    "merges": MERGES,
    "an alias to itself": "a: &a [*a]\n",
    "a merge of itself": "a: &a {<<: *a}\n",
    "deep lists": "a: " + "[" * 100_000,
    "deep mappings": "a: " + "{a: " * 100_000,
    "deep blocks": "\n".join(f"{' ' * at}a:" for at in range(3000)),
    "deep questions": "? " * 50_000,
    "a key that is a list": "? [a, b]\n: c\n",
    "many documents": "---\na: 1\n" * 10_000,
    "a tag that makes an object": "a: !!python/object/apply:os.system [touch canary]\n",
    "a tag of a module": "a: !!python/module:os\n",
    "another tag": "a: !<tag:yaml.org,2002:python/name:os.system> x\n",
    "a number without end": "a: " + "9" * 100_000 + "\n",
    "a sexagesimal without end": "a: " + "1:" * 50_000 + "1\n",
    "a NUL": 'a: "x\\0y"\n',
    "half a character": 'a: "\\ud800"\n',
    "a raw control character": "a: x\x1by\n",
    "a key twice": "a: 1\na: 2\n",
}


@pytest.mark.parametrize("text", YAML_BOMBS.values(), ids=YAML_BOMBS)
@pytest.mark.parametrize("dialect", [yaml.STRICT, yaml.ANSIBLE])
def test_yaml_bombs(text: str, dialect: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path, begun = tmp_path / "bomb.yml", time.process_time()
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DocumentError) as caught:
        yaml.load(path, dialect)
    found = caught.value.finding
    assert re.fullmatch(rf"{path}(:\d+:\d+)?", found.subject) and len(str(caught.value)) < 500
    assert time.process_time() - begun < 10
    assert not (tmp_path / CANARY).exists()


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, r'{"a":"\u0000"}', r'{"a":"\ud800"}'])
def test_json_bombs(text: str) -> None:
    with pytest.raises(DocumentError):
        jsontext.loads(text, "source")


def rendered(text: str) -> object:
    """Render a template that stands in a file."""
    return Scope({}).render(Node(text, Position("play.yml", 3, 5)))


HOURS = {
    "nested loops": "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
    "nested loops that set": "{% for a in range(99999) %}{% for b in range(99999) %}{% set c = a %}{% endfor %}"
    "{% endfor %}x",
    "a macro that calls itself twice": (
        "{% macro f(n) %}{% if n > 0 %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}"
    ),
    "a recursive loop": (
        "{% for x in [1, 2] recursive %}{% if loop.depth < 60 %}{{ loop([1, 2]) }}{% endif %}{% endfor %}"
    ),
    "sums in a loop": "{% for a in range(99999) %}{% set b = range(99999) | sum %}{% endfor %}x",
    "looking up in a loop": "{% set l = range(99999) | list %}{% for a in l %}{% if -1 in l %}{% endif %}{% endfor %}x",
    "wrapping": "{{ ('a' * 1000000) | wordwrap(1) | wordwrap(1) | length }}",
    "slices": "{{ [1] | slice(100000000) | list | length }}",
}
GIGABYTES = {
    "a list joined": "{{ (['x' * 1000000] * 100000) | join | length }}",
    "a text that joins": "{{ 'x'.join(['y' * 1000000] * 100000) | length }}",
    "a number as bytes": "{{ (1).to_bytes(3000000000, 'big') | length }}",
    "doubling": (
        "{% set n = namespace(x='a') %}{% for i in range(60) %}{% set n.x = n.x ~ n.x %}{% endfor %}{{ n.x | length }}"
    ),
    "a batch": "{{ [1] | batch(1000000000, 0) | list | length }}",
    "lists summed": "{{ ([range(99999) | list] * 100000) | sum(start=[]) | length }}",
    "padding": "{{ '%1000000000d' % 1 }}",
    "more padding": "{{ '{:>1000000000}'.format(1) }}",
    "a power": "{{ 9 ** (9 ** 9) }}",
    "a text many times": "{{ 'a' * 1000000000 }}",
    "replacing": "{{ ('a' * 1000000) | replace('a', 'b' * 1000) }}",
    "indenting": "{{ ('\n' * 100000) | indent(1000000) }}",
    "JSON": "{{ range(1000) | list | tojson(indent=10000000) }}",
}


@pytest.mark.parametrize("text", [*HOURS.values(), *GIGABYTES.values()], ids=[*HOURS, *GIGABYTES])
def test_template_bombs(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 1.0)
    before, begun = resource.getrlimit(resource.RLIMIT_AS), time.process_time()
    with pytest.raises(DocumentError, match=r"expression fails") as caught:
        rendered(text)
    assert caught.value.finding.subject == "play.yml:3:5" and len(str(caught.value)) < 300
    assert time.process_time() - begun < 8
    assert resource.getrlimit(resource.RLIMIT_AS) == before
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 2 << 20  # KiB


def test_a_bomb_among_variables_and_conditions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.5)
    bomb = Node(HOURS["nested loops"] + "x", Position("vars.yml", 2, 4))
    with pytest.raises(DocumentError, match="takes more than"):
        Scope({"a": bomb}).render(Node("{{ a }} and {{ a }}", Position("play.yml", 1, 1)))
    with pytest.raises(DocumentError):
        Scope({}).holds(Node("9 ** (9 ** 9) > 1", Position("play.yml", 1, 1)))
    with pytest.raises(DocumentError, match="takes more than"):
        Scope({}).render_file(HOURS["nested loops"], "files/x.j2")


def test_what_is_rendered_after_a_bomb_has_its_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SECONDS", 0.5)
    for _ in range(2):
        with pytest.raises(DocumentError, match="takes more than"):
            rendered(HOURS["nested loops"])
        assert rendered("{{ range(1000) | sum }}") == 499500


def test_in_another_thread_memory_is_bounded_all_the_same() -> None:
    said: list[str] = []

    def work() -> None:
        with pytest.raises(DocumentError) as caught:
            rendered(GIGABYTES["a list joined"])
        said.append(str(caught.value))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert len(said) == 1 and "MiB" in said[0]


ESCAPES = [
    "{{ ''.__class__ }}",
    "{{ ''['__class__'] }}",
    "{{ '' | attr('__class__') }}",
    "{{ '' | attr('\\x5f_class__') }}",
    "{{ [''] | map('attr', '__class__') | list }}",
    "{{ [''] | map(attribute='__class__') | list }}",
    "{{ [''] | groupby('__class__') | list }}",
    "{{ [''] | sort(attribute='__class__.__mro__') | list }}",
    "{{ [''] | selectattr('__class__') | list }}",
    "{{ '{0.__class__}'.format(1) }}",
    "{{ '{x.__class__.__mro__}'.format(x=1) }}",
    "{{ '{x.__class__}'.format_map({'x': 1}) }}",
    "{{ '%(x)s' | format(x=''.__class__) }}",
    "{{ ''.join.__self__.__class__ }}",
    "{{ [].append.__self__ }}",
    "{{ dict.mro() }}",
    "{{ range.__class__ }}",
    "{{ namespace.__init__.__globals__ }}",
    "{{ cycler.__init__.__globals__.os.system('touch canary') }}",
    "{{ joiner.__call__.__globals__ }}",
    "{{ self._TemplateReference__context }}",
    "{{ self.__init__.__globals__ }}",
    "{{ loop.__class__ }}",
    "{{ (x for x in [1]).gi_frame }}",
    "{% set x = ''.__class__ %}{{ x }}",
    "{% macro f() %}{% endmacro %}{{ f.__globals__ }}",
    "{% macro f() %}{{ caller.__func__ }}{% endmacro %}{% call f() %}{% endcall %}",
    "{% include '/etc/passwd' %}",
    "{% import 'os' as o %}{{ o }}",
    "{% extends '/etc/passwd' %}",
    "{% from 'os' import system %}{{ system }}",
    "{{ lipsum.__globals__ }}",
    "{{ ('a' | tojson).__html__ }}",
    "{{ undefined_name.__class__ }}",
    "{% do [].append(1) %}",
    "{{ [].append(1) }}",
    "{{ {}.update(a=1) }}",
]


@pytest.mark.parametrize("text", ESCAPES)
def test_no_template_leaves_the_sandbox(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DocumentError):
        rendered(text)
    assert not (tmp_path / CANARY).exists()


@pytest.mark.parametrize(
    "text", ["{{ 'a\\x00b' }}", "{{ '\\ud800' }}", "{{ ['\\x00'] }}", "{{ {'\\x00': 1} }}", "a{{ '\\x00' }}"]
)
def test_no_template_makes_what_no_program_can_be_given(text: str) -> None:
    with pytest.raises(DocumentError, match="a NUL or half a character"):
        rendered(text)


CATASTROPHES = [
    r"(n+)+x",
    r"(n|n)*x",
    r"(.*)*x",
    r"n*n*n*n*n*n*n*n*x",
    r"(n?){60}n{60}x",
    r"((n*)*)*x",
    r"^(([a-z])+.)+[A-Z]([a-z])+$",
]


@pytest.mark.parametrize("pattern", CATASTROPHES)
def test_regular_expressions_that_go_back_and_forth(pattern: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regexes, "TIMEOUT_S", 1.0)
    begun = time.monotonic()
    try:
        assert regexes.matching(pattern, ["n" * 200]) in ([], ["n" * 200])
    except regexes.BadRegex as error:
        assert "takes more than" in error.message
    assert time.monotonic() - begun < 60


LOGS = {
    "one character": "a" * (1 << 20),
    "blanks": " " * (1 << 20),
    "errors": "error: " * (1 << 17),
    "paths": "/a" * (1 << 19),
    "quotes": "'\"" * (1 << 19),
    "words of pip": "ERROR: No matching distribution found for " * (1 << 14),
    "digits": "1" * (1 << 20),
    "lines": "fatal: \n" * (1 << 17),
}


@pytest.mark.parametrize("tool", ["build", "pip", "git"])
@pytest.mark.parametrize("log", LOGS.values(), ids=LOGS)
def test_a_log_is_diagnosed_in_time_that_grows_with_its_length(tool: str, log: str) -> None:
    begun = time.process_time()
    diagnose(tool, log)
    assert time.process_time() - begun < 10
