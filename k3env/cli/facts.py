"""invoke facts: what nodes say of themselves, and recordings of that."""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from k3env.cli.command import command
from k3env.cli.options import PLAYING, REACHING, SHOWING, TARGETING, Option, parse
from k3env.errors import UsageError

if TYPE_CHECKING:
    from k3env.cli.options import Options
    from k3env.cli.view import View
    from k3env.protocol.outcome import Fold
    from k3env.runner.record import Header

_OWN = (
    Option("checks", "whose facts: ids of checks, or globs, comma-separated (default: all)"),
    Option("record", "write a recording of each host to DIR/HOST; what tells of somebody is replaced"),
    Option("recording", "read the facts of a recording instead of hosts, and judge them"),
)
_PLAYING = tuple(option for option in PLAYING if option.name in ("site_file", "extra_vars"))
_TASK = "1.1"


@command(*_OWN, *TARGETING, *_PLAYING, *REACHING, *SHOWING)
def facts(**raw: Any) -> int:
    """Show what hosts say of themselves: the facts that checks judge; or record them."""
    from k3env.cli.play import Style, finish, play
    from k3env.cli.view import View

    checks, record, recording = (raw.pop(name) for name in ("checks", "record", "recording"))
    if recording:
        return _judged(recording, checks)
    directory = Path(record) if record else None
    if directory is not None and directory.exists() and (not directory.is_dir() or any(directory.iterdir())):
        raise UsageError(
            f"{record} is not empty",
            expected="an empty directory, or none",
            found="files in it",
            remedy="name another one: a recording is never mixed with an older one",
        )
    own = [f"facts_of={json.dumps(_words(checks))}", f"facts_recorded={json.dumps(bool(record))}"]
    options = parse({**raw, "playbook": "facts", "extra_vars": [*(raw.get("extra_vars") or []), *own]})

    def ended(fold: Fold, view: View, options: Options, header: Header, duration_s: float, meant: bool = False) -> int:
        for host in fold.live:
            _tell(fold.facts(host, _TASK), host, directory, view, options)
        return finish(fold, view, options, header, duration_s, meant)

    return play(options, Style(View, ended))


def _tell(facts: Mapping[str, Any], host: str, directory: Path | None, view: View, options: Options) -> None:
    """Print a host's facts, or write its recording."""
    told = {name: value for name, value in facts.items() if not name.startswith("recording.")}
    parts = [value for name, value in sorted(facts.items()) if name not in told]
    if directory is not None and parts:
        view.notice(f"recorded {host} in {_written(directory / _file_name(host), ''.join(map(str, parts)))}")
    elif told and options.output == "text":
        print(_shown(host, told))


def _words(checks: str | None) -> list[str]:
    return [word.strip() for word in checks.split(",") if word.strip()] if checks else ["*"]


def _shown(host: str, told: Mapping[str, Any]) -> str:
    """Return the facts of a host as YAML, which has no control characters."""
    import yaml

    plain = {
        name: {"unreadable": value["unreadable"].get("reason")} if "unreadable" in value else value.get("value")
        for name, value in sorted(told.items())
        if isinstance(value, dict)
    }
    return str(yaml.safe_dump({host: plain}, sort_keys=False, allow_unicode=False, width=100)).rstrip("\n")


def _file_name(host: str) -> str:
    return "".join(char if char.isalnum() or char in "-._" else "_" for char in host).lstrip(".") or "host"


def _written(directory: Path, data: str) -> Path:
    """Write what a node sent.

    Raises UsageError for what is no recording.
    """
    from k3env.node.recordings.recorded import unpacked

    try:
        opened = zlib.decompressobj()
        files = unpacked(opened.decompress(base64.b85decode(data), 256 << 20))
    except (ValueError, zlib.error) as error:
        raise UsageError(f"{directory.name} sent no recording: {error}", remedy="use one k3env everywhere") from None
    for path, content in files.items():
        place = directory / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    return directory


def _judged(recording: str, checks: str | None) -> int:
    """Judge a recording here, as its node would be judged; return the exit code."""
    from k3env.node import checks as known
    from k3env.node.facts import Facts
    from k3env.node.recordings.recorded import Recorded
    from k3env.protocol.finding import FAIL, PASS, SKIP, UNKNOWN
    from k3env.reports import text

    try:
        machine, rules = Recorded(recording), known.select(tuple(_words(checks)))
        profile = machine.profile
    except (ValueError, KeyError) as error:
        expected = "a recording that invoke facts --record made, and checks"
        raise UsageError(str(error), expected=expected, found=recording) from None
    chosen = tuple(rule for rule in rules if rule.scope != "across" and rule.runs_in(profile.context))
    values = Facts(machine, profile).collect(tuple(fact for rule in chosen for fact in rule.facts))
    findings = [known.judge(rule, values, profile) for rule in chosen]
    for finding in findings:
        whole = finding.status not in (PASS, SKIP)
        print(text.finding(finding if whole else replace(finding, evidence=())))
    statuses = {finding.status for finding in findings if finding.severity == "fail"}
    return 2 if FAIL in statuses else 3 if UNKNOWN in statuses else 0


TASKS = (facts,)
