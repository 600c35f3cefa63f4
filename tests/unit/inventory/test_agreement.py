"""Ansible and we print the same inventories, byte by byte; a reader with one thing wrong does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from k3env.documents import jsontext, scalars
from k3env.errors import K3Error
from k3env.inventory import Inventory, hostkeys, shown, sources, varsfiles, yamlsource
from k3env.inventory.layers import Layers
from k3env.inventory.tree import UNGROUPED, Tree
from k3env.inventory.variables import extra
from tests.unit.inventory.cases import CASES, Case
from tests.unit.inventory.witness import Ansible

Words = dict[str, str]
Patch = Callable[[pytest.MonkeyPatch], None]


def our_words(case: Case, top: Path) -> Words:
    """Return what `invoke inventory` prints for --list, and for --graph --vars."""
    directory = top / case.playbook_dir if case.playbook_dir else None
    paths = [top / source for source in case.sources]
    found = Inventory.load(paths, extra=extra(case.extra), playbook_dir=directory)
    hosts = [host.name for host in found.select("all", case.limit)]
    return {"list": shown.dumps(shown.listing(found, hosts)), "graph": shown.graph(found, with_variables=True)}


def their_words(ansible: Ansible, case: Case, top: Path) -> Words:
    """Return what ansible-inventory prints; before 2.19 it named no profile."""
    directory = str(top / case.playbook_dir) if case.playbook_dir else None
    said = ansible.listing(case.write(top), playbook_dir=directory, limit=case.limit, extra=list(case.extra))
    listing = json.loads(said["list"])
    listing["_meta"].setdefault("profile", shown.PROFILE)
    return {"list": shown.dumps(listing), "graph": said["graph"]}


@pytest.fixture(scope="module")
def theirs(ansible: Ansible, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Words]]:
    """Return, for each case, where its files are and what Ansible says about them."""
    tops = {name: tmp_path_factory.mktemp("site") for name in CASES}
    return {name: (top, their_words(ansible, CASES[name], top)) for name, top in tops.items()}


@pytest.mark.parametrize("name", CASES)
def test_ansible_and_we_print_the_same(name: str, theirs: dict[str, tuple[Path, Words]]) -> None:
    top, wanted = theirs[name]
    assert our_words(CASES[name], top) == wanted


def test_the_cases_are_many() -> None:
    assert len({str(case) for case in CASES.values()}) >= 40


def instead(owner: Any, name: str, change: Callable[[Any], Any]) -> Patch:
    """Return a mutation: what a thing of our reader becomes."""
    return lambda patch: patch.setattr(owner, name, change(getattr(owner, name)))


def result(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return the change of a function into one whose results are changed."""
    return lambda function: lambda *given, **named: change(function(*given, **named))


def without_host_vars(layers: Any, host: str) -> dict[str, Any]:
    return {**layers._of_groups(host), **layers._tree.hosts[host]}


MUTANTS: dict[str, Patch] = {
    "no padding": instead(hostkeys, "expand_range", result(lambda names: [name.replace("0", "") for name in names])),
    "a range without its end": instead(hostkeys, "expand_range", result(lambda names: names[:-1] or names)),
    "no steps": instead(hostkeys, "expand_range", lambda expand: lambda text: expand(text.replace(":3]", "]"))),
    "names in another order": instead(hostkeys, "expand_range", result(lambda names: names[::-1])),
    "no ports": instead(yamlsource, "_set_port", lambda _: lambda *given: None),
    "groups in another order": instead(Tree, "groups_of", result(lambda groups: groups[::-1])),
    "depth does not count": instead(Tree, "groups_of", result(lambda groups: sorted(groups, key=lambda g: g.name))),
    "priority does not count": instead(yamlsource, "_PRIORITY", lambda _: "nothing"),
    "ungrouped keeps its hosts": instead(
        Tree, "close", lambda close: lambda tree: (close(tree), tree.groups[UNGROUPED].hosts.update(tree.hosts))
    ),
    "host_vars are not read": instead(Layers, "of_host", lambda _: without_host_vars),
    "another extension first": instead(varsfiles, "EXTENSIONS", lambda known: known[::-1]),
    "backups are read": instead(sources, "_IGNORED", lambda _: ()),
    "a directory in another order": instead(sources, "_entries", result(lambda entries: entries[::-1])),
    "yes is text": instead(scalars, "_bool", lambda _: lambda word: (word, None)),
    "octal is decimal": instead(scalars, "_int", lambda _: lambda word: (int(word, 0 if "x" in word else 10), None)),
    "JSON is read as YAML": instead(jsontext, "is_json", lambda _: lambda text: False),
}


def test_the_unchanged_reader_is_right(theirs: dict[str, tuple[Path, Words]]) -> None:
    assert disagreements(theirs) == []


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_mutant_is_caught(
    mutant: str, theirs: dict[str, tuple[Path, Words]], monkeypatch: pytest.MonkeyPatch
) -> None:
    MUTANTS[mutant](monkeypatch)
    assert disagreements(theirs)


def disagreements(theirs: dict[str, tuple[Path, Words]]) -> list[str]:
    """Return the cases, programs left out for their time, that we read otherwise than Ansible."""
    found = []
    for name, (top, wanted) in theirs.items():
        if "program" in name:
            continue
        try:
            agree = our_words(CASES[name], top) == wanted
        except (K3Error, ValueError):
            agree = False
        if not agree:
            found.append(name)
    return found
