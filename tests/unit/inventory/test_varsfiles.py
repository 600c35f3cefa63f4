"""Files of variables: what is told about them, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from k3env.errors import DocumentError
from k3env.inventory import Inventory
from k3env.inventory.sources import MAX_DEPTH

HOSTS = "gpu: {hosts: {h: }}\n"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def load(files: dict[str, str | bytes], source: str = "hosts.yml") -> Inventory:
    for name, content in {"hosts.yml": HOSTS, **files}.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_bytes(content.encode() if isinstance(content, str) else content)
    return Inventory.load([Path(source)])


def test_each_value_keeps_its_place() -> None:
    found = load({"group_vars/gpu.yml": "a: 1\nb: 2\n", "host_vars/h/x.json": '{"b": {"c": 3}}'})
    variables = found.hosts["h"].variables
    assert {name: str(node.position) for name, node in variables.items()} == {
        "a": "group_vars/gpu.yml:1:4",
        "b": "host_vars/h/x.json:1:7",
    }
    assert variables["b"].plain == {"c": 3}


def test_hosts_that_no_inventory_names_have_what_all_have() -> None:
    load({"group_vars/all.yml": "site: lab\nansible_user: '{{ site }}'\n"})
    found = Inventory.load([Path("hosts.yml")], adhoc_allowed=True)
    (host,) = found.select("other:22")
    assert (host.variables["site"].plain, host.address.user) == ("lab", "lab")


WRONG: dict[str, tuple[dict[str, str | bytes], str, str]] = {
    "a list": ({"group_vars/gpu.yml": "- a\n"}, "group_vars/gpu.yml:1:1", "must be a mapping"),
    "text": ({"host_vars/h": "a\n"}, "host_vars/h:1:1", "must be a mapping"),
    "a key twice": ({"group_vars/gpu.yml": "a: 1\na: 2\n"}, "group_vars/gpu.yml:2:1", "given twice"),
    "a key twice in JSON": ({"group_vars/gpu.json": '{"a": 1, "a": 2}'}, "group_vars/gpu.json:1:10", "given twice"),
    "a tab": ({"group_vars/gpu.yml": "a:\n\tb: 1\n"}, "group_vars/gpu.yml:2:1", "a tab"),
    "encrypted": ({"group_vars/all": "$ANSIBLE_VAULT;1.1;AES256\n66\n"}, "group_vars/all:1:1", "encrypted"),
    "not UTF-8": ({"host_vars/h.yml": b"a: \xff\n"}, "host_vars/h.yml:1:4", "not UTF-8"),
    "no directory": ({"group_vars": "a: 1\n"}, "group_vars", "is no directory"),
}


@pytest.mark.parametrize("files, place, message", WRONG.values(), ids=WRONG)
def test_is_refused(files: dict[str, str | bytes], place: str, message: str) -> None:
    with pytest.raises(DocumentError, match=message) as caught:
        load(files)
    assert caught.value.finding.subject == place


def test_what_is_told() -> None:
    found = load(
        {
            "group_vars/gpu.yml": "on_off: yes\nansible_become: true\n",
            "group_vars/gpu.json": "{}",
            "group_vars/all/x.yml": "a: 1\n",
            "group_vars/all.yml": "a: 2\n",
        }
    )
    assert {(warning.id, warning.subject) for warning in found.warnings} == {
        ("document.surprise", "group_vars/gpu.yml:1:9"),
        ("inventory.unread", "group_vars/gpu.yml:2:17"),
        ("inventory.unread", "group_vars/gpu.json"),
        ("inventory.unread", "group_vars/all.yml"),
    }
    assert found.hosts["h"].variables["a"].plain == 1


def test_names_that_lead_elsewhere_have_no_files() -> None:
    found = load(
        {"hosts.yml": "'../x': {hosts: {h: }}\n..: {hosts: {h: }}\n", "x.yml": "a: 1\n", "group_vars/y.yml": "a: 1\n"}
    )
    assert "a" not in found.hosts["h"].variables


def test_directories_without_end() -> None:
    Path("site").mkdir()
    Path("site/again").symlink_to(".")
    with pytest.raises(DocumentError, match="too deeply nested") as caught:
        load({}, "site")
    assert caught.value.finding.expected == f"{MAX_DEPTH} levels"
    Path("group_vars/gpu").mkdir(parents=True)
    Path("group_vars/gpu/again").symlink_to(".")
    with pytest.raises(DocumentError, match="too deeply nested"):
        load({})


def test_an_ini_file_in_a_directory() -> None:
    with pytest.raises(DocumentError, match="INI") as caught:
        load({"site/hosts": "[gpu]\nn1\n"}, "site")
    remedy = caught.value.finding.remedy or ""
    assert "ansible-inventory -i site/hosts --list --yaml" in remedy


def test_a_directory_may_hold_the_site_file() -> None:
    found = load({"site/hosts.yml": HOSTS, "site/k3env-site.yml": "severities: {}\n"}, "site")
    assert list(found.hosts) == ["h"]
