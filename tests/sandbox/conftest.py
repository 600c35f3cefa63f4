"""One provisioned rack for all tests that break it and mend it again."""

from __future__ import annotations

import pytest

from tests.sandbox.cli import Said, Site


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A user who has not used k3env before."""
    return Site(tmp_path_factory.mktemp("state"))


@pytest.fixture(scope="session")
def first(site: Site) -> Said:
    """The first run of the main job."""
    return site.provision()


@pytest.fixture
def provisioned(site: Site, first: Said) -> Site:
    """A rack in its wanted state."""
    assert first.code == 0, first.err
    return site
