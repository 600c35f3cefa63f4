"""The requirement files of a checkout: what keeps pip, and setup.py, from reading them at all."""

from __future__ import annotations

import codecs
import os
import posixpath
from typing import TYPE_CHECKING, Optional

from k3env.k3 import build as k3
from k3env.node.requirements import named

if TYPE_CHECKING:
    from k3env.node.machine import Machine

_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def wrong(machine: Machine, root: str) -> tuple[str, ...]:
    """Return what is wrong with those that are installed from, and with those that they name; each begins with a file.

    Sources: pip, requirements file format and its errors; TensorRT LLM's setup.py, which reads requirements.txt line by
    line and takes a byte order mark for a part of the first requirement.
    """
    told: dict[str, None] = {}
    for name in k3.INSTALLED:
        if machine.is_file(os.path.join(root, name)):
            told.update(dict.fromkeys(_of(machine, root, name, ())))
    return tuple(told)


def _of(machine: Machine, root: str, name: str, above: tuple[str, ...]) -> tuple[str, ...]:
    data = machine.read(os.path.join(root, name))
    problem = _unreadable(data, for_setup=name == k3.REQUIREMENTS)
    if problem is not None:
        return (f"{name} {problem}",)
    told: list[str] = []
    for _, other in named(data.decode("utf-8", "replace")):
        path = posixpath.normpath(posixpath.join(posixpath.dirname(name), other))
        if "$" in other or "://" in other or posixpath.isabs(other) or path.startswith("../"):
            continue
        if path in (*above, name):
            told.append(f"{name} includes {'itself' if path == name else f'{other}, which leads back to it'}")
        elif not machine.is_file(os.path.join(root, path)):
            told.append(f"{name} includes {other}, which is not there")
        else:
            told += _of(machine, root, path, (*above, name))
    return tuple(told)


def _unreadable(data: bytes, *, for_setup: bool) -> Optional[str]:
    if data.startswith(_WIDE) or b"\0" in data[:1024]:
        return "is in UTF-16"
    if for_setup and data.startswith(codecs.BOM_UTF8):
        return "begins with a byte order mark"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return f"is not in UTF-8: byte 0x{data[error.start]:02x} in line {data.count(bytes((10,)), 0, error.start) + 1}"
    return None
