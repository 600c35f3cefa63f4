"""Lookout: a process that stays root while its asker becomes another user; it can look at one thing, and tell."""

from __future__ import annotations

import json
import os
import signal
from types import TracebackType
from typing import Any, Callable, Optional


class Lookout:
    """Looks, when it is asked for the first time; what it looks at is settled before anybody else can ask."""

    def __init__(self, look: Callable[[], Any]) -> None:
        """`look` returns JSON, and runs in a fork of this process."""
        asked, self._ask = os.pipe()
        self._answer, told = os.pipe()
        self._pid = os.fork()
        if self._pid:
            os.close(asked)
            os.close(told)
            return
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            os.close(self._ask)
            os.close(self._answer)
            if os.read(asked, 1):
                data = json.dumps(look()).encode()
                while data:
                    data = data[os.write(told, data) :]
        finally:
            os._exit(0)

    def ask(self) -> Any:
        """Return what it sees, or None if it has nothing more to tell; for one asker, in this process or a fork."""
        try:
            os.write(self._ask, b"?")
        except BrokenPipeError:
            return None
        data = b""
        while chunk := os.read(self._answer, 1 << 16):
            data += chunk
        return json.loads(data) if data else None

    def __enter__(self) -> Lookout:
        """Look out until the block is left."""
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        os.close(self._ask)
        os.close(self._answer)
        os.kill(self._pid, signal.SIGKILL)
        os.waitpid(self._pid, 0)
