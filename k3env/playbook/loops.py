"""Loops: one task for each of some values, all of which are known when a plan is made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Optional

from k3env.documents.complaints import unknown_key
from k3env.documents.nodes import Node, described, problem, spelt
from k3env.documents.templates import Scope, is_template
from k3env.inventory.variables import valid_name
from k3env.playbook import reader
from k3env.playbook.keys import LoopControl, names
from k3env.playbook.reader import Reader
from k3env.protocol.secret import MASK, Secret

MAX_ITEMS = 1000
_LABEL = 60


@dataclass(frozen=True)
class Loop:
    """A loop as it is written."""

    items: Node
    variable: str = "item"
    index: Optional[str] = None
    label: Optional[Node] = None


@dataclass(frozen=True)
class Turn:
    """One item of a loop: its variables, and what it is called."""

    values: dict[str, Any]
    label: str


def read_loop(keys: Reader) -> Optional[Loop]:
    """Return the loop of a task, or None."""
    items = keys.take("loop", _items, None)
    control = keys.take("loop_control", _control, None)
    if control is not None and items is None and "loop" not in keys.keys:
        keys.problems.append(
            problem(keys.node.keys["loop_control"], f"{keys.what} has loop_control without loop", expected="loop:")
        )
    if items is None:
        return None
    given = control or {}
    return Loop(
        items,
        str(given["loop_var"].content) if "loop_var" in given else "item",
        str(given["index_var"].content) if "index_var" in given else None,
        given.get("label"),
    )


def turns(loop: Loop, scope: Scope, variables: Iterable[str]) -> list[Turn]:
    """Return a turn for each item.

    Raises DocumentError for what is no list, for too many items, and for a loop variable whose name is taken.
    """
    known = set(variables)
    for name in (loop.variable, loop.index):
        if name in known:
            raise problem(
                loop.items,
                f"the variable {name} is there already",
                expected="a name of its own for each variable",
                remedy="give the loop's another: loop_control: {loop_var: …}",
            )
    items = scope.render(loop.items)
    if not isinstance(items, list):
        found, remedy = described(items), "a mapping becomes a list by | dictsort or | list"
        raise problem(loop.items, "loop must give a list", expected="a list", found=found, remedy=remedy)
    if len(items) > MAX_ITEMS:
        raise problem(loop.items, "the loop is too long", expected=f"at most {MAX_ITEMS} items", found=str(len(items)))
    return [_turn(loop, at, item) for at, item in enumerate(items)]


def label(loop: Loop, turn: Turn, scope: Scope) -> str:
    """Return what a turn is called, by the scope that has its variables."""
    if loop.label is None:
        return turn.label
    return _short(scope.render(loop.label), turn.label)


def _turn(loop: Loop, at: int, item: Any) -> Turn:
    values = {loop.variable: item} if loop.index is None else {loop.variable: item, loop.index: at}
    return Turn(values, _short(item, f"item {at + 1}"))


def _short(value: Any, otherwise: str) -> str:
    """Return a value for a name: a scalar itself, never a secret, and for what is made of several the other text."""
    if isinstance(value, Secret):
        return MASK
    if isinstance(value, (dict, list)):
        return otherwise
    text = " ".join(spelt(value).split()) or otherwise
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"


def _items(node: Node, key: str) -> Node:
    if not isinstance(node.content, list) and not is_template(node):
        raise problem(
            node, f"{key} must be a list", expected='a list, or "{{ a_list }}"', found=node.found, remedy="write a list"
        )
    return node


def _control(node: Node, key: str) -> dict[str, Node]:
    known = names(LoopControl)
    found = {name: item for name, item in node.items(key) if item.content is not None}
    for name, item in found.items():
        if name not in known:
            raise unknown_key(name, known, node, f"{key} has no key {name}")
        if name != "label" and not valid_name(reader.constant(item, name)):
            raise problem(item, f"{name} can't name a variable", expected="letters, digits and underscore")
        item.text(name)
    return found
