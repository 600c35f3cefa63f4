"""Commands in a container: what goes before their words."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import Optional

from k3env.errors import Refused
from k3env.protocol.container import Container

# enroot has no option for the working directory; the words of the command come as arguments, none is read as code.
_ENTER = 'cd "$1" && shift && exec "$@"'
_BOTH = ("source", "target")


def prefix(
    container: Container,
    repo: Optional[str],
    uid: int,
    gid: int,
    environment: Iterable[str] = (),
    workdir: Optional[str] = None,
) -> tuple[str, ...]:
    """Return the words that run a command inside an image, as this user, with `repo` mounted where it is outside.

    It runs in `workdir`, or in `repo`. Of the environment only names are given: their values go by the engine's own
    environment, where `ps` shows none. Source: `docker run --help`, podman-run(1), enroot's doc/cmd/start.md.
    """
    if container.engine == "none":
        return ()
    make = _enroot if container.engine == "enroot" else _docker
    names = tuple(sorted(environment))
    return make(container, repo, workdir or repo, names, (uid, gid))


def wrap(
    container: Container,
    argv: Sequence[str],
    *,
    repo: Optional[str] = None,
    environment: Iterable[str] = (),
    workdir: Optional[str] = None,
) -> tuple[str, ...]:
    """Return a command's words as they are to be started on the node, for the user who runs this."""
    return (*prefix(container, repo, os.getuid(), os.getgid(), environment, workdir), *argv)


def _docker(
    container: Container,
    repo: Optional[str],
    workdir: Optional[str],
    names: tuple[str, ...],
    user: tuple[int, int],
) -> tuple[str, ...]:
    words = [container.engine, "run", "--rm", "--init", "--user", f"{user[0]}:{user[1]}"]
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
    for name in names:
        words += ["--env", name]
    return (*words, container.image)


def _doubled(text: str) -> str:
    return text.replace('"', '""')


def _enroot(
    container: Container,
    repo: Optional[str],
    workdir: Optional[str],
    names: tuple[str, ...],
    user: tuple[int, int],
) -> tuple[str, ...]:
    # Writable: build_wheel.py installs virtualenv into the image's Python; it is gone afterwards.
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
    for name in names:
        words += ["--env", name]
    words.append(container.image)
    return (*words, "sh", "-c", _ENTER, "k3env", workdir) if workdir is not None else tuple(words)
