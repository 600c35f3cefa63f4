"""Masking: no form of a secret is left, wherever a text was cut or split."""

from __future__ import annotations

import base64
import json
import random
import shlex
import time
from urllib.parse import quote, quote_plus

import pytest

from k3env.protocol.finding import EXCERPT_BYTES, excerpt
from k3env.protocol.masking import MASK, Mask
from k3env.protocol.secret import masked, too_short

VALUES = ["s3cret-token", 'it\'s "so"/+ =&', "pässwörd€", "a\tb\\c$d", "abc", "spaces at the end  "]
FORMS = {
    "itself": lambda value: value,
    "quoted": shlex.quote,
    "quoted within a word": lambda value: shlex.quote(f"t={value}; x"),
    "quoted within a script": lambda value: shlex.quote(f". {shlex.quote(value)}"),
    "JSON": json.dumps,
    "JSON in UTF-8": lambda value: json.dumps(value, ensure_ascii=False),
    "repr": repr,
    "repr beside quotes": lambda value: repr(f"\"'{value}"),
    "repr of bytes": lambda value: repr(value.encode()),
    "URL": lambda value: quote(value, safe=""),
    "URL in small letters": lambda value: quote(value, safe="").lower() if value.islower() else quote(value),
    "URL's query": quote_plus,
    "hexadecimal": lambda value: value.encode().hex(),
    "base64": lambda value: base64.b64encode(value.encode()).decode(),
    "base64 for URLs": lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("value", VALUES)
def test_every_form_is_hidden(value: str, form: str) -> None:
    written = FORMS[form](value)
    shown = Mask([value]).text(f"<{written}>")
    assert MASK in shown and value not in shown
    left = shown.replace(MASK, "").strip("<>")
    assert not [left for at in range(len(left) - 2) if left[at : at + 3] in written and left[at].isalnum()], shown
    assert Mask([value]).data(f"<{written}>".encode()) == shown.encode()


@pytest.mark.parametrize("user", ["", "m", "me", "you", "user"])
@pytest.mark.parametrize("after", ["", "\n", "@host"])
def test_base64_of_a_longer_text(user: str, after: str) -> None:
    written = base64.b64encode(f"{user}:s3cret-token{after}".encode()).decode()
    shown = Mask(["s3cret-token"]).text(f"Authorization: Basic {written}")
    assert MASK in shown and len(shown.replace(MASK, "")) <= len("Authorization: Basic ") + 18


def test_lines_of_a_longer_secret_are_secrets_too() -> None:
    key = "-----BEGIN KEY-----\nAAAAB3NzaC1yc2E\nshort\n-----END KEY-----"
    assert Mask([key]).text("pem: AAAAB3NzaC1yc2E, short") == f"pem: {MASK}, short"
    assert Mask([key]).text(key) == MASK


def test_overlapping_values_leave_nothing() -> None:
    assert Mask(["abcd", "cdef"]).text("xabcdefx bcd") == f"x{MASK}x bcd"
    assert Mask(["abcd", "abcdef"]).text("abcdef abcd") == f"{MASK} {MASK}"
    assert Mask(["***"]).text(f"{MASK} ***") == f"{MASK} {MASK}"


SECRETS = ["abcd", "cdefgh", "s3cret-token", "aaa", "line one\nline two"]
SAID = "xabcdefghx aaaaa line one\nline two abc s3cret-toke s3cret-tokens3cret-token it abcdabcd line one\nline tw"


def test_a_value_split_over_pieces_is_hidden_all_the_same() -> None:
    mask, data = Mask(SECRETS), SAID.encode()
    whole = mask.data(data)
    for first in range(len(data) + 1):
        stream = mask.stream()
        assert stream.feed(data[:first]) + stream.feed(data[first:]) + stream.end() == whole, first
    chance = random.Random(3)  # noqa: S311
    for _ in range(300):
        cuts = sorted(chance.sample(range(len(data)), 12))
        stream = mask.stream()
        said = b"".join(stream.feed(data[begin:end]) for begin, end in zip([0, *cuts], [*cuts, None], strict=True))
        assert said + stream.end() == whole, cuts


def test_a_stream_holds_back_no_more_than_the_beginning_of_a_value() -> None:
    stream = Mask(["s3cret-token"]).stream()
    assert stream.feed(b"[ 42%] done s3cr") == b"[ 42%] done "
    assert stream.feed(b"oll") == b"s3croll"
    assert stream.end() == b""


def test_a_long_build_is_masked_fast_enough() -> None:
    key = "\n".join(base64.b64encode(random.Random(line).randbytes(48)).decode() for line in range(30))  # noqa: S311
    stream, begun = Mask([key]).stream(), time.process_time()
    for line in range(2000):
        stream.feed(b"[ 42%%] Building CXX object %d\n" % line)
    assert time.process_time() - begun < 6


@pytest.mark.parametrize("cut", range(40))
def test_an_excerpt_shows_neither_the_end_of_a_value_nor_of_a_mask(cut: int) -> None:
    said = b"x" * 100 + b"s3cret-token" + b"y" * (EXCERPT_BYTES - cut)
    shown = excerpt(Mask(["s3cret-token"]).data(said))
    assert shown.lstrip("x").removeprefix(MASK).strip("y") == "" and "token"[-1:] not in shown


def test_words_of_ours_are_left_alone_and_keys_are_not() -> None:
    event = {"status": "changed", "findings": [{"id": "changed", "message": "it changed"}], "a changed key": 1}
    assert masked(event, ("changed",)) == {
        "status": "changed",
        "findings": [{"id": "changed", "message": f"it {MASK}"}],
        f"a {MASK} key": 1,
    }


def test_what_is_too_short_to_be_hidden_is_told() -> None:
    value = {"environment": {"A": {"$secret": "env:A"}, "B": {"$secret": "env:B"}}}
    assert too_short(value, {"env:A": "ab", "env:B": "abc", "env:C": "c"}) == ("env:A",)
    assert Mask(["ab"]).text("ab") == "ab" and not Mask(["", "a"])


def test_an_excerpt_shows_of_a_progress_meter_what_a_terminal_would_still_show() -> None:
    meter = b"".join(b"Receiving objects: %3d%% (%d/90000)\r" % (at % 100, at) for at in range(5000))
    said = b"fatal: first\r\n" + meter + b"Receiving objects: 100% (90000/90000), done.\nfatal: early EOF\r\n"
    assert excerpt(said) == "fatal: first\nReceiving objects: 100% (90000/90000), done.\nfatal: early EOF"
    assert excerpt(b"error: nobody should see this\rfine\n") == "error: nobody should see this\nfine"
    assert excerpt(b"  50%\r") == "  50%" and excerpt(b"\r\r\n") == ""
