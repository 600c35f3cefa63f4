"""What an inventory asks of a tray: `k3env_sandbox`, read strictly."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from k3env.errors import InventoryError, nearest
from k3env.sandbox.gpus import GPUS

_HOST = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")
_DRIVER = re.compile(r"\d{3}(\.\d+){1,2}\Z")
_MODULE = re.compile(r"[a-z][a-z0-9_]*\Z")
RESERVED = ("shared", "upstream")
"""Names in the rack's root that are no trays."""

DIED = "died"
"""A file in a tray's directory: its death has been, and isn't repeated until the tray is composed again."""


@dataclass(frozen=True)
class Fault:
    """What is wrong with a tray."""

    kind: str
    """refuse, silent, drop_after_bytes or die_at_task."""
    after: int = 0
    """Bytes on the wire before the cut, of drop_after_bytes."""
    module: str = ""
    """Module whose task kills the tray, of die_at_task."""


FAULTS = {"refuse": "", "silent": "", "drop_after_bytes": "N", "die_at_task": "MODULE"}
"""The faults, and what stands behind the colon of each."""


@dataclass(frozen=True)
class Spec:
    """A tray as the inventory wants it."""

    gpu: str = "GB300"
    gpus: int = 4
    driver: str = "580.105.08"  # nvidia-smi of a GB300 tray in a public log
    free_gib: int = 2000
    fault: Fault | None = None
    cells: tuple[tuple[str, str], ...] = ()
    """What nvidia-smi prints on it where the tray is ill, by field: {"fabric.state": "In Progress"}."""
    links_down: tuple[int, ...] = ()
    """NVLinks that are down on every GPU."""
    imex: str = "READY"
    """What its IMEX service says of itself."""
    xids: tuple[int, ...] = ()
    """What stands in its kernel's log."""


def parse(host: str, wanted: Any) -> Spec:
    """Read a host's `k3env_sandbox`. An empty mapping is a healthy GB300 tray.

    Raises InventoryError, with the nearest right name, for an unknown key, GPU or fault and for a wrong type.
    """
    if not _HOST.match(host) or host in RESERVED:
        raise InventoryError(
            f"{host!r} can't be a tray of the sandbox",
            expected="letters, digits, dot, dash and underscore, and neither of " + ", ".join(RESERVED),
            found=host,
            remedy="rename the host",
            subject=host,
        )
    if not isinstance(wanted, Mapping):
        raise _wrong(host, "k3env_sandbox", "a mapping such as {gpu: GB300, gpus: 4}", wanted)
    for key in wanted:
        if key not in _READERS:
            raise _unknown(host, "key", key, tuple(_READERS))
    values = {key: _READERS[key](host, value) for key, value in wanted.items()}
    spec = Spec(**values)
    most = len(GPUS[spec.gpu].buses)
    if spec.gpus > most:
        raise _wrong(host, "gpus", f"at most {most} of {spec.gpu} in one machine", spec.gpus)
    return spec


def _gpu(host: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(host, "gpu", "one of " + ", ".join(GPUS), value)
    if value not in GPUS:
        raise _unknown(host, "gpu", value, tuple(GPUS))
    return value


def _driver(host: str, value: Any) -> str:
    if not isinstance(value, str) or not _DRIVER.match(value):
        raise _wrong(host, "driver", 'a version as text, such as "580.105.08"', value)
    return value


def _count(key: str) -> Any:
    def read(host: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise _wrong(host, key, "a whole number of at least 0", value)
        return value

    return read


def _fault(host: str, value: Any) -> Fault | None:
    if value is None:
        return None
    if not isinstance(value, str):
        raise _wrong(host, "fault", "one of " + ", ".join(_forms()), value)
    kind, colon, argument = value.partition(":")
    if kind not in FAULTS:
        raise _unknown(host, "fault", kind, tuple(FAULTS))
    form = FAULTS[kind]
    if bool(form) != bool(colon):
        raise _wrong(host, "fault", f"{kind}:{form}" if form else kind, value)
    if form == "N":
        if not argument.isascii() or not argument.isdigit():
            raise _wrong(host, "fault", f"{kind}:N, N a number of bytes", value)
        return Fault(kind, after=int(argument))
    if form == "MODULE":
        if not _MODULE.match(argument):
            raise _wrong(host, "fault", f"{kind}:MODULE, such as {kind}:trtllm_build", value)
        return Fault(kind, module=argument)
    return Fault(kind)


def _cells(host: str, value: Any) -> tuple[tuple[str, str], ...]:
    if not isinstance(value, Mapping) or not all(isinstance(part, str) for item in value.items() for part in item):
        raise _wrong(host, "cells", 'texts by field, such as {"fabric.state": "In Progress"}', value)
    return tuple(sorted(value.items()))


def _numbers(key: str) -> Any:
    def read(host: str, value: Any) -> tuple[int, ...]:
        if not isinstance(value, list) or not all(type(item) is int and item >= 0 for item in value):
            raise _wrong(host, key, "a list of whole numbers", value)
        return tuple(value)

    return read


def _word(host: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(host, "imex", "a state such as READY or WAITING_FOR_PEERS", value)
    return value


_READERS = {
    "gpu": _gpu,
    "gpus": _count("gpus"),
    "driver": _driver,
    "free_gib": _count("free_gib"),
    "fault": _fault,
    "cells": _cells,
    "links_down": _numbers("links_down"),
    "imex": _word,
    "xids": _numbers("xids"),
}


def _forms() -> list[str]:
    return [f"{kind}:{form}" if form else kind for kind, form in FAULTS.items()]


def _wrong(host: str, key: str, expected: str, found: Any) -> InventoryError:
    return InventoryError(
        f"{host}: k3env_sandbox: {key} is wrong" if key != "k3env_sandbox" else f"{host}: k3env_sandbox is wrong",
        expected=expected,
        found=f"{found!r} ({type(found).__name__})",
        remedy="mend k3env_sandbox of this host in the inventory",
        subject=host,
    )


def _unknown(host: str, what: str, found: Any, known: tuple[str, ...]) -> InventoryError:
    meant = nearest(str(found), known)
    return InventoryError(
        f"{host}: k3env_sandbox has no {what} {found!r}",
        expected="one of " + ", ".join(_forms() if what == "fault" else known),
        found=str(found),
        remedy=f"did you mean {meant}?" if meant else "mend k3env_sandbox of this host in the inventory",
        subject=host,
    )
