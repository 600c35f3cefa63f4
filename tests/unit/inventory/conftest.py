"""Inventories from text."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from k3env.inventory import Inventory
from tests.unit.inventory.witness import Ansible, environment

Make = Callable[..., Inventory]


@pytest.fixture
def inventory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Return a function that loads inventories from texts; their files are hosts.yml, hosts2.yml, …"""
    monkeypatch.chdir(tmp_path)

    def make(*texts: str, **keywords: Any) -> Inventory:
        paths = []
        for number, text in enumerate(texts, 1):
            paths.append(Path(f"hosts{number if number > 1 else ''}.yml"))
            paths[-1].write_text(text)
        return Inventory.load(paths, **keywords)

    return make


@pytest.fixture(scope="session")
def ansible(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ansible]:
    """Return ansible-core, started once for all tests."""
    witness = Ansible(environment(), tmp_path_factory.mktemp("ansible"))
    yield witness
    witness.close()
