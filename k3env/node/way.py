"""The way to a directory that we write in, gone step by step: no stranger's link leads us anywhere."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator

from k3env.errors import Refused

_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_LINKS = 40


@contextlib.contextmanager
def naming(path: str, within: bool = True) -> Iterator[None]:
    """Let an OSError name a whole path: who works below a descriptor knows a name alone, who writes not even that.

    `within`: the name is one in `path`; else all that is done here is about `path`.
    """
    try:
        yield
    except OSError as error:
        name = error.filename
        if error.errno is None or (isinstance(name, str) and os.path.isabs(name)):
            raise
        if within and not isinstance(name, str):
            raise
        raise OSError(error.errno, error.strerror, os.path.join(path, str(name)) if within else path) from None


def entered(directory: str, make: bool = False) -> int:
    """Return a descriptor of a directory; what is missing is made where `make` says so. The caller closes it.

    Where anybody may write, only what root or this user made is entered; elsewhere a link is followed if one of them,
    or the owner of the directory it is in, made it. Raises OSError, Refused for what a stranger made.
    """
    with naming(directory, within=False):
        return _entered(directory, make)


def _entered(directory: str, make: bool) -> int:
    names, links, seen = directory.split("/"), 0, ""
    at = os.open("/" if os.path.isabs(directory) else ".", _LOOK)
    try:
        while names:
            name = names.pop(0)
            if name in ("", "."):
                continue
            seen = f"{seen}/{name}"
            below = _step(at, name, make)
            found, above = os.fstat(below), os.fstat(at)
            if above.st_mode & stat.S_IWOTH and found.st_uid not in (0, os.geteuid()):
                os.close(below)
                raise _stranger(directory, seen, found.st_uid)
            if not stat.S_ISLNK(found.st_mode):
                at, left = below, at
                os.close(left)
                continue
            try:
                links += 1
                if links > _LINKS or found.st_uid not in (0, os.geteuid(), above.st_uid):
                    raise _stranger(directory, seen, found.st_uid)
                target = os.readlink("", dir_fd=below)
            finally:
                os.close(below)
            names = target.split("/") + names
            if target.startswith("/"):
                os.close(at)
                at = os.open("/", _LOOK)
        if not stat.S_ISDIR(os.fstat(at).st_mode):
            raise NotADirectoryError(20, "not a directory", directory)
    except BaseException:
        os.close(at)
        raise
    return at


def make(directory: str) -> None:
    """Make a directory, with those above it.

    Raises OSError, Refused for a stranger's link on the way.
    """
    os.close(entered(directory, make=True))


def _step(at: int, name: str, make: bool) -> int:
    try:
        return os.open(name, _LOOK, dir_fd=at)
    except FileNotFoundError:
        if not make:
            raise
        with contextlib.suppress(FileExistsError):  # another node was faster
            os.mkdir(name, dir_fd=at)
        return os.open(name, _LOOK, dir_fd=at)


def _stranger(directory: str, link: str, uid: int) -> Refused:
    return Refused(
        f"{directory} is not written to: {link} is what uid {uid} has put there",
        expected=f"directories and links of root, of uid {os.geteuid()} or of the owner of the directory above",
        found=f"{link} of uid {uid}",
        remedy="see where it leads and who may write there; remove it, or choose another path",
        id="task.stranger",
    )
