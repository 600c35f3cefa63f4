"""Variables from the command line, and defaults below all others."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.documents.nodes import Text
from k3env.errors import DocumentError, UsageError
from k3env.inventory import Address
from k3env.inventory.variables import extra, special
from tests.unit.inventory.conftest import Make


def test_extra_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("site.yml").write_text("jobs: 8\ncontainer: {engine: docker, image: i}\n")
    found = extra(["jobs=4", "url=https://x/?a=1&b=2", "empty=", "@site.yml", "flags=-O2 -DX=1"])
    assert {name: node.plain for name, node in found.items()} == {
        "jobs": 8,
        "url": "https://x/?a=1&b=2",
        "empty": "",
        "container": {"engine": "docker", "image": "i"},
        "flags": "-O2 -DX=1",
    }
    assert {name: str(node.position) for name, node in found.items()}["jobs"] == "site.yml:1:7"
    assert str(found["url"].position) == "--extra-vars"
    assert (type(found["url"].plain), type(found["jobs"].plain)) == (Text, int)


@pytest.mark.parametrize(
    "option, message, detail",
    [
        ("jobs", "can't be read", "NAME=VALUE"),
        ("=4", "can't be read", "NAME=VALUE"),
        ("my-var=4", "can't be read", "NAME=VALUE"),
        ('{"jobs": 4}', "can't be read", "@FILE"),
        ("jobs=4 arch=100-real", "several variables", "again for arch"),
        ("", "can't be read", "NAME=VALUE"),
    ],
)
def test_extra_variables_that_are_wrong(option: str, message: str, detail: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        extra([option])
    assert detail in f"{caught.value.finding.expected} {caught.value.finding.remedy}"


@pytest.mark.parametrize(
    "text, place, message",
    [
        ("- a\n", "vars.yml:1:1", "must be a mapping"),
        ("a-b: 1\n", "vars.yml:1:1", "can't name a variable"),
        ("a: 1\na: 2\n", "vars.yml:2:1", "given twice"),
        ("mode: 0644\n", "vars.yml:1:7", "different things"),
    ],
)
def test_files_of_variables_are_read_strictly(
    text: str, place: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("vars.yml").write_text(text)
    with pytest.raises(DocumentError, match=message) as caught:
        extra(["@vars.yml"])
    assert caught.value.finding.subject == place
    with pytest.raises(DocumentError, match="there is no file var"):
        extra(["@var.yml"])


def test_extra_variables_reach_addresses(inventory: Make) -> None:
    text = "all: {hosts: {h: {ansible_user: inventory, ansible_host: 'h.{{ zone }}'}}}\n"
    found = inventory(text, extra=extra(["ansible_user=extra", "zone=lab"]), adhoc_allowed=True)
    assert found.hosts["h"].address == Address("h.lab", user="extra")
    (other,) = found.select("other")
    assert other.address == Address("other", user="extra")


def test_special_variables(inventory: Make, tmp_path: Path) -> None:
    found = inventory("b: {hosts: {h.site: {ansible_user: k3}}}\na: {hosts: {h.site: }}\n")
    plain = {name: node.plain for name, node in special(found.hosts["h.site"]).items()}
    assert plain == {
        "inventory_hostname": "h.site",
        "inventory_hostname_short": "h",
        "group_names": ["a", "b"],
        "connecting_user": "k3",
        "inventory_file": str(tmp_path / "hosts.yml"),
        "inventory_dir": str(tmp_path),
    }
