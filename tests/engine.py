"""A real container engine, with storage of its own: podman with runc, and an image of a few directories.

No registry is asked. The image's programs are the machine's own, mounted: /usr, and the Python of these tests, over
whose packages lie those that the image "brings".
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

from k3env.protocol.container import Container

PROGRAMS = ("podman", "runc", "catatonit")
IMAGE = "localhost/k3:1"
PREFIX = Path(os.path.realpath(getattr(sys, "_base_executable", sys.executable))).parents[1]
SITE = PREFIX / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"
# No limit is raised, which may be forbidden here, and no network is needed.
_CONTAINERS = """[containers]
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
netns = "none"
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "runc"
"""
_STORAGE = '[storage]\ndriver = "overlay"\ngraphroot = "{0}/storage"\nrunroot = "{0}/run"\n'
_SEARCH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Podman:
    """podman, as a machine's commands find it."""

    home: Path
    packages: Path
    """What the image has installed."""

    @property
    def environment(self) -> dict[str, str]:
        """What leads podman to this storage."""
        names = {"CONTAINERS_CONF": "containers.conf", "CONTAINERS_STORAGE_CONF": "storage.conf"}
        return {name: str(self.home / file) for name, file in names.items()}

    def container(self, *mounts: Path) -> Container:
        """Return the image, with its programs and packages, and more directories of this machine."""
        own = ("/usr:/usr:ro", f"{PREFIX}:{PREFIX}:ro", f"{self.packages}:{SITE}:ro")
        return Container("podman", IMAGE, (*own, *(f"{path}:{path}" for path in mounts)))

    def said(self, *argv: str) -> str:
        """Run podman, which must succeed, and return what it says."""
        environment = {**os.environ, "PATH": _SEARCH, **self.environment}
        done = subprocess.run(["podman", *argv], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def names(self) -> list[str]:
        """Return the names of all containers, whatever became of them."""
        return self.said("ps", "--all", "--format", "{{.Names}}").split()

    def brings(self, name: str, version: str) -> None:
        """Let the image bring a package."""
        info = self.packages / f"{name}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


def missing() -> str:
    """Return why no engine can run here, or ""."""
    if os.geteuid() != 0:
        return "containers need root here"
    absent = [program for program in PROGRAMS if shutil.which(program, path=_SEARCH) is None]
    return f"not installed: {', '.join(absent)}" if absent else ""


@contextmanager
def podman(home: Path) -> Iterator[Podman]:
    """Make the storage and the image; all containers are gone when the block is left."""
    packages = home / "image-packages"
    packages.mkdir(parents=True)
    (home / "containers.conf").write_text(_CONTAINERS)
    (home / "storage.conf").write_text(_STORAGE.format(home))
    found = Podman(home, packages)
    archive = home / "image.tar"
    _pack(archive)
    found.said("import", "--quiet", "--change", f"ENV PATH={PREFIX}/bin:/usr/bin:/bin", str(archive), IMAGE)
    try:
        yield found
    finally:
        found.said("rm", "--all", "--force")
        found.said("rmi", "--all", "--force")


def _pack(archive: Path) -> None:
    with tarfile.open(archive, "w") as tar:
        for name in ("usr", "etc", "tmp", "proc", "sys", "dev", "run", "var", "root"):
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name == "tmp" else 0o755
            tar.addfile(entry)
        for name in ("bin", "lib", "lib64", "sbin"):
            link = tarfile.TarInfo(name)
            link.type, link.linkname = tarfile.SYMTYPE, f"usr/{name}"
            tar.addfile(link)
        users = b"root:x:0:0::/root:/bin/sh\n"
        passwd = tarfile.TarInfo("etc/passwd")
        passwd.size = len(users)
        tar.addfile(passwd, BytesIO(users))
