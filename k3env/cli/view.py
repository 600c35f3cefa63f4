"""What a person sees while a run goes on: tasks as they settle, and below them what each host does now.

The lines are those of the report; a terminal gets colours and a live table, anything else plain lines.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TextIO

from k3env.protocol import codec
from k3env.protocol.event import Event
from k3env.protocol.finding import Finding, printable
from k3env.protocol.host_outcome import TaskOutcome
from k3env.protocol.line import BEGIN, FAILED, NOTRUN, RESULT, ROAD, UNREACHABLE
from k3env.protocol.outcome import Fold
from k3env.protocol.plan import Task
from k3env.reports import text
from k3env.reports.styled import STYLES, Styled

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

ROWS = 12
"""Hosts in the live table; the others are counted."""
TOGETHER_S = 1.0
"""What fails on several hosts within this time is told once."""
STILL_S = 30.0
"""How often plain output says that a long task still goes on."""


class View:
    """Tells one run, play by play."""

    def __init__(self, fold: Fold, *, output: str = "text", diff: bool = False, verbose: bool = False) -> None:
        """With another output than text, people read stderr and programs stdout."""
        self._fold, self._diff, self._verbose = fold, diff, verbose
        self._stream: TextIO = sys.stdout if output == "text" else sys.stderr
        self._hosts: dict[str, set[str]] = {}
        self._names: dict[str, str] = {}
        self._pending: list[str] = []
        self._told: dict[str, set[str]] = {}
        self._urgent: dict[str, list[str]] = {}
        self._notes: dict[Finding, list[str]] = {}
        self._noted: set[tuple[str, str]] = set()
        self._told_at = self._noted_at = 0.0
        self._ended: set[str] = set()
        self._since: dict[str, float] = {}
        self._still = time.monotonic()
        self._heading = ""
        self.gone = False
        """Whether whoever read us has left."""
        self._console: Console | None = None
        self._live: Live | None = None
        if self._stream.isatty():
            self._console, self._live = _terminal(self._stream, self)

    def play(self, name: str, plans: Mapping[str, Sequence[Task]]) -> None:
        """Begin a play: hosts with their tasks."""
        self._say(text.heading("PLAY", name))
        self._ended, self._told = set(), {}
        self._hosts, self._names = {}, {}
        for host, tasks in plans.items():
            for task in tasks:
                self._hosts.setdefault(task.id, set()).add(host)
                self._names[task.id] = task.name
        self._pending = list(self._names)
        if self._live is not None:
            self._live.start()

    def event(self, host: str, event: Event) -> None:
        """Tell what an event changed, after the fold has taken it in."""
        if event.kind == ROAD:
            self.notice(f"{host}: {event.data.get('message', '')}")
        elif event.kind in (UNREACHABLE, FAILED, NOTRUN, "end"):
            self._ended.add(host)
            self._since.pop(host, None)
            self._lost(host)
        elif event.kind == RESULT and event.task is not None:
            if self._verbose or event.data.get("status") == "failed":
                self._urgent.setdefault(event.task, []).append(host)
        elif event.kind == BEGIN:
            for finding in codec.decode(tuple[Finding, ...], event.data.get("findings", [])):
                if (host, finding.id) not in self._noted:
                    self._noted_at = self._noted_at if self._notes else time.monotonic()
                    self._noted.add((host, finding.id))
                    self._notes.setdefault(finding, []).append(host)
        elif event.kind == "task":
            self._since[host] = time.monotonic()
        self._settle()

    def replay(self, host: str, event: Event) -> None:
        """Tell of an event that is known already, but not of the road that it came by."""
        if event.kind != ROAD:
            self.event(host, event)

    def tick(self) -> None:
        """Keep the picture fresh, and tell what can't wait until its task has settled: together, if it is the same."""
        if self._notes and time.monotonic() - self._noted_at > TOGETHER_S:
            self._tell_notes()
        if self._urgent and time.monotonic() - self._told_at > TOGETHER_S:
            self._told_at = time.monotonic()
            urgent, self._urgent = self._urgent, {}
            for task, hosts in urgent.items():
                self._tell(task, hosts)
        if self._live is not None:
            self._live.refresh()
        elif time.monotonic() - self._still > STILL_S:
            self._still = time.monotonic()
            for host, seconds, what in self._busy():
                self._print(f"… {host}: {what} ({_clock(seconds)})")

    def notice(self, message: str) -> None:
        """Say something that belongs to no task."""
        self._print(f"--- {message}")

    def end_play(self) -> None:
        """Tell what is left to tell, and take the table away."""
        self._tell_notes()
        for task in list(self._pending):
            self._tell(task, sorted(self._hosts[task]))
        self._pending = []
        if self._live is not None:
            self._live.stop()

    def width(self) -> int | None:
        """Return the terminal's width, or None where there is none."""
        return self._console.width if self._console is not None else None

    def end(self, styled: Styled) -> None:
        """Say how it ended."""
        self._say(styled)

    def recap(self) -> None:
        """Tell how it ended, each host once."""
        width = self.width()
        outcome = self._fold.outcome()
        self._say(text.across(outcome.across, verbose=self._verbose, width=width or text.WIDTH))
        self._say(text.recap(outcome, width=width))

    def table(self) -> RenderableType:
        """Return what each busy host does now."""
        from rich.table import Table
        from rich.text import Text

        busy = self._busy()
        table = Table.grid(padding=(0, 2), expand=True)
        # Whose line it is, and for how long, is never cut; what it says is.
        table.add_column(no_wrap=True, min_width=max((len(host) for host, _, _ in busy), default=0))
        table.add_column(no_wrap=True, min_width=5, justify="right")
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
        for host, seconds, what in busy[:ROWS]:
            table.add_row(Text(host), _clock(seconds), Text(" ".join(printable(what).split())))
        if len(busy) > ROWS:
            table.add_row(f"and {len(busy) - ROWS} more", "", "")
        return table

    def _busy(self) -> list[tuple[str, float, str]]:
        now, live = time.monotonic(), self._fold.live
        rows = []
        for host, since in sorted(self._since.items()):
            doing = live[host]
            if doing.task is None:
                continue
            share = f"{doing.fraction:.0%} " if doing.fraction is not None else ""
            said = f"waiting for {doing.text}" if doing.phase == "waiting" else share + doing.text
            rows.append((host, now - since, said or self._names.get(doing.task, doing.task)))
        return rows

    def _settle(self) -> None:
        """Tell the first tasks that have come to an end on every host."""
        while self._pending:
            task = self._pending[0]
            open_hosts = [
                host
                for host in self._hosts[task]
                if host not in self._ended and self._fold.task(host, task).status == NOTRUN
            ]
            if open_hosts:
                return
            self._tell(task, sorted(self._hosts[task]))
            self._pending.pop(0)

    def _lost(self, host: str) -> None:
        """Tell at once of a host that is gone, with the task that this hit."""
        for task in self._pending:
            if host not in self._hosts[task]:
                continue
            found = self._fold.task(host, task)
            if found.findings and found.status in (NOTRUN, "failed"):
                self._urgent.setdefault(task, []).append(host)
                return

    def _tell(self, task: str, hosts: list[str]) -> None:
        told = self._told.setdefault(task, set())
        fresh = [host for host in hosts if host not in told]
        told.update(fresh)
        shown = text.results(
            {host: self._without_notes(host, self._fold.task(host, task)) for host in fresh},
            diff=self._diff,
            verbose=self._verbose,
            width=self._width,
        )
        if not shown:
            return
        if self._heading != task:
            self._say(text.heading("TASK", self._names.get(task, task)))
            self._heading = task
        self._say(shown)

    def _tell_notes(self) -> None:
        """Tell what is said of whole hosts as they begin."""
        notes, self._notes = self._notes, {}
        for finding, hosts in notes.items():
            self._say(text.note(finding, sorted(hosts), width=self._width))

    def _without_notes(self, host: str, task: TaskOutcome) -> TaskOutcome:
        """Return a task without what was told of its host already."""
        left = tuple(finding for finding in task.findings if (host, finding.id) not in self._noted)
        return replace(task, findings=left)

    @property
    def _width(self) -> int:
        return self._console.width if self._console is not None else text.WIDTH

    def _say(self, styled: Styled) -> None:
        if self._console is None:
            self._print(str(styled))
        else:
            from rich.text import Text

            spans = [(words, STYLES.get(style, "")) for words, style in styled.spans]
            self._console.print(Text.assemble(*spans), end="", soft_wrap=True)

    def _print(self, line: str) -> None:
        """Print a line, or several; what a node put into it does nothing to the terminal."""
        line = printable(line)
        if self._console is not None:
            from rich.text import Text

            self._console.print(Text(line), soft_wrap=True)
            return
        try:
            print(line, file=self._stream, flush=True)
        except BrokenPipeError:
            # What is left to say goes where somebody may still read; nothing is flushed there at our end.
            self.gone = True
            self._stream, sys.stdout = sys.stderr, open("/dev/null", "w")  # noqa: SIM115
            print(line, file=self._stream)


def _terminal(stream: TextIO, view: View) -> tuple[Any, Any]:
    from rich.console import Console
    from rich.live import Live

    console = Console(file=stream)
    live = Live(get_renderable=view.table, console=console, transient=True, auto_refresh=False)
    return console, live


def _clock(seconds: float) -> str:
    minutes, second = divmod(int(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
