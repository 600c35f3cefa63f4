"""Files of the controller's that travel in a plan: copied as they are, or rendered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from k3env.documents.nodes import Node, Position
from k3env.errors import DocumentError
from k3env.inventory import Address, Host
from k3env.inventory.variables import extra
from k3env.playbook import Options, compile_playbook, load
from k3env.protocol.plan import Task


@pytest.fixture(autouse=True)
def book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("files", "templates", "tasks/files"):
        (tmp_path / name).mkdir(parents=True)
    return tmp_path


def made(body: str, *options: str, variables: dict[str, Any] | None = None) -> Task:
    Path("p.yml").write_text(f"- hosts: all\n  tasks:\n    - {body}\n")
    nodes = {key: Node.of(value, Position("hosts.yml", 1, 1)) for key, value in (variables or {}).items()}
    hosts = [Host("h", ("all",), nodes, Address("h"))]
    return compile_playbook(load("./p.yml"), [hosts], Options(extra=extra(options)))[0]["h"].plan.tasks[0]


def test_a_file_travels_as_it_is(book: Path) -> None:
    (book / "files/a.conf").write_text("{{ not rendered }}\n")
    assert made("copy: {dest: /etc/a, src: a.conf, mode: '0600'}").parameters == {
        "dest": "/etc/a",
        "content": "{{ not rendered }}\n",
        "mode": "0600",
    }
    (book / "b.conf").write_text("beside\n")
    assert made("copy: {dest: /etc/a, src: b.conf}").parameters["content"] == "beside\n"
    (book / "files/b.conf").write_text("in files\n")
    assert made("copy: {dest: /etc/a, src: b.conf}").parameters["content"] == "in files\n"
    assert made(f"copy: {{dest: /etc/a, src: {book}/b.conf}}").parameters["content"] == "beside\n"
    assert made("copy: {dest: /etc/a, src: '{{ n }}.conf'}", "n=b").parameters["content"] == "in files\n"


def test_files_stand_beside_the_file_of_the_task(book: Path) -> None:
    (book / "tasks/files/a").write_text("theirs")
    (book / "tasks/t.yml").write_text("- copy: {dest: /a, src: a}\n")
    assert made("import_tasks: tasks/t.yml").parameters["content"] == "theirs"


def test_a_template_is_rendered_here(book: Path) -> None:
    (book / "templates/t.j2").write_text(
        "# {{ who }}\n{% for name in names %}\n{{ loop.index }} {{ name }}\n{% endfor %}\n"
        "{% if false %}\nx\n{% endif %}\nend\n"
    )
    task = made("template: {dest: /etc/t, src: t.j2}", variables={"who": "us", "names": ["a", "b"]})
    assert task.module == "template"
    assert task.parameters == {"dest": "/etc/t", "content": "# us\n1 a\n2 b\nend\n"}
    assert made("template: {dest: /etc/t, content: 'a {{ who }}'}", "who=b").parameters["content"] == "a b"


def test_secret_content_is_marked_and_stands_by_reference_alone() -> None:
    task = made("copy: {dest: /etc/token, content: '{{ token }}'}", variables={"token": {"secret": "env:T"}})
    assert task.parameters == {"dest": "/etc/token", "content": {"$secret": "env:T"}, "sensitive": True}


# body, files, subject, part of the message, part of what else is told
REFUSED: dict[str, tuple[str, dict[str, bytes], str, str, str]] = {
    "no file": ("copy: {dest: /a, src: aa}", {"files/ab": b""}, "p.yml:3:29", "there is no file", ""),
    "nearest": (
        "copy: {dest: /a, src: ab.cnf}",
        {"ab.conf": b""},
        "p.yml:3:29",
        "no file ab.cnf",
        "did you mean ab.conf?",
    ),
    "binary": (
        "copy: {dest: /a, src: b}",
        {"files/b": b"\xff\xfe\0"},
        "p.yml:3:29",
        "files/b is no UTF-8 text",
        "0xff",
    ),
    "none": ("copy: {dest: /a, src: sub/b}", {}, "p.yml:3:29", "there is no file sub/b", "files/sub/b or sub/b"),
    "large": ("copy: {dest: /a, src: b}", {"files/b": b"x" * 70000}, "p.yml:3:29", "too large to travel", "69 KiB"),
    "huge": ("copy: {dest: /a, src: b}", {"files/b": b"x" * 2000000}, "p.yml:3:29", "too large", ""),
    "large content": ("copy: {dest: /a, content: \"{{ 'x' * 70000 }}\"}", {}, "p.yml:3:33", "too large", "69 KiB"),
    "a directory": ("copy: {dest: /a, src: files}", {}, "p.yml:3:29", "is a directory", "a file"),
    "both": ("copy: {dest: /a, src: a, content: b}", {"a": b""}, "p.yml:3:13", "content or src, one of them", ""),
    "neither": ("copy: {dest: /a}", {}, "p.yml:3:13", "content or src, one of them", ""),
    "a number": ("copy: {dest: /a, src: '{{ 1 }}'}", {}, "p.yml:3:29", "src of copy must be a path", "the number 1"),
    "mode 644": (
        "copy: {dest: /a, content: x, mode: 644}",
        {},
        "p.yml:3:42",
        "mode of copy must be text",
        '"0644"; as a number it would be the mode 1204',
    ),
    "mode 0644": (
        "copy: {dest: /a, content: x, mode: 0644}",
        {},
        "p.yml:3:42",
        "0644 means different things",
        '"0644"',
    ),
    "mode 0o644": (
        "copy: {dest: /a, content: x, mode: 0o644}",
        {},
        "p.yml:3:42",
        "0o644 means different things",
        '"0o644"',
    ),
    "mode u+x": ("copy: {dest: /a, content: x, mode: u+x}", {}, "p.yml:3:42", "mode must be octal digits", ""),
    "relative": ("copy: {dest: a, content: x}", {}, "p.yml:3:20", "dest must be an absolute path", ""),
    "undefined": (
        "template: {dest: /a, src: t}",
        {"templates/t": b"a\nb\n{{ nope }}\n"},
        "templates/t:3:1",
        "nope is not defined",
        "",
    ),
    "undefined within": (
        "template: {dest: /a, src: t}",
        {"t": b"{% for x in [1] %}\n{{ x.y }}\n{% endfor %}"},
        "t:2:1",
        "no attribute 'y'",
        "",
    ),
    "syntax": ("template: {dest: /a, src: t}", {"t": b"a\n{% if %}\n"}, "t:2:1", "this is no template", "{% if %}"),
    "unended": ("template: {dest: /a, src: t}", {"t": b"{% if true %}\nx\n"}, "t:2:1", "this is no template", ""),
    "include": ("template: {dest: /a, src: t}", {"t": b"{% include 'x' %}\n"}, "t:1:1", "the expression fails", ""),
    "division": ("template: {dest: /a, src: t}", {"t": b"\n\n{{ 1 / 0 }}\n"}, "t:3:1", "division by zero", ""),
    "secret": (
        "template: {dest: /a, src: t}",
        {"t": b"x {{ token }}\n"},
        "t:1:1",
        "a secret can't stand within other text",
        "",
    ),
    "null": (
        "template: {dest: /a, src: t}",
        {"t": b"\n{{ none }}\n"},
        "t:2:1",
        "null can't stand within text",
        "{{ none }}",
    ),
    "the sandbox": ("template: {dest: /a, src: t}", {"t": b"{{ ''.__class__.__mro__ }}\n"}, "t:1:1", "", ""),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(book: Path, name: str) -> None:
    body, files, subject, message, detail = REFUSED[name]
    for path, data in files.items():
        (book / path).write_bytes(data)
    with pytest.raises(DocumentError) as caught:
        made(body, variables={"token": {"secret": "env:T"}})
    finding = caught.value.finding
    assert (finding.subject.removeprefix("./"), message in finding.message) == (subject, True), finding
    assert detail in f"{finding.message} {finding.expected} {finding.found} {finding.remedy}"


def test_what_is_left_out_is_not_read() -> None:
    assert made("{copy: {dest: /a, src: nowhere}, when: false}").skip == "when: false"


def test_parameters_of_node_modules_can_be_decoded_there(book: Path) -> None:
    from k3env.node.modules.copy import Copy
    from k3env.protocol import codec

    (book / "a").write_text("x")
    assert codec.decode(Copy, made("copy: {dest: /etc/a, src: a}").parameters) == Copy("/etc/a", content="x")
