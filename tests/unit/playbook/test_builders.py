"""Who builds for whom."""

from __future__ import annotations

from typing import Any

import pytest

from k3env.cli.drain import first_batch
from k3env.errors import UsageError
from k3env.inventory import Host
from k3env.inventory.variables import extra
from k3env.playbook import Options, Ready, load, make_ready, named_builders
from tests.unit.playbook.conftest import host

WANTED = {"trtllm_repo": "/shared/TensorRT-LLM", "trtllm_commit": "a" * 40}


def of(name: str, **variables: Any) -> Host:
    return host(name, **{**WANTED, **variables})


def ready(hosts: list[Host], *others: Host, tags: tuple[str, ...] = (), said: tuple[str, ...] = ()) -> Ready:
    return make_ready(
        load("trtllm"), [hosts], {item.name: item for item in others}, Options(tags=tags, extra=extra(said))
    )


def batches(found: Ready) -> list[list[str]]:
    play = load("trtllm").plays[0]
    return [[item.name for item in batch] for batch in found.builders[0].batches(play, found.hosts[0])]


def test_without_the_variable_all_go_together() -> None:
    assert batches(ready([of("a"), of("b")])) == [["a", "b"]]


@pytest.mark.parametrize("both", [True, False])
def test_a_builder_of_the_play_goes_first(both: bool) -> None:
    hosts = [of("a", builder="b"), of("b", **({"builder": "b"} if both else {})), of("c", builder="b")]
    found = ready(hosts)
    assert batches(found) == [["b"], ["a", "c"]]
    assert found.builders[0].only == frozenset()


@pytest.mark.parametrize("value", [["a"], {"a": 1}, [], {}, 3, True])
def test_a_builder_that_is_no_name_is_told_where_it_was_set(value: object) -> None:
    with pytest.raises(UsageError, match="builder of the shipped variables must be text") as caught:
        ready([of("a", builder=value)], of("b"))
    assert caught.value.finding.subject == "hosts.yml:1:1"


def test_racks_with_a_builder_each() -> None:
    hosts = [of("a1", builder="a2"), of("a2"), of("b1", builder="b2"), of("b2"), of("c")]
    assert batches(ready(hosts)) == [["a2", "b2"], ["a1", "b1", "c"]]


def test_a_builder_elsewhere_goes_through_the_building_tasks_alone() -> None:
    found = ready([of("a", builder="login")], of("login"), of("stranger"))
    assert batches(found) == [["login"], ["a"]]
    plan = found.plans[0]["login"].plan
    done = [task.module for task in plan.tasks if task.skip is None]
    assert done == ["git_checkout", "trtllm_build", "pip_packages", "pip_packages"]
    assert [made.keys() for made in found.judged] == [{"a"}]


@pytest.mark.parametrize("tags", [("verify",), ("caches",)])
def test_where_nothing_is_built_nobody_waits(tags: tuple[str, ...]) -> None:
    found = ready([of("a", builder="b"), of("b")], of("login"), tags=tags)
    assert batches(found) == [["a", "b"]]
    assert batches(ready([of("a", builder="login")], of("login"), tags=tags)) == [["a"]]


@pytest.mark.parametrize(
    ("its", "says"),
    [
        ({"trtllm_arch": "100-real"}, "arch differs"),
        ({"trtllm_commit": "b" * 40}, "commit differs"),
        ({"trtllm_repo": "/elsewhere"}, "repo differs"),
        ({"fla_core_version": "0.5.2"}, "packages differs"),
    ],
)
def test_a_builder_that_would_build_something_else_is_refused(its: dict[str, str], says: str) -> None:
    with pytest.raises(UsageError, match=f"builder b would not build what a wants: {says}"):
        ready([of("a", builder="b"), of("b", **its)])


def test_how_it_is_built_is_the_builders_own_affair() -> None:
    assert batches(ready([of("a", builder="b"), of("b", trtllm_jobs=8)])) == [["b"], ["a"]]


def test_names_come_from_every_source_and_patterns_are_no_names() -> None:
    playbook = load("trtllm")
    assert named_builders(playbook, [of("a", builder="b"), of("c", builder="d")], Options()) == ["b", "d"]
    assert named_builders(playbook, [of("a", builder="b")], Options(extra=extra(("builder=e",)))) == ["e"]
    assert named_builders(playbook, [of("a", builder="x[1-2]"), of("c")], Options()) == []


@pytest.mark.parametrize(("builder", "drained"), [("b", ["b"]), ("login", [])])
def test_a_builder_elsewhere_is_never_drained(builder: str, drained: list[str]) -> None:
    found = ready([of("a", builder=builder), of("b", builder=builder)], of("login"))
    assert first_batch(load("trtllm").plays, found) == drained
