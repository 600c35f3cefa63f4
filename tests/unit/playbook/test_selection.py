"""Tags and --start-at-task, as Ansible understands them."""

from __future__ import annotations

import pytest

from k3env.errors import UsageError
from k3env.playbook.selection import left_out, runs
from tests.unit.playbook.conftest import playbook

# tags of the task, --tags, --skip-tags, whether it runs. Ansible 2.19 agrees with each row.
RUNS = [
    ("", "", "", True),
    ("a", "", "", True),
    ("never", "", "", False),
    ("never a", "", "", False),
    ("always", "", "", True),
    ("a", "a", "", True),
    ("a b", "b", "", True),
    ("b", "a", "", False),
    ("", "a", "", False),
    ("always", "a", "", True),
    ("never a", "a", "", True),
    ("never", "never", "", True),
    ("always never", "", "", True),
    ("a", "all", "", True),
    ("never", "all", "", False),
    ("a", "tagged", "", True),
    ("", "tagged", "", False),
    ("never a", "tagged", "", False),
    ("", "untagged", "", True),
    ("a", "untagged", "", False),
    ("a", "", "a", False),
    ("a b", "", "b", False),
    ("b", "", "a", True),
    ("a b", "a", "b", False),
    ("always", "", "always", False),
    ("always a", "", "a", False),
    ("always a", "b", "a", False),
    ("a", "", "all", False),
    ("always", "", "all", True),
    ("always", "", "all always", False),
    ("a", "", "tagged", False),
    ("", "", "tagged", True),
    ("", "", "untagged", False),
    ("a", "", "untagged", True),
]


@pytest.mark.parametrize("tags, only, skip, wanted", RUNS)
def test_tags(tags: str, only: str, skip: str, wanted: bool) -> None:
    assert runs(tags.split(), only.split(), skip.split()) is wanted


TEXT = """\
- hosts: all
  tasks:
    - {name: Driver, demo: {path: /x}, tags: [verify, always]}
    - {name: Build, demo: {path: /x}, tags: build}
    - {name: Caches, demo: {path: /x}, tags: caches}
- hosts: all
  tags: late
  tasks:
    - {name: "Last {{ x }}", demo: {path: /x}}
"""


def left(**options: object) -> dict[str, str]:
    """Return why tasks are left out, by their names."""
    plays = playbook(TEXT).plays
    return {plays[at].tasks[number].title: why for (at, number), why in left_out(plays, **options).items()}  # type: ignore[arg-type]


def test_tasks_that_are_left_out() -> None:
    assert left() == {}
    assert left(tags=["caches"]) == {
        "Build": "tags: build; --tags caches",
        "Last {{ x }}": "tags: late; --tags caches",
    }
    assert list(left(tags=["late"])) == ["Build", "Caches"]
    skipped = left(skip_tags=["verify", "build"])
    assert list(skipped) == ["Driver", "Build"] and skipped["Build"] == "tags: build; --skip-tags verify,build"
    assert left(start_at_task="Caches") == {"Driver": "start-at-task", "Build": "start-at-task"}
    assert left(start_at_task="Last*") == dict.fromkeys(["Driver", "Build", "Caches"], "start-at-task")
    assert left(start_at_task="Build", tags=["late"]) == {
        "Driver": "start-at-task",
        "Build": "tags: build; --tags late",
        "Caches": "tags: caches; --tags late",
    }


@pytest.mark.parametrize(
    "options, message, detail",
    [
        ({"tags": ["cahces"]}, "--tags cahces", "did you mean caches?"),
        ({"tags": ["build", "zzz"]}, "--tags zzz", "one of always, build, caches, late, verify"),
        ({"skip_tags": ["biuld"]}, "--skip-tags biuld", "did you mean build?"),
        ({"start_at_task": "Biuld"}, "--start-at-task Biuld", "did you mean Build?"),
        ({"tags": ["build"], "skip_tags": ["build", "always"]}, "no task is left", "--tags"),
        ({"tags": ["untagged"], "skip_tags": ["always"]}, "no task is left", "--tags"),
    ],
)
def test_options_that_fit_no_task(options: dict[str, object], message: str, detail: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        left(**options)
    assert detail in f"{caught.value.finding.expected} {caught.value.finding.remedy}"
