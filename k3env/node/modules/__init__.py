"""Modules change: each brings one thing into its wanted state.

A module NAME is the one subclass of Module in k3env/node/modules/NAME.py; nothing registers it.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar

from k3env.node.names import within

if TYPE_CHECKING:
    from k3env.node.ahead import Download
    from k3env.node.machine import Machine
    from k3env.protocol.finding import Change, Finding
    from k3env.protocol.profile import Profile

CONFIG = {"extra": "forbid", "use_attribute_docstrings": True}
"""How the controller's validation reads a module's dataclass."""


@dataclass(frozen=True)
class Module:
    """Parameters, and the verbs that the worker calls; check mode, lease, deadline and proof are the worker's."""

    __pydantic_config__: ClassVar[dict[str, object]] = CONFIG
    SECRETS: ClassVar[tuple[str, ...]] = ("environment",)
    """The parameters that a secret may stand in: none that becomes a word of a command, which `ps` shows to all."""

    def writes(self) -> tuple[str, ...]:
        """Return the paths whose lease `apply` needs; a checkout's root for all that is in it."""
        return ()

    def disturbs(self) -> tuple[str, ...]:
        """Return the directories that nobody may serve from while `apply` changes what is in them."""
        return ()

    def changes(self, machine: Machine) -> tuple[Change, ...]:
        """Return what is missing; empty when all is as wanted. It changes nothing.

        Raises Refused for a state that `apply` won't touch.
        """
        return ()

    def apply(self, machine: Machine, changes: tuple[Change, ...]) -> None:
        """Make these changes.

        Raises TaskFailed, with a remedy, when that can't be done.
        """

    def ahead(self, machine: Machine) -> tuple[Download, ...]:
        """Return what `apply` will download, and what may come beforehand while another task computes.

        It is asked for while an earlier task is at work, and changes nothing itself.
        """
        return ()

    def foresee(self, machine: Machine) -> None:
        """Tell, before an earlier task begins what takes long, of what `apply` would fail all the same.

        Raises Refused.
        """

    def reasons(self, machine: Machine) -> tuple[str, ...]:
        """Return what was looked at and found right, where nothing differs: short, a fact each. It changes nothing."""
        return ()

    def judge(self, machine: Machine, profile: Profile) -> tuple[Finding, ...]:
        """Return findings about the state that is there now; one that fails, fails the task."""
        return ()


def names() -> tuple[str, ...]:
    """Return the names of all modules, without importing them."""
    return within(__name__, __path__)


def find(name: str) -> type[Module]:
    """Import a module by its name.

    Raises KeyError for an unknown one.
    """
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise KeyError(name)
    where = f"{__name__}.{name}"
    try:
        file = import_module(where)
    except ModuleNotFoundError as error:
        if error.name != where:
            raise
        raise KeyError(name) from None
    for item in vars(file).values():
        if isinstance(item, type) and issubclass(item, Module) and item.__module__ == where:
            return item
    raise KeyError(name)


def inside(path: str, directory: str) -> bool:
    """Return whether a path is a directory or lies in it, by name alone."""
    return os.path.commonpath([os.path.abspath(path), os.path.abspath(directory)]) == os.path.abspath(directory)
