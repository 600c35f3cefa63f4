"""A node that is not what it says: whatever it sends reaches neither the terminal raw nor another host's outcome."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from rich.console import Console

from k3env.cli.view import View
from k3env.connections.connection import Connection
from k3env.connections.process import ProcessConnection, Target
from k3env.errors import Dropped
from k3env.payload import Payload
from k3env.protocol import codec
from k3env.protocol.event import Event, parse
from k3env.protocol.finding import Change, Evidence, Finding, Result
from k3env.protocol.line import FAILED, LINE_BYTES, PROGRESS, RESULT, ROAD, TASK, UNREACHABLE, WAITING
from k3env.protocol.outcome import Fold
from k3env.protocol.plan import Plan, Start
from k3env.reports import document, monitoring, text, verdict
from k3env.runner import host as following
from k3env.runner import session as talk
from k3env.runner.fanout import Fanout
from k3env.runner.host import Follower, Limits, Wish
from k3env.runner.session import Session, Work
from tests.agent import task

HOSTILE = {
    "clipboard": "\x1b]52;c;Y2FuYXJ5\x07",
    "link": "\x1b]8;;http://canary.invalid\x1b\\click\x1b]8;;\x1b\\",
    "title": "\x1b]0;canary\x07",
    "clear": "\x1b[2J\x1b[H\x1b[?1049h",
    "device control": "\x1bPcanary\x1b\\",
    "8-bit CSI": "\x9b2J",
    "8-bit OSC": "\x9d52;c;Y2FuYXJ5\x9c",
    "carriage return": "failed\rok: [node]",
    "backspace": "failed\b\b\b\b\b\bok",
    "NUL and DEL": "a\0b\x7fc",
    "right to left": "\u202eevil\u2066\u200b\ufeff",
    "half a character": "\udc9b\ud800",
    "markup": "[/red] [link=http://canary.invalid]x[/link] :warning: [bold",
    "lines": "a\u2028b\x85c\x0bd\x0ce\x1cf",
}
ALLOWED = re.compile(r"\x1b\[[0-9;?]*[mKhlAJ]|[\n\t\r]")
"""What rich itself sends: colours, and moving up to draw the table anew."""
DIALECTS = ("plain", "terminal")


def told(word: str) -> list[Event]:
    """Return events with a word wherever a node, or what the controller saw of it, may have one."""
    finding = Finding(word, "fail", "fail", "node", word, word, word, word, word, (Evidence(word, 1, word),))
    result = Result("failed", word, (Change(word, word, f"x\n{word}"),), (finding,))
    data = codec.encode(result)
    ended = {"message": word, "finding": codec.encode(finding)}
    return [
        Event(ROAD, data={"message": word}),
        Event(TASK, 1, task="1.1", data={"module": word, "name": word}),
        Event(PROGRESS, 2, task="1.1", data={"text": word, "fraction": 0.5}),
        Event(WAITING, 3, task="1.1", data={"owner": word, "host": word, "progress": word}),
        Event(PROGRESS, 4, task="1.1", data={"text": word}),
        Event(RESULT, 5, task="1.1", data=data),
        Event(RESULT, 6, task="9.9", data=data),
        Event(FAILED, data=ended),
        Event(UNREACHABLE, data=ended),
    ]


@pytest.mark.parametrize("word", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_nothing_raw_reaches_the_terminal(word: str, dialect: str, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
    monkeypatch.setattr(screen, "isatty", lambda: dialect == "terminal")
    monkeypatch.setattr(sys, "stdout", screen)
    monkeypatch.setenv("TERM", "xterm-256color")
    fold = Fold("r", "2026-01-01T00:00:00Z", {"node": [task("command")]})
    view = View(fold, diff=True, verbose=True)
    view.play(word, {"node": [task("command")]})
    for event in told(word):
        fold.add("node", event)
        view.event("node", event)
        view._told_at = view._still = -1e9  # as if it were time to tell
        view.tick()
    view.notice(word)
    view.end_play()
    view.recap()
    print(text.report(fold.outcome(), [word], diff=True, verbose=True))
    shown = screen.buffer.getvalue().decode("utf-8")
    left = [char for char in ALLOWED.sub("", shown) if not char.isprintable()]
    assert not left and len(shown) > 500
    assert "canary.invalid" not in "".join(re.findall(r"\x1b\][^\x07]*", shown))
    assert ("\r" not in shown) or dialect == "terminal"


@pytest.mark.parametrize("word", HOSTILE.values(), ids=HOSTILE)
def test_the_table_of_busy_hosts_neither_interprets_nor_fails(word: str) -> None:
    fold = Fold("r", "x", {"node": [task("command")]})
    view = View(fold)
    for event in told(word)[1:3]:
        fold.add("node", event)
    view._since["node"] = 0.0
    screen = io.StringIO()
    Console(file=screen, force_terminal=True, width=200).print(view.table())
    assert not [char for char in ALLOWED.sub("", screen.getvalue()) if not char.isprintable()]


@pytest.mark.parametrize("word", HOSTILE.values(), ids=HOSTILE)
def test_documents_are_ascii_and_whole(word: str) -> None:
    fold = Fold("r", "x", {"node": [task("command")]})
    for event in told(word):
        fold.add("node", event)
        line = document.event_line("r", "node", event)
        assert line.isascii() and line.isprintable() and json.loads(line)["host"] == "node"
    whole = document.dumps(document.document(fold.outcome(), ["k3env", word]))
    assert whole.isascii() and whole.isprintable() and json.loads(whole)["command"][1] == word


@pytest.mark.parametrize("word", HOSTILE.values(), ids=HOSTILE)
def test_what_other_programs_read_is_theirs_to_parse(word: str) -> None:
    """JUnit is XML, Nagios one line, Prometheus its own lines: no word of a node breaks them or adds to them."""
    fold = Fold("r", "x", {"node": [task("command")]})
    for event in told(word):
        fold.add("node", event)
    outcome = fold.outcome()
    suites = ElementTree.fromstring(monitoring.junit(outcome))  # noqa: S314 - our own
    assert suites.tag in ("testsuites", "testsuite")
    line = monitoring.nagios(outcome)
    metrics = monitoring.prometheus(outcome, 2, 0.0)
    shown = str(verdict.report(outcome, "hc", verbose=True))
    for report in (line, metrics, shown, monitoring.junit(outcome)):
        assert not [char for char in report if not char.isprintable() and char not in "\n\t"], report
    assert all(re.match(r"#|k3env_[a-z_]+(\{.*\})? \S+$", row) for row in metrics.splitlines() if row)
    fail = Finding(word, "fail", "fail", "node", word, word, word, word, word)
    assert monitoring.one_line(fail).isprintable()


HELLO = {
    "format": talk.FORMAT, "python": "3.9.2", "uid": 0, "boot_id": "b", "have_payload": True, "known": False,
    "state_dir": "/s", "simulated": False, "refusal": "",
}  # fmt: skip
FORGED: dict[str, Any] = {
    "no JSON": b"{",
    "deeply nested": b"[" * 60000,
    "deeply nested data": b'{"kind":"progress","seq":1,"data":{"text":' + b"[" * 900 + b"]" * 900 + b"}}",
    "another version": b'{"kind":"end","seq":1,"version":2}',
    "an unknown kind": b'{"kind":"unreachable","seq":1}',
    "a kind that is none": b'{"kind":[],"seq":1}',
    "a number that is none": b'{"kind":"begin","seq":[1]}',
    "an endless number": b'{"kind":"begin","seq":1e999}',
    "a negative number": b'{"kind":"begin","seq":-1}',
    "a number that is true": b'{"kind":"begin","seq":true}',
    "a very long number": b'{"kind":"begin","seq":' + b"9" * 5000 + b"}",
    "a time that is none": b'{"kind":"begin","seq":1,"time":"now"}',
    "no number": b'{"kind":"progress","seq":1,"task":"1.1","data":{"fraction":NaN}}',
    "an endless duration": b'{"kind":"result","seq":1,"task":"1.1","data":{"status":"ok","duration_s":1e999}}',
    "data that is a list": b'{"kind":"begin","seq":1,"data":[]}',
    "a result of nothing": b'{"kind":"result","seq":1,"data":{"status":"ok"}}',
    "a status that is none": b'{"kind":"result","seq":1,"task":"1.1","data":{"status":5}}',
    "an unknown status": b'{"kind":"result","seq":1,"task":"1.1","data":{"status":"passed"}}',
    "an unknown field": b'{"kind":"result","seq":1,"task":"1.1","data":{"status":"ok","host":"other"}}',
    "a finding that is none": b'{"kind":"result","seq":1,"task":"1.1","data":{"status":"ok","findings":[1]}}',
    "an unknown verdict": b'{"kind":"end","seq":1,"data":{"findings":[{"id":"x","status":"y"}]}}',
    "an end that is none": b'{"kind":"end","seq":1,"data":{"status":7}}',
    "an end with numbers": b'{"kind":"end","seq":1,"data":{"findings":3}}',
    "invalid UTF-8": b'{"kind":"beg\xff\xfein","seq":1}',
    "a second hello": json.dumps({"kind": "hello", "data": HELLO}).encode(),
}


def script(path: Path, *lines: bytes, tail: str = "") -> str:
    """Write a "python" that takes what it is sent and says these lines, as a node of the attacker's does."""
    said = path.with_suffix(".said")
    said.write_bytes(b"".join(lines))
    path.write_text(f"#!/bin/sh\nexec 3<&0\ncat <&3 > {path}.heard &\ncat {said}\n{tail}\n")
    path.chmod(0o755)
    return str(path)


def target(name: str, python: str) -> following.Target:
    plan = Plan((task("command", argv=["true"], read_only=True),))
    work = Work(b"boot", Payload(b"zip", "d"), codec.dumps(plan).encode(), b'{"env:T":"secret"}')

    def reach() -> Connection:
        return ProcessConnection("local", Target("localhost"))

    return following.Target(name, reach, work, Start("r.1", name), python)


def run(*targets: following.Target) -> Fold:
    """Follow targets to their end, as a run does."""
    fold = Fold("r", "x", {item.host: [task("command")] for item in targets})
    fanout = Fanout(targets, 8, Limits(5.0, 1.0), Wish())
    fanout.begin()
    while fanout.running:
        for name, event in fanout.events(0.2):
            fold.add(name, event)
    return fold


def marked(line: bytes) -> bytes:
    return b"k3env:r.1 " + line + b"\n"


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A node that answers as it should."""
    hello = marked(json.dumps({"kind": "hello", "data": HELLO}).encode())
    events = [b'{"kind":"result","seq":1,"task":"1.1","data":{"status":"ok"}}', b'{"kind":"end","seq":2}']
    return script(tmp_path_factory.mktemp("good") / "python", hello, *map(marked, events))


@pytest.mark.parametrize("forged", FORGED.values(), ids=FORGED)
def test_a_forged_event_is_its_own_host_s_failure(forged: bytes, good: str, tmp_path: Path) -> None:
    hello = marked(json.dumps({"kind": "hello", "data": HELLO}).encode())
    bad = script(tmp_path / "python", hello, marked(forged))
    fold = run(target("bad", bad), target("good", good))
    assert fold.host("good").status == "ok"
    outcome = fold.host("bad")
    assert outcome.status == "unreachable" and "defect" not in outcome.message, outcome.message
    assert fold.task("bad", "1.1").findings[0].id == "run.protocol"
    assert "hello twice" in outcome.message if forged is FORGED["a second hello"] else "no event" in outcome.message


@pytest.mark.parametrize(
    "changed",
    [{"format": 2}, {"format": "1"}, {"uid": "root"}, {"python": None}, {"state_dir": ["/"]}, {"have_payload": 0},
     {"more": 1}, {"boot_id": {}}],
    ids=str,
)  # fmt: skip
def test_a_hello_of_another_kind_gets_no_secret(changed: dict[str, Any], tmp_path: Path) -> None:
    hello = marked(json.dumps({"kind": "hello", "data": {**HELLO, **changed}}).encode())
    bad = tmp_path / "python"
    fold = run(target("bad", script(bad, hello, tail="sleep 0.3")))
    assert fold.task("bad", "1.1").findings[0].id == "run.protocol"
    heard = (tmp_path / "python.heard").read_bytes()
    assert b"start " in heard and b"secret" not in heard


@pytest.mark.parametrize(
    "line",
    [
        b'{"kind":"end","seq":1}\n',
        b'k3env: {"kind":"end","seq":1}\n',
        b'k3env:r.2 {"kind":"end","seq":1}\n',
        b'k3env:another.1 {"kind":"end","seq":1}\n',
        b"k3env:r.1",
        b"\0" * 5000 + b"\n",
        b"\xff\xfe\x9b\n",
    ],
)
def test_what_is_not_behind_this_run_s_marker_is_noise(line: bytes) -> None:
    session = Session(Start("r.1", "h"), Work(b"", Payload(b"", ""), b"", b""))
    assert session.receive(line) == ([], b"") and not session.ended


def test_a_jump_of_numbers_hides_only_its_own_host_s_events(good: str, tmp_path: Path) -> None:
    hello = marked(json.dumps({"kind": "hello", "data": HELLO}).encode())
    events = [b'{"kind":"begin","seq":999999999}', b'{"kind":"result","seq":1,"task":"1.1","data":{"status":"ok"}}']
    bad = script(tmp_path / "python", hello, *map(marked, events))
    fold = run(target("bad", bad), target("good", good))
    assert fold.host("good").status == "ok" and fold.host("bad").status == "failed"


def chunks(total: int, data: bytes) -> Iterator[bytes]:
    for _ in range(total // len(data)):
        yield data


@pytest.mark.parametrize("data", [b"x" * 65536, b"\0" * 65536, b"\x1b]52;" * 8192, b"k3env:r.1 " * 6000], ids=str)
def test_output_without_a_line_end_is_bounded(data: bytes) -> None:
    session = Session(Start("r.1", "h"), Work(b"", Payload(b"", ""), b"", b""))
    for chunk in chunks(100 << 20, data):
        session.receive(chunk)
        assert len(session._rest) <= 2 * LINE_BYTES + 65536 and len(session.noise) <= 4096


def test_endless_events_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(talk, "EVENT_BYTES", 1 << 20)
    session = Session(Start("r.1", "h"), Work(b"", Payload(b"", ""), b"", b""))
    with pytest.raises(Exception, match="more than 1 MiB of events"):
        for seq in range(1, 100000):
            session.receive(marked(b'{"kind":"progress","seq":%d,"data":{"text":"%s"}}' % (seq, b"x" * 1000)))


def test_who_talks_faster_than_is_read_waits(tmp_path: Path) -> None:
    hello = marked(json.dumps({"kind": "hello", "data": HELLO}).encode())
    flood = [b'{"kind":"progress","seq":%d,"task":"1.1","data":{"text":"x"}}' % seq for seq in range(1, 20001)]
    end = b'{"kind":"end","seq":20001}'
    fanout = Fanout([target("h", script(tmp_path / "python", hello, *map(marked, [*flood, end])))], 1, Limits(), Wish())
    fanout.begin()
    import time

    ends = time.monotonic() + 20
    while fanout._events.qsize() < fanout._events.maxsize and time.monotonic() < ends:
        time.sleep(0.05)
    assert fanout._events.qsize() == fanout._events.maxsize < 20000
    seen = 0
    while fanout.running:
        seen += sum(1 for _ in fanout.events(0.2))
    assert seen == 20002


@pytest.mark.parametrize("word", HOSTILE.values(), ids=HOSTILE)
def test_what_a_dying_node_says_is_shown_harmless(word: str, tmp_path: Path) -> None:
    bad = tmp_path / "python"
    (tmp_path / "last").write_bytes(word.encode("utf-8", "surrogatepass"))
    bad.write_text(f"#!/bin/sh\ncat {tmp_path}/last >&2\nexit 3\n")
    bad.chmod(0o755)
    fold = run(target("bad", str(bad)))
    shown = str(text.report(fold.outcome(), verbose=True))
    assert "exit code 3" in shown and not [char for char in shown if not char.isprintable() and char not in "\n"]


def test_a_follower_s_own_words_are_no_events() -> None:
    """What only the controller may say of a host, a node can't."""
    for kind in (ROAD, UNREACHABLE, FAILED, "notrun"):
        with pytest.raises(ValueError, match="not an event"):
            parse(json.dumps({"kind": kind, "seq": 1}).encode())


def test_a_defect_in_one_host_s_thread_ends_that_host_alone() -> None:
    seen: list[Event] = []

    class Broken(ProcessConnection):
        def open(self, timeout_s: float) -> None:
            raise KeyError("\x1b[2J")

    item = target("h", "python3")
    made = following.Target(item.host, lambda: Broken("local", Target("x")), item.work, item.start)
    Follower(made, Limits(1.0, 1.0), lambda _, event: seen.append(event), Wish()).follow()
    assert [event.kind for event in seen] == [FAILED] and not isinstance(seen[0], Dropped)


FLOODS = {
    "without a line end": "import os; [os.write(1, b'x' * 65536) for _ in range(1600)]",
    "on both streams": "import os; [os.write(at % 2 + 1, b'y' * 65536) for at in range(1600)]",
    "NUL": "import os; [os.write(1, bytes(65536)) for _ in range(1600)]",
    "invalid UTF-8": "import os; [os.write(1, b'\\xff\\xc3\\x1b]52;' * 8192) for _ in range(1600)]",
    "the beginning of a secret, again and again": "import os; [os.write(1, b'hunter' * 10922) for _ in range(1600)]",
    "carriage returns": "import os; [os.write(1, b'\\r' * 65536) for _ in range(1600)]",
}


@pytest.mark.parametrize("script", FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize("kind", ["run", "stream"])
def test_a_command_that_says_a_hundred_megabytes(script: str, kind: str, tmp_path: Path) -> None:
    """What is kept of it is its end; memory does not grow with what it says."""
    work = (
        "import io, resource, sys\n"
        "from k3env.node.machine import Machine\n"
        "from k3env.protocol.masking import Mask\n"
        "machine = Machine(mask=Mask(['hunter2-and-more']))\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "argv = [sys.executable, '-c', sys.argv[1]]\n"
        "if sys.argv[2] == 'run':\n"
        "    done = machine.run(argv, timeout_s=200)\n"
        "else:\n"
        "    longest = []\n"
        "    with open('/dev/null', 'wb') as log:\n"
        "        keep = lambda line: longest.append(len(line)) if len(longest) < 9 else None\n"
        "        done = machine.stream(argv, log=log, on_line=keep)\n"
        "    assert max(longest, default=0) <= 1 << 17, longest\n"
        "assert done.ok, done\n"
        "assert len(done.stdout) <= 1 << 20 and len(done.stderr) <= 1 << 20\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before, done.evidence().excerpt.isprintable())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", work, script, kind], capture_output=True, text=True, check=False, timeout=240
    )
    assert done.returncode == 0, done.stderr
    grown, printable = done.stdout.split()
    assert int(grown) < 40 << 10 and (printable == "True" or "carriage" in script or "\\r" in script)
