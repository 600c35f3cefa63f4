"""Becoming another user on the way in: sudo before the agent, without a password or with one asked for once.

`sudo -n` reads nothing, so the boot code may follow at once. With a password, nothing is sent before sudo's own prompt
or the agent's word that it is there: a NOPASSWD rule asks for none, and the boot code must not become a password.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from k3env.errors import AuthFailed

PROMPT = "k3env-sudo-password:"
READY = "k3env-agent-ready"
_DENIED = re.compile(r"sudo: .*|.*(?:not in the sudoers file|not allowed to (?:run|execute)).*|.*sudo: not found.*")


@dataclass(frozen=True)
class Become:
    """Which user the agent runs as, and sudo's password if one was asked for."""

    user: str = "root"
    password: str | None = None

    def __repr__(self) -> str:
        return f"Become({self.user!r})"

    def prefix(self) -> str:
        """Return what stands before the agent's command."""
        user = shlex.quote(self.user)
        if self.password is None:
            return f"sudo -n -H -u {user} -- "
        return f"sudo -S -H -p {PROMPT} -u {user} -- "


class Gatekeeper:
    """What to send while sudo may still ask."""

    def __init__(self, become: Become | None) -> None:
        """Without a password there is nothing to wait for."""
        self._become = become
        self.open = become is None or become.password is None
        """Whether the agent may be spoken to."""
        self._answered = False

    def answer(self, said: str) -> bytes:
        """Look at what came on standard error; return what to send now.

        Raises AuthFailed when the password was wrong.
        """
        if self.open or self._become is None:
            return b""
        if READY in said:
            self.open = True
            return b""
        prompts = said.count(PROMPT)
        if prompts > 1:
            raise AuthFailed(
                "sudo refused the password",
                expected=f"the password that sudo asks for on this host, to become {self._become.user}",
                found="it asks again",
                remedy="run it again with --ask-become-pass",
                id="run.become",
            )
        if prompts and not self._answered:
            self._answered = True
            return f"{self._become.password}\n".encode()
        return b""


def denied(become: Become | None, said: str) -> AuthFailed | None:
    """Return what sudo's last words mean, or None if they are not sudo's."""
    if become is None:
        return None
    found = next((line for line in said.splitlines() if _DENIED.fullmatch(line.strip())), None)
    if found is None:
        return None
    asks = "password is required" in found or "terminal is required" in found
    return AuthFailed(
        f"this user can't become {become.user}: {found.strip()}",
        expected=f"sudo to {become.user}",
        found=found.strip(),
        remedy="--ask-become-pass, or a NOPASSWD rule for this user" if asks else "have sudo allow it for this user",
        id="run.become",
    )
