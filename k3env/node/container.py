"""Commands in a container: what goes before their words, and what removes a container that outlives its command."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Optional

from k3env.errors import Refused
from k3env.node.contained import Contained
from k3env.protocol.container import Container

if TYPE_CHECKING:
    from k3env.node.machine import Machine

# enroot has no option for the working directory; the words of the command come as arguments, none is read as code.
_ENTER = 'cd "$1" && shift && exec "$@"'
_BOTH = ("source", "target")
MARK = "K3ENV_CONTAINER"
"""In the environment of all that runs in a container of ours: its name."""
NAMED = "k3env-"
"""How the names of our containers begin."""
OWNER = "k3env.owner"
"""The label that says whose worker a container is of."""
_LISTED_S, _REMOVED_S = 20.0, 60.0
_number = itertools.count(1)


def prefix(
    container: Container,
    repo: Optional[str],
    uid: int,
    gid: int,
    environment: Iterable[str] = (),
    workdir: Optional[str] = None,
    name: str = f"{NAMED}local",
) -> tuple[str, ...]:
    """Return the words that run a command inside an image, as this user, with `repo` mounted where it is outside.

    It runs in `workdir`, or in `repo`. Of the environment only names are given: their values go by the engine's own
    environment, where `ps` shows none. Source: `docker run --help`, podman-run(1), enroot's doc/cmd/start.md.
    """
    if container.engine == "none":
        return ()
    make = _enroot if container.engine == "enroot" else _docker
    names = tuple(sorted(environment))
    return make(container, repo, workdir or repo, (f"{MARK}={name}", *names), (uid, gid), name)


def wrap(
    container: Container,
    argv: Sequence[str],
    *,
    repo: Optional[str] = None,
    environment: Iterable[str] = (),
    workdir: Optional[str] = None,
    name: str = "local",
) -> Contained:
    """Return a command's words as they are to be started on the node, for the user who runs this.

    `name` is the machine's, "RUN-HOST-TASK": the container's own is made of it.
    """
    named = own_name(name)
    words = Contained((*prefix(container, repo, os.getuid(), os.getgid(), environment, workdir, named), *argv))
    if container.engine != "none":
        words.mark = f"{MARK}={named}"
        words.removal = removal(container.engine, named)
    return words


def own_name(name: str) -> str:
    """Return the name of a container that is this process's own: "k3env-RUN-HOST-TASK.PID.STARTED.NUMBER"."""
    kept = re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:200]
    return f"{NAMED}{kept}.{os.getpid()}.{_started(os.getpid())}.{next(_number)}"


def removal(engine: str, name: str) -> tuple[str, ...]:
    """Return the command that ends and removes a container, if its engine keeps any beside its command."""
    return () if engine in ("none", "enroot") else (engine, "rm", "--force", name)


def sweep(machine: Machine, engine: str) -> tuple[str, ...]:
    """Remove the containers of this user's workers that are gone: killed with their guard, or by a reboot.

    Return their names. Nothing is said of an engine that can't tell: what comes next will say it.
    """
    if engine in ("none", "enroot"):
        return ()
    wanted = f"label={OWNER}={_owner()}"
    words = (engine, "ps", "--all", "--filter", wanted, "--format", "{{.Names}}")
    done = machine.run(words, timeout_s=_LISTED_S)
    left = tuple(name for name in done.text.split() if done.ok and name.startswith(NAMED) and not _is_at_work(name))
    for name in left:
        machine.run(removal(engine, name), timeout_s=_REMOVED_S)
    return left


def _is_at_work(name: str) -> bool:
    """Return whether the worker that a container was started by still is there; also where the name does not say."""
    parts = name.rsplit(".", 3)
    if len(parts) != 4 or not (parts[1].isdigit() and parts[2].isdigit()):
        return True
    return _started(int(parts[1])) == parts[2]


def _started(pid: int) -> str:
    """Return when a process began, in ticks since boot: field 22 of /proc/PID/stat; "" for one that is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return ""


def _owner() -> str:
    """Return who looks after a container: this user, where these process numbers are valid."""
    return f"{os.getuid()}-{os.stat('/proc/self/ns/pid').st_ino}"


def _docker(
    container: Container,
    repo: Optional[str],
    workdir: Optional[str],
    names: tuple[str, ...],
    user: tuple[int, int],
    name: str,
) -> tuple[str, ...]:
    words = [container.engine, "run", "--rm", "--init", "--name", name, "--label", f"{OWNER}={_owner()}"]
    # So that podman's `rm --force` does not wait ten seconds; its own option for that is younger.
    words += ["--stop-timeout", "1", "--user", f"{user[0]}:{user[1]}"]
    if container.engine == "podman" and user[0] != 0:
        # Without it a rootless podman's user is another one on the mounted checkout.
        words.append("--userns=keep-id")
    if repo is not None:
        # The option is a line of CSV.
        fields = (f'"{key}={_doubled(repo)}"' if set(repo) & set(',"') else f"{key}={repo}" for key in _BOTH)
        words += ["--mount", f"type=bind,{','.join(fields)}"]
    for mount in container.mounts:
        words += ["--volume", mount]
    if workdir is not None:
        words += ["--workdir", workdir]
    # This user has no home in the image.
    words += ["--env", "HOME=/tmp"]
    for variable in names:
        words += ["--env", variable]
    return (*words, container.image)


def _doubled(text: str) -> str:
    return text.replace('"', '""')


def _enroot(
    container: Container,
    repo: Optional[str],
    workdir: Optional[str],
    names: tuple[str, ...],
    user: tuple[int, int],
    name: str,
) -> tuple[str, ...]:
    # Writable: build_wheel.py installs virtualenv into the image's Python. What is started from a file is gone
    # afterwards; no daemon holds it, and its processes are this command's own.
    words = ["enroot", "start", "--rw"]
    if repo is not None and ":" in repo:
        raise Refused(
            f"{repo} can't be mounted by enroot",
            expected="a path without a colon",
            found=repo,
            remedy="choose another path for the checkout",
        )
    for mount in ([f"{repo}:{repo}"] if repo is not None else []) + list(container.mounts):
        words += ["--mount", mount]
    for variable in names:
        words += ["--env", variable]
    words.append(container.image)
    return (*words, "sh", "-c", _ENTER, "k3env", workdir) if workdir is not None else tuple(words)
