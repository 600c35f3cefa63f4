"""The payload: what travels to a node, as a zip whose bytes depend on nothing but its content."""

from __future__ import annotations

import hashlib
import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from k3env import compiling
from k3env.node.preflight.bundle import FILE

_ONLY_TRAVELS = ("k3env/node/boot.py",)
TRAVELS = ("__init__.py", "errors.py", "protocol", "k3", "reports", "node")
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Payload:
    """A zip and the SHA-256 by which nodes keep it."""

    data: bytes
    digest: str


@lru_cache(maxsize=1)
def build() -> Payload:
    """Zip what travels: k3env's node side and `packaging`."""
    data = _zipped({name: path.read_bytes() for name, path in _files()})
    return Payload(data, hashlib.sha256(data).hexdigest())


def pyz(bundle: bytes, python: str, pythons: Iterable[str]) -> bytes:
    """Return one file that is a program: what travels, a bundle, and the code compiled for some interpreters.

    It is started by `python`, an absolute path, isolated from variables and packages of whoever starts it. An
    interpreter that it was not compiled for compiles it at each start.

    Raises OSError or ValueError for one of `pythons` that can't compile it.
    """
    content = {name: path.read_bytes() for name, path in _files() if name not in _ONLY_TRAVELS}
    compiled: dict[str, bytes] = {}
    for interpreter in pythons:
        compiled.update(compiling.compiled(interpreter, content))
    content["__main__.py"] = content["k3env/node/__main__.py"]
    content[FILE] = bundle
    return b"#!" + python.encode() + b" -IS\n" + _zipped({**content, **compiled})


def _zipped(content: Mapping[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
        for name in sorted(content):
            entry = zipfile.ZipInfo(name, _EPOCH)
            # What is read at each start is not packed: to unpack it takes longer than to read it.
            entry.compress_type = zipfile.ZIP_STORED if name.endswith(".pyc") else zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content[name])
    return buffer.getvalue()


@lru_cache(maxsize=1)
def boot_code() -> bytes:
    """Return the code that a node runs first."""
    return (Path(__file__).parent / "node" / "boot.py").read_bytes()


def _files() -> Iterator[tuple[str, Path]]:
    import packaging

    root = Path(__file__).parent
    for travels in TRAVELS:
        top = root / travels
        for path in [top] if top.is_file() else top.rglob("*.py"):
            yield f"k3env/{path.relative_to(root).as_posix()}", path
    library = Path(packaging.__file__).parent
    for path in library.rglob("*.py"):
        yield f"packaging/{path.relative_to(library).as_posix()}", path
