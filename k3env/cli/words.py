"""The words of a command line as they may be kept and shown: what is secret in them is masked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from k3env.protocol.masking import MASK, mask_of

HIDDEN = ("password", "passwd", "_pass", "secret", "token", "private_key", "api_key")
"""What stands in the names of variables whose value is a secret."""
_CREDENTIALS = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_SETTING = re.compile(r"((?:--extra-vars=)?[A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)


def shown(words: Sequence[str], secrets: Iterable[str] = ()) -> tuple[str, ...]:
    """Return words with names and passwords in URLs, values of settings with a telling name, and `secrets` masked."""
    mask = mask_of(tuple(sorted(secrets)))
    return tuple(_CREDENTIALS.sub(MASK, _setting(mask.text(word))) for word in words)


def _setting(word: str) -> str:
    found = _SETTING.fullmatch(word)
    if found and any(part in found[1].removeprefix("--extra-vars=").lower() for part in HIDDEN):
        return f"{found[1]}={MASK}"
    return word
