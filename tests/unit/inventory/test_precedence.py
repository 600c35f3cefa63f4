"""Whose value wins, on inventories made at random: Ansible is the oracle."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from k3env.inventory import Inventory
from tests.unit.inventory.witness import Ansible

GROUPS, HOSTS, VARIABLES = "abcd", ("h1", "h2", "h3"), ("u", "v", "w")
SITES = 25
"""In one question, for the oracle's sake."""


def names(known: Any, at_most: int = 3) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(known), max_size=at_most, unique=True)


@st.composite
def group(draw: st.DrawFn, name: str, path: str) -> dict[str, Any]:
    """A group, each value being where it stands; no circles: its children come later in the alphabet."""
    made: dict[str, Any] = {
        "hosts": {
            host: dict.fromkeys(draw(names(VARIABLES, 1)), f"{path} {name} {host}") for host in draw(names(HOSTS))
        },
        "vars": dict.fromkeys(draw(names(VARIABLES)), f"{path} {name}"),
    }
    later = [other for other in GROUPS if other > name]
    if name != "all" and later:
        made["children"] = dict.fromkeys(draw(names(later, 2)))
    priority = draw(st.sampled_from([None, None, None, -1, 0, 2, 10]))
    if priority is not None and name != "all":
        made["vars"]["ansible_group_priority"] = priority
    return made


@st.composite
def sites(draw: st.DrawFn) -> dict[str, str]:
    """The files of a site: up to two inventories, in one directory or two, with vars files beside them and a play."""
    files: dict[str, str] = {}
    paths = draw(st.sampled_from([["1/a"], ["1/a", "1/b"], ["1/a", "2/b"], ["1/a", "2/b", "1/c"]]))
    for path in paths:
        chosen = draw(st.lists(st.sampled_from(["all", *GROUPS]), min_size=1, max_size=4, unique=True))
        files[f"{path}.json"] = json.dumps({name: draw(group(name, path)) for name in chosen})
    for directory in ("1", "2", "play"):
        for kind, known in (("group_vars", ("all", "ungrouped", *GROUPS)), ("host_vars", HOSTS)):
            for name in draw(names(known, 2)):
                content = dict.fromkeys(draw(names(VARIABLES)), f"{directory} {kind} {name}")
                extension = draw(st.sampled_from(["", ".yml", ".yaml", ".json", "/x.yml"]))
                files[f"{directory}/{kind}/{name}{extension}"] = json.dumps(content)
    return files


def written(files: dict[str, str], top: Path) -> list[Path]:
    for name, text in files.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(text)
    (top / "play").mkdir(exist_ok=True)
    return [
        top / name for name in sorted(files, key=lambda name: name[2:]) if name[2:] in ("a.json", "b.json", "c.json")
    ]


# Without shrinking: each step of it would ask the oracle again.
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
@given(made=st.lists(sites(), min_size=SITES, max_size=SITES))
def test_the_same_value_wins(made: list[dict[str, str]], ansible: Ansible, tmp_path_factory: Any) -> None:
    tops = [tmp_path_factory.mktemp("random") for _ in made]
    sources = [written(files, top) for files, top in zip(made, tops, strict=True)]
    questions = [
        {"sources": [str(path) for path in paths], "playbook_dir": str(top / "play")}
        for paths, top in zip(sources, tops, strict=True)
    ]
    for files, paths, top, wanted in zip(made, sources, tops, ansible.values(questions), strict=True):
        found = Inventory.load(paths, adhoc_allowed=True, playbook_dir=top / "play")
        ours = {name: {key: node.plain for key, node in host.variables.items()} for name, host in found.hosts.items()}
        assert ours == wanted, files
