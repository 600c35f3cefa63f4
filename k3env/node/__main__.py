# The first code of k3env-preflight.pyz. It must parse on Python 3.6, so that an old one can be told; and what fails
# here, or after it, must not stop a job where we fail open: see protocol/context.py, whose rows a test compares.
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Optional

OLDEST = (3, 9)
OPEN_S = {"hc": 5.0, "prolog": 5.0}
CONTEXTS = ("hc", "prolog", "job", "login", "image")
# What Slurm calls the script that it runs, by SLURM_SCRIPT_CONTEXT.
SCRIPTS = {
    "prolog_slurmd": "prolog",
    "epilog_slurmd": "prolog",
    "prolog_slurmctld": "prolog",
    "epilog_slurmctld": "prolog",
    "prolog_task": "job",
    "epilog_task": "job",
    "prolog_srun": "login",
    "epilog_srun": "login",
}
EXIT_ERROR, EXIT_FAILED, EXIT_INTERRUPTED = 1, 2, 130


def context(argv: "list[str]", environment: "Mapping[str, str]") -> str:
    """Return the context: of --context, of our own name (k3env-prolog, k3env-hc.pyz), of Slurm, or job."""
    words = dict(zip(argv[1:], argv[2:]))
    asked = [word[len("--context=") :] for word in argv[1:] if word.startswith("--context=")]
    name = os.path.basename(argv[0])
    name = (name[: -len(".pyz")] if name.endswith(".pyz") else name).rpartition("-")[2]
    given = (words.get("--context"), *asked, "prolog" if name == "epilog" else name)
    known = [item for item in given if item in CONTEXTS]
    return known[0] if known else SCRIPTS.get(environment.get("SLURM_SCRIPT_CONTEXT", ""), "job")


def tell(open_: bool, message: str) -> None:
    """Say one sentence of our own: where we fail open to syslog too, where somebody looks."""
    import contextlib

    with contextlib.suppress(Exception):
        sys.stderr.write("k3env-preflight: " + message + "\n")
        sys.stderr.flush()
    if open_:
        with contextlib.suppress(Exception):
            import syslog

            syslog.openlog("k3env-preflight", syslog.LOG_PID, syslog.LOG_DAEMON)
            syslog.syslog(syslog.LOG_ERR, message)


def unsafe(path: str) -> "Optional[str]":
    """Return why root should not run this file: somebody else can write it, or replace it; or None."""
    import stat

    todo, seen = [os.path.abspath(path), os.path.realpath(path)], {""}
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        seen.add(here)
        found = os.lstat(here)
        if found.st_uid != 0:
            return f"{here} belongs to uid {found.st_uid}"
        if found.st_mode & 0o022 and not stat.S_ISLNK(found.st_mode):
            return f"{here} can be written by others (mode {stat.S_IMODE(found.st_mode):04o})"
        if here != "/":
            todo.append(os.path.dirname(here))
    return None


def open_streams() -> None:
    """Open what was closed of standard input, output and error: a pipe or a file of ours must not take its place."""
    while True:
        found = os.open(os.devnull, os.O_RDWR)
        if found > 2:
            os.close(found)
            break
        os.set_inheritable(found, True)
    for name, number, mode in (("stdin", 0, "r"), ("stdout", 1, "w"), ("stderr", 2, "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - open as long as we are


def is_root() -> bool:
    """Return whether we are the machine's root, not that of a user namespace such as a container's."""
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map") as file:
            return file.read().split() == ["0", "0", "4294967295"]
    except OSError:
        return True


def run(name: str, started: float) -> int:
    """Import what does the work, and do it; return the exit code."""
    # All is over in a moment, and a collector of garbage makes children copy what they only read.
    import gc

    gc.disable()
    here = os.path.abspath(sys.argv[0])
    if os.path.isfile(here) and not here.endswith(".py"):
        # What was compiled for this interpreter when the file was made; without it Python compiles at each start.
        sys.path.insert(0, os.path.join(sys.path[0], f"compiled-{sys.implementation.cache_tag}"))
    from k3env.node.preflight import entry

    return entry.main(sys.argv[1:], name, started)


def supervised(name: str, started: float) -> int:
    """Do the work in a child: whatever becomes of it, only its own word that a check failed can stop a job."""
    import select
    import signal

    receiver, sender = os.pipe()
    child = os.fork()
    if not child:
        os.close(receiver)
        try:
            code = run(name, started)
            try:
                sys.stdout.flush()
            except OSError as error:
                tell(True, f"what there was to say could not be told: {error}")
            os.write(sender, b"%d" % code)
        except BaseException as error:
            tell(True, f"a defect, nothing was stopped: {type(error).__name__}: {error}")
            os.write(sender, b"0")
        finally:
            os._exit(0)
    os.close(sender)
    left = started + OPEN_S[name] - time.monotonic()
    said = os.read(receiver, 16) if select.select([receiver], [], [], max(left, 0.1))[0] else None
    if said is None:
        try:
            from k3env.node.trees import end_tree

            end_tree(child)
        except Exception:
            os.kill(child, signal.SIGKILL)
        tell(True, f"no verdict after {OPEN_S[name]:g} s, nothing was stopped")
    elif said not in (b"0", b"1", b"2", b"3"):
        tell(True, "ended without a verdict, nothing was stopped")
        said = b"0"
    return int(said or b"0")


def main() -> int:
    """Choose the context, and run there; where we fail open, nothing that befalls us is more than a sentence."""
    started = time.monotonic()
    name = context(sys.argv, os.environ)
    if name not in OPEN_S:
        open_streams()
        return chosen(name, started)
    try:
        open_streams()
        return chosen(name, started)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except Exception as error:
        tell(True, f"an error of ours, nothing was stopped: {type(error).__name__}: {error}")
        return 0


def chosen(name: str, started: float) -> int:
    """Refuse where we should not run, and run."""
    open_ = name in OPEN_S
    refusal = None
    if sys.version_info[:2] < OLDEST:
        refusal = "Python 3.9 or later is needed, {} is {}.{}".format(sys.executable, *sys.version_info[:2])
    elif is_root():
        why = unsafe(sys.argv[0])
        refusal = why and why + ": root does not run it; put it into a directory of root's, such as /opt/k3env"
    if refusal:
        tell(open_, refusal)
        return 0 if open_ else EXIT_ERROR
    if open_:
        return supervised(name, started)
    try:
        code = run(name, started)
        sys.stdout.flush()
        return code
    except (BrokenPipeError, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except Exception as error:
        tell(False, f"a defect: {type(error).__name__}: {error}")
        return EXIT_ERROR


if __name__ == "__main__":
    code = main()
    # At once: what Python takes to tidy up is of no use to anybody, and whoever read us may have left.
    os._exit(code)
