"""Around: what plays, blocks and imports lay around their tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from k3env.documents.nodes import Node, problem
from k3env.inventory.hosts import valid_user
from k3env.playbook import reader
from k3env.playbook.reader import Reader

NO_CONDITIONS: tuple[Node, ...] = ()


@dataclass(frozen=True)
class Around:
    """What a task inherits; the innermost wins, conditions and tags add up."""

    tags: tuple[str, ...] = ()
    when: tuple[Node, ...] = ()
    variables: Mapping[str, Node] = field(default_factory=dict)
    """Those of blocks and of the task; a play's are the play's."""
    environment: Mapping[str, Node] = field(default_factory=dict)
    become: Optional[bool] = None
    become_user: Optional[str] = None
    by_play: bool = True
    """Whether nothing closer than the play says become or become_user."""
    ignore_errors: bool = False

    @property
    def user(self) -> Optional[str]:
        """Whom a task becomes, or None."""
        return (self.become_user or "root") if self.become else None

    def with_keys(self, keys: Reader, play: bool = False) -> Around:
        """Return this with what a play, a block, an import or a task adds; keys that it can't have are absent."""
        become = keys.take("become", reader.flag, None)
        user = keys.take("become_user", _user, None)
        variables = {} if play else keys.take("vars", reader.variables, reader.NO_NODES)
        return Around(
            tags=tuple(dict.fromkeys((*self.tags, *keys.take("tags", reader.words, reader.NO_WORDS)))),
            when=(*self.when, *keys.take("when", _conditions, NO_CONDITIONS)),
            variables={**self.variables, **variables},
            environment={**self.environment, **keys.take("environment", reader.environment, reader.NO_NODES)},
            become=self.become if become is None else become,
            become_user=user or self.become_user,
            by_play=play or (self.by_play and become is None and user is None),
            ignore_errors=keys.take("ignore_errors", reader.flag, self.ignore_errors),
        )


def refuse_idle_user(keys: Reader, users: Sequence[Optional[str]]) -> None:
    """Note a become_user that no task becomes; `users` are those of the tasks below it."""
    named = keys.keys.get("become_user")
    if named is None or named.content is None or any(user is not None for user in users):
        return
    position = keys.node.keys["become_user"]
    message = f"{keys.what} has become_user without become"
    keys.problems.append(problem(position, message, expected="become: true", remedy="add become: true"))


def _conditions(node: Node, key: str) -> tuple[Node, ...]:
    found = tuple(node.entries(key))
    for item in found:
        if not isinstance(item.content, bool):
            item.text(key)
    return found


def _user(node: Node, key: str) -> str:
    name = reader.constant(node, key)
    if not valid_user(name):
        raise problem(node, f"{key} must be a user name", expected="a user name", found=node.found)
    return name
