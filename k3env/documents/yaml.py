"""YAML files: read safely, bounded, with file:line:column for every value.

Two dialects. STRICT, for what is written for k3env, refuses what readers of YAML disagree about. ANSIBLE, for
inventories, reads as Ansible does and collects a warning for each of these.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

import yaml

from k3env.documents import jsontext, opened, syntax
from k3env.documents.composer import Composer
from k3env.documents.nodes import Node, Position, problem
from k3env.errors import DocumentError, nearest
from k3env.protocol.finding import Finding

STRICT, ANSIBLE = "strict", "ansible"
MAX_BYTES = 1 << 20

_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Document:
    """What a file says."""

    root: Node
    warnings: tuple[Finding, ...] = ()


def load(path: Path, dialect: str = STRICT, shown: Optional[str] = None) -> Document:
    """Read a file; `shown` is its name in positions, the path as given unless said otherwise.

    Raises DocumentError for a file that can't be read, is no YAML, says nothing, or says something twice.
    """
    source = shown or str(path)
    return loads(read(path, source), source, dialect)


def loads(data: Union[bytes, str], source: str, dialect: str = STRICT) -> Document:
    """Read the bytes or the text of one document.

    Raises DocumentError.
    """
    root, warnings = parse(data, source, dialect)
    if root is None or root.content is None:
        raise problem(Position(source), "the file is empty", expected="a YAML document", found="nothing")
    return Document(root, warnings)


def parse(data: Union[bytes, str], source: str, dialect: str = STRICT) -> tuple[Optional[Node], tuple[Finding, ...]]:
    """Read the bytes or the text of a document that may be empty; return None for one without a value.

    Raises DocumentError.
    """
    text = data if isinstance(data, str) else decode(data, source)
    text = text.removeprefix("\ufeff")
    if dialect == ANSIBLE and jsontext.is_json(text):
        return jsontext.loads(text, source), ()
    bad = _NOT_TEXT.search(text)
    if bad:
        raise problem(
            _position(source, text, bad.start()),
            f"the file holds a control character, {bad.group()!r}",
            expected="text",
            remedy='remove it, or write it as an escape within double quotes: "\\x1b"',
        )
    composer = Composer(source, strict=dialect == STRICT)
    try:
        root = composer.compose(text)
    except yaml.MarkedYAMLError as error:
        raise syntax.explain(error, source, text.splitlines()) from None
    syntax.refuse_tabs(text, source, composer.multiline)
    return root, tuple(composer.warnings)


def read(path: Path, source: str, at_most: int = MAX_BYTES) -> bytes:
    """Return the bytes of a file of at most 1 MiB, or of so many.

    Raises DocumentError, with the nearest name in the directory when there is no such file.
    """
    try:
        data = opened.read(path, at_most + 1)
    except FileNotFoundError:
        raise _missing(path, source) from None
    except opened.NoFile as error:
        message = f"{source} {error.what}"
        raise problem(Position(source), message, expected="a file", remedy=error.remedy) from None
    except OSError as error:
        raise problem(Position(source), f"{source} can't be read: {error.strerror}", expected="a file") from None
    except ValueError:  # a NUL in the path
        raise problem(Position(repr(source)), "this is no path", expected="a file") from None
    if len(data) > at_most:
        expected = f"at most {at_most >> 20} MiB"
        raise problem(Position(source), f"{source} is too large", expected=expected, remedy="split it")
    return data


def _missing(path: Path, source: str) -> DocumentError:
    try:
        known = [entry.name for entry in path.parent.iterdir()]
    except OSError:
        known = []
    meant = nearest(path.name, known)
    remedy = f"did you mean {path.parent / meant}?" if meant else None
    return problem(Position(source), f"there is no file {source}", expected="an existing file", remedy=remedy)


def decode(data: bytes, source: str) -> str:
    """Return UTF-8 bytes as text.

    Raises DocumentError, pointing at the first byte that is not UTF-8.
    """
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise problem(Position(source, 1, 1), "the file is UTF-16", expected="UTF-8", remedy="save it as UTF-8")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        before = data[: error.start].decode("utf-8")
        raise problem(
            _position(source, before, len(before)),
            "the file is not UTF-8 text",
            expected="UTF-8",
            found=f"the byte 0x{data[error.start]:02x}",
            remedy="save it as UTF-8",
        ) from None


def _position(source: str, text: str, offset: int) -> Position:
    before = text[:offset]
    return Position(source, before.count("\n") + 1, offset - before.rfind("\n"))
