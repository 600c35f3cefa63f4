"""The command line of k3env-preflight.pyz. Read by hand: argparse alone costs a start 15 ms."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Optional

from k3env.errors import UsageError, nearest
from k3env.protocol.context import CONTEXTS

OUTPUTS = ("text", "json", "jsonl", "junit", "nagios", "prometheus")
_NAME = "k3env-preflight"


@dataclass(frozen=True)
class Arguments:
    """What was asked for."""

    context: Optional[str] = None
    output: str = "text"
    output_file: Optional[str] = None
    fail_on: str = "fail"
    drain: bool = False
    probe_dir: Optional[str] = None
    verbose: bool = False
    list: bool = False
    explain: Optional[str] = None
    version: bool = False
    help: bool = False


_CHOICES = {"context": tuple(CONTEXTS), "output": OUTPUTS, "fail_on": ("fail", "warn")}
_FLAGS = ("drain", "verbose", "list", "version", "help")
_SHORT = {"-v": "--verbose", "-h": "--help"}

HELP = f"""\
usage: {_NAME}.pyz [--context C] [--output O] [--output-file PATH] [--fail-on warn] [--drain] [-v]
       [--probe-dir DIR]
       {_NAME}.pyz --list | --explain CHECK | --version

Checks this node for Kimi K3; nothing is changed.

  --context C         {", ".join(CONTEXTS)}: what is checked, in what time, and what an unknown counts as;
                      default: that of this file's name (k3env-prolog), of the Slurm script that runs it, job
  --output O          {", ".join(OUTPUTS)}
  --output-file PATH  write there, at once, instead of to standard output
  --fail-on warn      count warnings as failures
  --probe-dir DIR     let the nodes look for each other's files there, a directory that all share
  --drain             if a check fails that may stop a job, drain this node in Slurm, unless it has a reason already
  -v, --verbose       tell of passed and skipped checks too
  --list              print all checks
  --explain CHECK     say what a check demands
  --version           print the version

Exit codes: 0 ok, 1 an error of usage or ours, 2 a check failed, 3 something could not be checked. In the contexts hc
and prolog it is 0 unless a check of the node failed. With --output nagios: 0, 1, 2, 3 as Nagios means them."""


def parse(words: list[str]) -> Arguments:
    """Read the command line.

    Raises UsageError with the nearest right word.
    """
    values: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word, equals, value = rest.pop(0).partition("=")
        word = _SHORT.get(word, word)
        name = word[2:].replace("-", "_") if word.startswith("--") else ""
        if name not in _NAMES:
            raise _unknown(word)
        if name in _FLAGS:
            if equals:
                raise UsageError(
                    f"{word} takes no value", expected=word, found=f"{word}={value}", remedy="leave it out"
                )
            values[name] = True
            continue
        if not equals:
            value = rest.pop(0) if rest else ""
        if not value or (value.startswith("--") and not equals):
            raise UsageError(
                f"{word} is empty", expected="a value", found=value or "none", remedy=f"see {_NAME} --help"
            )
        _refuse_unknown_choice(word, name, value)
        values[name] = value
    return replace(Arguments(), **values)


_NAMES = tuple(field.name for field in fields(Arguments))


def _refuse_unknown_choice(word: str, name: str, value: str) -> None:
    known = _CHOICES.get(name)
    if known is None or value in known:
        return
    close = nearest(value, known)
    raise UsageError(
        f"{word} {value} is unknown",
        expected=", ".join(known),
        found=value,
        remedy=f"did you mean {close}?" if close else f"use one of {', '.join(known)}",
    )


def _unknown(word: str) -> UsageError:
    close = nearest(word, [f"--{name.replace('_', '-')}" for name in _NAMES])
    return UsageError(
        f"{_NAME} has no option {word}",
        expected="an option",
        found=word,
        remedy=f"did you mean {close}?" if close else f"see {_NAME} --help",
    )
