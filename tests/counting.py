"""What code asks a directory's filesystem, counted: on a network filesystem each question is a round trip."""

from __future__ import annotations

import builtins
import io
import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

_ASKED = ("stat", "lstat", "open", "listdir", "scandir", "readlink", "access", "statvfs", "mkdir", "rename", "unlink")


@contextmanager
def counted(root: Path) -> Iterator[Counter[str]]:
    """Count the calls of this process that name something below a directory: "stat tensorrt_llm/libs" to a number.

    What programs ask that it starts is not seen: those are counted by themselves.
    """
    asked: Counter[str] = Counter()

    def noting(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any = ".", *arguments: Any, **more: Any) -> Any:
            if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith(str(root)):
                asked[f"{name} {os.path.relpath(os.fsdecode(path), root)}"] += 1
            return real(path, *arguments, **more)

        return call

    with mock.patch.multiple(os, **{name: noting(name, getattr(os, name)) for name in _ASKED}):
        opened = noting("open", io.open)
        with mock.patch.object(builtins, "open", opened), mock.patch.object(io, "open", opened):
            yield asked
