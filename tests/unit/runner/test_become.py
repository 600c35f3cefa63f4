"""sudo on the way in. The stand-in behaves as sudo does at its prompt; the rack has the real one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from k3env import payload
from k3env.connections.process import ProcessConnection, Target
from k3env.errors import AuthFailed
from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.plan import Plan, Start
from k3env.runner import host
from k3env.runner.become import PROMPT, READY, Become, Gatekeeper, Password
from k3env.runner.session import Work, command

SUDO = """#!/bin/sh
echo "$@" >> {root}/argv
ask=no
while [ "$1" != -- ]; do
    case $1 in -S) ask=yes ;; -p) prompt=$2 ;; esac
    shift
done
shift
case {mode} in
nopasswd) exec "$@" ;;
missing) echo "sudo: user is not in the sudoers file" >&2; exit 1 ;;
esac
[ $ask = yes ] || {{ echo "sudo: a password is required" >&2; exit 1; }}
for try in 1 2 3; do
    printf '%s' "$prompt" >&2
    IFS= read -r given || exit 1
    [ "$given" = "open sesame" ] && exec "$@"
    echo "Sorry, try again." >&2
done
echo "sudo: 3 incorrect password attempts" >&2
exit 1
"""


def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, password: str | None) -> list[Event]:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sudo").write_text(SUDO.format(root=tmp_path, mode=mode))
    (tmp_path / "bin" / "sudo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    events: list[Event] = []
    work = Work(payload.boot_code(), payload.build(), codec.dumps(Plan(())).encode())
    start = Start("t.1", "node", payload=payload.build().digest, state_dir=str(tmp_path / "state"))
    target = host.Target(
        "node",
        lambda: ProcessConnection("local", Target("localhost")),
        work,
        start,
        become=Become("root", Password(password) if password else None),
    )
    host.Follower(target, host.Limits(10, 5), lambda _, event: events.append(event), host.Wish()).follow()
    return events


@pytest.mark.parametrize(
    ("mode", "password"), [("nopasswd", None), ("nopasswd", "open sesame"), ("asks", "open sesame")]
)
def test_the_agent_starts_behind_sudo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, password: str | None
) -> None:
    events = follow(tmp_path, monkeypatch, mode, password)
    assert [event.kind for event in events] == ["hello", "begin", "end"]
    argv = (tmp_path / "argv").read_text()
    assert "-u root" in argv and "sesame" not in argv


@pytest.mark.parametrize(
    ("mode", "password", "words"),
    [
        ("asks", None, "--ask-become-pass"),
        ("asks", "wrong", "refused the password"),
        ("missing", None, "not in the sudoers file"),
        ("missing", "open sesame", "not in the sudoers file"),
    ],
)
def test_what_sudo_refuses_is_told_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, password: str | None, words: str
) -> None:
    events = follow(tmp_path, monkeypatch, mode, password)
    assert [event.kind for event in events] == ["unreachable"]
    finding = events[0].data["finding"]
    assert words in finding["message"] + finding["remedy"] and finding["id"] == "run.become"
    assert "sesame" not in str(events) and "wrong" not in finding["found"]


def test_a_password_is_in_no_text_of_it() -> None:
    become = Become("root", Password("open sesame"))
    assert "sesame" not in repr(become) + command("python3", become)


def test_one_host_finds_out_whether_the_password_is_right() -> None:
    password = Password("open sesame")
    gates = [Gatekeeper(Become("root", password), name) for name in "abc"]
    assert [gate.answer(PROMPT) for gate in gates] == [b"open sesame\n", b"", b""]
    gates[0].answer(f"{PROMPT}{READY}\n")
    assert [gate.answer(PROMPT) for gate in gates[1:]] == [b"open sesame\n"] * 2


def test_what_one_host_refuses_no_other_is_asked() -> None:
    password = Password("wrong")
    first, second = (Gatekeeper(Become("root", password), name) for name in "ab")
    assert first.answer(PROMPT) and not second.answer(PROMPT)
    for gate, words in ((first, "asks again"), (second, "a refused it")):
        with pytest.raises(AuthFailed) as caught:
            gate.answer(PROMPT if gate is second else PROMPT * 2)
        assert words in (caught.value.finding.found or "")


def test_a_host_that_refuses_what_another_took_stops_nobody() -> None:
    password = Password("open sesame")
    first, odd, third = (Gatekeeper(Become("root", password), name) for name in "abc")
    first.answer(PROMPT)
    first.answer(PROMPT + READY)
    odd.answer(PROMPT)
    with pytest.raises(AuthFailed):
        odd.answer(PROMPT * 2)
    assert third.answer(PROMPT) == b"open sesame\n"


@pytest.mark.parametrize(
    ("said", "code", "message", "remedy"),
    [
        ("sudo: a password is required\n", 1, "a password is required", "--ask-become-pass"),
        ("bash: exec: sudo: not found\n", 127, "there is no sudo on the node", "install sudo"),
        ("sudo: Command not found.\n", 1, "there is no sudo on the node", "install sudo"),
        ("sudo: python3: command not found\n", 1, "can't start python3", "ansible_python_interpreter"),
        ("sudo: sorry, you must have a tty to run sudo\n", 1, "must have a tty", "!requiretty"),
        ("ann ist nicht in der sudoers-Datei.\n", 1, "ann ist nicht", "sudo -n -u root true"),
        ("", 1, "sudo says nothing", "sudo -n -u root true"),
    ],
)
def test_what_sudo_says_at_its_end(said: str, code: int, message: str, remedy: str) -> None:
    error = Gatekeeper(Become("root"), "a").ended(f"Welcome\n{said}" if said else "", code, "python3")
    assert error is not None and message in str(error) and remedy in (error.finding.remedy or "")


def test_what_the_agent_says_is_none_of_sudos_words() -> None:
    gate = Gatekeeper(Become("root"), "a")
    assert gate.ended(f"{READY}\nTraceback: no space\n", 1, "python3") is None
    assert gate.ended("Killed\n", 137, "python3") is None
