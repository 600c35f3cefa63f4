"""External commands: bytes kept, output bounded, deadline, terminate, kill, leave behind."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import IO, Callable, Optional

from k3env.node.cancel import Cancel
from k3env.node.contained import is_over, mark_of, removal_of
from k3env.node.guard import Guard
from k3env.protocol.finding import Evidence, excerpt
from k3env.protocol.masking import Mask

OUTPUT_BYTES = 1 << 20
GRACE_S = 2.0
POLL_S = 1.0
LEFT_S = 0.2
"""How often it is looked whether a command has ended whose output hasn't."""
LOG_BYTES = 256 << 20
"""How long a log grows before what stands in it gives way."""
_CHUNK = 1 << 16
_NO_MASK = Mask()
_REMOVED_S = 60.0


@dataclass(frozen=True)
class Completed:
    """What became of a command; secrets are masked in its words and in what it said, before that is cut."""

    argv: tuple[str, ...]
    exit_code: Optional[int]
    """Negative: ended by that signal. None: it does not end, and was left behind."""
    stdout: bytes = b""
    """The last 1 MiB; of a streamed command, of both streams."""
    stderr: bytes = b""
    timed_out: bool = False
    duration_s: float = 0.0
    started: bool = True
    """False: there is no such program, or this user may not start it."""

    @property
    def ok(self) -> bool:
        """Whether the command ended with 0 in time."""
        return self.exit_code == 0 and not self.timed_out

    @property
    def text(self) -> str:
        """Standard output, decoded late, without the last newline."""
        return self.stdout.decode("utf-8", "replace").rstrip("\n")

    def evidence(self) -> Evidence:
        """Return the command as a person would type it, with what it said."""
        import shlex

        said = self.stderr if self.stderr.strip() else self.stdout
        return Evidence(" ".join(shlex.quote(word) for word in self.argv), self.exit_code, excerpt(said))


def run(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    timeout_s: float,
    cancel: Cancel,
    cwd: Optional[str] = None,
    stdin: bytes = b"",
    mask: Mask = _NO_MASK,
    guarded: bool = False,
    grace_s: float = GRACE_S,
) -> Completed:
    """Run a command to its end or its deadline (seconds of wall clock); `grace_s` lies between its SIGTERM and SIGKILL.

    One that is `guarded`, or runs in a container, does not outlive this process, however that ends.

    Raises FileNotFoundError or PermissionError if it can't be started.
    """
    begun = time.monotonic()
    child = _start(argv, environment, cwd, subprocess.PIPE, stdin)
    outputs = {"stdout": _Tail(mask), "stderr": _Tail(mask)}
    timed_out = False
    with _ended(child, argv, environment, guarded, grace_s), selectors.DefaultSelector() as selector:
        for name in outputs:
            selector.register(getattr(child, name), selectors.EVENT_READ, outputs[name])
        while selector.get_map():
            left = begun + timeout_s - time.monotonic()
            if left <= 0:
                timed_out = True
                break
            with cancel:
                ready = selector.select(min(left, LEFT_S))
            if not ready and _has_left(child):
                ready = selector.select(0)  # its last words
                if not ready:
                    break
            for key, _ in ready:
                data = os.read(key.fd, _CHUNK)
                if not data:
                    selector.unregister(key.fileobj)
                key.data.add(data)
        if not timed_out:
            timed_out = not _wait(child, begun + timeout_s - time.monotonic(), cancel)
    return Completed(
        masked_words(argv, mask),
        child.returncode,
        outputs["stdout"].whole(),
        outputs["stderr"].whole(),
        timed_out,
        time.monotonic() - begun,
    )


def stream(
    argv: Sequence[str],
    *,
    environment: Mapping[str, str],
    inactivity_s: float,
    on_line: Callable[[str], None],
    on_quiet: Callable[[], object] = lambda: None,
    log: IO[bytes],
    cancel: Cancel,
    cwd: Optional[str] = None,
    mask: Mask = _NO_MASK,
) -> Completed:
    """Run a long command, its output going line by line to `on_line`, and to `log` but for what is too long ago.

    Secrets are masked. While it says nothing, `on_quiet` is called every second.

    The deadline is inactivity: seconds without output and without CPU time of any of its processes. The command
    does not outlive this process, however that ends.
    """
    begun = active = time.monotonic()
    child = _start(argv, environment, cwd, subprocess.STDOUT, b"")
    tail, partial, used, timed_out = _Tail(mask), bytearray(), 0.0, False
    assert child.stdout is not None  # noqa: S101 - PIPE was asked for

    def tell(shown: bytes) -> None:
        if log.tell() > LOG_BYTES:
            log.seek(0)
            log.truncate()
            log.write(b"(what was here is cut off: a log is at most %d MiB)\n" % (LOG_BYTES >> 20))
        log.write(shown)
        log.flush()
        _lines(partial, shown, on_line)

    with _ended(child, argv, environment, guarded=True), selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            with cancel:
                ready = selector.select(POLL_S)
            now = time.monotonic()
            if not ready:
                on_quiet()
            if not ready and _has_left(child):
                ready = selector.select(0)  # its last words
                if not ready:
                    break
            if ready:
                data = os.read(child.stdout.fileno(), _CHUNK)
                if not data:
                    break
                tell(tail.add(data))
                active = now
            elif (cpu := _cpu_s(child.pid, mark_of(argv).encode())) > used:
                used, active = cpu, now
            elif now - active > inactivity_s:
                timed_out = True
                break
        tell(tail.end())
        if partial:
            on_line(partial.decode("utf-8", "replace"))
        if not timed_out:
            timed_out = not _wait(child, inactivity_s, cancel)
    words = masked_words(argv, mask)
    return Completed(words, child.returncode, tail.whole(), b"", timed_out, time.monotonic() - begun)


def masked_words(argv: Sequence[str], mask: Mask) -> tuple[str, ...]:
    """Return a command's words as they may be shown."""
    return tuple(map(mask.text, argv))


class _Tail:
    """The end of what a command said, masked before it is cut."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask.stream()
        self._kept = bytearray()

    def add(self, data: bytes) -> bytes:
        """Take output, and return what of it can be shown by now."""
        return self._keep(self._mask.feed(data))

    def end(self) -> bytes:
        """Return what was not shown yet: no more comes."""
        return self._keep(self._mask.end())

    def whole(self) -> bytes:
        """Return all that is kept."""
        self.end()
        return bytes(self._kept)

    def _keep(self, shown: bytes) -> bytes:
        self._kept += shown
        if len(self._kept) > OUTPUT_BYTES:
            del self._kept[:-OUTPUT_BYTES]
        return shown


def _start(
    argv: Sequence[str], environment: Mapping[str, str], cwd: Optional[str], stderr: int, stdin: bytes
) -> subprocess.Popen[bytes]:
    """Start a command as leader of its own session, so that all of it can be ended."""
    with _file(stdin) if stdin else open(os.devnull, "rb") as source:
        return subprocess.Popen(
            list(argv),
            stdin=source,
            stdout=subprocess.PIPE,
            stderr=stderr,
            cwd=cwd,
            env=dict(environment),
            start_new_session=True,
        )


def _file(data: bytes) -> IO[bytes]:
    """Return an open file without a name that holds this."""
    import tempfile

    source = tempfile.TemporaryFile()  # noqa: SIM115 - our caller closes it
    source.write(data)
    source.seek(0)
    return source


@contextmanager
def _ended(
    child: subprocess.Popen[bytes],
    argv: Sequence[str],
    environment: Mapping[str, str],
    guarded: bool,
    grace_s: float = GRACE_S,
) -> Iterator[None]:
    """End a command and all that it started when the block is left, or, if guarded, when this process is killed.

    A container is no child of its command, and always guarded.
    """
    removal = removal_of(argv)
    try:
        guard = Guard(-child.pid, removal=removal, environment=environment) if guarded or removal else nullcontext()
    except OSError:
        _end(child, grace_s)
        raise
    with guard:
        try:
            yield
        finally:
            _end(child, grace_s)
            if removal and not is_over(child.returncode):
                _remove(removal, environment)


def _remove(removal: tuple[str, ...], environment: Mapping[str, str]) -> None:
    """Remove a container; what can't be removed is found by whoever sweeps next."""
    with suppress(OSError, subprocess.TimeoutExpired):
        subprocess.run(
            removal,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_REMOVED_S,
            check=False,
        )


def _lines(partial: bytearray, data: bytes, on_line: Callable[[str], None]) -> None:
    """Pass on whole lines; a progress bar's carriage return ends one too, 64 KiB without an end does as well."""
    partial += data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    *whole, rest = bytes(partial).split(b"\n")
    if len(rest) > _CHUNK:
        whole, rest = [*whole, rest], b""
    partial[:] = rest
    for line in whole:
        on_line(line.decode("utf-8", "replace"))


def _wait(child: subprocess.Popen[bytes], timeout_s: float, cancel: Cancel) -> bool:
    with cancel:
        try:
            child.wait(max(0.01, timeout_s))
        except subprocess.TimeoutExpired:
            return False
    return True


def _has_left(child: subprocess.Popen[bytes]) -> bool:
    """Return whether a command has ended with all of its group: what still holds its output is a daemon it began.

    Such as ssh's, with ControlPersist, before OpenSSH 8.5: it holds the errors of the git that began it.
    """
    if child.poll() is None:
        return False
    try:
        os.killpg(child.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        pass
    return False


def _end(child: subprocess.Popen[bytes], grace_s: float) -> None:
    """End a command and all that it started: SIGTERM, SIGKILL, then leave it behind."""
    ended = child.poll() is not None
    for number in (signal.SIGTERM, signal.SIGKILL):
        if ended and number == signal.SIGTERM:
            continue
        # After the leader's end its group may live on, or be gone.
        try:
            os.killpg(child.pid, number)
        except (ProcessLookupError, PermissionError):
            break
        if ended:
            break
        try:
            child.wait(grace_s)
            ended = True
        except subprocess.TimeoutExpired:
            continue
    for pipe in (child.stdout, child.stderr):
        if pipe is not None:
            pipe.close()


def _cpu_s(session: int, mark: bytes) -> float:
    """Return the CPU seconds of all processes of a session, from /proc/PID/stat (fields 6, 14-17).

    Those in a container are of other sessions: they are known by the mark in their environment.
    """
    ticks = 0
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session or (mark and _is_marked(name, mark)):
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _is_marked(pid: str, mark: bytes) -> bool:
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return mark in file.read().split(b"\0")
    except OSError:
        return False
