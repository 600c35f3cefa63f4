"""Repositories behind a real `git daemon` on loopback, as a public server has them."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from k3env.node.offline import Mirror
from tests.unit.node.ground import commit, git

LFS = bytes(range(256)) * 8


@contextmanager
def daemon(root: Path) -> Iterator[str]:
    """Serve all repositories below a directory; return their common URL."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = ["git", "daemon", "--reuseaddr", "--listen=127.0.0.1", f"--port={port}", f"--base-path={root}"]
    process = subprocess.Popen([*words, "--export-all", "--verbose", str(root)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            time.sleep(0.05)
        yield f"git://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(10)


def repositories(root: Path, url: str) -> dict[str, str]:
    """Make a repository with a submodule, which has one named relative to itself, and a file of Git LFS.

    git's own protocol carries no LFS files: the repository names a directory for them, from which git-lfs copies.
    """
    inner = commit(root / "deep" / "inner", "inner", **{"inner.txt": "1"})
    commit(root / "deep" / "middle", "middle", **{"middle.txt": "1"})
    _submodule(root / "deep" / "middle", "../inner", "in", inner)
    middle = commit(root / "deep" / "middle", "with its own")
    main = root / "TensorRT-LLM"
    git_first = commit(main, "first", **{"a.txt": "1"})
    git(main, "lfs", "install", "--local")
    (main / "kernel.bin").write_bytes(LFS)
    _submodule(main, f"{url}/deep/middle", "3rdparty/middle", middle)
    attributes = "*.bin filter=lfs diff=lfs merge=lfs -text\n"
    files = {".gitattributes": attributes, ".lfsconfig": f"[lfs]\n\turl = {main.as_uri()}\n\tfetchexclude = *\n"}
    pinned = commit(main, "pinned", **files)
    later = commit(main, "later", **{"a.txt": "2"})
    git(main, "tag", "v1", git_first)
    return {"first": git_first, "pinned": pinned, "later": later, "middle": middle, "inner": inner}


def mirrored(directory: Path, mirror: Mirror) -> Mirror:
    """Let a directory have a mirror that has something in it, whatever that is."""
    place = directory / mirror.path
    (place / "objects" / "pack").mkdir(parents=True)
    (place / "objects" / "pack" / "any.pack").touch()
    (place / "HEAD").write_text("ref: refs/heads/main\n")
    return mirror


def _submodule(repository: Path, url: str, path: str, at: str) -> None:
    """Add a submodule without contacting its server."""
    (repository / path).mkdir(parents=True)
    for key, value in (("path", path), ("url", url)):
        git(repository, "config", "--file", ".gitmodules", f"submodule.{path}.{key}", value)
    git(repository, "update-index", "--add", "--cacheinfo", f"160000,{at},{path}")
    git(repository, "add", ".gitmodules")
    git(repository, "commit", "--quiet", "--message", "a submodule")
