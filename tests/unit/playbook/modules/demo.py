"""demo: a module with parameters of several types, for tests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, Optional

from k3env.node.modules import Module
from k3env.protocol.container import Container


@dataclass(frozen=True)
class Demo(Module):
    """Take parameters."""

    path: str
    jobs: Optional[int] = None
    install: Literal["no_deps", "resolve"] = "no_deps"
    environment: dict[str, str] = field(default_factory=dict)
    container: Container = Container()

    def __post_init__(self) -> None:
        if not self.path.startswith("/"):
            raise ValueError(f"path must be absolute, found {self.path!r}")
