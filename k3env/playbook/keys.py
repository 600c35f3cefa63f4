"""Keys: what may stand in a play, a block, a task, and what each means; schemas and `explain` are made of these.

A class is written as a dataclass would be; `as_dataclasses` makes it one.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, ClassVar, Optional, Union

from k3env.documents.schema import CONFIG

Words = Union[str, list[str]]
Condition = Union[str, bool, list[Union[str, bool]]]


class SecretReference:
    """Where a secret is kept; the secret itself is asked for when a run begins, and masked everywhere."""

    __pydantic_config__: ClassVar[dict[str, object]] = CONFIG

    secret: str
    """env:NAME, file:PATH or prompt."""


class LoopControl:
    """What a loop's variables are called."""

    __pydantic_config__: ClassVar[dict[str, object]] = CONFIG

    loop_var: str = "item"
    """The variable that holds the item."""
    index_var: Optional[str] = None
    """A variable that counts the items from 0."""
    label: Optional[str] = None
    """What stands behind the task's name for an item; a template that may use it."""


class PlayKeys:
    """A play: tasks, and the hosts they are for."""

    __pydantic_config__: ClassVar[dict[str, object]] = CONFIG

    hosts: Words
    """A pattern that narrows --hosts: groups, hosts, globs, ~regex; :& and :! combine."""
    name: Optional[str] = None
    """What reports call it; the pattern, if it has none."""
    vars: Optional[dict[str, Any]] = None
    """Variables of its tasks; they win over the inventory's."""
    vars_files: Optional[Words] = None
    """Files of variables, beside this one; they win over vars."""
    become: Optional[bool] = None
    """Do its tasks as root, or as become_user. Where k3_user is set, that user does those that say nothing."""
    become_user: Optional[str] = None
    """Whom tasks with become are done as, if not root."""
    environment: Optional[dict[str, Union[str, SecretReference]]] = None
    """Environment variables of its tasks."""
    tags: Optional[Words] = None
    """Words that --tags and --skip-tags choose its tasks by; `always` and `never` are Ansible's."""
    serial: Optional[Union[int, str, list[Union[int, str]]]] = None
    """Hosts that are started together: numbers, or percentages of all; the last one goes on to the end."""
    any_errors_fatal: Optional[bool] = None
    """When a host fails or is unreachable, the others stop before their next task, and the run ends."""
    max_fail_percentage: Optional[float] = None
    """The same, when more than this part of the hosts started together has failed or is unreachable."""
    pre_tasks: Optional[list[Any]] = None
    """Tasks that come before `tasks`."""
    tasks: Optional[list[Any]] = None
    """What is to be done, in order."""
    post_tasks: Optional[list[Any]] = None
    """Tasks that come after `tasks`."""


class ImportKeys:
    """The plays of another playbook, at this place."""

    __pydantic_config__: ClassVar[dict[str, object]] = CONFIG

    import_playbook: str
    """Path of a playbook, relative to this file."""
    name: Optional[str] = None
    """A note for readers."""
    tags: Optional[Words] = None
    """Added to the tags of all its tasks."""
    when: Optional[Condition] = None
    """Added to the conditions of all its tasks."""
    vars: Optional[dict[str, Any]] = None
    """Variables of its plays; they win over the plays' own vars."""


class BlockKeys:
    """Tasks that share what stands around them."""

    __pydantic_config__: ClassVar[dict[str, object]] = CONFIG

    block: list[Any]
    """The tasks, in order."""
    name: Optional[str] = None
    """A note for readers."""
    when: Optional[Condition] = None
    """Added to the conditions of each of its tasks, in front."""
    tags: Optional[Words] = None
    """Added to the tags of each of its tasks."""
    vars: Optional[dict[str, Any]] = None
    """Variables of its tasks; theirs win."""
    environment: Optional[dict[str, Union[str, SecretReference]]] = None
    """Environment variables of its tasks; theirs win."""
    become: Optional[bool] = None
    """As on a play."""
    become_user: Optional[str] = None
    """As on a play."""
    ignore_errors: Optional[bool] = None
    """Go on after a failure of any of its tasks."""


class ImportTasksKeys:
    """The tasks of a file, at this place."""

    __pydantic_config__: ClassVar[dict[str, object]] = CONFIG

    import_tasks: str
    """Path of a file that is a list of tasks, relative to this file."""
    name: Optional[str] = None
    """A note for readers."""
    when: Optional[Condition] = None
    """Added to the conditions of each of its tasks, in front."""
    tags: Optional[Words] = None
    """Added to the tags of each of its tasks."""
    vars: Optional[dict[str, Any]] = None
    """Variables of its tasks; theirs win."""
    environment: Optional[dict[str, Union[str, SecretReference]]] = None
    """Environment variables of its tasks; theirs win."""
    become: Optional[bool] = None
    """As on a play."""
    become_user: Optional[str] = None
    """As on a play."""
    ignore_errors: Optional[bool] = None
    """Go on after a failure of any of its tasks."""


class TaskKeys:
    """A task: one module, named by its key, and what is around it."""

    __pydantic_config__: ClassVar[dict[str, object]] = CONFIG

    name: Optional[str] = None
    """What reports call it, and --start-at-task; the module's name, if it has none."""
    when: Optional[Condition] = None
    """Conditions over variables, which all must hold; they are judged before any host is contacted."""
    tags: Optional[Words] = None
    """Words that --tags and --skip-tags choose it by."""
    vars: Optional[dict[str, Any]] = None
    """Variables of this task; only --extra-vars wins over them."""
    loop: Optional[Union[list[Any], str]] = None
    """Do it for each of these values, or of a variable's; the value is the variable `item`."""
    loop_control: Optional[LoopControl] = None
    """What the loop's variables are called."""
    environment: Optional[dict[str, Union[str, SecretReference]]] = None
    """Environment variables of what it starts."""
    become: Optional[bool] = None
    """Do it as root, or as become_user; false: as whoever the run is."""
    become_user: Optional[str] = None
    """Whom to do it as, with become."""
    timeout: Optional[float] = None
    """Seconds that it may take as a whole."""
    retries: Optional[int] = None
    """How often to try again after a failure."""
    delay: Optional[float] = None
    """Seconds before each of these tries; 5 unless said."""
    ignore_errors: Optional[bool] = None
    """Go on when it fails; the failure is reported, and does not count."""


KINDS = (SecretReference, LoopControl, PlayKeys, ImportKeys, BlockKeys, ImportTasksKeys, TaskKeys)


def names(kind: type[Any]) -> tuple[str, ...]:
    """Return the keys that one of these may have."""
    return tuple(name for name in kind.__annotations__ if not name.startswith("_"))


@functools.cache
def as_dataclasses() -> None:
    """Make these the dataclasses that they look like; a run that goes well needs their names alone."""
    for kind in KINDS:
        dataclass(frozen=True)(kind)
