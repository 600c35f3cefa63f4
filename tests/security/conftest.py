"""Ground that two users share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security import other


@pytest.fixture
def ground() -> Iterator[Path]:
    """A directory of root's that everybody can enter."""
    with other.open_ground() as path:
        yield path


@pytest.fixture
def commons(ground: Path) -> Path:
    """A directory like /tmp: everybody may write there, and nobody may move what is another's."""
    path = ground / "tmp"
    path.mkdir()
    path.chmod(0o1777)
    return path
