"""The system calls that make a node of a process: namespaces, mounts, another root."""

from __future__ import annotations

import ctypes
import os

NEW_MOUNTS, NEW_NAME, NEW_IPC, NEW_PIDS, NEW_NET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
RDONLY, NOSUID, NODEV, NOEXEC, BIND, REC, PRIVATE = 1, 2, 4, 8, 1 << 12, 1 << 14, 1 << 18
_DETACH = 2
_SET_NAME = 15
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{os.strerror(error)}: {what}")


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def unshare(flags: int) -> None:
    """Leave namespaces for new ones; new pids are those of children."""
    _checked(_libc.unshare(flags), "unshare")


def mount(source: str, target: str, kind: str | None = None, flags: int = 0, options: str | None = None) -> None:
    """Mount a filesystem, or bind a directory."""
    done = _libc.mount(_bytes(source), _bytes(target), _bytes(kind), ctypes.c_ulong(flags), _bytes(options))
    _checked(done, f"mount {kind or ''} {source} at {target}")


def unmount(path: str) -> None:
    """Take a mount away, now from sight and later in truth."""
    _checked(_libc.umount2(path.encode(), _DETACH), f"umount {path}")


def enter_root(path: str) -> None:
    """Make a mounted directory the root of this mount namespace, and let go of the old one."""
    os.chdir(path)
    os.makedirs(".old", exist_ok=True)
    _checked(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b".old"), f"pivot_root {path}")
    os.chdir("/")
    unmount("/.old")
    os.rmdir("/.old")


def set_hostname(name: str) -> None:
    """Name this node."""
    _checked(_libc.sethostname(name.encode(), len(name)), "sethostname")


def set_process_name(name: str) -> None:
    """Show this name in ps."""
    _checked(_libc.prctl(_SET_NAME, name.encode()[:15], 0, 0, 0), "prctl")
