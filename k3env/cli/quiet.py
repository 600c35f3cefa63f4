"""What a person sees while hosts are checked: what each does now; all that was found comes at the end, folded."""

from __future__ import annotations

from k3env.cli.view import View
from k3env.reports.styled import Styled


class Quiet(View):
    """Tells nothing task by task."""

    def _say(self, styled: Styled) -> None:
        """Say nothing: what is told of a task stands in the verdict, once for all hosts."""

    def end(self, styled: Styled) -> None:
        """Say how it ended."""
        super()._say(styled)
