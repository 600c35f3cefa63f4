"""The schemas that editors take: all that is shipped fits them, and what is wrong does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from invoke.exceptions import Exit

from k3env.cli.schema import schema as command
from k3env.documents import shipped
from k3env.errors import DocumentError
from k3env.playbook import schemas, site
from k3env.playbook.plays import read
from tests.unit.playbook.test_plays import FULL


@pytest.fixture(scope="module")
def made() -> dict[str, Any]:
    return {name: make() for name, make in schemas.ALL.items()}


def valid(schema: dict[str, Any], text: str) -> bool:
    """Return whether an editor would leave a text alone."""
    return bool(jsonschema.validators.validator_for(schema)(schema).is_valid(yaml.safe_load(text)))


def test_each_is_a_schema_with_words_for_people(made: dict[str, Any]) -> None:
    for name, schema in made.items():
        jsonschema.validators.validator_for(schema).check_schema(schema)
        assert schema["title"], name
    properties = made["playbook"]["definitions"]["module_task"]["properties"]
    assert all("description" in properties[name] for name in ("when", "loop", "become"))
    copy = made["playbook"]["definitions"]["module_copy"]
    assert copy["description"] and all("description" in told for told in copy["properties"].values())


@pytest.mark.parametrize("name", shipped.names(shipped.PLAYBOOKS))
def test_shipped_playbooks_fit(made: dict[str, Any], name: str) -> None:
    assert valid(made["playbook"], shipped.find(shipped.PLAYBOOKS, name).read_text())


TASK = "- hosts: all\n  tasks:\n    - "
FITS = [
    FULL.replace("demo:", "file:").replace("jobs: 3", "mode: '0644'"),
    "- import_playbook: x.yml\n  tags: a\n  when: [b, true]\n",
    TASK + "block: [{import_tasks: x.yml, become: true}, {block: [{file: {path: '{{ x }}'}}]}]\n",
    TASK + "{copy: {dest: /a, content: {secret: 'env:X'}}, loop: '{{ x }}', loop_control: {label: a}}\n",
    TASK + "{cache_dirs: {base: /a, min_free_gib: '{{ x }}'}, timeout: 1.5, environment: {A: {secret: prompt}}}\n",
    TASK + "{pip_packages: {packages: ['{{ x }}', b], checkout: /r, environment: {A: '1'}}, when: null}\n",
    TASK + "{command: {argv: [a], creates: /a, environment: {A: {secret: prompt}}}}\n",
    TASK + "{git_checkout: {repo: /r, url: u, commit: '{{ c }}', submodules: '{{ true }}', lfs: null}}\n",
]


@pytest.mark.parametrize("text", FITS)
def test_what_may_be_written_fits(made: dict[str, Any], text: str) -> None:
    assert valid(made["playbook"], text)


WRONG = [
    "hosts: all\n",
    "[]\n",
    "- tasks: [{file: {path: /x}}]\n",
    "- hosts: all\n",
    "- hosts: all\n  tasks: []\n",
    "- hosts: all\n  roles: [a]\n  tasks: [{file: {path: /x}}]\n",
    "- hosts: all\n  serial: [1, {}]\n  tasks: [{file: {path: /x}}]\n",
    "- hosts: all\n  any_errors_fatal: 1\n  tasks: [{file: {path: /x}}]\n",
    "- import_playbook: x.yml\n  serial: 1\n",
    TASK + "{}\n",
    TASK + "{name: x}\n",
    TASK + "{fiel: {path: /x}}\n",
    TASK + "{file: {path: /x}, copy: {dest: /x}}\n",
    TASK + "{file: {pth: /x}}\n",
    TASK + "{file: {}}\n",
    TASK + "{file: {path: 3}}\n",
    TASK + "{file: {path: /x, state: touch}}\n",
    TASK + "{file: {path: /x, mode: 644}}\n",
    TASK + "{file: {path: /x}, register: x}\n",
    TASK + "{file: {path: /x}, with_items: [1]}\n",
    TASK + "{file: {path: /x}, loop: x}\n".replace("loop: x", "loop: 3"),
    TASK + "{file: {path: /x}, loop: [1], loop_control: {pause: 3}}\n",
    TASK + "{file: {path: /x}, timeout: 10m}\n",
    TASK + "{file: {path: /x}, environment: {A: 1}}\n",
    TASK + "{file: {path: /x}, environment: {A: {secret: 'vault:x'}}}\n",
    TASK + "{command: {argv: [a, {secret: prompt}], creates: /a}}\n",
    TASK + "{cache_dirs: {base: {secret: prompt}}}\n",
    TASK + "{verify: {checks: gpu}}\n",
    TASK + "{block: [{file: {path: /x}}], rescue: []}\n",
    TASK + "{block: [{file: {path: /x}}], retries: 1}\n",
    TASK + "{block: []}\n",
    TASK + "{block: [{fiel: {}}]}\n",
    TASK + "{import_tasks: [a]}\n",
    TASK + "{import_tasks: a, file: {path: /x}}\n",
    TASK + "{cache_dirs: {base: /a, min_free_gib: many}}\n",
    TASK + "{git_checkout: {repo: /r, url: u, commit: c, submodules: sure}}\n",
]


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_does_not_fit_nor_load(made: dict[str, Any], text: str) -> None:
    from k3env.documents.yaml import loads

    assert not valid(made["playbook"], text)
    with pytest.raises(DocumentError):
        read(loads(text, "p.yml").root, "p.yml")


SITES = [
    ("severities: {gpu.count: warn, 'cache.*': info}\ncache: {free_gib: 200, free_inodes: 5}\n", True),
    ("cache: {free_gib: 0.5}\n", True),
    ("severities: {gpu.count: error}\n", False),
    ("severities: [gpu.count]\n", False),
    ("cache: {free_gb: 1}\n", False),
    ("cache: {free_inodes: 1.5}\n", False),
    ("gpu: {count: 4}\n", False),
]


@pytest.mark.parametrize("text, fits", SITES)
def test_site_files(made: dict[str, Any], text: str, fits: bool) -> None:
    from k3env.documents.yaml import loads

    assert valid(made["site"], text) is fits
    if fits:
        site.read(loads(text, "s.yml").root)
    else:
        with pytest.raises(DocumentError):
            site.read(loads(text, "s.yml").root)


VARIABLES = [
    ("trtllm_repo: /r\ngpus_per_node: 4\nours: [1, {a: b}]\ncontainer: {engine: enroot, image: x.sqsh}\n", True),
    ("trtllm_repo: '{{ shared }}/r'\ngpus_per_node: '{{ n }}'\nk3_user: null\n", True),
    ("gpus_per_node: many\n", False),
    ("flashinfer_step: frok\n", False),
    ("container: {engine: dokcer}\n", False),
    ("a-b: 1\n", False),
]


@pytest.mark.parametrize("text, fits", VARIABLES)
def test_variables(made: dict[str, Any], text: str, fits: bool) -> None:
    assert valid(made["variables"], text) is fits


def test_files_of_tasks(made: dict[str, Any]) -> None:
    assert valid(made["tasks"], "- file: {path: /x}\n- block: [file: {path: /y}]\n")
    assert not valid(made["tasks"], "- hosts: all\n  tasks: [file: {path: /x}]\n")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command.body(None, only=None, directory=str(tmp_path / "a/b"))
    out = capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "a/b").iterdir()) == [
        "k3env-playbook.json", "k3env-run.json", "k3env-site.json", "k3env-tasks.json", "k3env-variables.json",
    ]  # fmt: skip
    assert f"$schema={tmp_path}/a/b/k3env-playbook.json" in out
    command.body(None, only="site", directory="schema")
    assert json.loads(capsys.readouterr().out) == schemas.site()
    for words, message in (
        ({"only": "sit", "directory": "x"}, "did you mean site?"),
        ({"only": None, "directory": "/proc/nowhere"}, "can't be written"),
    ):
        with pytest.raises(Exit) as caught:
            command.body(None, **words)
        assert caught.value.code == 1
        assert message in " ".join(capsys.readouterr().err.split())
