"""Programs: executables that print an inventory as JSON, `--list` for all of it, `--host NAME` for one host."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from k3env.documents import jsontext
from k3env.documents.nodes import Node, Position
from k3env.errors import InventoryError
from k3env.inventory import listing
from k3env.inventory.commands import MAX_BYTES, Said, ask
from k3env.inventory.tree import Tree
from k3env.protocol.finding import Finding, printable
from k3env.protocol.masking import bare

TIMEOUT_S = 60.0
"""For one call of a program; one of a cloud asks many machines."""
AT_A_TIME = 8
_EXPECTED = "one JSON object on standard output"


def is_program(path: Path) -> bool:
    """Return whether a file is to be run: one with a run bit that begins as programs do.

    Raises InventoryError for a script that lacks the bit.
    """
    try:
        if not path.is_file():  # opening a pipe waits for its writer
            return False
        with path.open("rb") as file:
            head = file.read(4)
    except (OSError, ValueError):
        return False
    runs = os.access(path, os.X_OK)
    if head.startswith(b"#!") and not runs:
        raise InventoryError(
            f"{path} is a script, and may not be run",
            subject=str(path),
            expected="a run bit",
            found="none",
            remedy=f"chmod +x {shlex.quote(str(path))}",
        )
    return runs and head.startswith((b"#!", b"\x7fELF"))


def read(path: Path, tree: Tree) -> tuple[Finding, ...]:
    """Run a program and add what it prints to a tree; return the warnings about it.

    Raises InventoryError for a program that fails, DocumentError for a value that stands wrong in what it printed.
    """
    root = _printed(path, ["--list"])
    hosts, warnings = listing.read(root, tree)
    if "_meta" in root.content:
        return warnings
    # Without _meta each host is asked for by itself.
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        answers = pool.map(lambda host: _printed(path, ["--host", host], may_be_empty=True), hosts)
        for host, answer in zip(hosts, answers, strict=True):
            tree.hosts[host].update(answer.content)
    return warnings


def _printed(path: Path, arguments: Sequence[str], may_be_empty: bool = False) -> Node:
    """Return the JSON object that a call prints; its positions are named after the call."""
    source = shlex.join([str(path), *arguments])
    # Without a slash the search path would be asked for it.
    said = _ask([str(path) if "/" in str(path) else f"./{path}", *arguments], path)
    text = _text(said, source)
    if may_be_empty and not text.strip():
        return Node({}, Position(source))
    if not text.strip():
        raise _wrong(said, source, f"{source} printed nothing", found="nothing")
    if text.lstrip()[:1] not in ("{", "["):
        first = bare(printable(text.strip().splitlines()[0]))[:120]
        raise _wrong(
            said,
            source,
            f"{source} printed something before its JSON",
            found=first,
            remedy="let it print its messages to standard error",
        )
    root = jsontext.loads(text, source)
    if not isinstance(root.content, dict):
        raise _wrong(said, source, f"{source} printed {root.found}", found=root.found)
    return root


def _ask(argv: Sequence[str], path: Path) -> Said:
    source = shlex.join([str(path), *argv[1:]])
    try:
        said = ask(argv, TIMEOUT_S)
    except FileNotFoundError:
        raise InventoryError(
            f"{path} can't be run: its first line names a program that is not here",
            subject=str(path),
            expected="an interpreter that exists",
            found=_first_line(path),
            remedy="mend the line, or install the interpreter",
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InventoryError(
            f"{path} can't be run: {reason}", subject=str(path), expected="a program of this machine"
        ) from None
    if said.timed_out:
        message = f"{source} did not end within {TIMEOUT_S:g} s, and was killed"
        raise _wrong(said, source, message, found="no end", remedy="run it by hand to see what it waits for")
    if said.too_much:
        raise _wrong(said, source, f"{source} printed more than {MAX_BYTES >> 20} MiB, and was killed", found="more")
    if said.exit_code:
        ended = f"exit code {said.exit_code}" if said.exit_code > 0 else f"signal {-said.exit_code}"
        raise _wrong(said, source, f"{source} failed with {ended}", found=ended, remedy="run it by hand")
    return said


def _text(said: Said, source: str) -> str:
    try:
        return said.stdout.decode("utf-8").removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        found = f"the byte 0x{said.stdout[error.start]:02x} at offset {error.start}"
        raise _wrong(said, source, f"{source} printed what is not UTF-8", found=found) from None


def _wrong(said: Said, source: str, message: str, found: str, remedy: str | None = None) -> InventoryError:
    return InventoryError(
        message, subject=source, expected=_EXPECTED, found=found, remedy=remedy, evidence=(said.evidence(),)
    )


def _first_line(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return printable(file.readline(200).decode("utf-8", "replace").strip())
    except OSError:
        return ""
