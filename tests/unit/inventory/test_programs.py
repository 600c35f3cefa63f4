"""Programs that print inventories: what goes wrong with them, each by its own name."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from k3env.errors import DocumentError, InventoryError
from k3env.inventory import Inventory, program
from tests.unit.inventory.cases import printing

GOOD = '{"gpu": {"hosts": ["gb01"]}, "_meta": {"hostvars": {"gb01": {"v": 1}}}}'


def load(content: str | bytes, mode: int = 0o700) -> Inventory:
    path = Path("site.py")
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return Inventory.load([path])


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_program_of_this_directory() -> None:
    found = load(printing(GOOD))
    assert found.hosts["gb01"].variables["v"].plain == 1
    assert str(found.hosts["gb01"].variables["v"].position) == "site.py --list:1:67"
    assert found.hosts["gb01"].source == "site.py"
    assert found.warnings == ()


# content, part of the message, part of expected, found, remedy or evidence
WRONG = {
    # ansible#34164: a line of warning made the next parser's error the one that was seen
    "noise before the JSON": (printing(f"WARNING: old\n{GOOD}"), "printed something before its JSON", "WARNING: old"),
    "noise after the JSON": (printing(f"{GOOD}\ndone"), "something follows the JSON text", "'done'"),
    "exit 3": ("#!/bin/sh\necho no credentials >&2\nexit 3\n", "failed with exit code 3", "no credentials"),
    "a signal": ("#!/bin/sh\nkill -9 $$\n", "failed with signal 9", "run it by hand"),
    "not UTF-8": ("#!/bin/sh\nprintf '{\"a\": \"\\377\"}'\n", "is not UTF-8", "0xff at offset 7"),
    "nothing": ("#!/bin/sh\n", "printed nothing", "one JSON object"),
    "a list": (printing("[1]"), "printed a list", "one JSON object"),
    "half": (printing('{"gpu": {"hosts": ["gb01"'), "this is not JSON", "the end"),
    "single quotes": (printing("{'gpu': 1}"), "this is not JSON", "a key in double quotes"),
    "a key twice": (printing('{"a": {"hosts": []}, "a": {"hosts": []}}'), "a is given twice", "it stands at"),
    "no such interpreter": ("#!/nowhere/python\n", "names a program that is not here", "#!/nowhere/python"),
    "carriage returns": ("#!/bin/sh\r\necho\r\n", "names a program that is not here", "#!/bin/sh"),
    "hosts as text": (printing('{"a": {"hosts": "gb01"}}'), "hosts of a must be a list", 'the text "gb01"'),
    "a host's name": (printing('{"a": {"hosts": ["-oX"]}}'), "can't name a host", "ansible_host"),
    "no known keys": (printing('{"gpu": {"gb01": {}}}'), "none of the known keys", "hosts or vars or children"),
    "_meta without hostvars": (printing('{"a": ["h"], "_meta": {}}'), "_meta needs hostvars", "mapping"),
    "a circle": (printing('{"a": {"children": ["b"]}, "b": {"children": ["a"]}}'), "can't be in", "b -> a -> b"),
    "no hosts": (printing('{"_meta": {"hostvars": {}}}'), "names no host", "at least one host"),
    "only --list": (
        '#!/bin/sh\n[ "$1" = --list ] && echo \'{"a": ["h"]}\' || exit 2\n', "--host h failed with exit code 2", "",
    ),
}  # fmt: skip


@pytest.mark.parametrize("content, message, detail", WRONG.values(), ids=WRONG)
def test_each_fault_by_its_name(content: str, message: str, detail: str) -> None:
    with pytest.raises((InventoryError, DocumentError)) as caught:
        load(content)
    finding = caught.value.finding
    assert message in finding.message
    said = "".join(evidence.excerpt for evidence in finding.evidence)
    assert detail in f"{finding.expected} {finding.found} {finding.remedy} {said}"
    assert "site.py" in finding.subject + str(finding.found)


def test_a_missing_run_bit() -> None:
    # ansible#4186, #14801: it was parsed as INI and dropped
    with pytest.raises(InventoryError, match="may not be run") as caught:
        load(printing(GOOD), mode=0o600)
    assert caught.value.finding.remedy == "chmod +x site.py"


def test_a_hang_is_killed_with_its_children(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "TIMEOUT_S", 0.3)
    begun = time.monotonic()
    with pytest.raises(InventoryError, match=r"did not end within 0.3 s, and was killed"):
        load("#!/bin/sh\nsleep 77 & echo $! > child\necho $$ > self\nsleep 78\n")
    assert time.monotonic() - begun < 5
    for name in ("child", "self"):
        assert gone(Path(name).read_text().strip())


def gone(pid: str) -> bool:
    """Return whether a process ends within two seconds."""
    stat = Path(f"/proc/{pid}/stat")
    for _ in range(100):
        try:
            if stat.read_text().rpartition(")")[2].split()[0] == "Z":
                return True
        except OSError:
            return True
        time.sleep(0.02)
    return False


def test_a_child_that_holds_the_output_is_not_waited_for() -> None:
    begun = time.monotonic()
    found = load(f"#!/bin/sh\nsleep 79 &\ncat <<'END'\n{GOOD}\nEND\n")
    assert list(found.hosts) == ["gb01"]
    assert time.monotonic() - begun < 10


def test_output_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("k3env.inventory.commands.MAX_BYTES", 1 << 20)
    with pytest.raises(InventoryError, match="printed more than"):
        load("#!/bin/sh\nexec yes\n")


def test_a_host_about_which_nothing_is_said() -> None:
    found = load('#!/bin/sh\n[ "$1" = --list ] && echo \'{"a": ["h", "i"]}\'\n[ "$2" != h ] || echo \'{"v": 1}\'\n')
    assert {name: dict(host.variables).keys() for name, host in found.hosts.items()} == {"h": {"v"}, "i": set()}


def test_it_reads_no_input() -> None:
    assert list(load(f"#!/bin/sh\ncat > /dev/null\ncat <<'END'\n{GOOD}\nEND\n").hosts) == ["gb01"]


def test_a_yaml_file_with_a_run_bit_is_no_program() -> None:
    path = Path("hosts.yml")
    path.write_text("all: {hosts: {h: }}\n")
    path.chmod(0o700)
    assert os.access(path, os.X_OK)
    assert list(Inventory.load([path]).hosts) == ["h"]


def test_unread_keys_are_told() -> None:
    found = load(printing('{"a": {"hosts": ["h"], "host": 1}, "e": {}, "_meta": {"hostvars": {}}}'))
    assert [(warning.message, warning.subject) for warning in found.warnings] == [
        ("host of the group a is not read", "site.py --list:1:24"),
        ("e is an empty group here, a host of that name to Ansible", "site.py --list:1:36"),
    ]
    assert found.groups["e"] == ()
