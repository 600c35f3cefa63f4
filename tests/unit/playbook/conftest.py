"""A module `demo` beside the real ones, and playbooks from text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from k3env.documents import yaml
from k3env.documents.nodes import Node, Position
from k3env.inventory import Address, Host
from k3env.inventory.variables import extra
from k3env.node import modules
from k3env.playbook import Compiled, Options, Playbook, compile_playbook
from k3env.playbook.plays import read


@pytest.fixture(autouse=True)
def demo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Add the directory of this test's modules to where modules are found."""
    monkeypatch.setattr(modules, "__path__", [*modules.__path__, str(Path(__file__).parent / "modules")])
    yield
    sys.modules.pop("k3env.node.modules.demo", None)


def playbook(text: str) -> Playbook:
    """Read a playbook from text; it is called p.yml."""
    return read(yaml.loads(text, "p.yml").root, "p.yml")


def host(name: str = "h", **variables: Any) -> Host:
    """Return a host with variables that all stand at hosts.yml:1:1."""
    nodes = {key: Node.of(value, Position("hosts.yml", 1, 1)) for key, value in variables.items()}
    return Host(name, ("all", "ungrouped"), nodes, Address(name, user="k3"))


def compiled(text: str, *options: str, variables: dict[str, Any] | None = None, **keywords: Any) -> Compiled:
    """Compile the first play of a playbook for one host; `options` are --extra-vars."""
    found = playbook(text)
    settings = Options(extra=extra(options), **keywords)
    hosts = [host(**(variables or {}))]
    return compile_playbook(found, [hosts for _ in found.plays], settings)[0]["h"]
