"""Playbooks: what is read, and everything that is wrong with one before a host is contacted."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from k3env.errors import DocumentError, InventoryError, K3Error, UsageError
from k3env.inventory import Inventory
from k3env.playbook import find_playbook, keywords, load
from tests.unit.playbook.conftest import playbook

FULL = """\
- name: Whole
  hosts: [rack1, "!gb03"]
  vars: {base: /x}
  tags: outer
  become: false
  environment: {A: "1", B: "2"}
  any_errors_fatal: true
  serial: [1, "50%"]
  max_fail_percentage: 12.5
  tasks:
    - name: One {{ base }}
      demo: {path: "{{ base }}", jobs: 3}
      when: [base is defined, true]
      tags: [inner, outer]
      vars: {x: 1}
      environment: {B: "3", C: {secret: "env:C"}}
      timeout: 600
      ignore_errors: true
      retries: 2
      delay: 0.5
      become: true
      become_user: k3
    - demo:
        path: /y
"""


def test_everything_that_may_stand_in_a_playbook() -> None:
    (play,) = playbook(FULL).plays
    assert (play.name, play.hosts, str(play.hosts_position)) == ("Whole", "rack1,!gb03", "p.yml:2:10")
    assert (play.any_errors_fatal, play.serial, play.max_fail_percentage) == (True, (1, 0.5), 12.5)
    assert {name: node.plain for name, node in play.variables.items()} == {"base": "/x"}
    one, two = play.tasks
    assert (one.title, one.module, str(one.position)) == ("One {{ base }}", "demo", "p.yml:12:7")
    assert one.tags == ("outer", "inner")
    assert {name: node.plain for name, node in one.environment.items()} == {
        "A": "1",
        "B": "3",
        "C": {"secret": "env:C"},
    }
    assert (one.timeout_s, one.retries, one.delay_s, one.ignore_errors, one.become_user) == (600.0, 2, 0.5, True, "k3")
    assert (two.title, two.tags, two.become_user, two.retries, two.delay_s) == ("demo", ("outer",), None, 0, 5.0)


PLAY = "- hosts: all\n  tasks:\n"
TASK = PLAY + "    - demo: {path: /x}\n"

# text, place, part of the message, part of expected, found or remedy
REFUSED = {
    "a mapping": ("hosts: all\n", "1:1", "a playbook is a list of plays", "- hosts: all"),
    "an empty list": ("[]\n", "1:1", "a playbook is a list of plays", ""),
    "a play that is text": ("- all\n", "1:3", "a play must be a mapping", 'the text "all"'),
    "a play that is null": ("- ~\n", "1:3", "a play needs hosts", ""),
    "no hosts": ("- tasks:\n    - demo: {path: /x}\n", "1:3", "a play needs hosts", "hosts: all"),
    "hosts that are null": ("- hosts:\n" + TASK[13:], "1:9", "a play needs hosts", "hosts: all"),
    "no tasks": ("- hosts: all\n", "1:3", "a play needs tasks", "a list of tasks"),
    "empty tasks": ("- hosts: all\n  tasks: []\n", "2:10", "a play needs tasks", ""),
    "tasks as a mapping": ("- hosts: all\n  tasks: {demo: {path: /x}}\n", "2:10", "tasks must be a list", "-"),
    "play key": (TASK + "  host: x\n", "4:3", "a play has no key host", "did you mean hosts?"),
    "play key of nothing known": (TASK + "  zzz: x\n", "4:3", "a play has no key zzz", "one of any_errors_fatal"),
    "gather_facts": (TASK + "  gather_facts: false\n", "4:3", "a play has no key gather_facts", "leave this out"),
    "roles": (TASK + "  roles: [x]\n", "4:3", "a play has no key roles", "import_tasks"),
    "handlers": (TASK + "  handlers: []\n", "4:3", "a play has no key handlers", "write a task"),
    "become that is text": (TASK + '  become: "yes"\n', "4:11", "become must be true or false", 'the text "yes"'),
    "hosts as a template": ("- hosts: '{{ x }}'\n" + TASK[13:], "1:10", "hosts can't be a template", ""),
    "hosts as a number": ("- hosts: 5\n" + TASK[13:], "1:10", "hosts must be text", '"5"'),
    "serial": (TASK + "  serial: 0\n", "4:11", "serial must be the size of a batch", "the number 0"),
    "serial as a part": (TASK + "  serial: [1, 150%]\n", "4:15", "serial must be the size of a batch", "150%"),
    "max_fail_percentage": (TASK + "  max_fail_percentage: 101\n", "4:24", "must be a percentage", "the number 101"),
    "any_errors_fatal": (TASK + "  any_errors_fatal: 1\n", "4:21", "must be true or false", "the number 1"),
    "variable name": (TASK + "  vars: {a-b: 1}\n", "4:10", "a-b can't name a variable", "underscore"),
    "vars as a list": (TASK + "  vars: [a]\n", "4:9", "vars must be a mapping", "a list"),
    "environment value": (TASK + "  environment: {A: 1}\n", "4:20", "A in environment must be text", '"1"'),
    "environment secret": (TASK + "  environment: {A: {secret: x}}\n", "4:29", "refers to no secret", "env:NAME"),
    "tags": (TASK + "  tags: [a, 1]\n", "4:13", "tags must be text", '"1"'),
    "empty tag": (TASK + "  tags: 'a,,b'\n", "4:9", "tags holds an empty word", "comma"),
    "duplicate key": (TASK + "      tags: a\n      tags: b\n", "5:7", "tags is given twice", ""),
    "empty task": (PLAY + "    - {}\n", "3:7", "a task names no module", "demo"),
    "task that is null": (PLAY + "    -\n", "3:6", "a task names no module", "demo"),
    "task as text": (PLAY + "    - demo\n", "3:7", "a task must be a mapping", 'the text "demo"'),
    "no module": (PLAY + "    - name: x\n      tags: a\n", "3:7", 'the task "x" names no module', "demo"),
    "unknown module": (PLAY + "    - git_chekout: {}\n", "3:7", "no module git_chekout", "did you mean git_checkout?"),
    "module of a collection": (PLAY + "    - ansible.builtin.command: {}\n", "3:7", "no module", "mean command?"),
    "shell": (PLAY + "    - shell: x\n", "3:7", "no module shell", "command with argv"),
    "set_fact": (PLAY + "    - set_fact: {x: 1}\n", "3:7", "no module set_fact", "vars on the play"),
    "two modules": (TASK + "      verify: {checks: ['*']}\n", "4:7", "names 2 modules: demo, verify", "two tasks"),
    "task key": (TASK + "      whne: x\n", "4:7", "a task has no key whne", "did you mean when?"),
    "task key of a named task": (
        PLAY + "    - name: x\n      demo: {path: /x}\n      whne: x\n", "5:7", 'the task "x" has no key whne', "when?",
    ),
    "register": (TASK + "      register: x\n", "4:7", "a task has no key register", "reads the node for itself"),
    "until": (TASK + "      until: x\n", "4:7", "a task has no key until", "retries and delay"),
    "notify": (TASK + "      notify: x\n", "4:7", "a task has no key notify", "write a task"),
    "run_once": (TASK + "      run_once: true\n", "4:7", "a task has no key run_once", "made once anyway"),
    "delegate_to": (TASK + "      delegate_to: x\n", "4:7", "a task has no key delegate_to", "a play of its own"),
    "with_items": (TASK + "      with_items: [1]\n", "4:7", "a task has no key with_items", "use loop:"),
    "no_log": (TASK + "      no_log: true\n", "4:7", "a task has no key no_log", "{secret: env:NAME}"),
    "unknown parameter": (PLAY + "    - demo: {pth: /x}\n", "3:14", "demo has no parameter pth", "did you mean path?"),
    "unknown parameter with a template": (
        PLAY + "    - demo: {path: /x, jbs: '{{ x }}'}\n", "3:24", "demo has no parameter jbs", "did you mean jobs?",
    ),
    "missing parameter": (PLAY + "    - demo: {}\n", "3:13", "demo needs the parameter path", ""),
    "missing parameters": (PLAY + "    - demo:\n", "3:12", "demo needs the parameter path", ""),
    "wrong type": (PLAY + "    - demo: {path: /x, jobs: many}\n", "3:30", "jobs of demo must be a whole", "many"),
    "wrong type beside a template": (
        PLAY + "    - demo: {path: '{{ x }}', jobs: many}\n", "3:37", "jobs of demo must be a whole number", "many",
    ),
    "wrong word": (PLAY + "    - demo: {path: /x, install: resolv}\n", "3:33", "install of demo", "mean resolve?"),
    "a module's own rule": (PLAY + "    - demo: {path: x}\n", "3:20", "path must be absolute", ""),
    "parameters as text": (PLAY + "    - demo: x=1\n", "3:13", "parameters of demo must be", "keys under demo"),
    "unknown check": (PLAY + "    - verify: {checks: [gpu.cuont]}\n", "3:25", "no check is called", "gpu.count"),
    "secret": (PLAY + "    - demo: {path: {secret: 'evn:X'}}\n", "3:29", "refers to no secret", "did you mean env?"),
    "when as a template": (TASK + "      when: {a: b}\n", "4:13", "when must be a list", "a mapping"),
    "when as a number": (TASK + "      when: [1]\n", "4:14", "when must be text", "the number 1"),
    "timeout": (TASK + "      timeout: 10m\n", "4:16", "timeout must be a number of seconds", '"10m"'),
    "retries": (TASK + "      retries: -1\n", "4:16", "retries must be a whole number", "the number -1"),
    "ignore_errors": (TASK + "      ignore_errors: 1\n", "4:22", "ignore_errors must be true or false", ""),
    "become_user alone": (TASK + "      become_user: k3\n", "4:7", "become_user without become", "become: true"),
    "become_user": (TASK + "      become: true\n      become_user: -x\n", "5:20", "become_user must be", ""),
    "name": (TASK + "      name: 5\n", "4:13", "name must be text", '"5"'),
}  # fmt: skip


def test_tasks_that_are_all_wrong_are_not_said_to_be_missing() -> None:
    with pytest.raises(DocumentError, match="must be a list") as caught:
        playbook("- hosts: all\n  tasks: {a: b}\n")
    assert caught.value.finding.evidence == ()


@pytest.mark.parametrize("text, place, message, detail", REFUSED.values(), ids=REFUSED)
def test_is_refused(text: str, place: str, message: str, detail: str) -> None:
    with pytest.raises(DocumentError) as caught:
        playbook(text)
    finding = caught.value.finding
    assert finding.subject == f"p.yml:{place}"
    assert message in finding.message
    assert detail in f"{finding.message} {finding.expected} {finding.found} {finding.remedy}"


def test_all_that_is_wrong_is_told_at_once() -> None:
    text = "- hosts: all\n  roles: []\n  tasks:\n    - dmo: {}\n"
    text += "    - demo: {path: /x, jobs: x, pth: y}\n      register: x\n"
    with pytest.raises(DocumentError) as caught:
        playbook(text)
    finding = caught.value.finding
    assert [finding.subject, *(item.source for item in finding.evidence)] == [
        "p.yml:2:3",
        "p.yml:4:7",
        "p.yml:6:7",
        "p.yml:5:33",
    ]


def test_what_serves_instead_is_said_of_no_key_that_is_there() -> None:
    assert not set(keywords.PLAY) & set(keywords.PLAY_INSTEAD)
    assert not set(keywords.TASK) & set(keywords.TASK_INSTEAD)


def test_a_playbook_is_found_by_path_by_name_here_and_as_shipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, shown = find_playbook("trtllm")
    assert path.is_file() and path.is_absolute()
    assert shown == "playbooks/trtllm.yml"
    (tmp_path / "playbooks").mkdir()
    (tmp_path / "playbooks" / "trtllm.yml").write_text(TASK)
    (tmp_path / "playbooks" / "ours.yml").write_text(TASK)
    assert find_playbook("trtllm") == (Path("playbooks/trtllm.yml"), "playbooks/trtllm.yml")
    assert load("ours").plays[0].tasks[0].module == "demo"
    assert str(load("playbooks/ours.yml").plays[0].position) == "playbooks/ours.yml:1:3"
    for name, kind, message, remedy in [
        ("our", UsageError, "no playbook our", "did you mean ours?"),
        ("trtlm", UsageError, "no playbook trtlm", "did you mean trtllm?"),
        ("zzzzzz", UsageError, "no playbook zzzzzz", "--playbook ./FILE.yml"),
        ("playbooks/our.yml", DocumentError, "no file playbooks/our.yml", "did you mean playbooks/ours.yml?"),
        ("./nothing.yml", DocumentError, "no file", ""),
    ]:
        with pytest.raises(kind, match=message) as caught:
            load(name)
        assert remedy in (caught.value.finding.remedy or "")


BATCHES = [
    ("", 5, [5]),
    ("serial: 2", 5, [2, 2, 1]),
    ("serial: [1, 3]", 8, [1, 3, 3, 1]),
    ('serial: "40%"', 5, [2, 2, 1]),
    ('serial: [1, "50%"]', 5, [1, 2, 2]),
    ('serial: "1%"', 3, [1, 1, 1]),
    ("serial: 9", 2, [2]),
    ("serial: 2", 0, []),
]


@pytest.mark.parametrize("serial, hosts, sizes", BATCHES)
def test_batches(serial: str, hosts: int, sizes: list[int]) -> None:
    (play,) = playbook(f"{TASK}  {serial}\n").plays
    batches = play.batches(range(hosts))
    assert [len(batch) for batch in batches] == sizes
    assert [host for batch in batches for host in batch] == list(range(hosts))


def test_plays_narrow_the_hosts_that_were_asked_for(tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("a: {hosts: {'n[1:3]': }}\nb: {hosts: {n3: , n4: }}\n")
    inventory = Inventory.load([tmp_path / "hosts.yml"])
    found = playbook(TASK + TASK.replace("all", "b"))
    targets = found.targets(inventory, inventory.select("a"))
    assert [[host.name for host in hosts] for hosts in targets] == [["n1", "n2", "n3"], ["n3"]]
    only = playbook(TASK.replace("all", "n4"))
    with pytest.raises(InventoryError, match="is for these hosts"):
        only.targets(inventory, inventory.select("a"))
    with pytest.raises(InventoryError, match="no host or group c") as caught:
        playbook(TASK.replace("all", "c")).targets(inventory, inventory.select("a"))
    assert caught.value.finding.subject == "p.yml:1:10"


_LINES = ["- hosts: all", "  tasks:", "    - demo: {path: /x}", "    - name: x", "      when: a", "  vars:", "    a: 1",
          "      loop: [", "  serial: 1", "    - verify:", "        checks: ['*']", "  become: ~", "- "]  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from(_LINES), max_size=8))
def test_no_playbook_gives_a_traceback(lines: list[str]) -> None:
    try:
        found = playbook("\n".join(lines) + "\n")
    except K3Error as error:
        assert error.finding.subject.startswith("p.yml")
    else:
        assert found.plays
