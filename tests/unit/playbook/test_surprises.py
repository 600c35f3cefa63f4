"""What other tools retype, cut or drop in silence: here it arrives as written, or is an error at its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k3env.errors import DocumentError
from k3env.playbook import load
from tests.unit.playbook.conftest import compiled, playbook

PLAY = "- hosts: all\n  vars:\n    v: {}\n  tasks:\n    - demo: {{path: '/{{{{ v }}}}'}}\n"

# As they are written, and as they arrive.
KEPT = [
    ("123#456", "123#456"),
    ('"123456."', "123456."),
    ("'#x'", "#x"),
    ("'!x'", "!x"),
    ("'%h'", "%h"),
    ("a: b".replace(": ", ":"), "a:b"),
    ('"no"', "no"),
    ('"1.10"', "1.10"),
    ('"0123"', "0123"),
    ("2024-01-02", "2024-01-02"),
    ("1.2.3", "1.2.3"),
    ("{% raw %}{{ x }}{% endraw %}".join("''"), "{{ x }}"),
    ('"pw=a#b x=1"', "pw=a#b x=1"),
    ("~", None),
    ("1", 1),
    ("true", True),
]


@pytest.mark.parametrize("written, wanted", KEPT)
def test_arrives_as_written(tmp_path: Path, written: str, wanted: Any) -> None:
    (play,) = playbook(PLAY.format(written)).plays
    assert _value(play.variables["v"].plain) == wanted
    (tmp_path / "v.yml").write_text(f"v: {written}\n")
    (tmp_path / "p.yml").write_text("- hosts: all\n  vars_files: v.yml\n  tasks:\n    - demo: {path: /x}\n")
    assert _value(load(str(tmp_path / "p.yml")).plays[0].variables["v"].plain) == wanted


def _value(plain: Any) -> Any:
    from k3env.documents.nodes import Node, Position
    from k3env.documents.templates import Scope

    return Scope({}).render(Node(plain, Position("")))


# Each is read in different ways by different readers of YAML, or hides a mistake.
SURPRISES = [
    "no", "yes", "on", "off", "Yes", "NO", "12:30:00", "08", "0123", "0o17", "1e3", "1.10", "1_000", ".inf", ".nan",
    "!x", "%h", "@x", "`x`", "!!python/object:os.system x", "*nowhere", "{{ x }}", "[1, 2", '"open', "a: b",
]  # fmt: skip


@pytest.mark.parametrize("written", SURPRISES)
def test_a_surprise_is_an_error_at_its_place(tmp_path: Path, written: str) -> None:
    with pytest.raises(DocumentError) as caught:
        playbook(PLAY.format(written))
    assert caught.value.finding.subject.startswith("p.yml:3:")
    (tmp_path / "v.yml").write_text(f"v: {written}\n")
    (tmp_path / "p.yml").write_text("- hosts: all\n  vars_files: v.yml\n  tasks:\n    - demo: {path: /x}\n")
    with pytest.raises(DocumentError) as caught:
        load(str(tmp_path / "p.yml"))
    assert caught.value.finding.subject.startswith(f"{tmp_path}/v.yml:1:")


DUPLICATES = [
    ("- hosts: all\n  hosts: b\n  tasks: [demo: {path: /x}]\n", "p.yml:2:3"),
    ("- hosts: all\n  tasks: [demo: {path: /x, path: /y}]\n", "p.yml:2:28"),
    ("- hosts: all\n  vars: {a: 1, a: 2}\n  tasks: [demo: {path: /x}]\n", "p.yml:2:16"),
    ("- hosts: all\n  tasks:\n    - demo: {path: /x}\n      when: a\n      when: b\n", "p.yml:5:7"),
    ("- hosts: all\n  vars:\n    a: &a {x: 1}\n    b: {<<: *a, <<: *a}\n  tasks: [demo: {path: /x}]\n", "p.yml:4:17"),
]


@pytest.mark.parametrize("text, place", DUPLICATES)
def test_a_key_that_is_given_twice(text: str, place: str) -> None:
    with pytest.raises(DocumentError, match="given twice") as caught:
        playbook(text)
    assert caught.value.finding.subject == place


def test_a_merged_key_is_no_duplicate() -> None:
    text = "- hosts: all\n  vars:\n    a: &a {x: 1, y: 2}\n    b: {<<: *a, x: 3}\n"
    text += "  tasks: [demo: {path: '/{{ b.x }}{{ b.y }}'}]\n"
    assert compiled(text).plan.tasks[0].parameters["path"] == "/32"


def test_a_value_that_looks_like_a_template_once_rendered_is_left_alone() -> None:
    text = "- hosts: all\n  vars: {a: '{% raw %}{{ 1 / 0 }}{% endraw %}', b: '{{ a }}'}\n"
    text += "  tasks: [demo: {path: '/{{ b }}'}]\n"
    assert compiled(text).plan.tasks[0].parameters["path"] == "/{{ 1 / 0 }}"


def test_everything_that_is_wrong_is_found_before_a_host_is_contacted() -> None:
    for text, message in (
        ("- hosts: all\n  tasks: [nosuch: {path: /x}]\n", "there is no module nosuch"),
        ("- hosts: all\n  tasks: [demo: {path: /x, nosuch: 1}]\n", "no parameter nosuch"),
        ("- hosts: all\n  nosuch: 1\n  tasks: [demo: {path: /x}]\n", "no key nosuch"),
        ("- hosts: all\n  tasks: [demo: {path: '{{ nosuch }}'}]\n", "nosuch is not defined"),
        ("- hosts: all\n  tasks: [{demo: {path: /x}, loop: '{{ nosuch }}'}]\n", "nosuch is not defined"),
        ("- hosts: all\n  tasks: [{demo: {path: /x}, when: nosuch}]\n", "nosuch is not defined"),
    ):
        with pytest.raises(DocumentError, match=message) as caught:
            compiled(text)
        assert caught.value.finding.subject.startswith("p.yml:2:")
