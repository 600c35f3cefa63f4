"""Compilation: from plays and variables to plans."""

from __future__ import annotations

from typing import Any

import pytest

from k3env.documents.nodes import Node
from k3env.errors import DocumentError, UsageError
from k3env.inventory.variables import extra
from k3env.k3 import variables as shipped
from k3env.playbook import Options, compile_playbook, layers
from k3env.protocol import codec
from k3env.protocol.plan import Plan, Task
from k3env.protocol.profile import Profile
from k3env.protocol.secret import references
from tests.unit.playbook.conftest import compiled, host, playbook

PLAY = "- hosts: all\n  vars: {base: /play, jobs: 3}\n  tasks:\n"


def task(body: str, *options: str, **keywords: Any) -> Task:
    """Compile one task."""
    return compiled(f"{PLAY}    - {body}\n", *options, **keywords).plan.tasks[0]


def test_a_task_gets_its_final_values() -> None:
    text = PLAY + (
        "    - name: In {{ base }}\n"
        "      demo: {path: '{{ base }}/{{ sub }}', jobs: '{{ jobs }}', install: resolve, container: '{{ none }}'}\n"
        "      vars: {sub: s}\n"
        "      environment: {A: '{{ base }}', B: {secret: 'env:TOKEN'}}\n"
        "      timeout: 60\n      retries: 1\n      delay: 2\n      ignore_errors: true\n      become: true\n"
    )
    (made,) = compiled(text).plan.tasks
    assert made == Task(
        id="1.1",
        name="In /play",
        module="demo",
        parameters={"path": "/play/s", "jobs": 3, "install": "resolve"},
        become_user="root",
        environment={"A": "/play", "B": {"$secret": "env:TOKEN"}},
        timeout_s=60.0,
        retries=1,
        delay_s=2.0,
        ignore_errors=True,
        position="p.yml:5:7",
    )


# where the variable `base` is set, from the weakest: (inventory, play, task, --extra-vars)
@pytest.mark.parametrize(
    "task_vars, extra_vars, wanted",
    [("", (), "/play"), ("{base: /task}", (), "/task"), ("{base: /task}", ("base=/extra",), "/extra")],
)
def test_precedence(task_vars: str, extra_vars: tuple[str, ...], wanted: str) -> None:
    body = f"{{demo: {{path: '{{{{ base }}}}'}}, vars: {task_vars or '{}'}}}"
    assert task(body, *extra_vars, variables={"base": "/inventory"}).parameters["path"] == wanted
    assert task("{demo: {path: '{{ other }}'}}", variables={"other": "/inventory"}).parameters["path"] == "/inventory"


def test_text_of_the_command_line_becomes_what_a_parameter_wants() -> None:
    body = "{demo: {path: '{{ p }}', jobs: '{{ n }}', environment: '{{ e }}', container: '{{ c }}'}}"
    options = ("p=/7", "n=8", 'e={"A": "1"}', 'c={"engine": "docker", "image": "i"}')
    made = task(body, *options)
    assert made.parameters == {
        "path": "/7",
        "jobs": 8,
        "environment": {"A": "1"},
        "container": {"engine": "docker", "image": "i"},
    }
    assert type(made.parameters["path"]) is str


def test_nulls_are_left_to_the_module() -> None:
    assert task("{demo: {path: /x, jobs: '{{ none }}', container: '{{ container }}'}}").parameters == {"path": "/x"}


CONDITIONS = [
    ("jobs == 3", None),
    ("jobs == 4", "when: jobs == 4"),
    ("[jobs == 3, base == '/x']", "when: base == '/x'"),
    ("false", "when: false"),
    ("flashinfer_step != 'none'", None),
]


@pytest.mark.parametrize("when, skip", CONDITIONS)
def test_conditions(when: str, skip: str | None) -> None:
    assert task(f"{{demo: {{path: /x}}, when: {when}}}").skip == skip


def test_what_is_left_out_is_not_rendered() -> None:
    text = PLAY + (
        "    - {demo: {path: '{{ nowhere }}'}, name: '{{ nowhere }}', tags: a, when: nowhere}\n"
        "    - {demo: {path: '{{ nowhere }}'}, environment: {A: '{{ nowhere }}'}, tags: b, when: jobs == 4}\n"
        "    - {demo: {path: /x}, tags: b}\n"
    )
    one, two, three = compiled(text, tags=("b",)).plan.tasks
    assert (one.skip, one.parameters, one.name) == ("tags: a; --tags b", {}, "{{ nowhere }}")
    assert (two.skip, two.parameters, two.environment) == ("when: jobs == 4", {}, {})
    assert (three.skip, three.id) == (None, "1.3")


# body, place, part of the message, part of found or remedy
FAILING = [
    ("{demo: {path: '{{ bsae }}'}}", "p.yml:4:21", "bsae is not defined", "did you mean base?"),
    ("{demo: {path: '{{ trtllm_commit }}'}}", "p.yml:4:21", "trtllm_commit is not", "--extra-vars trtllm_commit="),
    ("{demo: {path: '{{ trtllm_repo }}/x'}}", "p.yml:4:21", "trtllm_repo is not", "--extra-vars trtllm_repo=/"),
    ("{demo: {path: '{{ hostvars.x }}'}}", "p.yml:4:21", "hostvars is not defined", "vars of a group"),
    ("{demo: {path: '{{ item }}'}}", "p.yml:4:21", "item is not defined", "write loop: on the task"),
    ("{demo: {path: /x}, when: ansible_facts.x}", "p.yml:4:32", "ansible_facts is not defined", "inventory"),
    ("{demo: {path: '{{ jobs }}'}}", "p.yml:4:21", "path of demo must be text", "the number 3"),
    ("{demo: {path: /x, jobs: '{{ base }}'}}", "p.yml:4:31", "jobs of demo must be a whole number", "/play"),
    ("{demo: {path: 'x{{ base }}'}}", "p.yml:4:21", "path must be absolute", ""),
    ("{demo: {path: '{{ deep }}'}}", "hosts.yml:1:1", "nope is not defined", ""),
    ("{demo: {path: /x}, environment: {A: '{{ jobs }}'}}", "p.yml:4:43", "A must be text", "the number 3"),
    ("{demo: {path: /x}, when: base}", "p.yml:4:32", "neither true nor false", "/play"),
    ("{demo: {path: /x}, name: '{{ token }}!'}", "p.yml:4:32", "a secret can't stand within other text", ""),
]  # fmt: skip


@pytest.mark.parametrize("body, place, message, detail", FAILING, ids=[case[0] for case in FAILING])
def test_fails_where_it_is_wrong(body: str, place: str, message: str, detail: str) -> None:
    variables = {"deep": "{{ nope }}", "token": {"secret": "env:T"}}
    with pytest.raises(DocumentError) as caught:
        task(body, variables=variables)
    finding = caught.value.finding
    assert finding.subject == place
    assert message in finding.message
    assert detail in f"{finding.found} {finding.remedy}"


# variable, value, part of the message, part of found or remedy
WRONG_SETTINGS = [
    ("flashinfer_step", "frok", "flashinfer_step", "did you mean fork?"),
    ("gpus_per_node", "many", "gpus_per_node of the shipped variables must be a whole number", "many"),
    ("driver_min", 580.65, "driver_min of the shipped variables must be", "580.65"),
    ("trtllm_commit", "abc123", "trtllm_commit must be a full commit", ""),
    ("fla_core_version", 0.5, "fla_core_version of the shipped variables must be text", '"0.5"'),
    ("trtllm_jobs", "atuo", "trtllm_jobs of the shipped variables must be", "did you mean auto?"),
    ("container", {"engine": "dokcer", "image": "i"}, "container.engine", "did you mean docker?"),
    ("container", {"enigne": "docker"}, "no parameter enigne", "did you mean engine?"),
    ("driver_min", "abc", "driver_min must be a dotted number", ""),
    ("driver_min", "580.", "driver_min must be a dotted number", ""),
    ("gpus_per_node", 0, "gpus_per_node must be at least 1", ""),
    ("trtllm_jobs", 0, "trtllm_jobs must be at least 1", ""),
    ("trtllm_jobs", 4097, "trtllm_jobs must be at most 4096, found 4097; or auto", ""),
    ("trtllm_jobs", {"a": 1}, "trtllm_jobs of the shipped variables must be a whole number or auto", ""),
    ("driver_min", {"a": 1}, "driver_min of the shipped variables must be text or a whole number", ""),
    ("trtllm_arch", "sm_103", "trtllm_arch: expected native, all", ""),
    ("trtllm_repo", "TensorRT-LLM", "trtllm_repo must be an absolute path", ""),
    ("trtllm_venv", ".venv-3.12", "trtllm_venv must be an absolute path", ""),
    ("k3env_state_dir", "~/state", "k3env_state_dir must be an absolute path", ""),
    ("cache_base", "cache", "cache_base must be an absolute path", ""),
    ("checkpoint", "kimi", "checkpoint must be an absolute path", ""),
    ("serve_config", "a.yml", "serve_config must be an absolute path", ""),
    ("einops_version", "latest", "einops_version must be a version", ""),
    ("builder", "gb300-[01-02]", "builder must be the name of one host", ""),
    ("flashinfer_step", "pinned", "must be one of auto, fork, pin, none", "pinned"),
    ("trtllm_repo", "/", "trtllm_repo must be a path below /", ""),
    ("trtllm_repo", "//", "trtllm_repo must be a path below /", ""),
    ("k3env_state_dir", "/a\nb", "k3env_state_dir must hold no line end", ""),
    ("k3_user", "", "k3_user must be the name of a user", ""),
    ("k3_user", "-u", "k3_user must be the name of a user", ""),
    ("k3_user", "/../x", "k3_user must be the name of a user", ""),
    ("k3_user", "a\nb", "k3_user must be the name of a user", ""),
    ("flashinfer_url", "/mirrors/flashinfer", "flashinfer_url must be an https, ssh, git or file URL", ""),
    ("flashinfer_url", "git@host:flashinfer", "flashinfer_url must be an https, ssh, git or file URL", ""),
    ("flashinfer_url", "ssh://-oProxyCommand=x/y", "flashinfer_url must be an https", ""),
    ("flashinfer_url", "https://host/a;b", "flashinfer_url must be an https", ""),
    ("gpus_per_node", "{{ none }}", "gpus_per_node of the shipped variables comes to null", "| default("),
    ("trtllm_url", {"secret": "env:T"}, "trtllm_url of the shipped variables can't be a secret", "environment: {NAME"),
]


@pytest.mark.parametrize("name, value, message, detail", WRONG_SETTINGS, ids=[case[0] for case in WRONG_SETTINGS])
def test_settings_fail_where_they_were_set(name: str, value: object, message: str, detail: str) -> None:
    with pytest.raises(DocumentError) as caught:
        task("{demo: {path: /x}}", variables={name: value})
    finding = caught.value.finding
    assert finding.subject == "hosts.yml:1:1"
    assert message in finding.message
    assert detail in f"{finding.found} {finding.remedy}"


@pytest.mark.parametrize("name", [name for name, value in shipped.defaults().items() if value is not None])
def test_a_shipped_variable_that_is_null_has_its_default(name: str) -> None:
    made = compiled(PLAY + f"    - {{demo: {{path: '/{{{{ {name} }}}}'}}}}\n", variables={name: None, "k3_user": "k3"})
    default = "/var/tmp/k3env-cache-k3" if name == "cache_base" else str(shipped.defaults()[name])
    assert made.plan.tasks[0].parameters["path"] == f"/{default}"
    assert made.settings.origins[name] == "k3env's default"


def test_a_shipped_variable_that_is_null_and_has_no_default_must_be_given() -> None:
    with pytest.raises(DocumentError, match="trtllm_repo is not defined"):
        task("{demo: {path: '{{ trtllm_repo }}'}}", variables={"trtllm_repo": None})


# body, variables, subject, the beginning of the message, what is seen beside it
BLAMED = [
    ("{file: {path: '{{ trtllm_repo }}', state: absent}}", {"trtllm_repo": "/a/"}, "hosts.yml:1:1",
     "trtllm_repo: file: path must be", ["p.yml:4:21"]),
    ("{demo: {path: 'x{{ trtllm_repo }}'}}", {"trtllm_repo": "/a"}, "hosts.yml:1:1",
     "trtllm_repo: demo: path must be", ["p.yml:4:21"]),
    ("{file: {path: '{{ trtllm_repo }}{{ k3env_state_dir }}', state: absent}}",
     {"trtllm_repo": "/ab", "k3env_state_dir": "/cd/"}, "p.yml:4:21", "file: path must be",
     ["hosts.yml:1:1", "hosts.yml:1:1"]),
    ("{file: {path: '{{ own }}', state: absent}}", {"own": "/a/"}, "p.yml:4:21", "file: path must be",
     ["hosts.yml:1:1"]),
    ("{file: {path: '/b/', state: absent}}", {"trtllm_repo": "/b/"}, "p.yml:4:21", "file: path must be", []),
]  # fmt: skip


@pytest.mark.parametrize("body, variables, subject, message, seen", BLAMED, ids=[case[0] for case in BLAMED])
def test_a_parameter_is_told_with_the_variable_that_brought_it(
    body: str, variables: dict[str, str], subject: str, message: str, seen: list[str]
) -> None:
    with pytest.raises(DocumentError) as caught:
        task(body, variables=variables)
    finding = caught.value.finding
    assert (finding.subject, [item.source for item in finding.evidence]) == (subject, seen), finding
    assert finding.message.startswith(message)


# task, place; with the variable `token`, a secret
EXPOSED = [
    ("{command: {argv: [a, {secret: 'env:T'}], creates: /x}}", "p.yml:4:28"),
    ("{command: {argv: [a, '{{ token }}'], creates: /x}}", "p.yml:4:28"),
    ("{command: {argv: '{{ [token] }}', creates: /x}}", "p.yml:4:24"),
    ("{command: {argv: [a], unless: [b, '{{ token }}']}}", "p.yml:4:41"),
    ("{command: {argv: [a], creates: '{{ token }}'}}", "p.yml:4:38"),
    ("{cache_dirs: {base: {secret: 'env:T'}}}", "p.yml:4:27"),
    ("{cache_dirs: {base: '{{ token }}'}}", "p.yml:4:27"),
    ("{pip_packages: {venv: /v, packages: [a], index_url: {secret: 'env:T'}}}", "p.yml:4:59"),
    ("{git_checkout: {repo: /r, commit: '{{ x }}', url: {secret: 'env:T'}}}", "p.yml:4:57"),
    ("{copy: {dest: '{{ token }}', content: x}}", "p.yml:4:21"),
    ("{demo: {path: /x, container: {engine: docker, image: {secret: 'env:T'}}}}", "p.yml:4:60"),
]


@pytest.mark.parametrize("body, place", EXPOSED, ids=[case[0] for case in EXPOSED])
def test_a_secret_stands_only_where_nobody_else_sees_it(body: str, place: str) -> None:
    with pytest.raises(DocumentError, match="can't be a secret: others would see it") as caught:
        task(body, variables={"token": {"secret": "env:T"}})
    finding = caught.value.finding
    assert (finding.subject, finding.found) == (place, "{secret: env:T}")
    assert finding.expected in ("a secret in environment alone", "a secret in content alone")
    assert "environment: {NAME: {secret: env:T}}" in (finding.remedy or "")


def test_the_profile_and_its_origins() -> None:
    variables = {"trtllm_repo": "/r", "driver_min": 590, "trtllm_venv": "{{ trtllm_repo }}/.venv-3.12", "k3_user": "k3"}
    made = compiled(
        PLAY + "    - demo: {path: /x}\n", "gpus_per_node=8", f"trtllm_commit={'a' * 40}", variables=variables
    )
    profile = codec.decode(Profile, made.plan.profile)
    assert profile == made.settings.profile
    assert (profile.paths.repo, profile.paths.venv, profile.user) == ("/r", "/r/.venv-3.12", "k3")
    assert profile.paths.cache_base == "/var/tmp/k3env-cache-k3"
    assert (profile.gpu.driver_min, profile.gpu.count, profile.gpu.arch) == ("590", 8, "103-real")
    assert (profile.pins.trtllm_commit, profile.pins.fla_core_version) == ("a" * 40, None)
    assert made.plan.user == "k3"
    origins = made.settings.origins
    assert (origins["driver_min"], origins["gpus_per_node"]) == ("hosts.yml:1:1", "--extra-vars")
    assert origins["flashinfer_url"] == "k3env's default"
    assert compiled(PLAY + "    - demo: {path: /x}\n").settings.profile.paths.venv is None


def test_the_cache_base_has_the_connecting_users_name() -> None:
    assert compiled(PLAY + "    - demo: {path: /x}\n").settings.profile.paths.cache_base == "/var/tmp/k3env-cache-k3"


@pytest.mark.parametrize(
    "tasks, check, wanted",
    [
        ("    - demo: {path: /x}\n", False, ("apply", "finish")),
        ("    - demo: {path: /x}\n", True, ("check", "stop")),
        ("    - verify: {checks: ['gpu.*']}\n", False, ("apply", "stop")),
        ("    - verify: {checks: ['gpu.*']}\n    - {demo: {path: /x}, when: false}\n", False, ("apply", "stop")),
        ("    - verify: {checks: ['gpu.*']}\n    - demo: {path: /x}\n", False, ("apply", "finish")),
    ],
)
def test_what_becomes_of_a_worker_that_nobody_follows(tasks: str, check: bool, wanted: tuple[str, str]) -> None:
    made = compiled(PLAY + tasks, check=check).plan
    assert (made.mode, made.when_unfollowed) == wanted


def test_secrets_stand_in_a_plan_by_reference_alone() -> None:
    body = "{demo: {path: /x, environment: {T: '{{ token }}', U: {secret: prompt}}}}"
    made = task(body, variables={"token": {"secret": "file:/run/token"}})
    assert references(codec.encode(made)) == {"file:/run/token", "prompt"}


SHARED = (
    "- hosts: all\n  tasks:\n"
    "    - demo: {path: '{{ base }}'}\n"
    "    - {demo: {path: '/{{ side }}'}, when: wanted}\n"
    "    - {demo: {path: '/{{ mine }}'}, vars: {mine: '{{ base }}'}}\n"
)


def test_hosts_with_equal_values_share_one_plan() -> None:
    found = playbook(SHARED)
    hosts = [
        host("h1", base="/a", wanted=False, side=1, unused=1),
        host("h2", base="/a", wanted=False, side=2, unused=2),  # `side` is not rendered
        host("h3", base="/b", wanted=False),
        host("h4", base="/a", wanted=True, side=1),
        host("h5", base="/a", wanted=True, side=2),
        host("h6", base="/a", wanted=True, side="2"),
        host("h7", base="/a", wanted=True, side=True),
        host("h8", base="/a", wanted=False, mine="/elsewhere"),  # the task's own `mine` wins
        host("h9", base="/a", wanted=False, driver_min=590),
    ]
    (plans,) = compile_playbook(found, [hosts], Options())
    kinds: dict[int, list[str]] = {}
    for name, made in plans.items():
        kinds.setdefault(id(made.plan), []).append(name)
    assert list(kinds.values()) == [["h1", "h2", "h8"], ["h3"], ["h4"], ["h5"], ["h6"], ["h7"], ["h9"]]
    for each in hosts:
        (alone,) = compile_playbook(found, [[each]], Options())
        assert codec.dumps(alone[each.name].plan) == codec.dumps(plans[each.name].plan)


def test_a_plan_that_names_its_host_is_its_own() -> None:
    found = playbook("- hosts: all\n  tasks:\n    - demo: {path: '/{{ inventory_hostname }}'}\n")
    (plans,) = compile_playbook(found, [[host("h1"), host("h2")]], Options())
    assert [made.plan.tasks[0].parameters["path"] for made in plans.values()] == ["/h1", "/h2"]


def test_equal_input_gives_equal_bytes_and_they_can_be_read_back() -> None:
    text = PLAY + "    - {demo: {path: /x, environment: {B: b, A: a}}, environment: {Z: z, Y: y}}\n"
    other = PLAY + "    - {demo: {environment: {A: a, B: b}, path: /x}, environment: {Y: y, Z: z}}\n"
    one, two = (codec.dumps(compiled(source).plan) for source in (text, text))
    assert one == two
    assert codec.dumps(compiled(other).plan) == one
    assert codec.loads(Plan, one) == compiled(text).plan


def test_a_misspelt_extra_variable_is_refused() -> None:
    for option, meant in [("trtllm_comit=x", "trtllm_commit"), ("flashinfer_step_=none", "flashinfer_step")]:
        with pytest.raises(UsageError, match="no shipped play reads") as caught:
            task("{demo: {path: /x}}", option)
        assert caught.value.finding.remedy == f"did you mean {meant}?"
    # One that the inventory or the play knows is theirs.
    task("{demo: {path: /x}}", "trtllm_comit=x", variables={"trtllm_comit": "y"})
    task("{demo: {path: /x}}", "something_else=x")


def test_the_layers_of_a_hosts_variables_with_their_origins() -> None:
    (play,) = playbook(PLAY + "    - demo: {path: /x}\n").plays
    found = layers(play, host(base="/inventory", driver_min="600"), Options(extra=extra(["jobs=9"])))
    shown = {
        name: (found[name].plain, str(found[name].position)) for name in ("base", "driver_min", "jobs", "trtllm_arch")
    }
    assert shown == {
        "base": ("/play", "p.yml:2:16"),
        "driver_min": ("600", "hosts.yml:1:1"),
        "jobs": ("9", "--extra-vars"),
        "trtllm_arch": ("103-real", "k3env's default"),
    }
    assert found["inventory_hostname"].plain == "h"


def test_plays_are_numbered_and_each_has_its_own_hosts() -> None:
    text = "- hosts: a\n  tasks: [{demo: {path: /x}}]\n- hosts: b\n  tasks: [{demo: {path: /x}}, {demo: {path: /y}}]\n"
    one, two = compile_playbook(playbook(text), [[host("h1")], [host("h1"), host("h2")]], Options())
    assert (list(one), list(two)) == (["h1"], ["h1", "h2"])
    assert [task.id for task in two["h2"].plan.tasks] == ["2.1", "2.2"]


def test_hosts_are_told_apart_without_comparing_each_with_all(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    spelling = Node.spelling
    monkeypatch.setattr(Node, "spelling", lambda node: asked.append(node) or spelling(node))
    hosts = [host(f"h{number}", base=f"/b{number // 2}") for number in range(40)]
    found = playbook("- hosts: all\n  tasks:\n    - demo: {path: '{{ base }}'}\n")
    (plans,) = compile_playbook(found, [hosts], Options())
    assert len({id(each) for each in plans.values()}) == 20
    assert plans["h2"] is plans["h3"] and plans["h3"] is not plans["h4"]
    of_hosts = [node for node in asked if node.position.source == "hosts.yml"]  # type: ignore[attr-defined]
    assert len(of_hosts) == 40


def test_mappings_in_another_order_are_other_values() -> None:
    hosts = [host("a", m={"x": 1, "y": 2}), host("b", m={"y": 2, "x": 1})]
    found = playbook("- hosts: all\n  tasks:\n    - demo: {path: \"/{{ m | join('-') }}\"}\n")
    (plans,) = compile_playbook(found, [hosts], Options())
    assert [plans[name].plan.tasks[0].parameters["path"] for name in "ab"] == ["/x-y", "/y-x"]


def test_a_plan_that_is_too_large_is_refused() -> None:
    tasks = "    - copy: {dest: /a, content: \"{{ 'x' * 60000 }}\"}\n" * 30
    with pytest.raises(UsageError) as caught:
        compiled(f"- hosts: all\n  tasks:\n{tasks}")
    assert "content of copy at p.yml:3:" in (caught.value.finding.found or "")
