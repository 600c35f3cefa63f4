"""Becoming another user on the way in: sudo before the agent, without a password or with one asked for once.

`sudo -n` reads nothing, so the boot code may follow at once. With a password, nothing is sent before sudo's own prompt
or the agent's word that it is there: a NOPASSWD rule asks for none, and the boot code must not become a password.
"""

from __future__ import annotations

import re
import shlex
import threading
import time
from dataclasses import dataclass

from k3env.errors import AuthFailed, Unreachable

PROMPT = "k3env-sudo-password:"
READY = "k3env-agent-ready"
_VERDICT_S = 10.0
"""sudo's own delay after a wrong password is two seconds; a host that takes longer than this holds up no other."""
# sudo speaks English then, also where it is told the user's language; C.UTF-8 keeps the agent's files names whole.
_ENGLISH = "env LC_ALL=C.UTF-8 LANGUAGE= "
_REMEDIES: tuple[tuple[str, str], ...] = (
    (r"password is required|terminal is required|no askpass", "--ask-become-pass, or a NOPASSWD rule for this user"),
    (r"must have a tty", "no terminal is used: have sudo ask for none, as by Defaults:USER !requiretty"),
    (r"unknown user", "name a user of that node: --become-user"),
    (r"not in the sudoers|not allowed|may not run|not permitted", "have sudo allow it for this user"),
)
"""What sudo says, and what helps. Source: sudo 1.8.31, 1.9.5 and 1.9.13 in English."""


class Password:
    """sudo's password, asked for once for all hosts; one host finds out whether it is right.

    Sixty hosts that try a wrong one at once lock an account that they share.
    """

    def __init__(self, value: str) -> None:
        """Nobody has tried it yet."""
        self._value = value
        self._lock = threading.Lock()
        self._proven = False
        self._refused_on = ""
        self._tried_at: float | None = None

    def __repr__(self) -> str:
        return "Password(…)"

    @property
    def refused_on(self) -> str:
        """The host that refused it before any took it, or ""."""
        return self._refused_on

    def answer(self) -> bytes:
        """Return what answers sudo now: nothing yet while another host finds out whether it is right."""
        with self._lock:
            now = time.monotonic()
            if not self._proven and self._tried_at is not None and now < self._tried_at + _VERDICT_S:
                return b""
            self._tried_at = now
        return f"{self._value}\n".encode()

    def proven(self) -> None:
        """A host took it: the others may use it at once."""
        self._proven = True

    def refused(self, host: str) -> None:
        """A host did not take it: where none did before, none is to try it again."""
        with self._lock:
            if not self._proven:
                self._refused_on = self._refused_on or host


@dataclass(frozen=True)
class Become:
    """Which user the agent runs as, and sudo's password if one was asked for."""

    user: str = "root"
    password: Password | None = None

    def prefix(self) -> str:
        """Return what stands before the agent's command."""
        user = shlex.quote(self.user)
        if self.password is None:
            return f"{_ENGLISH}sudo -n -H -u {user} -- "
        return f"{_ENGLISH}sudo -S -H -p {PROMPT} -u {user} -- "


class Gatekeeper:
    """What to send while sudo may still ask."""

    def __init__(self, become: Become | None, host: str) -> None:
        """Without a password there is nothing to wait for."""
        self._password = become.password if become else None
        self._become, self._host = become, host
        self.open = self._password is None
        """Whether the agent may be spoken to."""
        self._answered = False

    def answer(self, said: str) -> bytes:
        """Look at what came on standard error; return what to send now.

        Raises AuthFailed when the password was wrong, here or on another host.
        """
        if self._password is None or self.open:
            return b""
        if READY in said:
            if self._answered:
                self._password.proven()
            self.open = True
            return b""
        prompts = said.count(PROMPT)
        if prompts > 1:
            raise self._wrong("it asks again")
        if not prompts or self._answered:
            return b""
        if self._password.refused_on:
            raise self._wrong(f"{self._password.refused_on} refused it, so it was not tried here")
        answer = self._password.answer()
        self._answered = bool(answer)
        return answer

    def ended(self, said: str, code: int | None, python: str) -> Unreachable | None:
        """Return what it means that the agent never answered, or None if that was not sudo's doing."""
        if self._become is None or READY in said:
            return None
        if self._answered and re.search(r"incorrect password|no password was provided|Authentication failure", said):
            return self._wrong(_last_words(said))
        return _denied(self._become, said, code, python)

    def _wrong(self, found: str) -> AuthFailed:
        assert self._become is not None and self._password is not None  # noqa: S101 - only then it is asked
        self._password.refused(self._host)
        return AuthFailed(
            "sudo refused the password",
            expected=f"the password that sudo asks for on this host, to become {self._become.user}",
            found=found,
            remedy="run it again with --ask-become-pass; hosts with another password need a run of their own",
            id="run.become",
        )


def without_marks(said: str) -> str:
    """Return what was said on the way in without our own prompt and the agent's word."""
    return said.replace(PROMPT, "").replace(f"{READY}\n", "")


def _denied(become: Become, said: str, code: int | None, python: str) -> Unreachable | None:
    """Return what sudo's last words mean, or None if they are not sudo's."""
    words = _last_words(said)
    if code in (126, 127) or re.search(r"sudo: (?:command )?not found|sudo: Command not found", words):
        return AuthFailed(
            f"this user can't become {become.user}: there is no sudo on the node",
            expected=f"sudo to {become.user}",
            found=words or f"exit code {code}",
            remedy=f"install sudo there, or connect as {become.user}",
            id="run.become",
        )
    if code != 1 and not words.startswith("sudo:"):
        return None
    if words.startswith(f"sudo: {python}:"):
        return Unreachable(
            f"{become.user} can't start {python}: {words}",
            expected=f"{python} in the path that sudo gives (secure_path)",
            found=words,
            remedy="install Python 3.9 or later, or set ansible_python_interpreter to its whole path",
            id="run.agent",
        )
    remedy = next((told for pattern, told in _REMEDIES if re.search(pattern, words)), "")
    return AuthFailed(
        f"this user can't become {become.user}: {words or 'sudo says nothing'}",
        expected=f"sudo to {become.user}",
        found=words or f"exit code {code}",
        remedy=remedy or f"make this work there first: sudo -n -u {become.user} true",
        id="run.become",
    )


def _last_words(said: str) -> str:
    """Return the line that tells most: sudo's own last one, else the last."""
    lines = [line.strip() for line in without_marks(said).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("sudo:")]
    return (ours or lines or [""])[-1]
