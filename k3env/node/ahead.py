"""Ahead: what later tasks will download comes while an earlier one computes and the network is idle.

It is a favour. What fails of it fails no task: the later one downloads by itself, and says what is wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Callable, Optional, Union

from k3env.errors import K3Error
from k3env.node import oserrors
from k3env.node.cancel import Cancel, Cancelled
from k3env.node.machine import Machine
from k3env.protocol.finding import WARN, Finding, printable

STOP_S = 8.0
"""How long a download that is asked to stop may take for it, seconds: its command is asked, then killed."""
_STEP_S = 0.2
_SAID = 300


@dataclass(frozen=True)
class Download:
    """Something that a later task will need."""

    what: str
    """For people: "flashinfer-python at 0123456789ab"."""
    machine: Machine
    """Its cancel is its own: the downloads run in another thread than the task."""
    bring: Callable[[Machine], None]
    """Raises K3Error or OSError."""


@dataclass
class Ahead:
    """Downloads, one after another, that begin with a block; it is left when all have ended, or by an error at once."""

    downloads: Sequence[Download]
    cancel: Cancel
    """Of the task that the block is of."""
    waiting: Callable[[str], object]
    """Is told what is waited for when the block has nothing else to do."""
    failures: list[Finding] = field(default_factory=list)
    """What could not be had, as findings that fail nothing."""
    _now: str = ""
    _thread: Optional[threading.Thread] = None

    def __enter__(self) -> Ahead:
        """Begin, if there is something to download."""
        if self.downloads:
            # The guard of a command ends it with this process, however that comes about.
            self._thread = threading.Thread(target=self._run, name="k3env-ahead", daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        """Wait for what is still under way; where the block was left by an error, end it."""
        if self._thread is None:
            return
        try:
            if kind is None:
                self._wait(self._thread)
        finally:
            for download in self.downloads:
                download.machine.cancel.request("no longer needed")
            self._thread.join(STOP_S)

    def _wait(self, thread: threading.Thread) -> None:
        told = ""
        while thread.is_alive():
            if self._now != told:
                told = self._now
                self.waiting(f"wait for {told}, which is being downloaded")
            with self.cancel:
                thread.join(_STEP_S)

    def _run(self) -> None:
        for download in self.downloads:
            self._now = download.what
            try:
                download.bring(download.machine)
            except Cancelled:
                return
            except (K3Error, OSError) as error:
                self.failures.append(_told(download.what, error))


def _told(what: str, error: Union[K3Error, OSError]) -> Finding:
    return Finding(
        "ahead.download", WARN, "warn", subject=what,
        message=f"{what} could not be downloaded while the build ran: the task that needs it tries again",
        expected="a download", found=printable(str(error))[:_SAID],
        remedy=error.finding.remedy if isinstance(error, K3Error) else oserrors.remedy(error),
    )  # fmt: skip
