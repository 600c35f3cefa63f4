"""The `k3env` command: the same tasks without a checkout, and a word about what was misspelt."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Optional

from invoke.exceptions import Exit, ParseError
from invoke.program import Program

from k3env import __version__
from k3env.cli import keep_bytecode, namespace
from k3env.errors import EXIT_USAGE, UsageError, nearest

_ARGUMENT = re.compile(r"<Argument: ([a-z-]+)[^>]*>")
_UNKNOWN = re.compile(r"No idea what '(?P<word>.*)' is!")


class K3Program(Program):
    """Invoke's program, whose errors name what was meant, and whose completion knows values."""

    def parse_core(self, argv: Optional[list[str]]) -> None:
        """Parse the options before a task."""
        super().parse_core(argv)
        keep_bytecode()

    def parse_tasks(self) -> None:
        """Parse tasks and their options."""
        with self._told():
            super().parse_tasks()

    def parse_cleanup(self) -> None:
        """Print completions, help or lists if these were asked for."""
        if self.args.complete.value:
            from k3env.cli.completion import candidates

            found = candidates(self.core.remainder, self.collection)
            words = self.core.remainder.split()
            if found or len(words) < 2 or not words[-1].startswith("-"):
                print(*found, sep="\n")
                raise Exit
            try:
                super().parse_cleanup()
            except ValueError:  # a quote that is still open
                raise Exit from None
        with self._told():
            super().parse_cleanup()

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except ParseError as error:
            from k3env.reports import text

            told = str(text.finding(self._explained(error).finding))
            raise Exit(message=told.rstrip("\n"), code=EXIT_USAGE) from None

    def _explained(self, error: ParseError) -> UsageError:
        tasks = sorted(self.collection.task_names)
        unknown = _UNKNOWN.fullmatch(str(error))
        task = error.context.name if error.context is not None else None
        if unknown is None:
            told = _ARGUMENT.sub(r"--\1", str(error))
            return UsageError(told, remedy=f"see: {self.binary} --help {task or 'TASK'}")
        word = unknown["word"]
        if word.startswith("-"):
            known = sorted(error.context.flags if error.context is not None else self.initial_context.flags)
            known = [flag for flag in known if flag.startswith("--") == word.startswith("--")]
            message = f"{task} has no option {word}" if task else f"there is no option {word} before a task"
            expected = f"an option of: {self.binary} --help {task}" if task else "the name of a task first"
        else:
            known, expected = tasks, "one of " + ", ".join(tasks)
            message = f"there is no task {word}"
        close = nearest(word, known)
        remedy = f"did you mean {close}?" if close else f"see: {self.binary} --list"
        if task is not None and not word.startswith("-"):
            belongs = (
                f"if it belongs to an option of {task}: put commas between names, quotes around a value with spaces"
            )
            remedy = f"{belongs}; else {remedy}" if close else belongs
        return UsageError(message, expected=expected, found=word, remedy=remedy)


def main() -> None:
    """Run a task."""
    K3Program(name="k3env", binary="k3env", binary_names=["k3env"], namespace=namespace(), version=__version__).run()


if __name__ == "__main__":
    main()
