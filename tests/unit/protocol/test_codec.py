"""JSON from whoever: what is none is a ValueError, and nothing else."""

from __future__ import annotations

import pytest

from k3env.node.manifest import Manifest
from k3env.protocol import codec

NO_JSON = [b"", b"{", b"\xff\xfe[", "[" * 100_000, b'{"a":' * 100_000, "1" * 5000]


@pytest.mark.parametrize("text", NO_JSON, ids=range(len(NO_JSON)))
def test_what_is_no_json(text: str | bytes) -> None:
    with pytest.raises(ValueError):
        codec.plain(text)
    with pytest.raises(ValueError):
        codec.loads(Manifest, text)


def test_what_is_json() -> None:
    assert codec.plain('{"a": [1, null]}') == {"a": [1, None]}
