"""Inventory files: Ansible's shape, its merging, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from k3env.documents.templates import Scope
from k3env.errors import DocumentError, InventoryError, K3Error
from k3env.inventory import Address, Inventory
from k3env.inventory.shown import of_host
from tests.unit.inventory.conftest import Make

RACKS = """\
all:
  vars: {a: all, b: all}
  children:
    gpu:
      vars: {a: gpu, c: gpu}
      children:
        rack1:
          vars: {a: rack1}
          hosts:
            gb[01:02]:
            gb03: {a: gb03, ansible_host: 10.0.0.3}
        rack2:
          vars: {a: rack2}
          hosts:
            gb03:
            gb-[04-05]:
  hosts:
    lone:
"""


def test_groups_and_hosts(inventory: Make) -> None:
    found = inventory(RACKS)
    assert list(found.hosts) == ["gb01", "gb02", "gb03", "gb-04", "gb-05", "lone"]
    assert {name: sorted(hosts) for name, hosts in found.groups.items()} == {
        "all": ["gb-04", "gb-05", "gb01", "gb02", "gb03", "lone"],
        "ungrouped": ["lone"],
        "gpu": ["gb-04", "gb-05", "gb01", "gb02", "gb03"],
        "rack1": ["gb01", "gb02", "gb03"],
        "rack2": ["gb-04", "gb-05", "gb03"],
    }
    assert found.hosts["gb03"].groups == ("all", "gpu", "rack1", "rack2")
    assert found.warnings == ()


def test_variables_and_their_origins(inventory: Make) -> None:
    found = inventory(RACKS)

    def values(name: str) -> dict[str, tuple[object, str]]:
        return {key: (node.plain, str(node.position)) for key, node in found.hosts[name].variables.items()}

    assert values("gb01") == {
        "a": ("rack1", "hosts.yml:8:21"),
        "b": ("all", "hosts.yml:2:21"),
        "c": ("gpu", "hosts.yml:5:25"),
    }
    assert values("gb03")["a"] == ("gb03", "hosts.yml:11:23")
    # rack1 and rack2 are as deep: the later name wins.
    assert values("gb-04")["a"][0] == "rack2"
    assert found.hosts["gb03"].address == Address("10.0.0.3")
    assert found.hosts["gb01"].address == Address("gb01")


# Ansible 2.19 gives these values.
PRECEDENCE = {
    "a deeper group wins, wherever it stands": (
        "z: {vars: {v: outer}, children: {a: {vars: {v: inner}, hosts: {h: }}}}\n",
        "inner",
    ),
    "of two as deep the later name": ("b: {vars: {v: b}, hosts: {h: }}\na: {vars: {v: a}, hosts: {h: }}\n", "b"),
    "depth is the longest way": (
        "x: {children: {y: {children: {a: }}}}\nb: {vars: {v: b}, hosts: {h: }}\na: {vars: {v: a}, hosts: {h: }}\n",
        "a",
    ),
    "priority before the name": (
        "b: {vars: {v: b}, hosts: {h: }}\na: {vars: {v: a, ansible_group_priority: 2}, hosts: {h: }}\n",
        "a",
    ),
    "priority not before the depth": (
        "b: {vars: {v: b, ansible_group_priority: 9}, children: {a: {vars: {v: a}, hosts: {h: }}}}\n",
        "a",
    ),
    "the host before all groups": ("a: {hosts: {h: {v: host}}, vars: {v: a}}\n", "host"),
    "a host given twice: the later": ("a: {hosts: {h: {v: one}}}\nb: {hosts: {h: {v: two}}}\n", "two"),
    "a group given twice: the later": (
        "all: {children: {a: {vars: {v: one}, hosts: {h: }}}}\na: {vars: {v: two}}\n",
        "two",
    ),
    "variables of ungrouped": ("ungrouped: {vars: {v: u}}\nall: {hosts: {h: }}\n", "u"),
    "variables of all": ("all: {vars: {v: all}}\na: {hosts: {h: }}\n", "all"),
}


@pytest.mark.parametrize("text, value", PRECEDENCE.values(), ids=PRECEDENCE)
def test_precedence(text: str, value: str, inventory: Make) -> None:
    assert inventory(text).hosts["h"].variables["v"].plain == value


def test_files_are_read_in_order(inventory: Make) -> None:
    found = inventory("a: {hosts: {h: {v: 1, w: 1}}, vars: {x: 1}}\n", "a: {hosts: {h: {v: 2}, i: }, vars: {x: 2}}\n")
    assert {name: node.plain for name, node in found.hosts["h"].variables.items()} == {"v": 2, "w": 1, "x": 2}
    assert str(found.hosts["h"].variables["v"].position) == "hosts2.yml:1:20"
    assert found.groups["a"] == ("h", "i")


ODD_BUT_FINE = {
    "a group without anything": ("gpu:\nall: {hosts: {h: }}\n", {"all": ("h",), "ungrouped": ("h",), "gpu": ()}),
    "hosts that are all commented out": (
        "gpu:\n  hosts:\n    # n1\nall: {hosts: {h: }}\n",
        {"all": ("h",), "ungrouped": ("h",), "gpu": ()},
    ),
    "one host as text": ("gpu: {hosts: h}\n", {"all": ("h",), "ungrouped": (), "gpu": ("h",)}),
    "in ungrouped and in a group": (
        "ungrouped: {hosts: {h: , i: }}\ngpu: {hosts: {h: }}\n",
        {"all": ("i", "h"), "ungrouped": ("i",), "gpu": ("h",)},
    ),
    "in a group and its child": (
        "gpu: {hosts: {h: }, children: {rack: {hosts: {h: }}}}\n",
        {"all": ("h",), "ungrouped": (), "gpu": ("h",), "rack": ("h",)},
    ),
    "a range at the beginning": (
        "all: {hosts: {'[1:2].rack': }}\n",
        {"all": ("1.rack", "2.rack"), "ungrouped": ("1.rack", "2.rack")},
    ),
    "a number as a name": ("all: {hosts: {7: }}\n", {"all": ("7",), "ungrouped": ("7",)}),
}


@pytest.mark.parametrize("text, groups", ODD_BUT_FINE.values(), ids=ODD_BUT_FINE)
def test_odd_but_fine(text: str, groups: dict[str, tuple[str, ...]], inventory: Make) -> None:
    assert dict(inventory(text).groups) == groups


ADDRESSES = {
    "{}": Address("h"),
    "{ansible_host: 10.0.0.1, ansible_port: 2222, ansible_user: k3}": Address("10.0.0.1", port=2222, user="k3"),
    "{ansible_host: '::1', ansible_port: '22'}": Address("::1", port=22),
    "{ansible_connection: local}": Address("h", connection="local"),
    "{ansible_connection: smart}": Address("h"),
    "{ansible_python_interpreter: /opt/py/bin/python3.12}": Address("h", python="/opt/py/bin/python3.12"),
    "{ansible_python_interpreter: auto_silent}": Address("h"),
    "{ansible_ssh_private_key_file: /keys/k3}": Address("h", options={"private_key": "/keys/k3"}),
    "{ansible_private_key_file: /keys/k3}": Address("h", options={"private_key": "/keys/k3"}),
    "{ansible_ssh_host: 10.0.0.1, ansible_ssh_port: 2222, ansible_ssh_user: k3}": Address(
        "10.0.0.1", port=2222, user="k3"
    ),
    "{ansible_ssh_host: a, ansible_host: b}": Address("a"),
    "{ansible_host: '{{ inventory_file.split(\"/\") | last }}'}": Address("hosts.yml"),
    "{ansible_host: '{{ inventory_hostname }}.{{ zone }}', zone: lab}": Address("h.lab"),
    "{ansible_port: '{{ base + 1 }}', base: 2200}": Address("h", port=2201),
    "{ansible_user: }": Address("h"),
}


@pytest.mark.parametrize("variables", ADDRESSES)
def test_addresses(variables: str, inventory: Make) -> None:
    assert inventory(f"all: {{hosts: {{h: {variables}}}}}\n").hosts["h"].address == ADDRESSES[variables]


def test_a_port_behind_a_name(inventory: Make) -> None:
    found = inventory("all: {hosts: {'n[1:2]:2222': }}\n")
    assert {host.name: host.address.port for host in found.hosts.values()} == {"n1": 2222, "n2": 2222}


# text, place, part of the message, part of expected, found or remedy
REFUSED = {
    "empty": ("", "hosts.yml", "is empty", ""),
    "a list": ("- h\n", "hosts.yml:1:1", "an inventory is a mapping", "under all: and hosts:"),
    "names, line by line": ("n1\nn2\n", "hosts.yml:1:1", "an inventory is a mapping", "--hosts @hosts.yml"),
    "INI": ("# racks\n[gpu]\nn1\n", "hosts.yml:1:1", "INI", "ansible-inventory -i hosts.yml --list --yaml"),
    "INI without sections": ("n1 ansible_host=10.0.0.1\n", "hosts.yml:1:1", "INI", "--list --yaml"),
    "a plugin's configuration": ("plugin: aws_ec2\n", "hosts.yml:1:1", "another kind", "--list --yaml"),
    "the JSON of --list": ('{"_meta": {"hostvars": {}}}\n', "hosts.yml:1:2", "another kind", "cat hosts.yml"),
    "a vault": ("$ANSIBLE_VAULT;1.1;AES256\n6638\n", "hosts.yml:1:1", "encrypted", "{secret: file:PATH}"),
    "duplicate host": ("all:\n  hosts:\n    n1:\n    n1:\n", "hosts.yml:4:5", "n1 is given twice", ""),
    "tab": ("all:\n\thosts:\n", "hosts.yml:2:1", "a tab", "spaces"),
    "unknown section": ("gpu: {hots: {n1: }}\n", "hosts.yml:1:7", "no section hots", "did you mean hosts?"),
    "hosts without hosts": ("gpu:\n  n1:\n", "hosts.yml:2:3", "no section n1", "under hosts:"),
    "hosts as a list": ("gpu:\n  hosts:\n    - n1\n", "hosts.yml:3:7", "is a list", "as a key: n1:"),
    "children as a list": ("gpu: {children: [rack1]}\n", "hosts.yml:1:18", "is a list", "as a key: rack1:"),
    "group as text": ("gpu: n1\n", "hosts.yml:1:6", "the group gpu must be a mapping", ""),
    "vars as text": ("gpu: {vars: 3}\n", "hosts.yml:1:13", "vars of the group gpu must be a mapping", "the number 3"),
    "a host's variables as text": ("all: {hosts: {n1: 5}}\n", "hosts.yml:1:19", "variables of n1 must be", "number 5"),
    "circle": ("a: {children: {b: {children: {a: }}}}\n", "hosts.yml:1:16", "b can't be in a", "a -> b -> a"),
    "all as a child": ("a: {children: {all: }}\n", "hosts.yml:1:16", "all can't be in a", ""),
    "in itself": ("a: {children: {a: }}\n", "hosts.yml:1:16", "a can't be in a", ""),
    "group name": ('"g\\n": {hosts: {n1: }}\n', "hosts.yml:1:1", "can't name a group", "printable"),
    "ungrouped in a group": ("a: {children: {ungrouped: }}\n", "hosts.yml:1:16", "without a group", ""),
    "host name": ("all: {hosts: {'-oProxyCommand=x': }}\n", "hosts.yml:1:15", "can't name a host", "ansible_host"),
    "host name with a slash": ("all: {hosts: {../x: }}\n", "hosts.yml:1:15", "can't name a host", ""),
    "an IPv6 address in brackets": ("all: {hosts: {'[::1]': }}\n", "hosts.yml:1:17", "has no end", ""),
    "another port": ("a: {hosts: {'h:22': , 'h:23': }}\n", "hosts.yml:1:23", "with another port", "two names"),
    "a port later": ("a: {hosts: {h: }}\nb: {hosts: {'h:23': }}\n", "hosts.yml:2:13", "with another port", "no port"),
    "range that ends first": ("all:\n  hosts:\n    n[3:1]:\n", "hosts.yml:3:7", "ends before it begins", ""),
    "node set that ends first": ("all:\n  hosts:\n    n[3-1]:\n", "hosts.yml:3:7", "ends before it begins", ""),
    "mixed notation": ("all:\n  hosts:\n    n[1:3,7]:\n", "hosts.yml:3:7", "from number to number", ""),
    "open bracket": ("all:\n  hosts:\n    n[1-3:\n", "hosts.yml:3:6", "not closed", ""),
    "too many": ("all:\n  hosts:\n    n[1:99999999]:\n", "hosts.yml:3:7", "more than 65536", ""),
    "port": ("all: {hosts: {h: {ansible_port: x}}}\n", "hosts.yml:1:33", "must be a port", 'the text "x"'),
    "port out of range": ("all: {hosts: {'h:99999': }}\n", "hosts.yml:1:15", "must be a port", "65535"),
    "port that is true": ("all: {hosts: {h: {ansible_port: true}}}\n", "hosts.yml:1:33", "must be a port", "true"),
    "connection": ("all: {hosts: {h: {ansible_connection: shs}}}\n", "hosts.yml:1:39", "no connection shs", "ssh?"),
    "option as an address": ("all: {hosts: {h: {ansible_host: -oX}}}\n", "hosts.yml:1:33", "ansible_host must", "-oX"),
    "shell in a Python": (
        "all: {hosts: {h: {ansible_python_interpreter: 'python3; id'}}}\n", "hosts.yml:1:47", "must be the path", "",
    ),
    "user": ("all: {hosts: {h: {ansible_user: -x}}}\n", "hosts.yml:1:33", "must be a user name", "-x"),
    "undefined": ("all: {hosts: {h: {ansible_host: '{{ zoen }}', zone: a}}}\n", "hosts.yml:1:33", "zoen", "zone?"),
    "priority": ("a: {vars: {ansible_group_priority: x}}\n", "hosts.yml:1:36", "must be a whole number", ""),
}  # fmt: skip


@pytest.mark.parametrize("text, place, message, detail", REFUSED.values(), ids=REFUSED)
def test_is_refused(text: str, place: str, message: str, detail: str, inventory: Make) -> None:
    with pytest.raises(DocumentError) as caught:
        inventory(text)
    finding = caught.value.finding
    assert finding.subject == place
    assert message in finding.message
    assert detail in f"{finding.expected} {finding.found} {finding.remedy}"


def test_tagged_text_is_printed_tagged_and_used_as_ansible_does(inventory: Make) -> None:
    found = inventory("all: {vars: {a: !vault x, b: !unsafe '{{ c }}', d: ['{{ b }}']}, hosts: {h: }}\n")
    given = found.hosts["h"].variables
    assert of_host(found, "h") == {
        "a": {"__ansible_vault": "x"},
        "b": {"__ansible_unsafe": "{{ c }}"},
        "d": ["{{ b }}"],
    }
    assert Scope(given).render(given["d"]) == ["{{ c }}"]
    with pytest.raises(DocumentError, match="encrypted by ansible-vault") as caught:
        Scope(given).get("a")
    assert caught.value.finding.subject == "hosts.yml:1:17"


def test_an_inventory_without_hosts(inventory: Make) -> None:
    with pytest.raises(InventoryError, match="names no host"):
        inventory("gpu:\n  hosts:\n    # n1\n")
    with pytest.raises(InventoryError, match="names no host"):
        inventory()
    assert inventory("gpu:\n", adhoc_allowed=True).hosts == {}


def test_paths_that_are_no_files(inventory: Make, tmp_path: Path) -> None:
    (tmp_path / "hosts.yml").write_text("all: {hosts: {h: }}\n")
    with pytest.raises(DocumentError, match="there is no file host") as caught:
        Inventory.load([Path("host.yml")])
    assert "hosts.yml" in (caught.value.finding.remedy or "")


def test_warnings(inventory: Make) -> None:
    found = inventory("all: {vars: {ansible_become: yes}, hosts: {gpu: , i: }}\ngpu: {hosts: {gpu: }}\n")
    assert [(warning.id, warning.subject) for warning in found.warnings] == [
        ("document.surprise", "hosts.yml:1:30"),
        ("inventory.unread", "hosts.yml:1:30"),
        ("inventory.ambiguous", "gpu"),
    ]
    assert {warning.status for warning in found.warnings} == {"warn"}


def test_the_shipped_inventories_load() -> None:
    top = Path(__file__).resolve().parents[3] / "inventories"
    for path in sorted(top.glob("*.yml")):
        found = Inventory.load([path])
        assert found.hosts and found.warnings == (), path


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(alphabet=st.sampled_from("alhostschildrenv:{}[]-,0123 \n'"), max_size=60))
def test_no_text_gives_a_traceback(text: str, tmp_path: Path) -> None:
    path = tmp_path / "hosts.yml"
    path.write_text(text)
    try:
        found = Inventory.load([path])
    except K3Error as error:
        assert error.finding.message
    else:
        assert found.hosts
