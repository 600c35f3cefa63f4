"""The rack for its tests: needed programs, one bed, and all rows played beside one another."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.rack.bed", "tests.rack.site", "tests.rack.row", "tests.rack.rows")

from tests.rack import roots, table  # noqa: E402 - after the registration
from tests.rack.bed import Bed  # noqa: E402
from tests.rack.row import Ground, Row, Seen  # noqa: E402
from tests.rack.rows import ROWS  # noqa: E402

AT_ONCE = 5
"""Rows that are played beside one another: they wait, most of the time."""
HERE = Path(__file__).parent


_LEFT_OUT = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    """Name the mark of the rack's tests: `-m 'not rack'` leaves them out."""
    config.addinivalue_line("markers", "rack: real nodes in network namespaces; needs root")


@pytest.hookimpl(tryfirst=True)  # `-m` looks at marks in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the rack's tests; leave them out, aloud, where nobody could make a namespace."""
    ours = [item for item in items if HERE in item.path.parents]
    for item in ours:
        item.add_marker(pytest.mark.rack)
    if os.geteuid() != 0 and ours:
        config.hook.pytest_deselected(items=ours)
        items[:] = [item for item in items if item not in ours]
        config.stash[_LEFT_OUT] = len(ours)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say which tests were left out."""
    if count := config.stash.get(_LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{count} tests on the rack of real nodes were left out: they need root", yellow=True
        )


@pytest.fixture(scope="session")
def bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A rack without nodes yet."""
    for program, package in (("unshare", "util-linux"), ("ip", "iproute2"), ("nft", "nftables")):
        assert shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin:/sbin"), f"{package} is missing"
    with Bed(tmp_path_factory.mktemp("bed")) as made:
        yield made


class Plays:
    """All rows that are asked for, each played in a thread."""

    def __init__(self, bed: Bed, directory: Path, rows: list[Row]) -> None:
        """Begin with those that take longest."""
        self._bed, self._directory = bed, directory
        self._pool = ThreadPoolExecutor(AT_ONCE)
        self._futures: dict[str, Future[Seen]] = {
            row.id: self._pool.submit(self._play, row) for row in sorted(rows, key=lambda row: not row.slow)
        }

    def _play(self, row: Row) -> Seen:
        directory = self._directory / row.id
        directory.mkdir()
        return row.play(Ground(self._bed, directory))

    def of(self, row: Row) -> Seen:
        """Return what a row showed."""
        return self._futures[row.id].result()

    def seen(self, row: Row) -> Seen | None:
        """Return what a row showed, or None if it did not hold."""
        return None if self._futures[row.id].exception() else self.of(row)

    def close(self) -> None:
        """Begin no further row; those that have begun end when their nodes go."""
        self._pool.shutdown(wait=False, cancel_futures=True)


@pytest.fixture(scope="session")
def plays(request: pytest.FixtureRequest, bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plays]:
    """The rows of the tests that were chosen."""
    calls = (getattr(item, "callspec", None) for item in request.session.items)
    asked = [call.params["row"] for call in calls if call is not None and isinstance(call.params.get("row"), Row)]
    roots.bullseye()
    made = Plays(bed, tmp_path_factory.mktemp("rows"), asked)
    yield made
    made.close()
    if target := os.environ.get(table.VARIABLE):
        rows = [(row, made.seen(row)) for row in ROWS if row in asked]
        Path(target).write_text(table.markdown(rows))
