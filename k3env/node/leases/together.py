"""All leases of one task: taken in one order, given back together."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Callable, Optional

from k3env.errors import K3Error
from k3env.node.cancel import Cancel
from k3env.node.leases.lease import DONE, FAILED, HELD, Lease, Owner
from k3env.protocol import codec
from k3env.protocol.finding import Result
from k3env.protocol.masking import Mask


class held:  # noqa: N801 - reads as `with held(paths, …)`
    """Hold the leases of some paths, unless the work is done or has failed while we waited."""

    def __init__(
        self,
        paths: tuple[str, ...],
        owner: Owner,
        cancel: Cancel,
        on_wait: Callable[[Owner, str], None],
        is_done: Callable[[], bool] = lambda: False,
        mask: Optional[Mask] = None,
    ) -> None:
        """The paths are taken in sorted order, so that two tasks can't wait for each other.

        `mask` hides secrets in what is left beside them, for others to read.
        """
        self.adopted: Optional[Result] = None
        """The failure of the host that had the leases before, at this very task."""
        self.done = False
        """Whether another host has done the work."""
        self._leases = [Lease(path, owner, cancel) for path in sorted(set(paths))]
        self._held: list[Lease] = []
        self._on_wait = on_wait
        self._is_done = is_done
        self._mask = mask or Mask()
        self._failure: Optional[dict[str, Any]] = None

    def __enter__(self) -> held:
        """Wait for all of them."""
        try:
            for lease in self._leases:
                state = lease.acquire(self._on_wait, self._is_done)
                if state == HELD:
                    self._held.append(lease)
                    continue
                if state == FAILED:
                    self._adopt(lease.failed() or {})
                self.done = state == DONE
                break
        except BaseException:
            self._release()
            raise
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._release()

    def progress(self, text: str) -> None:
        """Tell those who wait how far the work is."""
        for lease in self._held:
            lease.progress(self._mask.text(text))

    def confirm(self) -> None:
        """Raise Refused if one of the leases is not ours any more."""
        for lease in self._held:
            lease.confirm()

    def failed(self, error: BaseException) -> None:
        """Leave this failure for waiters of the same run; what was cancelled is nobody's failure."""
        if isinstance(error, K3Error):
            self._failure = self._mask.value(codec.encode(Result("failed", str(error), findings=(error.finding,))))

    def _adopt(self, record: Mapping[str, Any]) -> None:
        try:
            result: Result = codec.decode(Result, record.get("result"))
        except codec.DecodeError:
            result = Result("failed", "what it said can't be read")
        host = record.get("host", "another host")
        self.adopted = Result("failed", f"failed on {host}: {result.message}", findings=result.findings)

    def _release(self) -> None:
        while self._held:
            self._held.pop().release(self._failure)


def holders(paths: tuple[str, ...], owner: Owner) -> tuple[tuple[str, Owner], ...]:
    """Return which of these paths somebody holds now, and who."""
    leases = [(path, Lease(path, owner, Cancel()).holder()) for path in paths]
    return tuple((path, holder) for path, holder in leases if holder is not None)
