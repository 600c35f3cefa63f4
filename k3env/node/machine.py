"""Machine: what code on a node holds to read, run and write."""

from __future__ import annotations

import contextlib
import errno
import os
import stat as modes
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Callable, Optional, TypeVar

from k3env.node import trust
from k3env.node.cancel import Cancel
from k3env.protocol.masking import Mask

if TYPE_CHECKING:
    from k3env.node.memory import Memory
    from k3env.node.process import Completed

T = TypeVar("T")
READ_BYTES = 1 << 20
_MARGIN_S, _HURRIED_GRACE_S = 0.3, 0.1
"""What a command must leave of a fact's time, so that what it said before is still told."""
# Another environment's Python must not leak into the commands that we start: inside a venv, build_wheel.py makes none.
# Nor another repository: in a git hook, these name the one that the hook is of.
_FOREIGN = (
    *("VIRTUAL_ENV", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "CONDA_PREFIX", "__PYVENV_LAUNCHER__"),
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR", "GIT_PREFIX"),
)


@dataclass(frozen=True)
class Space:
    """Free space for an unprivileged user."""

    free_bytes: int
    free_inodes: int


class Machine:
    """The node, or a simulated one: its files are looked up in an overlay directory first."""

    def __init__(
        self,
        *,
        overlay: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
        name: str = "local",
        number: int = 0,
        peers: int = 0,
        common: str = "",
        cancel: Optional[Cancel] = None,
        on_progress: Optional[Callable[[str, Optional[float]], object]] = None,
        mask: Optional[Mask] = None,
        answers: Optional[int] = None,
    ) -> None:
        """`name` stands in log names: "RUN-HOST-TASK". `environment` is added to the process's own.

        `number` is the node's place among those of its play, from 0. `mask` hides secrets in whatever commands say, in
        logs and in progress. `answers` is the file that holds what was asked once in this run; see answers.once.
        """
        self.overlay = overlay
        self.name = name
        self.cancel = cancel or Cancel()
        self.mask = mask or Mask()
        self.number = number
        self.peers = peers
        """How many nodes its play or job has; 0: unknown."""
        self.common = common
        """What names the run or the job on all of its nodes alike; "": nothing does."""
        self.ends: Optional[float] = None
        """On time.monotonic(): when nobody waits any more for what this process reads; no command lasts longer."""
        self.environment = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
        self.environment.setdefault("LANG", "C.UTF-8")
        if os.geteuid() == 0:
            self.environment = trust.environment(self.environment)
        self.environment.update(environment or {})
        if os.geteuid() == 0:
            self.environment["PATH"] = trust.search_path(self.environment.get("PATH", os.defpath))
        self._on_progress = on_progress
        self._on_facts: Optional[Callable[[dict[str, Any]], object]] = None
        self.compared = False
        self._on_commit: Optional[Callable[[], None]] = None
        self._beside: Optional[Callable[[], contextlib.AbstractContextManager[object]]] = None
        self._told: Optional[dict[str, Any]] = None
        self._answers = answers
        self._memory: Optional[Memory] = None
        self._swept = False

    @property
    def simulated(self) -> bool:
        """Whether this is a node of the sandbox."""
        return self.overlay is not None

    @property
    def answers(self) -> int:
        """The file of what was asked once; see answers.once. Those who are to share it ask for it before they fork."""
        if self._answers is None:
            self._answers = os.memfd_create("k3env-answers")
        return self._answers

    @property
    def recorded(self) -> bool:
        """Whether this is a recording, in which nothing can be tried."""
        return False

    # Reading. OSError passes through: a fact turns it into Unreadable.

    def read(self, path: str, limit: int = READ_BYTES) -> bytes:
        """Return the first `limit` bytes of a file.

        Raises OSError, also for a pipe, at which one would wait.
        """
        descriptor = os.open(self._found(path), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            if modes.S_ISFIFO(mode):
                raise OSError(errno.EINVAL, "this is a pipe, not a file", path)
            if modes.S_ISDIR(mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            with open(descriptor, "rb", closefd=False) as file:
                return file.read(limit)
        finally:
            os.close(descriptor)

    def text(self, path: str, limit: int = READ_BYTES) -> str:
        """Return a file as text, undecodable bytes replaced."""
        return self.read(path, limit).decode("utf-8", "replace")

    def list(self, path: str) -> tuple[str, ...]:
        """Return the names in a directory, sorted."""
        return tuple(sorted(os.listdir(self._found(path))))

    def stat(self, path: str, follow: bool = True) -> Optional[os.stat_result]:
        """Return the status of a path, or None if nothing is there."""
        try:
            return os.stat(self._found(path), follow_symlinks=follow)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def realpath(self, path: str) -> str:
        """Return a path with its links resolved, as far as it is there."""
        return os.path.realpath(path)

    def readlink(self, path: str) -> Optional[str]:
        """Return where a link leads; None for what is no link."""
        try:
            return os.readlink(self._found(path))
        except OSError:
            return None

    def uid(self) -> int:
        """Return whose rights this process has."""
        return os.geteuid()

    def exists(self, path: str) -> bool:
        """Return whether a path leads to something; a dangling link does not."""
        return self.stat(path) is not None

    def is_dir(self, path: str) -> bool:
        """Return whether a path leads to a directory."""
        found = self.stat(path)
        return found is not None and modes.S_ISDIR(found.st_mode)

    def is_file(self, path: str) -> bool:
        """Return whether a path leads to a regular file."""
        found = self.stat(path)
        return found is not None and modes.S_ISREG(found.st_mode)

    def try_open(self, path: str) -> None:
        """Open a device for reading and writing, as its users do, and close it again.

        Raises OSError.
        """
        os.close(os.open(self._found(path), os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))

    def wait(self, seconds: float) -> None:
        """Let time pass before something is read again."""
        import time

        time.sleep(seconds)

    def space(self, path: str) -> Space:
        """Return what is free on the filesystem of a path."""
        for prefix in sorted(self._answer("free_bytes", {}), key=len, reverse=True):
            if path == prefix or path.startswith(prefix.rstrip("/") + "/"):
                inodes = self._answer("free_inodes", {}).get(prefix, 1 << 30)
                return Space(int(self._answer("free_bytes", {})[prefix]), int(inodes))
        found = os.statvfs(path)
        # Filesystems without inodes (btrfs, some network ones) report 0 of 0.
        return Space(found.f_bavail * found.f_frsize, found.f_favail if found.f_files else 1 << 62)

    def cpus(self) -> int:
        """Return how many CPUs this process may use."""
        return int(self._answer("cpus", len(os.sched_getaffinity(0))))

    def architecture(self) -> str:
        """Return the CPU architecture that the kernel names: "aarch64" on Grace."""
        return str(self._answer("architecture", os.uname().machine))

    def page_size(self) -> int:
        """Return the kernel's page size in bytes."""
        return int(self._answer("page_size", os.sysconf("SC_PAGE_SIZE")))

    def recall(self, what: Hashable, read: Callable[[], T]) -> T:
        """Return what `read` returns, or has returned of this a moment ago, if that is remembered here.

        `what` names the reader and all that it depends on beside the node.
        """
        return read() if self._memory is None else self._memory.recall(what, read)

    def remember(self, memory: Optional[Memory]) -> None:
        """Keep what is recalled in a memory from now on; None: read all anew, since something is being changed."""
        if memory is None and self._memory is not None:
            self._memory.forget()
        self._memory = memory

    # Running

    def which(self, program: str) -> Optional[str]:
        """Return the path of a program in this machine's PATH, or None."""
        if os.path.dirname(program):
            return program if _is_program(program) else None
        for directory in self.environment.get("PATH", os.defpath).split(os.pathsep):
            path = os.path.join(directory, program)
            if directory and _is_program(path):
                return path
        return None

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
        """Run a command; see process.run. A program that is missing or may not be started counts as 127 or 126."""
        from k3env.node import process

        merged = {**self.environment, **(environment or {})}
        self._sweep(argv)
        grace_s = process.GRACE_S
        if self.ends is not None:
            timeout_s = max(0.01, min(timeout_s, self.ends - time.monotonic() - _MARGIN_S))
            grace_s = _HURRIED_GRACE_S
        try:
            cwd = self._trusted(argv, merged, cwd)
            return process.run(
                argv,
                environment=merged,
                timeout_s=timeout_s,
                grace_s=grace_s,
                cancel=self.cancel,
                cwd=cwd,
                stdin=stdin,
                mask=self.mask,
                guarded=guarded,
            )
        except OSError as error:
            return self._not_started(argv, error)

    def stream(
        self,
        argv: Sequence[str],
        *,
        log: IO[bytes],
        on_line: Callable[[str], None],
        on_quiet: Callable[[], object] = lambda: None,
        inactivity_s: float = 1800.0,
        cwd: Optional[str] = None,
        environment: Optional[Mapping[str, str]] = None,
    ) -> Completed:
        """Run a long command; see process.stream. A program that can't be started counts as 127 or 126."""
        from k3env.node import process

        merged = {**self.environment, **(environment or {})}
        self._sweep(argv)
        try:
            cwd = self._trusted(argv, merged, cwd)
            return process.stream(
                argv,
                environment=merged,
                inactivity_s=inactivity_s,
                on_line=on_line,
                on_quiet=on_quiet,
                log=log,
                cancel=self.cancel,
                cwd=cwd,
                mask=self.mask,
            )
        except OSError as error:
            return self._not_started(argv, error)

    def _sweep(self, argv: Sequence[str]) -> None:
        """Before the first container that is started here, remove those that nobody looks after any more."""
        from k3env.node.contained import removal_of

        removal = removal_of(argv)
        if removal and not self._swept:
            from k3env.node.container import sweep

            self._swept = True
            sweep(self, removal[0])

    def _trusted(self, argv: Sequence[str], environment: dict[str, str], cwd: Optional[str]) -> Optional[str]:
        """Return where a command is to run; as root not where the caller happened to be.

        Raises PermissionError for what root must not run.
        """
        if os.geteuid() != 0:
            return cwd
        if "PATH" in environment:
            environment["PATH"] = trust.search_path(environment["PATH"])
        trust.refuse(argv, environment.get("PATH"), cwd)
        return cwd or "/"

    def on_progress(self, tell: Callable[[str, Optional[float]], object]) -> None:
        """Send progress here from now on."""
        self._on_progress = tell

    def on_commit(self, confirm: Callable[[], None]) -> None:
        """Ask this before something final is written."""
        self._on_commit = confirm

    def commit(self) -> None:
        """Make sure that this task may still write what others will believe, such as a manifest.

        Raises Refused if its lease was lost.
        """
        if self._on_commit is not None:
            self._on_commit()

    def on_beside(self, begin: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
        """Begin this beside what takes long and leaves the network idle."""
        self._beside = begin

    def beside(self) -> contextlib.AbstractContextManager[object]:
        """Return a block, for what takes long, beside which later tasks' downloads come; it fails for none of them."""
        return self._beside() if self._beside is not None else contextlib.nullcontext()

    def on_facts(self, tell: Callable[[dict[str, Any]], object], compared: bool = True) -> None:
        """Send facts here that this node tells; `compared`: somebody judges across nodes by them."""
        self._on_facts, self.compared = tell, compared

    def tell(self, facts: dict[str, Any]) -> None:
        """Tell facts, JSON by name, to who wants them, if anybody does."""
        if self._on_facts is not None:
            self._on_facts(facts)

    def progress(self, text: str, fraction: Optional[float] = None) -> None:
        """Tell followers how far a task is; `fraction` of 1 only where the total is known."""
        if self._on_progress is not None:
            self._on_progress(self.mask.text(text), fraction)

    # Writing. Never through a symlink at the last component, and on the way through no stranger's.

    def make(self, directory: str) -> None:
        """Make a directory, with those above it."""
        from k3env.node import way

        way.make(directory)

    def write(self, path: str, data: bytes, mode: int = 0o644) -> None:
        """Replace a file at once: readers see the old or the new content.

        Raises OSError, Refused where a stranger's link leads elsewhere.
        """
        from k3env.node import way

        directory, name = os.path.split(path)
        temporary = f"{name}.k3env-{os.urandom(6).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        at = way.entered(directory)
        try:
            with way.naming(path, within=False):
                descriptor = os.open(temporary, flags, mode, dir_fd=at)
                with os.fdopen(descriptor, "wb") as file:
                    file.write(data)
                    os.fchmod(file.fileno(), mode)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(temporary, name, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=at)
            raise
        finally:
            os.close(at)

    def log(self, directory: str, keep: int = 10) -> IO[bytes]:
        """Open this task's log in a directory that is made if needed, keeping the last `keep` logs there.

        Raises OSError, Refused where a stranger's link leads elsewhere.
        """
        from k3env.node import way

        name = f"{self.name}.log"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        at = way.entered(directory, make=True)
        try:
            with way.naming(directory):
                descriptor = os.open(name, flags, 0o644, dir_fd=at)
            # Its name is known beforehand: what another user has put there is not written to.
            found, above = os.fstat(descriptor), os.fstat(at)
            shared = found.st_nlink > 1 and above.st_mode & modes.S_IWOTH
            if not modes.S_ISREG(found.st_mode) or found.st_uid not in (os.geteuid(), above.st_uid) or shared:
                os.close(descriptor)
                raise FileExistsError(errno.EEXIST, "this is no log of ours", os.path.join(directory, name))
            logs = {
                old: os.lstat(f"/proc/self/fd/{at}/{old}").st_mtime
                for old in os.listdir(f"/proc/self/fd/{at}")
                if old.endswith(".log")
            }
            for old in sorted(logs, key=lambda old: logs[old])[:-keep]:
                with contextlib.suppress(OSError):
                    os.unlink(old, dir_fd=at)
        finally:
            os.close(at)
        return os.fdopen(descriptor, "ab")

    def _not_started(self, argv: Sequence[str], error: OSError) -> Completed:
        from k3env.node import process

        words = process.masked_words(argv, self.mask)
        code = 126 if isinstance(error, PermissionError) else 127
        return process.Completed(words, code, b"", f"{words[0]}: {error.strerror}".encode(), started=False)

    def _found(self, path: str) -> str:
        if self.overlay is not None and os.path.isabs(path):
            other = self.overlay + path
            if os.path.lexists(other):
                return other
        return path

    def _answer(self, key: str, default: Any) -> Any:
        """Return what a simulated node says of itself where no file could: machine.json in its overlay."""
        if self._told is None:
            self._told = {}
            if self.overlay is not None:
                import json

                with contextlib.suppress(FileNotFoundError):
                    self._told = json.loads(self.read("/machine.json"))
        return self._told.get(key, default)


def _is_program(path: str) -> bool:
    return os.access(path, os.X_OK) and os.path.isfile(path)
