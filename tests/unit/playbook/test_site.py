"""Site files: severities, wanted values that are no variable, and everything that is wrong with one."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from k3env.documents import yaml
from k3env.errors import DocumentError, K3Error
from k3env.playbook import site
from k3env.playbook.site import Site
from k3env.protocol import codec
from k3env.protocol.profile import Cache, Profile, System
from tests.unit.playbook.conftest import compiled

PLAY = "- hosts: all\n  tasks:\n    - demo: {path: /x}\n"


def read(text: str) -> Site:
    return site.read(yaml.loads(text, "s.yml").root)


def test_it_reaches_the_profile_with_its_origin() -> None:
    found = read("severities:\n  gpu.count: warn\n  'cache.*': info\ncache: {free_gib: 200}\n")
    made = compiled(PLAY, site=found)
    profile = codec.decode(Profile, made.plan.profile)
    assert profile.severities == {"gpu.count": "warn", "cache.*": "info"}
    assert profile.cache == Cache(free_gib=200)
    origins = made.settings.origins
    assert [origins[name] for name in ("severities.gpu.count", "severities.cache.*", "cache.free_gib")] == [
        "s.yml:2:14", "s.yml:3:14", "s.yml:4:19",
    ]  # fmt: skip


def test_every_section_is_one_of_the_profile_with_the_same_names() -> None:
    for name, keys in site.sections().items():
        wanted = {item.name for item in dataclasses.fields(getattr(Profile(), name))}
        assert {item.name for item in dataclasses.fields(keys)} <= wanted, name


def test_lists_and_other_sections() -> None:
    found = read("cache: {free_inodes: 5}\nsystem: {ib_ports: [mlx5_0, mlx5_3/1], egress_hosts: [], nofile: 1024}\n")
    profile = codec.decode(Profile, compiled(PLAY, site=found).plan.profile)
    assert profile.cache == Cache(free_inodes=5)
    assert profile.system == System(ib_ports=("mlx5_0", "mlx5_3/1"), egress_hosts=(), nofile=1024)
    assert found.origins["system.nofile"] == "s.yml:2:66"


def test_without_one_all_is_as_shipped() -> None:
    profile = codec.decode(Profile, compiled(PLAY).plan.profile)
    assert (profile.severities, profile.cache) == ({}, Cache())
    assert read("severities: ~\n") == Site() == read("cache: {free_gib: ~}\n")


def test_a_severity_changes_what_a_check_says() -> None:
    from k3env.node.checks import judge, select
    from k3env.node.facts.cache import Room

    (rule,) = select(("cache.space",))
    values = {rule.facts[0]: Room("/x", True, 30 << 30, 10**9)}
    statuses = {
        text: judge(rule, values, codec.decode(Profile, compiled(PLAY, site=read(text)).plan.profile)).status
        for text in (
            "cache: {free_gib: 20}\n",
            "cache: {free_gib: 40}\n",
            "cache: {free_gib: 40}\nseverities: {cache.space: fail}\n",
            "cache: {free_gib: 40}\nseverities: {'cache.*': warn, cache.space: info}\n",
        )
    }
    assert list(statuses.values()) == ["pass", "warn", "fail", "pass"]


# text, place, part of the message, part of what else is told
REFUSED = [
    ("[]\n", "1:1", "a site file must be a mapping", "a list"),
    ("", "", "the file is empty", ""),
    ("severity: {gpu.count: warn}\n", "1:1", "no parameter severity", "did you mean severities?"),
    ("severities: [a]\n", "1:13", "severities of a site file must be a mapping", "a list"),
    ("severities: {gpu.cuont: warn}\n", "1:14", "no check is called gpu.cuont", "did you mean gpu.count?"),
    ("severities: {'gpux.*': warn}\n", "1:14", "no check is called gpux.*", ""),
    ("severities: {gpu.count: wran}\n", "1:25", "severities.gpu.count", "did you mean warn?"),
    ("severities: {gpu.count: off}\n", "1:25", "off means different things", '"off"'),
    ("severities: {gpu.count: ~}\n", "1:25", "severities.gpu.count", ""),
    ("severities: {gpu.count: '{{ x }}'}\n", "1:13", "severities of a site file can't be a template", ""),
    ("cache: {free_gb: 1}\n", "1:9", "no parameter free_gb", "did you mean free_gib?"),
    ("cache: {free_gib: many}\n", "1:19", "cache.free_gib of a site file must be a number", "many"),
    ("cache: {free_gib: -1}\n", "1:19", "free_gib must not be negative", ""),
    ("cache: {free_gib: .inf}\n", "1:19", ".inf", ""),
    ("system: {serve_port: -1}\n", "1:22", "serve_port must not be negative", ""),
    ("system: {egress_hosts: [huggingface.co]}\n", "1:24", "egress_hosts must be HOST:PORT", "huggingface.co"),
    ("cache: {free_inodes: 1.5}\n", "1:22", "must be a whole number", "1.5"),
    ("cache: {free_gib: 1}\ncache: {free_gib: 2}\n", "2:1", "given twice", ""),
    ("driver_min: 590\n", "1:1", "no key driver_min", "set driver_min as a variable"),
    ("gpu: {driver_min: 590}\n", "1:7", "no key driver_min", "set driver_min as a variable, in the inventory"),
    ("gpu: {driver: r580}\n", "1:15", "driver must be a version", "580.105.08"),
    ("pins: {}\n", "1:1", "no key pins", "trtllm_commit"),
    ("\tcache: {}\n", "1:1", "tab", "spaces"),
]


@pytest.mark.parametrize("text, place, message, detail", REFUSED, ids=[case[0] for case in REFUSED])
def test_is_refused(text: str, place: str, message: str, detail: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(text)
    finding = caught.value.finding
    assert (finding.subject, message in finding.message) == (f"s.yml:{place}" if place else "s.yml", True), finding
    assert detail in f"{finding.message} {finding.expected} {finding.found} {finding.remedy}"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "k3env-site.yml").write_text("cache: {free_gib: 1}\n")
    assert site.load(tmp_path / "k3env-site.yml").wanted == {"cache": {"free_gib": 1}}
    with pytest.raises(DocumentError, match="there is no file") as caught:
        site.load(tmp_path / "k3env-site.yaml")
    assert "k3env-site.yml" in (caught.value.finding.remedy or "")


_PARTS = st.sampled_from(
    ["severities", "cache", "gpu", ": ", "{", "}", "gpu.count", "'*'", "warn", "free_gib", "1", ",", "\n", "~", "- "]
)


@given(st.lists(_PARTS, max_size=12))
def test_no_site_file_gives_a_traceback(parts: list[str]) -> None:
    try:
        assert isinstance(read("".join(parts)), Site)
    except K3Error as error:
        assert error.finding.subject.startswith("s.yml")
