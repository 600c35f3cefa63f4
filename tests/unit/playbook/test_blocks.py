"""Blocks and imports: what is around a task reaches it, and what is wrong is told where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.errors import DocumentError
from k3env.playbook import Playbook, load
from k3env.playbook.tasks import Task
from tests.unit.playbook.conftest import compiled, playbook

BLOCKS = """\
- hosts: all
  tags: play
  vars: {who: play}
  environment: {A: play, B: play}
  pre_tasks:
    - demo: {path: /pre}
  tasks:
    - name: Outer
      when: one
      tags: outer
      vars: {who: outer, deep: outer}
      environment: {B: outer}
      become: true
      block:
        - demo: {path: "/{{ who }}"}
        - name: Inner
          when: [two, three]
          tags: [inner, outer]
          vars: {deep: inner}
          become_user: k3
          ignore_errors: true
          block:
            - demo: {path: "/{{ who }}/{{ deep }}"}
              when: four
              vars: {who: task}
              environment: {C: task}
            - demo: {path: /x}
              become: false
              ignore_errors: false
    - demo: {path: /after}
  post_tasks:
    - demo: {path: /post}
"""


def _plain(task: Task) -> list[object]:
    return [node.plain for node in task.when]


def test_what_is_around_a_task_reaches_it() -> None:
    (play,) = playbook(BLOCKS).plays
    pre, first, inner, own, after, _post = play.tasks
    assert [task.tags for task in play.tasks] == [
        ("play",), ("play", "outer"), ("play", "outer", "inner"), ("play", "outer", "inner"), ("play",), ("play",),
    ]  # fmt: skip
    assert [_plain(task) for task in (pre, first, inner, own, after)] == [
        [], ["one"], ["one", "two", "three", "four"], ["one", "two", "three"], [],
    ]  # fmt: skip
    assert [task.become_user for task in play.tasks] == [None, "root", "k3", None, None, None]
    assert [task.ignore_errors for task in play.tasks] == [False, False, True, False, False, False]
    assert {name: node.plain for name, node in inner.environment.items()} == {"A": "play", "B": "outer", "C": "task"}
    names = "one=true", "two=true", "three=true", "four=true"
    made = compiled(BLOCKS, *names).plan.tasks
    assert [task.parameters["path"] for task in made] == ["/pre", "/outer", "/task/inner", "/x", "/after", "/post"]
    assert [task.id for task in made] == ["1.1", "1.2", "1.3", "1.4", "1.5", "1.6"]
    assert [task.skip for task in compiled(BLOCKS, "one=true", "two=false", "three=x", "four=x").plan.tasks] == [
        None, None, "when: two", "when: two", None, None,
    ]  # fmt: skip


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with files that import each other."""
    monkeypatch.chdir(tmp_path)
    contents = {
        "books/top.yml": (
            "- import_playbook: sub/plays.yml\n  tags: imported\n  when: wanted\n  vars: {who: import}\n"
            "- hosts: all\n  tasks:\n"
            "    - {import_tasks: ../tasks.yml, when: again, tags: t, vars: {x: /import}, become: true}\n"
            "    - demo: {path: /last}\n"
        ),
        "books/sub/plays.yml": (
            "- hosts: all\n  vars: {who: play, a: play, b: play}\n  vars_files: [v.yml, ../w.yml]\n  tasks:\n"
            "    - demo: {path: '/{{ who }}/{{ a }}/{{ b }}'}\n"
        ),
        "books/sub/v.yml": "a: /v\nb: v\n",
        "books/w.yml": "b: w\n",
        "tasks.yml": "- demo: {path: '{{ x }}'}\n- block:\n    - import_tasks: books/more.yml\n",
        "books/more.yml": "- {name: More, demo: {path: '{{ x }}'}, tags: more}\n",
    }
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_imports_stand_beside_the_file_that_names_them(files: Path) -> None:
    book = load("books/top.yml")
    assert [len(play.tasks) for play in book.plays] == [1, 3]
    one, two = book.plays
    assert {name: node.plain for name, node in one.variables.items()} == {"who": "import", "a": "/v", "b": "w"}
    assert [str(node.position) for node in one.variables.values()] == [
        "books/top.yml:4:15", "books/sub/v.yml:1:4", "books/w.yml:1:4",
    ]  # fmt: skip
    assert (one.tasks[0].tags, _plain(one.tasks[0])) == (("imported",), ["wanted"])
    assert [str(task.position) for task in two.tasks] == ["tasks.yml:1:3", "books/more.yml:1:16", "books/top.yml:8:7"]
    assert [task.tags for task in two.tasks] == [("t",), ("t", "more"), ()]
    assert [task.become_user for task in two.tasks] == ["root", "root", None]
    assert _plain(two.tasks[1]) == ["again"]


def test_a_playbook_from_another_directory_is_the_same(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    assert [len(play.tasks) for play in load(str(files / "books/top.yml")).plays] == [1, 3]


PLAY = "- hosts: all\n  tasks:\n"
TASK = PLAY + "    - demo: {path: /x}\n"
GOOD = {"t.yml": "- demo: {path: /x}\n", "v.yml": "a: 1\n"}

# text of p.yml, other files, subject, part of the message, part of what else is told
REFUSED: dict[str, tuple[str, dict[str, str], str, str, str]] = {
    "rescue": (
        PLAY + "    - block: [demo: {path: /x}]\n      rescue: []\n",
        {},
        "p.yml:4:7",
        "a block has no key rescue",
        "ignore_errors",
    ),
    "always": (
        PLAY + "    - block: [demo: {path: /x}]\n      always: []\n",
        {},
        "p.yml:4:7",
        "a block has no key always",
        "ignore_errors",
    ),
    "loop of a block": (
        PLAY + "    - block: [demo: {path: /x}]\n      loop: [1]\n",
        {},
        "p.yml:4:7",
        "no key loop",
        "on the tasks",
    ),
    "with_items of a block": (
        PLAY + "    - block: [demo: {path: /x}]\n      with_items: [1]\n",
        {},
        "p.yml:4:7",
        "no key with_items",
        "loop",
    ),
    "typo of a block": (
        PLAY + "    - block: [demo: {path: /x}]\n      whne: a\n",
        {},
        "p.yml:4:7",
        "no key whne",
        "did you mean when?",
    ),
    "a module beside a block": (
        PLAY + "    - block: [demo: {path: /x}]\n      demo: {path: /x}\n",
        {},
        "p.yml:4:7",
        "no key demo",
        "",
    ),
    "an empty block": (PLAY + "    - block: []\n", {}, "p.yml:3:14", "a block has no tasks", ""),
    "a block that is null": (PLAY + "    - block:\n", {}, "p.yml:3:13", "block must be a list", ""),
    "a mapping": (PLAY + "    - block: {demo: {path: /x}}\n", {}, "p.yml:3:14", "block must be a list", "-"),
    "an error within": (PLAY + "    - block: [{dmo: {path: /x}}]\n", {}, "p.yml:3:16", "no module dmo", "demo"),
    "idle user of a block": (
        PLAY + "    - block: [demo: {path: /x}]\n      become_user: k3\n",
        {},
        "p.yml:4:7",
        "become_user without become",
        "become: true",
    ),
    "idle user of a play": (
        TASK + "  become_user: k3\n",
        {},
        "p.yml:4:3",
        "become_user without become",
        "become: true",
    ),
    "block of a play": (TASK + "  block: []\n", {}, "p.yml:4:3", "a play has no key block", "under tasks:"),
    "import_role": (
        PLAY + "    - import_role: {name: x}\n",
        {},
        "p.yml:3:7",
        "no key import_role",
        "there are no roles",
    ),
    "include_role": (
        PLAY + "    - include_role: {name: x}\n",
        {},
        "p.yml:3:7",
        "no key include_role",
        "there are no roles",
    ),
    "include_tasks": (PLAY + "    - include_tasks: t.yml\n", {}, "p.yml:3:7", "no key include_tasks", "import_tasks"),
    "include": (PLAY + "    - include: t.yml\n", {}, "p.yml:3:7", "no key include", "import_tasks"),
    "include_vars": (PLAY + "    - include_vars: v.yml\n", {}, "p.yml:3:7", "no key include_vars", "vars_files"),
    "no such file": (
        PLAY + "    - import_tasks: tt.yml\n",
        GOOD,
        "p.yml:3:21",
        "there is no file tt.yml",
        "did you mean t.yml?",
    ),
    "a directory": (PLAY + "    - import_tasks: .\n", GOOD, "p.yml:3:21", "is a directory", "a file"),
    "a template": (PLAY + "    - import_tasks: '{{ x }}.yml'\n", {}, "p.yml:3:21", "can't be a template", "plain text"),
    "a NUL": (PLAY + '    - import_tasks: "a\\0b"\n', {}, "p.yml:3:21", "", ""),
    "plays for tasks": (
        PLAY + "    - import_tasks: q.yml\n",
        {"q.yml": TASK},
        "q.yml:1:3",
        "no key hosts",
        "on the play",
    ),
    "no list": (
        PLAY + "    - import_tasks: q.yml\n",
        {"q.yml": "a: 1\n"},
        "q.yml:1:1",
        "the file q.yml must be a list",
        "",
    ),
    "an empty file": (PLAY + "    - import_tasks: q.yml\n", {"q.yml": "\n"}, "p.yml:3:21", "the file is empty", ""),
    "an error in a file": (
        PLAY + "    - import_tasks: q.yml\n",
        {"q.yml": "- demo: {pth: /x}\n"},
        "q.yml:1:10",
        "no parameter pth",
        "path",
    ),
    "a key of the import": (
        PLAY + "    - import_tasks: t.yml\n      retries: 1\n",
        GOOD,
        "p.yml:4:7",
        "no key retries",
        "on the tasks",
    ),
    "itself": (
        PLAY + "    - import_tasks: q.yml\n",
        {"q.yml": "- import_tasks: ./q.yml\n"},
        "q.yml:1:17",
        "imports itself",
        "q.yml -> q.yml",
    ),
    "itself as a playbook": ("- import_playbook: p.yml\n", {}, "p.yml:1:20", "imports itself", "p.yml -> p.yml"),
    "no such playbook": ("- import_playbook: q.yml\n", {}, "p.yml:1:20", "there is no file q.yml", ""),
    "hosts of an import": (
        "- import_playbook: t.yml\n  serial: 1\n",
        GOOD,
        "p.yml:2:3",
        "no key serial",
        "imported plays",
    ),
    "typo of an import": (
        "- import_playbook: t.yml\n  tag: a\n",
        GOOD,
        "p.yml:2:3",
        "no key tag",
        "did you mean tags?",
    ),
    "import within a play": (
        TASK + "  import_playbook: t.yml\n",
        GOOD,
        "p.yml:4:3",
        "no key import_playbook",
        "item of its own",
    ),
    "tasks for plays": ("- import_playbook: t.yml\n", GOOD, "t.yml:1:3", "a play has no key demo", ""),
    "vars_files: none": (TASK + "  vars_files: u.yml\n", GOOD, "p.yml:4:15", "there is no file u.yml", "v.yml"),
    "vars_files: list": (TASK + "  vars_files: [[a, b]]\n", GOOD, "p.yml:4:16", "names files one by one", ""),
    "vars_files: template": (TASK + "  vars_files: '{{ x }}.yml'\n", GOOD, "p.yml:4:15", "can't be a template", ""),
    "vars_files: no mapping": (
        TASK + "  vars_files: t.yml\n",
        GOOD,
        "t.yml:1:1",
        "the file t.yml must be a mapping",
        "a list",
    ),
    "vars_files: name": (
        TASK + "  vars_files: q.yml\n",
        {"q.yml": "a-b: 1\n"},
        "q.yml:1:1",
        "can't name a variable",
        "",
    ),
    "vars_files: twice": (TASK + "  vars_files: q.yml\n", {"q.yml": "a: 1\na: 2\n"}, "q.yml:2:1", "given twice", ""),
    "vars_files: yes": (TASK + "  vars_files: q.yml\n", {"q.yml": "a: yes\n"}, "q.yml:1:4", "different things", "true"),
    "vars_files: vault": (
        TASK + "  vars_files: q.yml\n",
        {"q.yml": "a: !vault |\n  $ANSIBLE_VAULT\n"},
        "q.yml:1:4",
        "!vault",
        "{secret:",
    ),
    "vars_files: vault file": (
        TASK + "  vars_files: q.yml\n",
        {"q.yml": "$ANSIBLE_VAULT;1.1;AES256\n3638\n"},
        "q.yml:1:1",
        "ansible-vault",
        "{secret:",
    ),
    "vars_files: UTF-16": (TASK + "  vars_files: q.yml\n", {"q.yml": "\ufeffUTF-16"}, "q.yml:1:1", "UTF-16", "UTF-8"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    text, others, subject, message, detail = REFUSED[name]
    monkeypatch.chdir(tmp_path)
    for file, content in {**others, "p.yml": text}.items():
        encoding = "utf-16" if "UTF-16" in content else "utf-8"
        (tmp_path / file).write_text(content, encoding=encoding)
    with pytest.raises(DocumentError) as caught:
        load("./p.yml")
    finding = caught.value.finding
    assert finding.subject.removeprefix("./") == subject
    assert message in finding.message
    assert detail in f"{finding.message} {finding.expected} {finding.found} {finding.remedy}"


def test_imports_that_multiply_are_stopped(tmp_path: Path) -> None:
    for level in range(14):
        (tmp_path / f"{level}.yml").write_text(f"- import_tasks: {level + 1}.yml\n" * 3)
    (tmp_path / "14.yml").write_text("- demo: {path: /x}\n")
    (tmp_path / "p.yml").write_text(PLAY + "    - import_tasks: 0.yml\n")
    with pytest.raises(DocumentError, match="too many files are imported"):
        load(str(tmp_path / "p.yml"))
    (tmp_path / "p.yml").write_text(PLAY + "    - import_tasks: tasks.yml\n" * 11)
    (tmp_path / "tasks.yml").write_text("- demo: {path: /x}\n" * 1000)
    with pytest.raises(DocumentError, match="too many tasks"):
        load(str(tmp_path / "p.yml"))


def test_become_of_a_play() -> None:
    text = TASK.replace("/x}", "/x}\n    - {demo: {path: /y}, become: false}\n    - {demo: {path: /z}, become_user: u}")
    assert _users(playbook(text + "  become: true\n")) == ["root", None, "u"]
    assert _users(playbook(text + "  become: true\n  become_user: k3\n")) == ["k3", None, "u"]
    late = PLAY + "    - demo: {path: /x}\n    - {demo: {path: /y}, become: true}\n  become_user: k3\n"
    assert _users(playbook(late)) == [None, "k3"]


def test_k3_user_owns_what_a_play_makes_unless_a_task_speaks_for_itself() -> None:
    text = PLAY + "    - demo: {path: /x}\n    - {demo: {path: /y}, become: true}\n  become: true\n"
    assert [task.become_user for task in compiled(text).plan.tasks] == ["root", "root"]
    made = compiled(text, "k3_user=k3").plan
    assert (made.user, [task.become_user for task in made.tasks]) == ("k3", [None, "root"])


def _users(book: Playbook) -> list[str | None]:
    return [task.become_user for task in book.plays[0].tasks]
