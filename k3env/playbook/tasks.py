"""Tasks: one module each, with what is around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Optional

from k3env.documents import schema
from k3env.documents.nodes import Node, Position, problem
from k3env.errors import DocumentError, nearest
from k3env.node import modules
from k3env.playbook import keywords, reader
from k3env.playbook.around import Around, refuse_idle_user
from k3env.playbook.files import Source
from k3env.playbook.loops import Loop, read_loop
from k3env.playbook.reader import Reader


@dataclass(frozen=True)
class Task:
    """A task as it is written; templates in it are not rendered yet."""

    module: str
    kind: type[modules.Module]
    parameters: Node
    position: Position
    source: Source
    """The file it stands in."""
    name: Optional[Node] = None
    when: tuple[Node, ...] = ()
    """Conditions: those of the blocks around it, then its own."""
    tags: tuple[str, ...] = ()
    """Its own, and those of all that is around it."""
    variables: Mapping[str, Node] = field(default_factory=dict)
    """Its own, and those of the blocks around it."""
    environment: Mapping[str, Node] = field(default_factory=dict)
    """Its own, and those of all that is around it; the closest wins."""
    loop: Optional[Loop] = None
    timeout_s: Optional[float] = None
    retries: int = 0
    delay_s: float = 5.0
    ignore_errors: bool = False
    become_user: Optional[str] = None
    by_play: bool = False
    """Whether become_user is the play's word alone, which k3_user beats."""

    @property
    def title(self) -> str:
        """The name as it is written; the module's, where there is none."""
        return str(self.name.content) if self.name is not None else self.module


def read_task(node: Node, around: Around, source: Source, problems: list[DocumentError]) -> Optional[Task]:
    """Read a task with what is around it; None after noting why it can't run."""
    what = "a task"
    if isinstance(node.content, dict) and isinstance((named := node.content.get("name", node)).content, str):
        what = f'the task "{named.content}"'
    keys = Reader(node, what, problems)
    found = _module(keys)
    name, kind = found or ("", modules.Module)
    own = around.with_keys(keys)
    task = Task(
        module=name,
        kind=kind,
        parameters=_parameters(keys, name, kind) if found else node,
        position=node.keys.get(name, node.position),
        source=source,
        name=keys.take("name", _text, None),
        when=own.when,
        tags=own.tags,
        variables=own.variables,
        environment=own.environment,
        loop=read_loop(keys),
        timeout_s=keys.take("timeout", reader.seconds, None),
        retries=keys.take("retries", reader.whole, 0),
        delay_s=keys.take("delay", reader.seconds, 5.0),
        ignore_errors=own.ignore_errors,
        become_user=own.user,
        by_play=own.by_play,
    )
    refuse_idle_user(keys, [task.become_user])
    return task if found else None


def _module(keys: Reader) -> Optional[tuple[str, type[modules.Module]]]:
    """Return the one module that a task names, after noting every key that is neither a module nor a keyword."""
    known = modules.names()
    named = [key for key in keys.keys if key in known]
    for key in keys.keys:
        if key in known or key in keywords.TASK:
            continue
        instead = keywords.task_instead(key)
        if instead is None and not named:
            keys.problems.append(_unknown_module(key, keys.node, known))
        else:
            keys.refuse(key, instead, keywords.TASK)
    if len(named) > 1:
        message = f"{keys.what} names {len(named)} modules: {', '.join(named)}"
        keys.problems.append(
            problem(keys.node.keys[named[1]], message, expected="one module", remedy="write two tasks")
        )
    if not named:
        if keys.readable and set(keys.keys) <= set(keywords.TASK):
            expected = "one of " + ", ".join(known)
            keys.problems.append(problem(keys.node, f"{keys.what} names no module", expected=expected))
        return None
    return named[0], modules.find(named[0])


def _unknown_module(key: str, node: Node, known: tuple[str, ...]) -> DocumentError:
    short = key.rsplit(".", 1)[-1]
    meant = short if short in known else nearest(short, [*known, *keywords.TASK])
    remedy = f"did you mean {meant}?" if meant else None
    if short in keywords.MODULE_INSTEAD:
        remedy = f"use {keywords.MODULE_INSTEAD[short]}"
    return problem(
        node.keys[key],
        f"there is no module {key}",
        expected="one of " + ", ".join(known),
        found=key,
        remedy=remedy,
    )


def _parameters(keys: Reader, name: str, kind: type[modules.Module]) -> Node:
    node = keys.keys[name]
    if isinstance(node.content, (dict, type(None))):
        keys.problems += schema.problems(kind, node, name)
    else:
        keys.problems.append(
            problem(
                node,
                f"the parameters of {name} must be a mapping",
                expected="a mapping",
                found=node.found,
                remedy=f"write them as keys under {name}:",
            )
        )
    return node


def _text(node: Node, key: str) -> Node:
    node.text(key)
    return node
