# The first code that runs on a node: sent as text, executed by `python3 -I -S -c` (see runner/session.py).
# It must parse on Python 3.6, so that an old one can be told; it imports nothing heavy before hello, where json
# alone costs 6 ms and dataclasses 12.
#
# Frames on stdin are "NAME LENGTH\n" and LENGTH bytes: start, then after hello payload, secrets, plan, cancel.
# Lines on stdout stand behind the run's marker.
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import BufferedReader
    from typing import Any, Callable

FORMAT = 1
OLDEST = (3, 9)


class Refusal(Exception):
    """What this node holds against being used, said in hello."""


def quoted(text: str) -> str:
    """Return a JSON string."""
    return '"' + "".join(c if 31 < ord(c) < 127 and c not in '"\\' else f"\\u{ord(c):04x}" for c in text) + '"'


def frame(stdin: "BufferedReader") -> "tuple[str, bytes]":
    """Read one frame; ("", b"") at the end of input."""
    name, _, length = stdin.readline().decode().partition(" ")
    data = stdin.read(int(length or 0))
    return (name, data) if len(data) == int(length or 0) else ("", b"")


def parse(data: bytes) -> "dict[str, Any]":
    """Read the Start frame: JSON with raw UTF-8 is a Python literal too, and comes from who sent this code."""
    names = {"__builtins__": {}, "true": True, "false": False, "null": None}
    return dict(eval(data.decode(), names))  # noqa: S307


def shared(found: "os.stat_result") -> bool:
    """Return whether another user may exchange what is in a directory, whoever owns it.

    Root's code lies there, so that root counts a group of people too: see PEOPLE in node/trust.py.
    """
    mode = found.st_mode
    people = os.geteuid() == 0 and mode & 0o020 and 1000 <= found.st_gid != 65534
    return bool(mode & 0o002 or people) and not mode & 0o1000


def exposed(path: str) -> str:
    """Return what on the way to a path another user could put something of theirs in the place of; "": nothing."""
    us, at = os.geteuid(), ""
    names, links = path.split("/"), 0
    while names:
        name = names.pop(0)
        if name in ("", ".", ".."):
            at = at if name != ".." else os.path.dirname(at)
            continue
        above = os.lstat(at or "/")
        if shared(above):
            return at + "/" + name
        try:
            found = os.lstat(at + "/" + name)
        except OSError:
            return ""  # the rest is made by us, below what was looked at
        theirs = found.st_uid not in (0, us)
        if theirs and above.st_mode & 0o002:
            return at + "/" + name
        # Root's code lies there: nobody else may own a directory above it, but who is unknown in a user namespace.
        if us == 0 and theirs and found.st_uid != 65534:
            return at + "/" + name
        if (found.st_mode & 0o170000) == 0o120000:
            links += 1
            target = os.readlink(at + "/" + name)
            names, at = target.split("/") + names, "" if target.startswith("/") else at
            if links > 40:
                return path
        else:
            at += "/" + name
    return ""


def private(path: str) -> None:
    """Make a directory that is ours alone, or refuse what stands there."""
    try:
        above = os.path.dirname(path)
        other = exposed(above)
        if not other:
            os.makedirs(above, 0o755, exist_ok=True)
            other = exposed(above) or (path if shared(os.stat(above)) else "")
        if other:
            raise Refusal(f"state directory {path}: another user may replace {other}; set k3env_state_dir")
        if not os.path.lexists(path):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except OSError as error:
        raise Refusal(f"state directory {path}: {error.strerror}; set k3env_state_dir") from None
    if (found.st_mode & 0o170000) != 0o040000:
        raise Refusal(f"state directory {path} is a link or a file; remove it or set k3env_state_dir")
    if found.st_uid != os.geteuid():
        raise Refusal(f"state directory {path} belongs to uid {found.st_uid}, not to {os.geteuid()}")
    if found.st_mode & 0o077:
        raise Refusal(f"state directory {path} has mode {found.st_mode & 0o7777:o}, expected 700: chmod 700 {path}")


def boot_id(overlay: str) -> str:
    """Return the kernel's boot id, or an empty text where there is none."""
    for root in (overlay, ""):
        try:
            with open(root + "/proc/sys/kernel/random/boot_id") as file:
                return file.read().strip()
        except OSError:
            continue
    return ""


def hello(start: "dict[str, Any]", state: str, run_dir: str, payload: str, refusal: str) -> str:
    """Say who answers here, and what is missing."""
    fields = {
        "format": str(FORMAT),
        "python": quoted("{}.{}.{}".format(*sys.version_info)),
        "uid": str(os.geteuid()),
        "boot_id": quoted(boot_id(start["overlay"] or "")),
        "have_payload": "true" if os.path.isdir(payload) else "false",
        "known": "true" if os.path.exists(run_dir + "/journal") else "false",
        "state_dir": quoted(state),
        "simulated": "true" if start["overlay"] else "false",
        "refusal": quoted(refusal),
    }
    return '{"kind":"hello","data":{' + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}}"


def unpack(data: bytes, digest: str, target: str) -> None:
    """Put the payload where later runs find it, whole or not at all."""
    import hashlib
    import io
    import shutil
    import tempfile
    import zipfile

    if hashlib.sha256(data).hexdigest() != digest:
        sys.exit("the payload arrived damaged")
    base = os.path.dirname(target)
    os.makedirs(base, 0o700, exist_ok=True)
    temporary = tempfile.mkdtemp(prefix=".new-", dir=base)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            archive.extractall(temporary)
        os.rename(temporary, target)
    except OSError:
        shutil.rmtree(temporary, ignore_errors=True)
        if not os.path.isdir(target):
            raise


def heal_bytecode(payload: str) -> None:
    """Read past bytecode of the payload that a full disk or a power cut has cut off: Python would trust it for ever."""
    import _frozen_importlib_external as machinery  # importlib.machinery takes its time to import

    class Loader(machinery.SourceFileLoader):
        def get_code(self, name: str) -> "Any":
            try:
                return super().get_code(name)
            except (EOFError, ValueError, TypeError):  # as marshal names what is damaged
                os.unlink(machinery.cache_from_source(self.path))
                return super().get_code(name)

    def finder(path: str) -> "Any":
        if path != payload and not path.startswith(payload + "/"):
            raise ImportError
        return machinery.FileFinder(path, (Loader, [".py"]))

    sys.path_hooks.insert(0, finder)


def spawn(start: "dict[str, Any]", frames: "dict[str, bytes]", run_dir: str, payload: str) -> int:
    """Start the worker in its own session; return the pipe by which it says that its journal grew."""
    reader, writer = os.pipe()
    if os.fork():
        os.close(writer)
        os.read(reader, 1)  # the journal is there and locked, or the worker is gone
        os.set_blocking(reader, False)
        return reader
    code = 1
    try:
        import _signal  # type: ignore[import-not-found] # `signal` wraps it in enums, which take their time

        os.close(reader)
        os.setsid()
        # A wish to stop waits until there is somebody to hear it.
        _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTERM, _signal.SIGUSR1))
        log = os.open(run_dir + "/worker.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        null = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((null, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        os.set_blocking(writer, False)
        heal_bytecode(payload)
        sys.path.insert(0, payload)
        from k3env.node import worker

        code = worker.main(start, frames["plan"], frames.get("secrets", b"{}"), run_dir, writer)
    except ImportError:
        sys.excepthook(*sys.exc_info())
        # Somebody cleaned up in it, such as tmpfiles.d by age: the next run sends it anew.
        os.rename(payload, f"{payload}.damaged-{os.getpid()}")
    except Exception:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def alive(journal: int) -> bool:
    """Return whether the worker still holds its journal's lock."""
    import fcntl

    try:
        fcntl.lockf(journal, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    fcntl.lockf(journal, fcntl.LOCK_UN)
    return False


def terminate(run_dir: str, journal: int, number: int = 15) -> None:
    """Ask the worker to stop: by SIGTERM at once, by SIGUSR1 before its next task."""
    try:
        with open(run_dir + "/pid") as file:
            pid = int(file.read())
        if alive(journal):
            os.kill(pid, number)
    except (OSError, ValueError):
        return  # it has just ended


def follow(
    say: "Callable[[str], None]", stdin: "BufferedReader", run_dir: str, after: int, wake: int, cancel: bool
) -> None:
    """Pass on the journal's lines after a sequence number, until its end, the worker's or the controller's."""
    import fcntl
    import select

    try:
        journal = os.open(run_dir + "/journal", os.O_RDWR)
    except OSError:
        return say('{"kind":"lost"}')
    followed = os.open(run_dir + "/followed", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(followed, fcntl.LOCK_SH)
    os.set_blocking(0, False)
    if cancel:
        terminate(run_dir, journal)
    rest, dead = b"", False
    while True:
        data = os.read(journal, 65536)
        *lines, rest = (rest + data).split(b"\n")
        for line in lines:
            if line[:7] != b'{"seq":':
                continue  # a full disk has cut it off
            if int(line[7 : line.index(b",")]) > after:
                say(line.decode("utf-8", "replace"))
            if b'"kind":"end"' in line[:40]:
                return None
        if data:
            continue
        if dead:
            left = os.statvfs(run_dir)
            return say(f'{{"kind":"lost","data":{{"free_bytes":{left.f_bavail * left.f_frsize}}}}}')
        if not alive(journal):
            dead = True  # what it wrote last may not have been read yet
            continue
        watched = [0, wake] if wake >= 0 else [0]
        ready = select.select(watched, [], [], 0.5 if wake >= 0 else 0.05)[0]
        if wake in ready and not os.read(wake, 65536):
            wake = -1
        while 0 in ready:
            got = stdin.read(65536)
            if got is None:
                break
            if not got:
                return None  # nobody listens any more
            if b"ping" in got:
                say('{"kind":"pong"}')
            if b"cancel" in got:
                terminate(run_dir, journal)
            elif b"stop" in got:
                terminate(run_dir, journal, 10)


def main(stdin: "BufferedReader") -> None:
    """Say hello, start the worker or find it, and follow it."""
    name, data = frame(stdin)
    if name != "start":
        sys.exit(97)
    start = parse(data)
    marker = "k3env:" + start["run"] + " "

    def say(line: str) -> None:
        data = (marker + line + "\n").encode()
        while data:
            data = data[os.write(1, data) :]

    state = start["state_dir"] or f"/var/tmp/k3env-{os.geteuid()}"  # noqa: S108 - private() looks at it
    # By host too: two nodes may share a state directory, and a node may have two names.
    run_dir, payload = f"{state}/runs/{start['run']}.{start['host']}", f"{state}/payload/{start['payload']}"
    refusal = ""
    if sys.version_info[:2] < OLDEST:
        refusal = "Python 3.9 or later is needed; set ansible_python_interpreter to one"
    try:
        private(state)
    except Refusal as error:
        refusal = refusal or str(error)
    say(hello(start, state, run_dir, payload, refusal))
    if refusal:
        return
    wake = -1
    if start["action"] == "list" or (start["action"] == "run" and not os.path.exists(run_dir + "/journal")):
        frames = {}
        while "plan" not in frames:
            name, data = frame(stdin)
            if not name:
                return
            frames[name] = data
        if "payload" in frames:
            unpack(frames.pop("payload"), start["payload"], payload)
        if start["action"] == "list":
            heal_bytecode(payload)
            sys.path.insert(0, payload)
            from k3env.node import listing

            listing.tell(state, start["what"], say)
            return
        os.makedirs(run_dir, 0o700, exist_ok=True)
        wake = spawn(start, frames, run_dir, payload)
    follow(say, stdin, run_dir, start["after"], wake, start["action"] == "cancel")


try:
    main(i)  # type: ignore[name-defined] # noqa: F821 - `i` is the constant command's stdin
except OSError as error:
    sys.exit(f"{type(error).__name__}: {error}")
