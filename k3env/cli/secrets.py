"""Secrets, passwords, passphrases: from where a reference points to its value, or asked for once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from getpass import getpass
from pathlib import Path

from k3env.cli.options import Options
from k3env.documents import opened
from k3env.errors import UsageError
from k3env.protocol import codec
from k3env.protocol.masking import SHORTEST
from k3env.protocol.plan import Plan
from k3env.protocol.secret import references
from k3env.runner.become import Password

SECRET_BYTES = 64 << 10
PIPE_S = 60.0
"""For a program behind a pipe, seconds: a password store may ask its user first."""


def resolve(plans: Iterable[Plan]) -> dict[str, str]:
    """Return the values of all secrets that these plans name.

    Raises UsageError for one that has none, or one that could not be hidden.
    """
    named: set[str] = set().union(*(references(codec.encode(plan)) for plan in plans))
    return {reference: _checked(reference, _value(reference)) for reference in sorted(named)}


def _checked(reference: str, value: str) -> str:
    if len(value) >= SHORTEST and "\0" not in value:
        return value
    if "\0" in value:
        raise UsageError(
            f"secret {reference} holds a NUL",
            expected="text",
            found="binary data",
            remedy="encode it, for example in base64",
        )
    raise UsageError(
        f"secret {reference} is too short to be hidden: it would be seen wherever it stands",
        expected=f"at least {SHORTEST} characters",
        found="nothing" if not value else f"{len(value)}",
        remedy="choose a longer one",
    )


def _value(reference: str) -> str:
    kind, _, name = reference.partition(":")
    if kind == "env":
        value = os.environ.get(name)
        if value is not None:
            return value
        raise UsageError(
            f"secret {reference} has no value", expected=f"${name}", found="unset", remedy=f"export {name}"
        )
    if kind == "file":
        return _from_file(reference, Path(name).expanduser())
    if not sys.stdin.isatty():
        raise UsageError(
            f"secret {reference} is asked for, but nobody is there",
            expected="a terminal",
            found="none",
            remedy="use env:NAME or file:PATH instead of prompt",
        )
    return getpass(f"{reference}: ")


def _from_file(reference: str, path: Path) -> str:
    """Read a file, or the pipe of a shell's <(…), whose program may have to ask somebody first."""
    remedy = "name a readable file of one secret"
    try:
        data = opened.read(path, SECRET_BYTES + 1, PIPE_S)
        if len(data) <= SECRET_BYTES:
            value = data.decode("utf-8").rstrip("\n")
            if "\0" not in value:
                return value
            found = "a NUL in it, which no environment can hold"
        else:
            found = f"more than {SECRET_BYTES >> 10} KiB"
    except opened.NoFile as error:
        found, remedy = f"it {error.what}", error.remedy or remedy
    except OSError as error:
        found = error.strerror or str(error)
    except ValueError:
        found = "no UTF-8 text"
    raise UsageError(
        f"secret {reference} can't be read: {found}", expected="a file of text", found=found, remedy=remedy
    )


def ask_become_pass(options: Options) -> Password | None:
    """Return sudo's password, asked for once for all hosts, before any is contacted; None where none is wanted.

    Raises UsageError when nobody is there to ask.
    """
    if not options.ask_become_pass:
        return None
    if not sys.stdin.isatty():
        raise UsageError(
            "--ask-become-pass asks, but nobody is there",
            expected="a terminal",
            found="none",
            remedy="run it in a terminal, or have sudo ask for no password (NOPASSWD)",
        )
    return Password(getpass("sudo password: "))


def ask_passphrase(path: str) -> str | None:
    """Return the passphrase of a key, or None when nobody is there to ask."""
    return getpass(f"passphrase of {path}: ") if sys.stdin.isatty() else None


def check_key(options: Options) -> Options:
    """Make sure that the named key can be used, before a host is contacted; return options that name it for good.

    A pipe, such as that of a shell's <(…), can be read only once: what it gave is kept in this process's memory.
    Raises UsageError if the key can't be used.
    """
    if options.private_key is None:
        return options
    path, remedy = Path(options.private_key).expanduser(), "name the private half, without .pub"
    try:
        data = opened.read(path, SECRET_BYTES, PIPE_S)
    except opened.NoFile as error:
        found, remedy = f"it {error.what}", error.remedy or remedy
    except (OSError, ValueError) as error:
        found = getattr(error, "strerror", None) or str(error)
    else:
        if b"PRIVATE KEY-----" in data:
            return replace(options, private_key=_in_memory(data)) if path.is_fifo() else options
        found = "no private key in it"
    raise UsageError(
        f"--private-key {options.private_key} can't be used: {found}",
        expected="the file of a private key",
        found=found,
        remedy=remedy,
    )


def _in_memory(data: bytes) -> str:
    """Return the path of a file in memory, which this user's processes can read as long as this one lives."""
    descriptor = os.memfd_create("k3env-key")
    os.fchmod(descriptor, 0o600)  # ssh refuses a key that others may read
    os.write(descriptor, data)
    return f"/proc/{os.getpid()}/fd/{descriptor}"
