"""Secrets, passwords, passphrases: from where a reference points to its value, or asked for once."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from getpass import getpass
from pathlib import Path

from k3env.cli.options import Options
from k3env.errors import UsageError
from k3env.protocol import codec
from k3env.protocol.plan import Plan
from k3env.protocol.secret import references
from k3env.runner.become import Password


def resolve(plans: Iterable[Plan]) -> dict[str, str]:
    """Return the values of all secrets that these plans name.

    Raises UsageError for one that has none.
    """
    named: set[str] = set().union(*(references(codec.encode(plan)) for plan in plans))
    return {reference: _value(reference) for reference in sorted(named)}


def _value(reference: str) -> str:
    kind, _, name = reference.partition(":")
    if kind == "env":
        value = os.environ.get(name)
        if value:
            return value
        raise UsageError(
            f"secret {reference} has no value", expected=f"${name}", found="unset", remedy=f"export {name}"
        )
    if kind == "file":
        try:
            return Path(name).expanduser().read_text("utf-8").rstrip("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"secret {reference} can't be read: {error}", remedy="name a readable file") from None
    if not sys.stdin.isatty():
        raise UsageError(
            f"secret {reference} is asked for, but nobody is there",
            expected="a terminal",
            found="none",
            remedy="use env:NAME or file:PATH instead of prompt",
        )
    return getpass(f"{reference}: ")


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


def check_key(options: Options) -> None:
    """Make sure that the named key can be used, before a host is contacted.

    Raises UsageError if it can't.
    """
    if options.private_key is None:
        return
    try:
        data = Path(options.private_key).read_bytes()
    except OSError as error:
        found = error.strerror or str(error)
    else:
        if b"PRIVATE KEY-----" in data:
            return
        found = "no private key in it"
    raise UsageError(
        f"--private-key {options.private_key} can't be used: {found}",
        expected="the file of a private key",
        found=found,
        remedy="name the private half, without .pub",
    )
