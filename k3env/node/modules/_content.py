"""A whole file with given content: what differs, and its replacement at once."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from typing import Optional

from k3env.errors import Refused, TaskFailed
from k3env.node.modules import _ownership
from k3env.node.modules._parameters import check_path
from k3env.node.modules._place import FILE, Place, Standing
from k3env.protocol.finding import Change, printable
from k3env.protocol.masking import Mask

MODE = 0o644
_READ = 1 << 20
_LINES, _COLUMNS = 4, 200
_HIDDEN = "(not shown)"


@dataclass(frozen=True)
class WholeFile:
    """A file that is to be exactly this."""

    dest: Place
    content: bytes
    mode: Optional[str] = None
    owner: Optional[str] = None
    group: Optional[str] = None
    hidden: bool = False
    """Whether nothing of its content may be shown."""
    mask: Mask = field(default_factory=Mask)
    """What hides the run's secrets in the lines that are shown, before these are cut."""

    def changes(self) -> tuple[Change, ...]:
        """Return what is different.

        Raises Refused for what it won't replace.
        """
        dest, wanted = self.dest, _ownership.wanted(self.mode, self.owner, self.group)
        dest.trust()
        standing = dest.standing()
        if standing is None:
            # Its directory may be what an earlier task would make: that it is missing is for `put` to say.
            told = _HIDDEN if self.hidden else _head(self.content, self.mask)
            return (Change(dest.path, "absent", f"file {wanted.mode or MODE:04o}\n{told}".rstrip()),)
        _refuse_kind(dest, standing)
        there = dest.read(max(len(self.content) + 1, _READ))
        changes = wanted.changes(dest.path, standing, self.owner, self.group)
        if there == self.content:
            return changes
        before, after = (_HIDDEN, _HIDDEN) if self.hidden else _first_difference(there, self.content, self.mask)
        return (Change(f"content of {dest.path}", before, after), *changes)

    def put(self) -> None:
        """Replace the file at once: readers see the old or the new content, mode and owner included.

        Raises TaskFailed, Refused for a directory that is missing.
        """
        _refuse_homeless(self.dest)
        dest, wanted = self.dest, _ownership.wanted(self.mode, self.owner, self.group)
        standing = dest.standing()
        if standing is not None:
            _refuse_kind(dest, standing)
            wanted = wanted.over(standing)
        try:
            _write(dest, self.content, wanted)
        except OSError as error:
            raise TaskFailed(
                f"{dest.path} can't be written: {error.strerror}",
                expected=f"a directory that uid {os.geteuid()} may write to, and room in it",
                found=f"{error.strerror} in {dest.directory}",
                remedy="do it as another user with become, or choose another path",
            ) from None


def check(kind: str, dest: str, content: Optional[str], src: Optional[str]) -> None:
    """Raise ValueError for parameters of copy and template that can't be."""
    check_path("dest", "/home" + dest[1:] if dest.startswith("~/") else dest)
    if (content is None) == (src is None):
        raise ValueError(f"{kind} needs content or src, one of them")


def _write(dest: Place, content: bytes, wanted: _ownership.Wanted) -> None:
    # Another node may write the same file to a shared filesystem: a process id is no name of its own.
    temporary = f".{dest.name[:200]}.k3env-{os.urandom(6).hex()}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with dest.held() as directory:
        descriptor = os.open(temporary, flags, 0o600, dir_fd=directory)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                wanted.give(file.fileno(), MODE)
                os.fsync(file.fileno())
            os.rename(temporary, dest.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


def _refuse_homeless(dest: Place) -> None:
    if not dest.has_directory:
        raise Refused(
            f"{dest.path} has no directory to be in",
            expected=f"a directory {os.path.dirname(dest.path)}",
            found="none",
            remedy="make it before, with file and state: directory",
        )


def _refuse_kind(dest: Place, standing: Standing) -> None:
    if standing.kind == FILE:
        return
    target = f" to {os.readlink(dest.real)}" if standing.kind == "link" else ""
    what = {"link": f"a symbolic link{target}", "directory": "a directory"}.get(standing.kind, "no regular file")
    raise Refused(
        f"{dest.path} is {what}",
        expected="a regular file, or nothing",
        found=what,
        remedy="name the file itself, or remove what is there with file and state: absent",
    )


def _head(content: bytes, mask: Mask) -> str:
    lines = _lines(content)
    more = f"\n… {len(lines) - _LINES} lines more" if len(lines) > _LINES else ""
    return "\n".join(_cut(line, mask) for line in lines[:_LINES]) + more


def _first_difference(before: bytes, after: bytes, mask: Mask) -> tuple[str, str]:
    """Return the first lines that differ, with their number in front of them."""
    old, new = _lines(before), _lines(after)
    at = next((at for at, (one, other) in enumerate(zip(old, new)) if one != other), min(len(old), len(new)))
    if old == new:
        return f"{len(before)} bytes", f"{len(after)} bytes, other ends of lines"
    return _shown(old, at, mask), _shown(new, at, mask)


def _shown(lines: list[str], at: int, mask: Mask) -> str:
    if at >= len(lines):
        return f"line {at + 1}: none"
    more = f"\n… {len(lines) - at - _LINES} lines more" if len(lines) - at > _LINES else ""
    return (
        "\n".join(f"line {number}: {_cut(line, mask)}" for number, line in enumerate(lines[at : at + _LINES], at + 1))
        + more
    )


def _lines(content: bytes) -> list[str]:
    return content.decode("utf-8", "replace").splitlines()


def _cut(line: str, mask: Mask) -> str:
    line = mask.text(line)
    return printable(line if len(line) <= _COLUMNS else f"{line[: _COLUMNS - 1]}…")
