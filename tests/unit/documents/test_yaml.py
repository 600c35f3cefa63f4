"""YAML files: what is read, what is refused, and where the message points."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
import yaml as pyyaml
from hypothesis import given, settings
from hypothesis import strategies as st

from k3env.documents import composer, opened, yaml
from k3env.errors import DocumentError

ACCEPTED = {
    "text, numbers, flags, null": (
        "a: x\nb: 1\nc: 2.5\nd: true\ne:\nf: ~\n",
        {"a": "x", "b": 1, "c": 2.5, "d": True, "e": None, "f": None},
    ),
    "quoted words stay text": ("a: 'yes'\nb: \"0644\"\nc: '1.10'\n", {"a": "yes", "b": "0644", "c": "1.10"}),
    "dates stay text": ("a: 2026-09-03\nb: 2026-09-03 10:00:00\n", {"a": "2026-09-03", "b": "2026-09-03 10:00:00"}),
    "hexadecimal, signs": ("a: 0x1F\nb: -7\nc: +7\nd: -0.5\n", {"a": 31, "b": -7, "c": 7, "d": -0.5}),
    "a tag says text": ("a: !!str 0644\n", {"a": "0644"}),
    "tags of JSON's types": (
        "a: !!int '7'\nb: !!float 7\nc: !!bool 'true'\nd: !!null ''\n",
        {"a": 7, "b": 7.0, "c": True, "d": None},
    ),
    "keys are text as written": ("1: a\ntrue: b\nno: c\n", {"1": "a", "true": "b", "no": "c"}),
    "anchors": ("a: &x {p: 1}\nb: *x\n", {"a": {"p": 1}, "b": {"p": 1}}),
    "merge keys: own keys win": (
        "a: &x {p: 1, q: 1}\nb: {<<: *x, q: 2}\n",
        {"a": {"p": 1, "q": 1}, "b": {"p": 1, "q": 2}},
    ),
    "merge keys: the first of a list wins": (
        "- &x {p: 1}\n- &y {p: 2, q: 2}\n- <<: [*x, *y]\n",
        [{"p": 1}, {"p": 2, "q": 2}, {"p": 1, "q": 2}],
    ),
    "a quoted << is a key": ("'<<': 1\n", {"<<": 1}),
    "byte order mark": ("\ufeffa: 1\n", {"a": 1}),
    "carriage returns": ("a: 1\r\nb:\r\n  - x\r\n", {"a": 1, "b": ["x"]}),
    "document marks": ("---\na: 1\n...\n", {"a": 1}),
    "tabs where they are content": (
        "a: |\n  x\n  \ty\nb: 'p\tq' # \t\nc: 1\n",
        {"a": "x\n\ty\n", "b": "p\tq", "c": 1},
    ),
    "text beyond ASCII": ("a: é 漢 😀\n", {"a": "é 漢 😀"}),
}


@pytest.mark.parametrize("text, value", ACCEPTED.values(), ids=ACCEPTED)
def test_is_read(text: str, value: object) -> None:
    document = yaml.loads(text.encode(), "f.yml")
    assert document.root.plain == value
    assert document.warnings == ()


# name: (text, place, part of the message, part of the remedy)
REFUSED = {
    "empty": ("", "f.yml", "is empty", ""),
    "comments alone": ("# nothing\n", "f.yml", "is empty", ""),
    "null alone": ("---\n", "f.yml", "is empty", ""),
    "tab in the indentation": ("a:\n\tb: 1\n", "f.yml:2:1", "a tab", "spaces"),
    "tab after spaces": ("a:\n  \tb: 1\n", "f.yml:2:3", "a tab", "spaces"),
    "tab within brackets": ("a: {\n\tb: 1}\n", "f.yml:2:1", "a tab", "spaces"),
    "duplicate key": ("a: 1\nb: 2\na: 3\n", "f.yml:3:1", "key a is given twice", "remove one"),
    "duplicate key, quoted": ("a: 1\n'a': 3\n", "f.yml:2:1", "key a is given twice", "remove one"),
    "two merges": ("a: &x {p: 1}\nb:\n  <<: *x\n  <<: *x\n", "f.yml:4:3", "<< is given twice", "[*a, *b]"),
    "merge of a list item": ("a: &x [1]\nb: {<<: *x}\n", "f.yml:1:8", "<< merges mappings", ""),
    "yes": ("a: yes\n", "f.yml:1:4", "yes means different things", 'true, or "yes"'),
    "Off": ("a: [x, Off]\n", "f.yml:1:8", "Off means different things", 'false, or "Off"'),
    "octal": ("mode: 0644\n", "f.yml:1:7", "0644 means different things", '"0644" for the text, or 420'),
    "octal of YAML 1.2": ("mode: 0o644\n", "f.yml:1:7", "0o644 means", '"0o644"'),
    "octal that is none": ("a: 08\n", "f.yml:1:4", "08 means", '"08"'),
    "base 60": ("a: 12:30:00\n", "f.yml:1:4", "12:30:00 means", '"12:30:00" for the text, or 45000'),
    "base 60 with a point": ("a: 1:30.5\n", "f.yml:1:4", "1:30.5 means", "90.5"),
    "binary": ("a: 0b11\n", "f.yml:1:4", "0b11 means", "3 for the number"),
    "underscores": ("a: 1_000\n", "f.yml:1:4", "1_000 means", "1000 for the number"),
    "exponent": ("a: 1e3\n", "f.yml:1:4", "1e3 means", '"1e3"'),
    "version with a zero": ("a: 1.10\n", "f.yml:1:4", "1.10 means", '"1.10" for the text, or 1.1'),
    "infinity": ("a: .inf\n", "f.yml:1:4", ".inf means", '".inf"'),
    "overflow": ("a: 1.0e+999\n", "f.yml:1:4", "1.0e+999 means", ""),
    "too many digits": (f"a: {'9' * 5000}\n", "f.yml:1:4", "can't be read", "quotes"),
    "no digits": ("a: 0x_\n", "f.yml:1:4", "can't be read", "quotes"),
    "wrong tag": ("a: !!int x\n", "f.yml:1:4", "x is no !!int", ""),
    "vault": ("a: !vault x\n", "f.yml:1:4", "tag !vault", "secret: file:PATH"),
    "Python object": ("a: !!python/object/apply:os.system [id]\n", "f.yml:1:4", "python/object", "JSON"),
    "set": ("a: !!set {x}\n", "f.yml:1:4", "!!set", "JSON"),
    "unquoted template": ("a: {{ x }}\n", "f.yml:1:5", "can't be a key", '"{{ name }}"'),
    "unquoted template within text": ("- {{ x }}/y\n", "f.yml:1:4", "can't be a key", '"{{ name }}"'),
    "list as a key": ("? [a]\n: b\n", "f.yml:1:3", "a list can't be a key", ""),
    "empty key": ("'': a\n", "f.yml:1:1", "an empty key", ""),
    "unknown anchor": ("a: &base 1\nb: *bse\n", "f.yml:2:4", "no anchor &bse", "*base"),
    "star that is text": ("a: *log\n", "f.yml:1:4", "no anchor", "quotes"),
    "star before a dot": ("a: *.log\n", "f.yml:1:5", "this is not YAML", "begins with * or & in quotes"),
    "circle": ("a: &x [*x]\n", "f.yml:1:8", "stands for something that contains it", ""),
    "alias as a key": ("a: &x b\n*x : 1\n", "f.yml:2:1", "an alias can't be a key", ""),
    "second document": ("a: 1\n---\nb: 2\n", "f.yml:2:1", "a second document", ""),
    "open quote": ("a: 1\nb: 'x\n", "f.yml:2:4", "quote that opens here", ""),
    "open bracket": ("a: 1\nb: [x\n", "f.yml:2:4", "bracket that opens here", ""),
    "colon within text": ("a: b: c\n", "f.yml:1:5", "mapping values are not allowed", "quotes"),
    "line without colon": ("a\nb: 1\n", "f.yml:2:2", "mapping values are not allowed", "without its colon"),
    "reserved character": ("a: @x\n", "f.yml:1:4", "cannot start any token", "quotes"),
    "unknown escape": ('a: "\\q"\n', "f.yml:1:5", "escape", "backslash twice"),
    "list item under a value": ("a: - b\n", "f.yml:1:4", "not allowed", ""),
    "control character": ("a: x\nb: \x07\n", "f.yml:2:4", "control character", "escape"),
    "NUL by an escape": ('a: "\\0"\n', "f.yml:1:4", "NUL", ""),
    "nested too deeply": ("[" * 65 + "]" * 65, "f.yml:1:65", "too deeply nested", ""),
}


@pytest.mark.parametrize("text, place, message, remedy", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("loader", ["as installed", "pure Python"])
def test_is_refused(
    text: str, place: str, message: str, remedy: str, loader: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if loader == "pure Python":
        monkeypatch.setattr(composer, "LOADER", pyyaml.SafeLoader)
    with pytest.raises(DocumentError) as caught:
        yaml.loads(text, "f.yml")
    finding = caught.value.finding
    assert message in finding.message
    assert remedy in (finding.remedy or "")
    # The two parsers place some syntax errors differently; what we find ourselves stands where it stands.
    same_line = place.rpartition(":")[0] if finding.message.startswith("this is not YAML") else place
    assert finding.subject.startswith(same_line if loader == "pure Python" else place)


BYTES = {
    "latin-1": (b"a: 1\nb: \xe9\n", "f.yml:2:4", "not UTF-8"),
    "UTF-16": ("a: 1\n".encode("utf-16"), "f.yml:1:1", "UTF-16"),
    "binary": (b"\x7fELF\x00\x01", "f.yml:1:1", "control character"),
    "cut character": (b"a: \xf0\x9f", "f.yml:1:4", "not UTF-8"),
}


@pytest.mark.parametrize("data, place, message", BYTES.values(), ids=BYTES)
def test_bytes_that_are_no_text(data: bytes, place: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        yaml.loads(data, "f.yml")
    assert (caught.value.finding.subject, message in caught.value.finding.message) == (place, True)


# As Ansible reads: YAML 1.1, with a warning for each word that others read differently.
SURPRISING = [
    ("yes", True), ("Off", False), ("0644", 420), ("0o644", "0o644"), ("08", "08"), ("12:30:00", 45000),
    ("190:20:30.5", 685230.5), ("0b11", 3), ("1_000", 1000), ("1e3", "1e3"), ("1.10", 1.1), ("-017", -15),
]  # fmt: skip


@pytest.mark.parametrize("word, value", SURPRISING)
def test_inventories_are_read_as_ansible_reads_them(word: str, value: object) -> None:
    document = yaml.loads(f"a:\n  b: {word}\n", "hosts.yml", yaml.ANSIBLE)
    assert document.root.plain == {"a": {"b": value}}
    assert type(document.root.plain["a"]["b"]) is type(pyyaml.safe_load(word))
    assert pyyaml.safe_load(word) == value
    (warning,) = document.warnings
    assert (warning.subject, warning.status) == ("hosts.yml:2:6", "warn")
    assert word in warning.message and word in (warning.remedy or "")


def test_duplicates_are_refused_in_inventories_too() -> None:
    with pytest.raises(DocumentError, match="n1 is given twice") as caught:
        yaml.loads("hosts:\n  n1:\n  n1:\n", "hosts.yml", yaml.ANSIBLE)
    assert caught.value.finding.subject == "hosts.yml:3:3"


def test_aliases_are_bounded() -> None:
    bomb = "a: &a [1,1,1,1,1,1,1,1,1,1]\n" + "".join(
        f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 10)}]\n" for n in range(9)
    )
    with pytest.raises(DocumentError, match="stand for too much"):
        yaml.loads(bomb, "f.yml")


def test_aliases_do_not_nest_beyond_the_bound() -> None:
    levels = "".join(f"- &l{n + 1} [[*l{n}]]\n" for n in range(40))
    with pytest.raises(DocumentError, match="stand for too much"):
        yaml.loads("- &l0 x\n" + levels, "f.yml")


def test_every_value_and_key_has_its_place() -> None:
    root = yaml.loads("- hosts: all\n  tasks:\n    - command:\n        argv: [a, 'b']\n", "p.yml").root
    assert str(root.at([0, "tasks", 0, "command", "argv", 1])) == "p.yml:4:19"
    assert str(root.content[0].keys["tasks"]) == "p.yml:2:3"
    assert str(root.at([0, "tasks", 0, "nothing", "here"])) == "p.yml:3:7"


def test_files(tmp_path: Path) -> None:
    (tmp_path / "trtllm.yml").write_text("a: 1\n")
    assert (
        yaml.load(tmp_path / "trtllm.yml", shown="playbooks/trtllm.yml").root.position.source == "playbooks/trtllm.yml"
    )
    large = tmp_path / "large.yml"
    large.write_bytes(b"a: '" + b"x" * (1 << 20) + b"'\n")
    for path, message, remedy in [
        (tmp_path / "trtlm.yml", "there is no file", "trtllm.yml"),
        (tmp_path / "nowhere" / "a.yml", "there is no file", ""),
        (tmp_path, "is a directory", ""),
        (large, "too large", "split it"),
        (tmp_path / "trtllm.yml" / "a.yml", "can't be read", ""),
        (Path("a\0b.yml"), "no path", ""),
    ]:
        with pytest.raises(DocumentError) as caught:
            yaml.load(path)
        assert message in caught.value.finding.message
        assert remedy in (caught.value.finding.remedy or "")


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=st.sampled_from("ab:-,[]{}'\"\n \t#&*!|>%@0189.eyno~<?"), max_size=60))
def test_no_text_gives_a_traceback(text: str) -> None:
    for dialect in (yaml.STRICT, yaml.ANSIBLE):
        try:
            document = yaml.loads(text, "f.yml", dialect)
        except DocumentError as error:
            assert error.finding.subject.startswith("f.yml")
        else:
            assert document.root.content is not None


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=80))
def test_no_bytes_give_a_traceback(data: bytes) -> None:
    try:
        yaml.loads(data, "f.yml")
    except DocumentError as error:
        assert error.finding.message


_TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs")), max_size=8)
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**9), 10**9) | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=200, deadline=None)
@given(_VALUES.filter(lambda value: value is not None))
def test_what_pyyaml_writes_is_read_back(value: object) -> None:
    text = pyyaml.safe_dump(value, allow_unicode=True)
    assert yaml.loads(text, "f.yml", yaml.ANSIBLE).root.plain == value


def test_a_pipe_is_read_to_its_end(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"a: 1\n")
    os.close(writer)
    try:
        assert yaml.load(Path(f"/dev/fd/{reader}")).root.plain == {"a": 1}
    finally:
        os.close(reader)
    named = tmp_path / "named"
    os.mkfifo(named)
    writing = threading.Thread(target=named.write_bytes, args=(b"b: 2\n" * 1,))
    writing.start()
    assert yaml.load(named).root.plain == {"b": 2}
    writing.join()


def test_what_is_no_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opened, "PIPE_S", 0.1)
    silent = tmp_path / "silent"
    os.mkfifo(silent)
    for path, message in [(silent, "not written to its end"), (Path("/dev/null"), "is a device")]:
        with pytest.raises(DocumentError, match=message):
            yaml.load(path)
