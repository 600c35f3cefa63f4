"""What every task has around it: a signature from the table of options, errors as messages, an exit code."""

from __future__ import annotations

import functools
import inspect
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from invoke.exceptions import Exit
from invoke.tasks import Task, task

from k3env.cli.options import Option
from k3env.errors import EXIT_INTERRUPTED, EXIT_USAGE, Interrupted, K3Error, exit_code

Body = Callable[..., int]


def command(*options: Option, positional: Sequence[str] = (), **keywords: Any) -> Callable[[Body], Task[Any]]:
    """Make an Invoke task of a function that takes the raw options as keywords and returns an exit code."""

    def decorate(body: Body) -> Task[Any]:
        @functools.wraps(body)
        def run(invoked: Any, /, **raw: Any) -> None:
            code = guarded(lambda: body(**raw), str(raw.get("output") or "text"))
            if code:
                raise Exit(code=code)

        run.__signature__ = _signature(options)  # type: ignore[attr-defined]
        made: Task[Any] = task(
            auto_shortflags=False,
            positional=list(positional),
            iterable=[option.name for option in options if option.default == []],
            help={option.flag: option.help for option in options},
            **keywords,
        )(run)
        return made

    return decorate


def guarded(work: Callable[[], int], output: str = "text") -> int:
    """Run a command; turn what it raises into one message, or one document, and an exit code."""
    begun = time.time()
    try:
        return work()
    except K3Error as error:
        return _tell(error, exit_code(error), output, begun)
    except KeyboardInterrupt:
        return _tell(Interrupted("interrupted"), EXIT_INTERRUPTED, output, begun)
    except BrokenPipeError:
        # Whoever read us has left; Python must not complain about it at its own end.
        sys.stdout = open("/dev/null", "w")  # noqa: SIM115
        return EXIT_INTERRUPTED
    except Exception as error:
        return _tell(_defect(error), EXIT_USAGE, output, begun)


def _tell(error: K3Error, code: int, output: str, begun: float) -> int:
    from k3env.cli.words import shown
    from k3env.reports import document, text

    if output in ("json", "jsonl"):
        print(document.error_document(shown(sys.argv), error.finding, code, begun, time.time() - begun))
    print(text.finding(error.finding), file=sys.stderr)
    return code


def _defect(error: Exception) -> K3Error:
    from k3env.runner.record import state_home

    where = state_home() / f"defect-{time.strftime('%Y%m%d-%H%M%S')}.log"
    last = traceback.extract_tb(error.__traceback__)[-1]
    told = f"please report it: {last.filename}:{last.lineno}"
    try:
        where.parent.mkdir(parents=True, exist_ok=True)
        where.write_text(traceback.format_exc(), encoding="utf-8")
        told = f"please report it with {where}"
    except OSError:
        pass  # then the place in the code must do
    return K3Error(f"a defect in k3env: {type(error).__name__}: {error}", remedy=told, id="defect")


def _signature(options: Sequence[Option]) -> inspect.Signature:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter("invoked", kind)]
    parameters += [inspect.Parameter(option.name, kind, default=option.default) for option in options]
    return inspect.Signature(parameters)
