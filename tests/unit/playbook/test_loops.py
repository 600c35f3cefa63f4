"""Loops over values that are known when a plan is made."""

from __future__ import annotations

import pytest

from k3env.errors import DocumentError
from k3env.playbook import Options, compile_playbook
from k3env.protocol import codec
from k3env.protocol.plan import Task
from tests.unit.playbook.conftest import compiled, host, playbook

PLAY = "- hosts: all\n  tasks:\n"


def looped(body: str, *options: str, **variables: object) -> tuple[Task, ...]:
    return compiled(f"{PLAY}    - {body}\n", *options, variables=variables).plan.tasks


def test_a_task_for_each_item() -> None:
    body = "{name: 'Make {{ item }}', demo: {path: '/{{ item }}', jobs: '{{ n }}'}, loop: [a, '{{ b }}'], vars: {n: 3}}"
    one, two = looped(body, b="/deep")
    assert (one.id, one.name, one.parameters) == ("1.1.1", "Make a", {"path": "/a", "jobs": 3})
    assert (two.id, two.name, two.parameters) == ("1.1.2", "Make /deep", {"path": "//deep", "jobs": 3})


# what stands after the module, the values of `items`, then id, name, parameters or skip of each
CASES = [
    ("loop: '{{ items }}', name: 'n{{ 0 }}'", [1], [("1.1.1", "n0 (1)", 1)]),
    ("loop: '{{ items }}'", [1, 2], [("1.1.1", "demo (1)", 1), ("1.1.2", "demo (2)", 2)]),
    ("loop: '{{ items }}'", [], [("1.1", "demo", "loop: no items")]),
    ("loop: []", [], [("1.1", "demo", "loop: no items")]),
    ("loop: '{{ items | reverse | list }}'", [1, 2], [("1.1.1", "demo (2)", 2), ("1.1.2", "demo (1)", 1)]),
    (
        "loop: '{{ items }}', when: item > 1",
        [1, 2],
        [("1.1.1", "demo (1)", "when: item > 1"), ("1.1.2", "demo (2)", 2)],
    ),
    ("loop: '{{ items }}', when: false", [1, 2], [("1.1", "demo", "when: false")]),
    ("loop: '{{ nowhere }}', when: nowhere is defined", [], [("1.1", "demo", "when: nowhere is defined")]),
    ("loop: '{{ items }}', loop_control: {label: 'no {{ item }}'}", [1], [("1.1.1", "demo (no 1)", 1)]),
    ("loop: '{{ items }}', loop_control: {index_var: at, label: '{{ at }}'}", [7], [("1.1.1", "demo (0)", 7)]),
]


@pytest.mark.parametrize("rest, items, wanted", CASES)
def test_loops(rest: str, items: list[int], wanted: list[tuple[str, str, object]]) -> None:
    made = looped(f"{{demo: {{path: /x, jobs: '{{{{ item }}}}'}}, {rest}}}", items=items)
    found = [(task.id, task.name, task.parameters["jobs"] if task.skip is None else task.skip) for task in made]
    assert found == wanted


def test_loop_variables_have_the_names_that_are_given() -> None:
    body = "{demo: {path: '/{{ dir.name }}/{{ n }}'}, loop: '{{ dirs }}', loop_control: {loop_var: dir, index_var: n}}"
    made = looped(body, dirs=[{"name": "a"}, {"name": "b"}])
    assert [task.parameters["path"] for task in made] == ["/a/0", "/b/1"]
    assert [task.name for task in made] == ["demo (item 1)", "demo (item 2)"]


def test_a_template_in_an_item_is_not_rendered_twice() -> None:
    body = "{demo: {path: '/{{ item }}'}, loop: ['{% raw %}{{ x }}{% endraw %}']}"
    assert looped(body)[0].parameters["path"] == "/{{ x }}"


def test_no_secret_stands_in_a_name() -> None:
    body = "{demo: {path: /x, environment: {T: '{{ item }}'}}, loop: [{secret: 'env:T'}], "
    body += "loop_control: {label: '{{ item }}'}}"
    (made,) = looped(body)
    assert made.name == "demo (********)"
    assert made.parameters["environment"] == {"T": {"$secret": "env:T"}}
    assert "env:T" not in looped("{demo: {path: /x}, loop: '{{ all }}'}", all=[{"a": {"secret": "env:T"}}])[0].name


# body, place, part of the message, part of what else is told
REFUSED = [
    ("{demo: {path: /x}, loop: a}", "p.yml:3:32", "loop must be a list", "{{ a_list }}"),
    ("{demo: {path: /x}, loop: {a: b}}", "p.yml:3:32", "loop must be a list", "a mapping"),
    ("{demo: {path: /x}, loop: 3}", "p.yml:3:32", "loop must be a list", "the number 3"),
    ("{demo: {path: /x}, loop: '{{ one }}'}", "p.yml:3:32", "loop must give a list", "the number 1"),
    ("{demo: {path: /x}, loop: '{{ nope }}'}", "p.yml:3:32", "nope is not defined", ""),
    ("{demo: {path: /x}, loop: '{{ range(2000) }}'}", "p.yml:3:32", "the loop is too long", "2000"),
    (
        "{demo: {path: /x}, loop: [1], loop_control: {loopvar: x}}",
        "p.yml:3:52",
        "no key loopvar",
        "did you mean loop_var?",
    ),
    ("{demo: {path: /x}, loop: [1], loop_control: {loop_var: a-b}}", "p.yml:3:62", "loop_var can't name", "underscore"),
    ("{demo: {path: /x}, loop: [1], loop_control: {index_var: '{{ x }}'}}", "p.yml:3:63", "can't be a template", ""),
    ("{demo: {path: /x}, loop: [1], loop_control: [a]}", "p.yml:3:51", "loop_control must be a mapping", "a list"),
    ("{demo: {path: /x}, loop_control: {loop_var: x}}", "p.yml:3:26", "loop_control without loop", ""),
    ("{demo: {path: /x}, loop: [1], loop_control: {loop_var: one}}", "p.yml:3:32", "one is there already", "loop_var"),
    ("{demo: {path: /x}, loop: [1], vars: {item: 2}}", "p.yml:3:32", "item is there already", "loop_var"),
    ("{demo: {path: '{{ item }}'}, loop: [3]}", "p.yml:3:21", "path of demo must be text", "the number 3"),
    ("{demo: {path: /x}, with_dict: {}}", "p.yml:3:26", "no key with_dict", "use loop:"),
    ("{demo: {path: /x}, until: x}", "p.yml:3:26", "no key until", "retries"),
]


@pytest.mark.parametrize("body, place, message, detail", REFUSED, ids=[case[0] for case in REFUSED])
def test_is_refused(body: str, place: str, message: str, detail: str) -> None:
    with pytest.raises(DocumentError) as caught:
        looped(body, one=1)
    finding = caught.value.finding
    assert (finding.subject, message in finding.message) == (place, True), finding
    assert detail in f"{finding.message} {finding.expected} {finding.found} {finding.remedy}"


def test_hosts_with_equal_items_share_one_plan() -> None:
    found = playbook(PLAY + "    - {demo: {path: '/{{ item }}'}, loop: '{{ dirs }}', when: item != skip}\n")
    hosts = [
        host("h1", dirs=["a"], skip="x", other=1),
        host("h2", dirs=["a"], skip="x", other=2),
        host("h3", dirs=["b"], skip="x"),
        host("h4", dirs=["a"], skip="a"),
    ]
    (plans,) = compile_playbook(found, [hosts], Options())
    assert plans["h1"] is plans["h2"]
    assert len({codec.dumps(made.plan) for made in plans.values()}) == 3
