"""A Slurm cluster for its tests, or a reason why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.register_assert_rewrite("tests.rack.bed", "tests.rack.site", "tests.slurm.cluster")

from tests.rack.bed import Bed  # noqa: E402 - after the registration
from tests.rack.site import Site  # noqa: E402
from tests.slurm.cluster import Cluster, missing  # noqa: E402

HERE = Path(__file__).parent
NODES = ("gb300-01", "gb300-02", "gb300-03")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip all tests here, with the reason, where there can be no cluster."""
    reason = missing()
    for item in items:
        if reason and HERE in item.path.parents:
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def slurm_bed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A rack without nodes yet."""
    with Bed(tmp_path_factory.mktemp("slurm")) as made:
        yield made


@pytest.fixture(scope="session")
def whole_cluster(slurm_bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Three nodes with Slurm as it is configured where nothing is said."""
    with Site(slurm_bed, tmp_path_factory.mktemp("cluster") / "site", NODES) as site, Cluster(site) as made:
        yield made


@pytest.fixture
def cluster(whole_cluster: Cluster) -> Iterator[Cluster]:
    """That cluster, without jobs and with all nodes idle before each test."""
    whole_cluster.clear()
    yield whole_cluster
