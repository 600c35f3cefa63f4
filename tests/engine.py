"""A real container engine, with storage of its own: podman with runc, and an image of a few directories.

No registry is asked. The image's programs are the machine's own, mounted: /usr, and the Python of these tests, over
whose packages lie those that the image "brings".
"""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Optional

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
_STORAGE = """[storage]
driver = "{1}"
graphroot = "{0}/storage"
rootless_storage_path = "{0}/storage"
runroot = "{0}/run"
"""
_SEARCH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"


@dataclass(frozen=True)
class Podman:
    """podman, as a machine's commands find it."""

    home: Path
    packages: Path
    """What the image has installed."""
    user: Optional[pwd.struct_passwd] = None
    """Whose containers they are, without root's rights; None: root's."""

    @property
    def environment(self) -> dict[str, str]:
        """What leads podman to this storage."""
        names = {"CONTAINERS_CONF": "containers.conf", "CONTAINERS_STORAGE_CONF": "storage.conf"}
        found = {name: str(self.home / file) for name, file in names.items()}
        return found if self.user is None else {**found, "XDG_RUNTIME_DIR": str(self.home / "runtime")}

    def container(self, *mounts: Path) -> Container:
        """Return the image, with its programs and packages, and more directories of this machine."""
        # The Python of these tests may lie where only root can read.
        python = () if self.user is not None else (f"{PREFIX}:{PREFIX}:ro", f"{self.packages}:{SITE}:ro")
        return Container("podman", IMAGE, ("/usr:/usr:ro", *python, *(f"{path}:{path}" for path in mounts)))

    def said(self, *argv: str) -> str:
        """Run podman, which must succeed, and return what it says."""
        environment = {**os.environ, "PATH": _SEARCH, **self.environment}
        words = ["podman", *argv]
        if self.user is not None:
            environment["HOME"] = self.user.pw_dir
            who = (f"--reuid={self.user.pw_uid}", f"--regid={self.user.pw_gid}", "--init-groups")
            words = ["setpriv", *who, *words]
        done = subprocess.run(
            words, env=environment, cwd=self.home, capture_output=True, text=True, check=False, timeout=120
        )
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


def missing_without_root() -> str:
    """Return why no ordinary user can run containers here, or ""."""
    needed = ("newuidmap", "useradd", "setpriv", "pkill")
    absent = [program for program in needed if shutil.which(program, path=_SEARCH) is None]
    return missing() or (f"not installed: {', '.join(absent)}" if absent else "")


@contextmanager
def ordinary_user() -> Iterator[pwd.struct_passwd]:
    """Make a user who has subordinate numbers, as useradd gives them; gone with all its processes afterwards."""
    name = f"k3env-{os.getpid()}"
    subprocess.run(["useradd", "--create-home", name], check=True, env={**os.environ, "PATH": _SEARCH})
    user = pwd.getpwnam(name)
    try:
        yield user
    finally:
        subprocess.run(["pkill", "-KILL", "-u", str(user.pw_uid)], check=False)
        subprocess.run(["userdel", "--remove", "--force", name], check=False, env={**os.environ, "PATH": _SEARCH})


@contextmanager
def place() -> Iterator[Path]:
    """Make a directory that users can reach, which pytest's own are not, and short: podman 4.3 waits for long ones."""
    with tempfile.TemporaryDirectory(prefix="k3-", dir="/var/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@contextmanager
def podman(home: Path, user: Optional[pwd.struct_passwd] = None) -> Iterator[Podman]:
    """Make the storage and the image; all containers are gone when the block is left."""
    packages = home / "image-packages"
    packages.mkdir(parents=True)
    (home / "containers.conf").write_text(_CONTAINERS)
    # Not every kernel lets ordinary users mount overlays.
    driver = "overlay" if user is None else "vfs"
    (home / "storage.conf").write_text(_STORAGE.format(home, driver))
    found = Podman(home, packages, user)
    archive = home / "image.tar"
    _pack(archive)
    if user is not None:
        (home / "runtime").mkdir(mode=0o700)
        for path in (home, *home.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    found.said("import", "--quiet", "--change", f"ENV PATH={PREFIX}/bin:/usr/bin:/bin", str(archive), IMAGE)
    try:
        yield found
    finally:
        found.said("rm", "--all", "--force")
        found.said("rmi", "--all", "--force")
        if user is not None:
            # What belongs to subordinate users, only the engine can remove; it leaves a process that holds them.
            found.said("unshare", "rm", "-rf", str(home / "storage"))
            found.said("system", "migrate")


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
