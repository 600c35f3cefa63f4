"""The worker's own standard error, which is its log: secrets are masked there too."""

from __future__ import annotations

import io
from typing import TextIO

from k3env.protocol.masking import Mask


class Masked(io.TextIOBase):
    """Hides secrets in what is written to another stream."""

    def __init__(self, stream: TextIO, mask: Mask) -> None:
        self._stream = stream
        self._mask = mask

    def write(self, text: str) -> int:
        """Write a text; each is masked by itself, as a trace and an error's message come in one piece each."""
        self._stream.write(self._mask.text(text))
        self._stream.flush()
        return len(text)
