"""What an image has installed: asked in a container once, and known of that very image without one from then on."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Optional

from k3env.k3.pins import normalised
from k3env.node import answers, manifest
from k3env.node.container import wrap
from k3env.node.facts import image as images
from k3env.node.machine import Machine
from k3env.protocol import codec
from k3env.protocol.container import Container

if TYPE_CHECKING:
    from k3env.node.process import Completed

FORMAT = 1
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_KEY_S, _ASK_S = 5.0, 300.0
_ASK = (
    "import json, sys; from importlib.metadata import distributions as d;"
    "print(json.dumps(['%d.%d' % sys.version_info[:2],"
    " {str(i.metadata['Name']): i.version for i in reversed(list(d()))}]))"
)


@dataclass(frozen=True)
class ImagePackages:
    """The packages of an image's own Python."""

    image: str
    """As the play names it."""
    key: str
    """What tells it from another image of that name; "": nothing does."""
    python: str
    """"3.12"."""
    versions: dict[str, str] = field(default_factory=dict)
    """By name, as indexes compare it."""
    made: str = ""
    """When it was asked: RFC 3339, UTC."""
    format: int = FORMAT


class NoAnswer(Exception):
    """An image's Python did not say what is installed."""

    def __init__(self, done: Completed) -> None:
        super().__init__(done.exit_code)
        self.done = done


def path(root: str) -> str:
    """Return where that is kept for a checkout, or for an environment of its own."""
    return os.path.join(root, manifest.DIRECTORY, "image.json")


def key(machine: Machine, container: Container) -> str:
    """Return what tells an image from others of its name, the same on all nodes; "" where nothing does.

    A copy of a squashfs is known by its superblock, another file by size and time; an image of docker's or podman's by
    its digest, for which the engine is asked once in a run, and no container started. A container that enroot has by
    name may change, and has none.
    """
    if container.engine == "enroot":
        found = images.look(machine, container)
        if found.path is None or found.size is None:
            return ""
        return f"{found.bytes_used}.{found.made}" if found.magic else f"{found.size}@{found.mtime_ns}"
    if container.engine == "none":
        return ""
    if "@sha256:" in container.image:
        return container.image.partition("@sha256:")[2]
    return answers.once(machine, f"{container.engine} image {container.image}", lambda: _digest(machine, container))


def _digest(machine: Machine, container: Container) -> str:
    words = (container.engine, "image", "inspect", "--format", "{{.Id}}", container.image)
    done = machine.run(words, timeout_s=_KEY_S)
    digest = _DIGEST.fullmatch(done.text.strip())
    return digest[1] if digest and done.ok else ""


def recorded(machine: Machine, root: str, container: Container) -> Optional[ImagePackages]:
    """Return what is known of this very image; None: nothing.

    A container that enroot has by name is a directory: what it has installed is read there.
    """
    if container.engine == "none":
        return None
    if container.engine == "enroot" and images.named(container) is None:
        return _read(machine, container)
    try:
        found = codec.loads(ImagePackages, machine.text(path(root)))
    except (OSError, ValueError):
        return None
    if not isinstance(found, ImagePackages) or found.format != FORMAT or found.image != container.image:
        return None
    return found if found.key and found.key == key(machine, container) else None


def _read(machine: Machine, container: Container) -> Optional[ImagePackages]:
    from k3env.node.facts import enroot_root

    try:
        found = enroot_root.brought(machine, container)
    except OSError:
        return None
    return None if found is None else ImagePackages(container.image, "", found.python, found.versions)


def ensure(machine: Machine, root: str, container: Container, environment: Mapping[str, str]) -> ImagePackages:
    """Return what an image has installed; where that isn't known, start a container for it, and record the answer.

    Raises NoAnswer.
    """
    found = recorded(machine, root, container)
    if found is None:
        found = ask(machine, root, container, environment)
        _keep(machine, root, found)
    return found


def learn(machine: Machine, root: str, container: Container, python: str, versions: Mapping[str, str]) -> None:
    """Record what was said of an image by a container that was started for something else, if it isn't known."""
    if recorded(machine, root, container) is None:
        _keep(machine, root, _made(container, key(machine, container), python, versions))


def _keep(machine: Machine, root: str, found: ImagePackages) -> None:
    if found.key:
        machine.make(os.path.dirname(path(root)))
        machine.commit()
        text = json.dumps(codec.encode(found), indent=1, sort_keys=True)
        machine.write(path(root), f"{text}\n".encode())


def _made(container: Container, which: str, python: str, versions: Mapping[str, str]) -> ImagePackages:
    named = {normalised(name): str(version) for name, version in versions.items()}
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return ImagePackages(container.image, which, str(python), named, now)


def ask(machine: Machine, root: str, container: Container, environment: Mapping[str, str]) -> ImagePackages:
    """Ask an image's Python what it has installed, in a container.

    Raises NoAnswer.
    """
    which = key(machine, container)
    words = wrap(container, ("python3", "-I", "-c", _ASK), repo=root, environment=environment, name=machine.name)
    done = machine.run(words, timeout_s=_ASK_S, environment=environment)
    try:
        # An image may greet before it does anything.
        python, versions = codec.plain(done.text.splitlines()[-1] if done.ok else "")
        return _made(container, which, python, versions)
    except (ValueError, IndexError, TypeError, AttributeError):
        raise NoAnswer(done) from None
