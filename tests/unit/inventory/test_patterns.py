"""Patterns: which hosts they mean, and where the message points."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from k3env.errors import DocumentError, InventoryError, K3Error
from k3env.inventory import Inventory
from tests.unit.inventory.conftest import Make

HOSTS = """\
all:
  children:
    rack1: {hosts: {"gb[01:04]": }}
    rack2: {hosts: {"gb[05:06]": , gb01: }}
    gpu: {children: {rack1: , rack2: }}
  hosts:
    solo: {ansible_user: k3, ansible_port: 2200}
    login.site: {}
"""


@pytest.fixture
def hosts(inventory: Make) -> Inventory:
    """Return an inventory with two racks."""
    return inventory(HOSTS)


MEANT = {
    "all": "solo login.site gb01 gb02 gb03 gb04 gb05 gb06",
    "*": "solo login.site gb01 gb02 gb03 gb04 gb05 gb06",
    "gb02": "gb02",
    "solo,gb02": "solo gb02",
    " solo , gb02 ": "solo gb02",
    "solo:gb02": "solo gb02",
    "gpu": "gb01 gb02 gb03 gb04 gb05 gb06",
    "rack1,rack2": "gb01 gb02 gb03 gb04 gb05 gb06",
    "ungrouped": "solo login.site",
    "gb[02-03]": "gb02 gb03",
    "gb[01,04-05]": "gb01 gb04 gb05",
    "rack[1-2]": "gb01 gb02 gb03 gb04 gb05 gb06",
    "gb0*": "gb01 gb02 gb03 gb04 gb05 gb06",
    "gb0?": "gb01 gb02 gb03 gb04 gb05 gb06",
    "*.site": "login.site",
    "rack*": "gb01 gb02 gb03 gb04 gb05 gb06",
    "~gb0[12]$": "gb01 gb02",
    "~(solo|login).*": "solo login.site",
    "~gb0{1,2}1": "gb01",
    "~(?:solo)": "solo",
    "rack1:&rack2": "gb01",
    "rack1:!rack2": "gb02 gb03 gb04",
    "rack1,!rack2,!gb02": "gb03 gb04",
    "rack2,&rack1,solo": "gb01",
    "!gpu": "solo login.site",
    "all:&gpu:!rack1": "gb05 gb06",
    "&rack2:rack1": "gb01",
    "!gb01:rack2": "gb05 gb06",
    "&rack2,!gb0[5-6]": "gb01",
    "gb[01-02],!gb[02-04]": "gb01",
}


@pytest.mark.parametrize("pattern", MEANT)
def test_means(pattern: str, hosts: Inventory) -> None:
    assert [host.name for host in hosts.select(pattern)] == MEANT[pattern].split()


# pattern, column, part of the message, part of expected or remedy
WRONG = [
    ("rak1", 1, "no host or group rak1", "did you mean rack1?"),
    ("solo,rak1", 6, "no host or group rak1", "did you mean rack1?"),
    ("solo, rak1", 7, "no host or group rak1", "did you mean rack1?"),
    ("solo:!rak1", 7, "no host or group rak1", "did you mean rack1?"),
    ("gb[05-08]", 1, "no host or group gb07", "gb0"),
    ("gb[3-1]", 4, "ends before it begins", "1-3"),
    ("solo,gb[01-3]", 9, "different numbers of digits", "01-03"),
    ("gb[01-03", 3, "not closed", ""),
    ("gb[01-03,solo", 3, "not closed", ""),
    ("gb[]", 4, "empty", ""),
    ("gb[01:03]", 6, "with a dash", "01-03"),
    ("gb[1-99999999]", 4, "more than 65536 hosts", ""),
    ("", 1, "a name is missing", ""),
    ("solo,", 6, "a name is missing", "comma"),
    (",solo", 1, "a name is missing", "comma"),
    ("solo,,gb01", 6, "a name is missing", "comma"),
    ("solo:!", 7, "a name is missing after !", ""),
    ("&", 2, "a name is missing after &", ""),
    ("solo:", 6, "separates no names", "commas"),
    ("solo:22:gb01", 6, "separates no names", "commas"),
    ("solo gb01", 1, "holds a space", "commas"),
    ("x*", 1, "matches no host", ""),
    ("~x", 1, "matches no host", ""),
    ("~gb[[0]", 2, "regular expression is not clear", ""),
    ("~(gb", 2, "no regular expression", ""),
    ("gb[01-02]*", 1, "mixes a range", "term of its own"),
    ("@rack1", 1, "is a file", "write rack1"),
    ("root@", 1, "a name is missing", "USER@"),
    ("@@x", 1, "there is no file", ""),
    ("-x@solo", 1, "is no user name", ""),
    ("solo:99999", 1, "no port", "65535"),
    ("solo,!root@gb01", 7, "belongs to hosts that are added", ""),
    ("solo,root@solo", 6, "given twice", ""),
    ("[::1]:22", 1, "no host or group ::1", ""),
    ("[x:y:z]", 1, "no IPv6 address", ""),
    ("gb01:&gb02", 1, "means no host", ""),
    ("é", 1, "can't name a host", ""),
]


@pytest.mark.parametrize("pattern, column, message, detail", WRONG, ids=[case[0] or "empty" for case in WRONG])
def test_points_at_what_is_wrong(pattern: str, column: int, message: str, detail: str, hosts: Inventory) -> None:
    with pytest.raises(K3Error) as caught:
        hosts.select(pattern)
    finding = caught.value.finding
    assert message in finding.message
    assert detail in f"{finding.expected} {finding.remedy}"
    if isinstance(caught.value, InventoryError):
        assert finding.subject == f"--hosts:{column}"
        (marked,) = finding.evidence
        assert marked.excerpt.split("\n")[1].index("^") == column - 1


def test_user_and_port(hosts: Inventory) -> None:
    (solo,) = hosts.select("solo")
    assert (solo.address.user, solo.address.port) == ("k3", 2200)
    (solo,) = hosts.select("root@solo:22")
    assert (solo.address.user, solo.address.port) == ("root", 22)
    assert [host.address.user for host in hosts.select("root@gb[01-02]")] == ["root", "root"]


LIMITS = {
    ("gpu", "rack1"): "gb01 gb02 gb03 gb04",
    ("rack2,rack1", "gb0[5-6],gb01"): "gb05 gb06 gb01",
    ("gpu", "!rack1"): "gb05 gb06",
    ("all", "solo"): "solo",
}


@pytest.mark.parametrize("pattern, limit", LIMITS)
def test_limits(pattern: str, limit: str, hosts: Inventory) -> None:
    assert [host.name for host in hosts.select(pattern, limit)] == LIMITS[pattern, limit].split()


@pytest.mark.parametrize(
    "limit, subject, message",
    [
        ("gb02,nosuch", "--limit:6", "no host or group nosuch"),
        ("solo", "--limit", "leaves none"),
        ("gb[1-0]", "--limit:4", "ends before it begins"),
    ],
)
def test_limits_that_are_wrong(limit: str, subject: str, message: str, hosts: Inventory) -> None:
    with pytest.raises(InventoryError, match=message) as caught:
        hosts.select("rack1", limit)
    assert caught.value.finding.subject == subject


def test_a_play_narrows_to_nothing_without_an_error(hosts: Inventory) -> None:
    chosen = hosts.select("rack1")
    assert hosts.narrow(chosen, "solo", "play.yml:1:10") == []
    with pytest.raises(InventoryError) as caught:
        hosts.narrow(chosen, "rak2", "play.yml:1:10")
    assert caught.value.finding.subject == "play.yml:1:10"


ADHOC = {
    "sandbox": [("tray-01", "tray-01", None, None), ("tray-02", "tray-02", None, None)],
    "gb[01-02]": [("gb01", "gb01", None, None), ("gb02", "gb02", None, None)],
    "c427-032,c429-002": [("c427-032", "c427-032", None, None), ("c429-002", "c429-002", None, None)],
    "root@10.0.0.1:2222": [("10.0.0.1:2222", "10.0.0.1", "root", 2222)],
    "[::1]:2200": [("[::1]:2200", "::1", None, 2200)],
    "fe80::1": [("fe80::1", "fe80::1", None, None)],
    "localhost:1,localhost:2": [("localhost:1", "localhost", None, 1), ("localhost:2", "localhost", None, 2)],
    "sandbx:22": [("sandbx:22", "sandbx", None, 22)],
    "node.site": [("node.site", "node.site", None, None)],
    "u@h[1-2]:23": [("h1:23", "h1", "u", 23), ("h2:23", "h2", "u", 23)],
}


@pytest.mark.parametrize("pattern", ADHOC)
def test_hosts_of_no_inventory(pattern: str, inventory: Make) -> None:
    found = inventory("sandbox: {hosts: {'tray-[01:02]': }}\n", adhoc_allowed=True).select(pattern)
    assert [(host.name, host.address.hostname, host.address.user, host.address.port) for host in found] == ADHOC[
        pattern
    ]


@pytest.mark.parametrize(
    "pattern, message, remedy",
    [
        ("sandbx", "no group sandbx", "did you mean sandbox?"),
        ("h1,!h2", "no host or group h2", ""),
        ("-oProxyCommand=x", "can't name a host", ""),
        ("a/b", "can't name a host", ""),
        ("h*", "matches no host", ""),
        ("h,root@h", "given twice", ""),
    ],
)
def test_hosts_of_no_inventory_that_are_wrong(pattern: str, message: str, remedy: str, inventory: Make) -> None:
    with pytest.raises(InventoryError, match=message) as caught:
        inventory("sandbox: {hosts: {'tray-[01:02]': }}\n", adhoc_allowed=True).select(pattern)
    assert remedy in (caught.value.finding.remedy or "")


def test_limits_know_hosts_of_no_inventory(inventory: Make) -> None:
    found = inventory("sandbox: {hosts: {tray: }}\n", adhoc_allowed=True)
    assert [host.name for host in found.select("sandbox,h[1-3]", "h[2-3]")] == ["h2", "h3"]
    assert [host.name for host in found.narrow(found.select("h1"), "all", "play.yml:1:1")] == ["h1"]


def test_files_of_hosts(hosts: Inventory, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("# racks\n\ngb[01-02]  # two\nsolo\n")
    assert [host.name for host in hosts.select("@list")] == ["gb01", "gb02", "solo"]
    assert [host.name for host in hosts.select("@list,!solo")] == ["gb01", "gb02"]
    for text, place, message in [
        ("gb01\ngb[2-1]\n", "list:2:1", "ends before it begins"),
        ("gb01\nrak1\n", "list:2:1", "no host or group rak1"),
        ("!gb01\n", "list:1:1", "a file of hosts holds"),
        ("@list\n", "list:1:1", "a file of hosts holds"),
        ("# none\n", "--hosts:1", "names no host"),
    ]:
        (tmp_path / "list").write_text(text)
        with pytest.raises(InventoryError, match=message) as caught:
            hosts.select("@list")
        assert caught.value.finding.subject == place
    with pytest.raises(DocumentError, match="there is no file lisst") as missing:
        hosts.select("@lisst")
    assert missing.value.finding.remedy == "did you mean list?"


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pattern=st.text(alphabet="gb0123[],-:!&~*?@ .x\\(){}/", max_size=20), adhoc=st.booleans())
def test_no_pattern_gives_a_traceback(pattern: str, adhoc: bool, inventory: Make) -> None:
    found = inventory(HOSTS, adhoc_allowed=adhoc)
    try:
        chosen = found.select(pattern)
    except K3Error as error:
        assert error.finding.message
    else:
        assert chosen


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    united=st.lists(
        st.sampled_from(["rack1", "rack2", "gpu", "gb01", "gb0*", "solo", "ungrouped"]), min_size=1, max_size=3
    ),
    within=st.sampled_from(["rack1", "rack2", "gpu", "gb0*"]),
    without=st.sampled_from(["rack1", "rack2", "gb01", "solo"]),
)
def test_the_algebra_is_that_of_sets(united: list[str], within: str, without: str, inventory: Make) -> None:
    found = inventory(HOSTS)

    def meant(pattern: str) -> set[str]:
        try:
            return {host.name for host in found.select(pattern)}
        except InventoryError:
            return set()

    wanted = set().union(*(meant(term) for term in united)) & meant(within) - meant(without)
    assert meant(":".join([*united, f"&{within}", f"!{without}"])) == wanted
    assert meant(",".join([f"!{without}", f"&{within}", *united])) == wanted
