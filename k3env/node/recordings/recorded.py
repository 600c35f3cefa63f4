"""A recording: a machine that answers from files alone.

DIR/files/ is a tree of files, looked up by their absolute paths. DIR/commands.json lists what commands said:
[{"argv": […], "stdout": "…", "stderr": "…", "exit_code": 0, "delay_s": 0.04}]; bytes that are no UTF-8 stand as
surrogates. DIR/machine.json holds what is no file: {"environment", "uid", "cpus", "architecture", "page_size", "stat",
"list", "real", "links", "space", "programs", "errors", "profile"}. One that was made by hand needs no more than
it wants to say.
"""

from __future__ import annotations

import errno
import json
import os
import stat as modes
from collections.abc import Mapping, Sequence
from typing import Any, Optional

from k3env.node.machine import READ_BYTES, Machine, Space
from k3env.node.process import Completed, masked_words
from k3env.protocol import codec
from k3env.protocol.profile import Profile

FILES, COMMANDS, MACHINE = "files", "commands.json", "machine.json"
FORMAT = 1
_NOTHING = "not in this recording"


class Recorded(Machine):
    """The machine of a recording. What it does not hold is not there; nothing of this node shows through."""

    def __init__(self, directory: str) -> None:
        """Read a recording.

        Raises ValueError for a directory that is none.
        """
        self._root = os.path.abspath(directory)
        self._known = _object(os.path.join(self._root, MACHINE), {})
        self._commands = _object(os.path.join(self._root, COMMANDS), [])
        if not os.path.isdir(os.path.join(self._root, FILES)) and not self._commands:
            raise ValueError(f"{directory} is no recording: it has neither {FILES}/ nor {COMMANDS}")
        super().__init__(overlay=os.path.join(self._root, FILES))
        self.environment = {"PATH": "/usr/bin:/bin", **self._table("environment")}

    @property
    def profile(self) -> Profile:
        """Return what the node was to be; the defaults where the recording does not say."""
        found: Profile = codec.decode(Profile, self._table("profile"))
        return found

    @property
    def recorded(self) -> bool:
        """Whether this is a recording."""
        return True

    def read(self, path: str, limit: int = READ_BYTES) -> bytes:
        """Return the first bytes of a recorded file."""
        refused = self._table("errors").get(path)
        if refused is not None:
            raise OSError(refused, os.strerror(refused), path)
        try:
            with open(self._inside(path), "rb") as file:
                return file.read(limit)
        except OSError as error:
            raise OSError(error.errno, _NOTHING, path) from None

    def list(self, path: str) -> tuple[str, ...]:
        """Return the names that were in a directory."""
        known = self._table("list").get(path)
        try:
            return tuple(known) if known is not None else tuple(sorted(os.listdir(self._inside(path))))
        except OSError as error:
            raise OSError(error.errno, _NOTHING, path) from None

    def stat(self, path: str, follow: bool = True) -> Optional[os.stat_result]:
        """Return the status that a path had."""
        table = self._table("stat")
        key = path if follow or f"{path} (link)" not in table else f"{path} (link)"
        if key in table:
            return None if table[key] is None else _status(table[key])
        if path in self._table("list"):
            return _status([modes.S_IFDIR | 0o755, 0, 0, 4096, 0, 1])
        try:
            found = os.stat(self._inside(path), follow_symlinks=follow)
        except OSError:
            return None
        # Who holds the recording is not who owned the file.
        return _status([found.st_mode, 0, 0, found.st_size, 0, found.st_ino])

    def realpath(self, path: str) -> str:
        """Return where a path led."""
        known = self._table("real").get(path)
        return str(known) if known is not None else os.path.normpath(path)

    def readlink(self, path: str) -> Optional[str]:
        """Return where a link led."""
        known = self._table("links").get(path)
        return None if known is None else str(known)

    def uid(self) -> int:
        """Return whose rights the recording was made with."""
        return int(self._known.get("uid", 0))

    def try_open(self, path: str) -> None:
        """Open a device as it could be opened; one of a recording made by hand, if it is there."""
        known = self._table("opened").get(path)
        error = known if known is not None else 0 if os.path.isfile(self._inside(path)) else errno.ENOENT
        if error:
            raise OSError(error, os.strerror(error), path)

    def wait(self, seconds: float) -> None:
        """Let no time pass: nothing changes here."""

    def space(self, path: str) -> Space:
        """Return what was free."""
        known = self._table("space").get(path)
        if known is None:
            raise OSError(errno.ENOENT, _NOTHING, path)
        return Space(int(known[0]), int(known[1]))

    def cpus(self) -> int:
        """Return how many CPUs there were."""
        return int(self._known.get("cpus", 1))

    def architecture(self) -> str:
        """Return the CPU architecture of the recorded node."""
        return str(self._known.get("architecture", "aarch64"))

    def page_size(self) -> int:
        """Return its kernel's page size in bytes."""
        return int(self._known.get("page_size", 65536))

    def which(self, program: str) -> Optional[str]:
        """Return where a program was; one that has answers was somewhere."""
        if program in self._table("programs"):
            known = self._table("programs")[program]
            return None if known is None else str(known)
        return f"/usr/bin/{program}" if any(item["argv"][0] == program for item in self._commands) else None

    def run(
        self,
        argv: Sequence[str],
        *,
        timeout_s: float = 30.0,
        cwd: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
        stdin: bytes = b"",
        guarded: bool = False,
    ) -> Completed:
        """Return what a command said; one that took longer than it may take now is not waited for."""
        words = masked_words(argv, self.mask)
        for item in self._commands:
            if list(item["argv"]) == list(argv):
                return _completed(words, item, timeout_s)
        return Completed(words, 127, b"", f"{words[0]}: {_NOTHING}".encode())

    def _table(self, name: str) -> dict[str, Any]:
        found = self._known.get(name, {})
        return found if isinstance(found, dict) else {}

    def _inside(self, path: str) -> str:
        """Return where a file of the node lies in the recording; a link there can't lead out of it."""
        place = os.path.join(self._root, FILES, os.path.normpath(path).lstrip("/"))
        if not os.path.realpath(place).startswith(os.path.realpath(os.path.join(self._root, FILES))):
            raise FileNotFoundError(errno.ENOENT, _NOTHING, path)
        return place


def packed(files: Mapping[str, bytes]) -> bytes:
    """Return the files of a recording as one JSON text."""
    return json.dumps({path: data.decode("latin-1") for path, data in sorted(files.items())}).encode()


def unpacked(data: bytes) -> dict[str, bytes]:
    """Return the files of a recording that a node packed, by their path in it.

    Raises ValueError for what is none, or leads out of its directory.
    """
    found = json.loads(data)
    if not isinstance(found, dict) or not all(isinstance(text, str) for text in found.values()):
        raise ValueError("it is no recording")
    for path in found:
        if os.path.isabs(path) or ".." in path.split("/") or path.partition("/")[0] not in (FILES, COMMANDS, MACHINE):
            raise ValueError(f"it holds {path!r}")
    return {path: text.encode("latin-1") for path, text in found.items()}


def _completed(words: tuple[str, ...], item: Mapping[str, Any], timeout_s: float) -> Completed:
    stdout, stderr = (str(item.get(name, "")).encode("utf-8", "surrogateescape") for name in ("stdout", "stderr"))
    late = float(item.get("delay_s", 0)) >= timeout_s
    if late or item.get("timed_out"):
        return Completed(words, None, stdout, stderr, timed_out=True)
    code = item.get("exit_code", 0)
    return Completed(words, None if code is None else int(code), stdout, stderr)


def _status(values: Sequence[int]) -> os.stat_result:
    mode, uid, gid, size, mtime_ns, inode = values
    seconds = mtime_ns / 1e9
    ten = (mode, inode, 1, 1, uid, gid, size, seconds, seconds, seconds)
    return os.stat_result(ten, {"st_mtime_ns": mtime_ns, "st_atime_ns": mtime_ns, "st_ctime_ns": mtime_ns})


def _object(path: str, absent: Any) -> Any:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except FileNotFoundError:
        return absent
    except OSError as error:
        raise ValueError(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is no JSON: {error}") from None
    if not isinstance(found, type(absent)):
        raise ValueError(f"{path} must hold {'an object' if isinstance(absent, dict) else 'a list'}")
    return found
