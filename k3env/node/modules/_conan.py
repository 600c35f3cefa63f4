"""conan's home of a build: which one it is, and how what was fetched comes into it. It is on the node's own disk.

Source: conan's documentation: CONAN_HOME, absolute or below ~/; its cache is `p/`, with an SQLite database; a home that
has nothing else is made whole by the first conan that uses it.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from typing import TYPE_CHECKING, Optional

from k3env.errors import Refused, TaskFailed

if TYPE_CHECKING:
    from k3env.node.machine import Machine
    from k3env.node.offline import Archive

VARIABLE = "CONAN_HOME"
CACHE = "p"
_UNPACK_S = 900.0
_BLOCK = 1 << 20


def configured(machine: Machine) -> Optional[str]:
    """Return the home that the node's own environment names; None where it names none that conan takes."""
    told = machine.environment.get(VARIABLE, "")
    if told.startswith("~/"):
        told = os.path.join(machine.environment.get("HOME", "/"), told[2:])
    return told if told.startswith("/") else None


def is_filled(machine: Machine, home: str) -> bool:
    """Return whether a home holds packages."""
    return machine.is_dir(os.path.join(home, CACHE))


def unwritable(home: str) -> Optional[str]:
    """Return a home that this user can't write to; one that is still to be made is below another directory."""
    there = home
    while there and not os.path.lexists(there) and there != os.path.dirname(there):
        there = os.path.dirname(there)
    return home if there and not os.access(there, os.W_OK | os.X_OK) else None


def unpacked(machine: Machine, directory: str, archive: Archive, home: str) -> str:
    """Return a home that holds what was fetched, beside the usual one: conan writes there, so each fetch has its own.

    Raises Refused for an archive that is not as it was fetched, TaskFailed where it can't be unpacked.
    """
    place = f"{home}-{archive.sha256[:12]}"
    if is_filled(machine, place):
        return place
    path = os.path.join(directory, archive.path)
    found = _digest(path)
    if found != archive.sha256:
        raise Refused(
            f"{path} is not what was fetched", expected=f"sha256 {archive.sha256}", found=found,
            remedy="copy it again (rsync -a --checksum), or run the `invoke fetch` that made it again",
            id="offline.cut",
        )  # fmt: skip
    fresh = f"{place}.{os.urandom(4).hex()}"
    machine.make(fresh)
    try:
        words = ("tar", "--extract", "--gzip", "--no-same-owner", "--file", path, "--directory", fresh, CACHE)
        done = machine.run(words, timeout_s=_UNPACK_S)
        if not done.ok:
            raise TaskFailed(
                f"conan's packages can't be unpacked into {fresh}", expected="tar to succeed",
                found=done.evidence().excerpt, remedy="make room there", id="offline.conan",
                evidence=(done.evidence(),),
            )  # fmt: skip
        with contextlib.suppress(OSError):  # Another has been quicker.
            os.rename(fresh, place)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    if not is_filled(machine, place):
        raise TaskFailed(
            f"{place} is there without conan's packages", expected="no such directory, or a home of conan",
            found="something else", remedy=f"remove {place}, and run this again", id="offline.conan",
        )  # fmt: skip
    return place


def _digest(path: str) -> str:
    found = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(_BLOCK):
            found.update(block)
    return found.hexdigest()
