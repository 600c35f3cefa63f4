"""The marker of a process that serves from a checkout: `<repo>/.k3env/in-use/NAME`, renewed until the process ends.

Whoever starts a server calls `mark`; rank_env.sh, sourced where no k3env is, brings the same program along.
What renews a marker is a process of its own, of which the server knows nothing: the shell that sources rank_env.sh
becomes the server, and a server's own threads stand still while it loads. It ends with the process that it watches, at
once, and takes the marker away. One that is killed together with it leaves a marker whose counter stands still.
"""

from __future__ import annotations

import subprocess
import sys

EVERY_S = 10
"""How often the counter is raised, seconds."""
PLACE = ".k3env/in-use"
"""Where markers are, in a checkout."""

PROGRAM = r'''
def mark(repo, pid, rank=""):
    """Mark a checkout as in use by a process, until that ends; return why that can't be done, or nothing."""
    import json, os, pwd, re, select, signal, time

    def started():
        with open("/proc/%d/stat" % pid, "rb") as file:
            words = file.read().rpartition(b")")[2].split()
        return "" if words[0] in (b"Z", b"X") else words[19].decode()

    def read(path):
        with open(path) as file:
            return file.read().strip()

    def write(count, flags):
        with os.fdopen(os.open(name, os.O_WRONLY | os.O_NOFOLLOW | flags, 0o644, dir_fd=place), "wb") as file:
            file.write(json.dumps(dict(about, count=count)).ljust(2048).encode())

    held = {int(number) for number in os.listdir("/proc/self/fd")}
    try:
        begun = started()
        about = {
            "host": os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
            "boot_id": read("/proc/sys/kernel/random/boot_id"),
            "pid_namespace": os.readlink("/proc/self/ns/pid"),
            "pid": pid, "started": begun, "uid": os.getuid(), "rank": rank,
            "job": os.environ.get("SLURM_JOB_ID", ""), "since": time.time(),
        }
        try:
            about["user"] = pwd.getpwuid(os.getuid()).pw_name
        except KeyError:
            about["user"] = "uid %d" % os.getuid()
        words = (about["host"], about["boot_id"][:8], about["pid_namespace"], str(pid), begun)
        name = re.sub("[^A-Za-z0-9_.-]", "", "-".join(words))
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
        above = os.open(os.path.join(repo, ".k3env"), flags)
        try:
            os.mkdir("in-use", 0o755, dir_fd=above)
        except FileExistsError:
            pass
        place = os.open("in-use", flags, dir_fd=above)
        os.close(above)
        write(0, os.O_CREAT | os.O_EXCL)
    except FileExistsError:
        return ""  # it is marked already
    except OSError as error:
        return "%s: %s" % (error.strerror, error.filename)
    child = os.fork()
    if child:
        os.close(place)
        return ""
    try:
        # Nothing of the rank's stays open, or it would not end for those who wait for the end of its output.
        os.setsid()
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        for number in held - {0, 1, 2, place}:
            try:
                os.close(number)
            except OSError:
                pass
        os.chdir("/")
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        try:
            with open("/proc/self/comm", "w") as file:
                file.write("k3env-in-use")
        except OSError:
            pass
        try:
            watched = [os.pidfd_open(pid)]
        except (AttributeError, OSError):
            watched = []  # a kernel before 5.3: then it is asked for every second
        count, due = 0, time.monotonic() + EVERY_S
        while started() == begun:
            if select.select(watched, [], [], max(0, due - time.monotonic()) if watched else 1)[0]:
                break
            if time.monotonic() >= due:
                count, due = count + 1, time.monotonic() + EVERY_S
                try:
                    write(count, os.O_CREAT)
                except OSError:
                    pass  # the filesystem may come back
    except OSError:
        pass  # there is no such process any more
    finally:
        try:
            os.unlink(name, dir_fd=place)
        finally:
            os._exit(0)
'''.replace("EVERY_S", str(EVERY_S))
"""The program, for Python 3.6 and later; the standard library alone."""


def mark(repo: str, pid: int, rank: str = "", *, python: str = sys.executable) -> str:
    """Mark a checkout as in use by a process of this machine, until that ends.

    Return "", or why there is no marker: a checkout that this user can't write to has none.
    """
    program = f"{PROGRAM}\nimport sys\nprint(mark(sys.argv[1], int(sys.argv[2]), sys.argv[3]))\n"
    argv = [python, "-I", "-c", program, repo, str(pid), rank]
    done = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30, check=False)
    return done.stdout.decode("utf-8", "replace").strip()
