"""Container: in which image a command runs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

_MOUNT = re.compile(r"[^:-][^:]*:/[^:]*(:[A-Za-z][A-Za-z,=]*)?")
Engine = Literal["none", "enroot", "docker", "podman"]


@dataclass(frozen=True)
class Container:
    """An image in which commands run, with the checkout at the same absolute path as outside."""

    __pydantic_config__ = {"extra": "forbid", "use_attribute_docstrings": True}  # noqa: RUF012

    engine: Engine = "none"
    """The program that starts the container; `none` runs on the node itself."""
    image: str = ""
    """An image reference (docker, podman), or a container name or .sqsh path (enroot)."""
    mounts: tuple[str, ...] = ()
    """More mounts, SOURCE:TARGET or SOURCE:TARGET:ro; the checkout is always mounted."""

    def __post_init__(self) -> None:
        if self.engine != "none" and not self.image:
            raise ValueError(f"container engine {self.engine} needs an image")
        if self.image.startswith("-") or not (self.image.isprintable() and " " not in self.image):
            raise ValueError(f"image must name an image, found {self.image!r}")
        for mount in self.mounts:
            if not mount.isprintable() or not _MOUNT.fullmatch(mount):
                raise ValueError(f"mounts must be /SOURCE:/TARGET or /SOURCE:/TARGET:OPTIONS, found {mount!r}")
