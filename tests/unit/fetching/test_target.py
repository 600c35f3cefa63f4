"""Targets: pip's flags and markers for another machine."""

from __future__ import annotations

import pytest
from packaging.tags import cpython_tags

from k3env.fetching.target import Target


def platforms(target: Target) -> list[str]:
    words = target.flags()
    return [words[at + 1] for at, word in enumerate(words) if word == "--platform"]


# arch, what is taken, what is not
TAKEN = [
    ("aarch64", "2.39", {"manylinux_2_39_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64", "linux_aarch64"}),
    ("x86_64", "2.35", {"manylinux_2_35_x86_64", "manylinux_2_5_x86_64", "manylinux1_x86_64", "manylinux2010_x86_64"}),
]


@pytest.mark.parametrize("arch, glibc, taken", TAKEN)
def test_all_older_c_libraries_are_taken_and_no_newer_one(arch: str, glibc: str, taken: set[str]) -> None:
    found = platforms(Target(arch, "3.12", glibc))
    assert taken <= set(found) and all(name.endswith(arch) for name in found)
    assert found[0] == f"manylinux_2_{glibc[2:]}_{arch}", "the newest stands first"
    assert f"manylinux_2_{int(glibc[2:]) + 1}_{arch}" not in found
    assert "manylinux_2_16_aarch64" not in found


def test_the_tags_are_those_that_packaging_knows() -> None:
    target = Target("aarch64", "3.12")
    words = target.flags()
    abis = [words[at + 1] for at, word in enumerate(words) if word == "--abi"]
    assert abis == ["cp312", "abi3", "none"]
    known = {str(tag) for tag in cpython_tags((3, 12), platforms=platforms(target))}
    assert "cp312-cp312-manylinux_2_28_aarch64" in known
    assert target.markers()["platform_machine"] == "aarch64" and target.markers()["python_version"] == "3.12"


@pytest.mark.parametrize("given", [{"arch": "arm64"}, {"python": "3"}, {"python": "3.12.1"}, {"glibc": "39"}])
def test_what_is_no_target_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Target(**given)
