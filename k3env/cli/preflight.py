"""invoke preflight: are these hosts fit? Each by itself, and all of them together; nothing is changed."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from k3env.cli.command import command
from k3env.cli.options import CHECKING, PLAYING, REACHING, REPORTS, SHOWING, TARGETING, Options, parse
from k3env.errors import EXIT_FAILED, EXIT_OK, EXIT_UNKNOWN, UsageError

if TYPE_CHECKING:
    from k3env.cli.view import View
    from k3env.protocol.outcome import Fold, Outcome
    from k3env.runner.record import Header

PLAYBOOK = "preflight"
_NO_CHANGES = ("check", "diff", "detailed_exitcode")
_OPTIONS = (
    *TARGETING,
    *(option for option in PLAYING if option.name not in _NO_CHANGES),
    *REACHING,
    *(option for option in SHOWING if option.name != "output"),
    *CHECKING,
)


@command(*_OPTIONS)
def preflight(**raw: Any) -> int:
    """Check hosts, each and all together, and change nothing (default: the playbook preflight)."""
    from k3env.cli.play import Style, play
    from k3env.cli.quiet import Quiet
    from k3env.cli.readonly import refuse_more

    options = parse(raw, REPORTS)
    if options.output == "jsonl" and options.output_file is not None:
        raise UsageError(
            "--output jsonl is a stream, and no file that is written at once",
            expected="--output-file with another --output",
            found="--output jsonl",
            remedy="leave --output-file out, and redirect: > FILE",
        )
    return play(replace(options, playbook=options.playbook or PLAYBOOK), Style(Quiet, finish, refuse_more))


def finish(fold: Fold, view: View, options: Options, header: Header, duration_s: float, meant: bool = False) -> int:
    """Print the verdict, or what was asked for instead; return the exit code."""
    from k3env.node.preflight.telling import tell

    outcome = fold.outcome(duration_s)
    code = exit_code(outcome, options)
    width = view.width()
    if options.output == "text" and options.output_file is None:
        view.end(_verdict(outcome, options, width))
    else:
        tell(_rendered(outcome, options, header, code), options.output_file)
    return code


def exit_code(outcome: Outcome, options: Options) -> int:
    """Return the exit code of every run, warnings counted as asked for; with Nagios' output its own."""
    strict = options.fail_on == "warn"
    if options.output == "nagios":
        from k3env.reports.monitoring import nagios_code

        return nagios_code(outcome, fail_on_warn=strict)
    code = outcome.exit_code()
    warned = any(item.status == "warn" for item in outcome.findings())
    return EXIT_FAILED if strict and warned and code in (EXIT_OK, EXIT_UNKNOWN) else code


def _verdict(outcome: Outcome, options: Options, width: int | None) -> Any:
    from k3env.reports import text, verdict

    return verdict.report(outcome, options.context, verbose=options.v, width=width or text.WIDTH)


def _rendered(outcome: Outcome, options: Options, header: Header, code: int) -> str:
    from k3env.reports import document, monitoring

    strict = options.fail_on == "warn"
    if options.output == "text":
        return str(_verdict(outcome, options, None))
    if options.output == "junit":
        return monitoring.junit(outcome, fail_on_warn=strict).rstrip("\n")
    if options.output == "nagios":
        return monitoring.nagios(outcome, fail_on_warn=strict).rstrip("\n")
    if options.output == "prometheus":
        return monitoring.prometheus(outcome, code, time.time()).rstrip("\n")
    return document.dumps(document.document(outcome, header.command, exit_code=code))


TASKS = (preflight,)
