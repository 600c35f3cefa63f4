"""A row of the fault table: what goes wrong, and a function that lets it, looks, and says what it saw."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.rack.bed import Bed
from tests.rack.site import Site
from tests.sandbox.cli import Said


@dataclass(frozen=True)
class Seen:
    """What a row's run showed."""

    said: Said
    """The run that the fault hit."""
    words: str
    """What stood in its output, as the table has it; "" where the person notices nothing."""
    next_run: str
    """What the next run did."""
    note: str = ""
    """Figures."""


class Ground:
    """Where a row builds its sites."""

    def __init__(self, bed: Bed, directory: Path) -> None:
        """Keep the sites in a directory."""
        self._bed, self._directory, self._count = bed, directory, 0

    def site(self, *nodes: str, root: str = "/", disk_mib: int | None = None, sshd: tuple[str, ...] = ()) -> Site:
        """Return a site to be entered."""
        self._count += 1
        keywords: dict[str, Any] = {} if disk_mib is None else {"disk_mib": disk_mib}
        directory = self._directory / f"site-{self._count}"
        return Site(self._bed, directory, dict.fromkeys(nodes or ("a",), root), sshd=sshd, **keywords)


@dataclass(frozen=True)
class Row:
    """A fault."""

    group: str
    fault: str
    play: Callable[[Ground], Seen]
    slow: bool
    """Whether it waits for longer than ten seconds: such rows begin first."""
    broken: str
    """How k3env falls short of what the row asserts; "" where it does not."""

    @property
    def id(self) -> str:
        """Its function's name."""
        return self.play.__name__


ROWS: list[Row] = []


def row(
    fault: str, *, slow: bool = False, broken: str = ""
) -> Callable[[Callable[[Ground], Seen]], Callable[[Ground], Seen]]:
    """Make a row of a function; its module is the table's section."""

    def add(play: Callable[[Ground], Seen]) -> Callable[[Ground], Seen]:
        assert play.__name__ not in {known.id for known in ROWS}
        group = play.__module__.rpartition(".")[2].replace("_", " ")
        ROWS.append(Row(group, fault, play, slow, broken))
        return play

    return add


def again(site: Site, playbook: str, *options: str) -> Said:
    """Run once more, with nothing broken any more; nothing may be left over afterwards."""
    said = site.run(playbook, *options)
    assert said.code == 0, said.err
    site.quiet()
    return said


def seen(said: Said, pattern: str, next_run: str, *, code: int, note: str = "") -> Seen:
    """Return what was seen, after looking for a pattern in what the person was told; its match goes into the table."""
    assert said.code == code, f"exit {said.code}, not {code}:\n{said.err}\n{said.out[-2000:]}"
    text = re.sub(r"\s+", " ", said.err)
    found = re.search(pattern, text)
    assert found, f"no {pattern!r} in:\n{said.err}"
    return Seen(said, _told(found.group()), next_run, note)


def _told(text: str) -> str:
    """Leave out what differs from run to run."""
    text = re.sub(r"/tmp/pytest\S*?/home\b", "~", text)
    text = re.sub(r"/tmp/rack-\w+", "~/.ssh", text)
    text = re.sub(r"10\.99\.\d+\.\d+", "ADDRESS", text)
    text = re.sub(r"\d{8}-\d{6}-[0-9a-f]{6}", "RUN", text)
    return re.sub(r"SHA256:[\w+/]+", "SHA256:…", text).strip()
