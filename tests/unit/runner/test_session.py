"""One conversation without I/O: whatever bytes come, in whatever pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3env.errors import Refused, Unreachable
from k3env.payload import Payload
from k3env.protocol.plan import Start
from k3env.runner.session import Session, Work, command

WORK = Work(b"boot", Payload(b"zip", "digest"), b'{"tasks":[]}', b'{"env:X":"y"}')
HELLO = {
    "format": 1, "python": "3.9.2", "uid": 0, "boot_id": "b", "have_payload": False, "known": False,
    "state_dir": "/s", "simulated": False, "refusal": "",
}  # fmt: skip


def line(kind: str, seq: int = 0, **data: Any) -> bytes:
    return b"k3env:r.1 " + json.dumps({"kind": kind, "seq": seq, "data": data}).encode() + b"\n"


def session(**fields: Any) -> Session:
    return Session(Start("r.1", "h", **fields), WORK)


def test_boot_code_and_start_go_first_and_the_rest_after_hello() -> None:
    talk = session()
    opening = talk.opening()
    assert opening.startswith(b"4\nbootstart ") and b'"run": "r.1"' in opening and b"tasks" not in opening
    events, answer = talk.receive(line("hello", **HELLO))
    assert events == [] and talk.hello is not None and talk.hello.python == "3.9.2"
    assert answer == b'payload 3\nzipsecrets 13\n{"env:X":"y"}plan 12\n{"tasks":[]}'


@pytest.mark.parametrize(
    ("hello", "start", "sent"),
    [
        ({"have_payload": True}, {}, b'secrets 13\n{"env:X":"y"}plan 12\n{"tasks":[]}'),
        ({"known": True}, {}, b""),
        ({"known": True}, {"after": 7}, b""),
        ({}, {"action": "follow"}, b""),
        ({}, {"action": "cancel"}, b""),
    ],
)
def test_a_node_is_sent_what_it_lacks_and_no_more(hello: dict[str, Any], start: dict[str, Any], sent: bytes) -> None:
    assert session(**start).receive(line("hello", **{**HELLO, **hello}))[1] == sent


@pytest.mark.parametrize(
    ("hello", "start", "error", "words"),
    [
        ({"refusal": "state directory /x is a link"}, {}, Refused, "is a link"),
        ({}, {"after": 3}, Refused, "no longer knows"),
    ],
)
def test_a_node_that_cannot_be_used_says_why(hello: Any, start: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        session(**start).receive(line("hello", **{**HELLO, **hello}))


@given(st.lists(st.binary(max_size=40).filter(lambda noise: b"k3env:" not in noise), min_size=4, max_size=4), st.data())
def test_noise_and_the_cuts_between_pieces_change_nothing(noise: list[bytes], data: st.DataObject) -> None:
    lines = [line("hello", **HELLO), line("begin", 1), line("task", 2), line("end", 3, status="ok")]
    stream = b"".join(before.replace(b"\n", b"\r") + after for before, after in zip(noise, lines, strict=True))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    talk, events = session(), []
    for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        events += talk.receive(stream[begin:end])[0]
    assert [(event.kind, event.seq) for event in events] == [("begin", 1), ("task", 2), ("end", 3)] and talk.ended


def test_an_event_that_is_known_does_not_come_twice() -> None:
    talk = session(after=2)
    events, _ = talk.receive(line("task", 1) + line("task", 2) + line("task", 3) + line("task", 3))
    assert [event.seq for event in events] == [3] and talk.last == 3


def test_lines_of_another_run_are_noise_and_are_kept_for_the_message() -> None:
    talk = session()
    forged = b'k3env:other {"kind":"end","seq":1,"data":{"status":"ok"}}\nWelcome to gb300-01\n'
    assert talk.receive(forged) == ([], b"") and not talk.ended
    assert b"Welcome" in talk.noise


@pytest.mark.parametrize("text", [b"{", b"[]", b'{"kind":"boo"}', b'{"kind":"end","version":9}', b'{"kind":7}'])
def test_a_line_that_is_no_event_is_a_clear_error(text: bytes) -> None:
    with pytest.raises(Unreachable, match="no event"):
        session().receive(b"k3env:r.1 " + text + b"\n")


def test_output_without_newlines_does_not_fill_the_memory() -> None:
    talk = session()
    for _ in range(64):
        talk.receive(b"x" * 65536)
    assert len(talk.noise) <= 4096 and len(talk._rest) <= 4 * 65536
    assert [event.kind for event in talk.receive(b"\n" + line("begin", 1))[0]] == ["begin"]


def test_the_command_quotes_the_interpreter() -> None:
    assert command("/opt/my python/bin/python3").startswith("exec '/opt/my python/bin/python3' -I -S -c ")
