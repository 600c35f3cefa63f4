"""flashinfer_cubins: filled, compared, put in place at once; and what a downloader that ends with 0 hides.

FlashInfer itself needs torch: a package of this name does as its downloader does, in a real environment, from a server.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from k3env.errors import TaskFailed
from k3env.node.machine import Machine, Space
from k3env.node.modules.flashinfer_cubins import FlashinferCubins
from k3env.protocol.profile import Profile
from tests.unit.node import ground

FMHA, GEMM = f"{'1' * 40}/fmha/trtllm-gen/", f"{'2' * 40}/gemm-1/"
FILES = {
    f"{FMHA}a.cubin": b"kernel a",
    f"{FMHA}b.cubin": b"kernel b",
    f"{FMHA}include/flashInferMetaInfo.h": b"// info",
    f"{GEMM}c.cubin": b"kernel c",
}
MAIN = """
import os, sys, urllib.request
from flashinfer.jit import env
print("Downloading cubins:  50%|#####     | 2/4 [00:01<00:01]")
base, names = os.environ["FLASHINFER_CUBINS_REPOSITORY"] + "/", []
def fetch(name):
    data = urllib.request.urlopen(base + name).read()
    path = os.path.join(env.FLASHINFER_CUBIN_DIR, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    open(path, "wb").write(data)
    open(path + ".lock", "w").close()
try:
    for name in urllib.request.urlopen(base + "listing").read().decode().split():
        fetch(name)
except Exception as error:
    print("Cubin download failed:", error)
"""
ENV = """
import os
FLASHINFER_CUBIN_DIR = os.environ["FLASHINFER_CUBIN_DIR"]
"""


def pool(at: Path) -> Path:
    """Write a set of cubins as FlashInfer's server has it."""
    for path, content in FILES.items():
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).write_bytes(content)
    for place in (FMHA, GEMM):
        mine = {path[len(place) :]: content for path, content in FILES.items() if path.startswith(place)}
        lines = [f"{hashlib.sha256(content).hexdigest()} {name}\n" for name, content in mine.items()]
        (at / place / "checksums.txt").write_text("".join([*lines, f"{'0' * 64} kernel_of_another.so\n"]))
    names = [*FILES, f"{FMHA}checksums.txt", f"{GEMM}checksums.txt"]
    (at / "listing").write_text("\n".join(names))
    return at


class Place:
    """A checkout with an environment that has this FlashInfer, and a server of cubins."""

    def __init__(self, base: Path, root: Path, url: str, served: Path) -> None:
        self.repo, self.url, self.served = root / "repo", url, served
        self.repo.mkdir()
        venv = ground.environment(base, self.repo / f".venv-{ground.VERSION}")
        self.site = venv / f"lib/python{ground.VERSION}/site-packages"
        (self.site / "flashinfer/jit").mkdir(parents=True)
        sums = {place: hashlib.sha256((served / place / "checksums.txt").read_bytes()) for place in (FMHA, GEMM)}
        artifacts = "".join(
            f'    {name}: str = "{place}"\n    {name}: str = (\n        "{sums[place].hexdigest()}"\n    )\n'
            for name, place in (("FMHA", FMHA), ("GEMM", GEMM))
        )
        for name, text in {"__init__": "", "__main__": MAIN, "jit/__init__": "", "jit/env": ENV}.items():
            (self.site / f"flashinfer/{name}.py").write_text(text)
        (self.site / "flashinfer/artifacts.py").write_text(artifacts)
        self.installed("flashinfer-python", "0.6.16")
        self.machine = ground.machine(root / "home", no_proxy="*")
        self.target = self.repo / ".k3env/cubins"

    def installed(self, name: str, version: str) -> None:
        for old in self.site.glob(f"{name.replace('-', '_')}-*"):
            shutil.rmtree(old)
        info = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        (info / "RECORD").write_text("")

    def module(self, **more: Any) -> FlashinferCubins:
        return FlashinferCubins(str(self.repo), **{"source": self.url, **more})

    def files(self) -> dict[str, bytes]:
        return {
            str(path.relative_to(self.target)): path.read_bytes() for path in self.target.rglob("*") if path.is_file()
        }

    def failed(self, **more: Any) -> TaskFailed:
        with pytest.raises(TaskFailed) as caught:
            self.module(**more).apply(self.machine, ())
        assert caught.value.finding.expected and caught.value.finding.found and caught.value.finding.remedy
        left = {path.name for path in (self.repo / ".k3env").iterdir()} - {"cubins", "cubins.json", "logs"}
        assert left == set(), "nothing half-filled may stay"
        return caught.value


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("environments")


@pytest.fixture
def place(base: Path, tmp_path: Path) -> Iterator[Place]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments: Any) -> None:
            """Say nothing."""

    served = pool(tmp_path / "served")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(served))) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield Place(base, tmp_path, f"http://127.0.0.1:{server.server_address[1]}", served)
        server.shutdown()


def whole(place: Place) -> bool:
    files = place.files()
    return {path: files.get(path) for path in FILES} == FILES and len(files) == len(FILES) + 2


def test_it_is_filled_and_compared(place: Place) -> None:
    (change,) = ground.perform(place.module(), place.machine)
    assert (change.before, change.after) == ("not filled", "cubins of FlashInfer 0.6.16")
    assert whole(place)
    record = json.loads((place.repo / ".k3env/cubins.json").read_text())
    assert (record["flashinfer"], record["compared"], len(record["files"])) == ("0.6.16", 4, 6)
    assert ("fetch FlashInfer's cubins: Downloading cubins 2/4", 0.5) in place.machine.told
    begun = len(place.machine.started)
    assert place.module().changes(place.machine) == () and len(place.machine.started) == begun
    told = place.module().reasons(place.machine)
    assert (
        told[0] == f"{place.target} has 6 cubins of FlashInfer 0.6.16, as they were filled" and "4 of them" in told[1]
    )


@pytest.mark.parametrize("spoil", ["cut", "gone", "all"])
def test_the_record_is_not_trusted_alone(place: Place, spoil: str) -> None:
    ground.perform(place.module(), place.machine)
    if spoil == "all":
        shutil.rmtree(place.target)
    elif spoil == "cut":
        (place.target / f"{FMHA}a.cubin").write_bytes(b"")
    else:
        (place.target / f"{GEMM}c.cubin").unlink()
    assert "absent or cut" in ground.perform(place.module(), place.machine)[0].before
    assert whole(place)


def test_another_flashinfer_wants_other_cubins(place: Place) -> None:
    ground.perform(place.module(), place.machine)
    (place.target / "stale.cubin").write_bytes(b"old")
    place.installed("flashinfer-python", "0.6.17")
    assert ground.perform(place.module(), place.machine)[0].before == "cubins of FlashInfer 0.6.16"
    assert whole(place)


def test_the_package_serves(place: Place) -> None:
    place.installed("flashinfer-cubin", "0.6.16")
    assert place.module().changes(place.machine) == ()
    assert "flashinfer-cubin 0.6.16 is installed" in place.module().reasons(place.machine)[0]
    (finding,) = place.module().judge(place.machine, Profile())
    assert finding.message == "cubins are those of flashinfer-cubin 0.6.16: nothing to fill"


def test_a_package_that_only_flashinfer_sees_serves_too(place: Place) -> None:
    """As in an image, into which nobody looks from outside."""
    (place.site / "flashinfer/jit/env.py").write_text("FLASHINFER_CUBIN_DIR = '/opt/flashinfer_cubin/cubins'")
    ground.perform(place.module(), place.machine)
    assert not place.target.exists()
    assert "/opt/flashinfer_cubin/cubins" in place.module().judge(place.machine, Profile())[0].message


# A downloader that ends with 0


@pytest.mark.parametrize("spoil", ["server", "content", "lacking", "listed", "old"])
def test_what_ends_with_0_is_not_believed(place: Place, spoil: str) -> None:
    if spoil == "server":
        (place.served / "listing").unlink()
    elif spoil == "content":
        (place.served / f"{FMHA}a.cubin").write_bytes(b"kernel ?")
    elif spoil == "lacking":
        # FlashInfer's list of a directory is empty where it could not be read.
        (place.served / "listing").write_text(f"{FMHA}checksums.txt\n{GEMM}checksums.txt\n{FMHA}a.cubin")
    elif spoil == "listed":
        (place.served / "listing").write_text("")
    else:
        (place.served / f"{GEMM}checksums.txt").write_text("")
    error = place.failed()
    assert error.finding.id == "cubins.incomplete", error
    assert spoil != "server" or "404" in (error.finding.found or "")
    assert not place.target.exists()


def test_what_was_there_stays_where_filling_fails(place: Place) -> None:
    ground.perform(place.module(), place.machine)
    place.installed("flashinfer-python", "0.6.17")
    (place.served / "listing").unlink()
    place.failed()
    assert whole(place)


def test_a_flashinfer_that_does_not_start(place: Place) -> None:
    (place.site / "flashinfer/__init__.py").write_text("raise ImportError('libcuda.so.1')")
    assert "libcuda" in repr(place.failed().finding)


def test_a_disk_that_is_full_is_told_as_that_and_not_as_a_server_that_lacks_something(place: Place) -> None:
    words = "Cubin download failed: [Errno 28] No space left on device: '/r/a.cubin'"
    (place.site / "flashinfer/__main__.py").write_text(f"print({words!r})\n")
    finding = place.failed().finding
    assert finding.id == "cubins.room" and "df -h" in (finding.remedy or "")


# Copies

FULL = """
import sys
from k3env.errors import TaskFailed
from k3env.node.machine import Machine, Space
from k3env.node.modules.flashinfer_cubins import FlashinferCubins
class Blind(Machine):
    def space(self, path): return Space(1 << 40, 1 << 20)
repo, source = sys.argv[1:]
try:
    FlashinferCubins(repo, source=source).apply(Blind(), ())
except TaskFailed as error:
    print(error.finding.id, error.finding.found, error.finding.remedy, sep="; ")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("kind", ["a directory", "an archive"])
@pytest.mark.parametrize("size", ["size=1m", "size=50m,nr_inodes=8"])
def test_a_disk_that_is_full_nevertheless(place: Place, tmp_path: Path, kind: str, size: str) -> None:
    """Space is told beforehand: here somebody else takes it meanwhile."""
    (place.served / f"{FMHA}a.cubin").write_bytes(bytes(2 << 20))
    source = place.served
    if kind == "an archive":
        source = tmp_path / "cubins.tar"
        with tarfile.open(source, "w") as pack:
            pack.add(place.served, ".")
    (place.repo / ".k3env").mkdir()
    inside = 'mount -t tmpfs -o "$1" none "$2" || exit 77; at=$2; shift 2; "$@"; ls -A "$at"'
    argv = [size, str(place.repo / ".k3env"), sys.executable, "-c", FULL, str(place.repo), str(source)]
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", inside, "sh", *argv], capture_output=True, text=True, check=False, timeout=60
    )
    if done.returncode == 77:
        pytest.skip("no mount namespaces here")
    told, *left = done.stdout.splitlines()
    assert told.startswith("cubins.room; No space left on device: /") and "make room" in told, done.stderr
    assert left == [], "nothing half-filled may stay"


def test_a_copy(place: Place) -> None:
    ground.perform(place.module(source=str(place.served)), place.machine)
    assert set(place.files()) - {"listing"} >= set(FILES)
    assert not [words for words in place.machine.started if "flashinfer" in words]


@pytest.mark.parametrize("around", ["", "cubins/"])
def test_an_archive(place: Place, tmp_path: Path, around: str) -> None:
    (place.served / "listing").unlink()
    with tarfile.open(tmp_path / "cubins.tar.gz", "w:gz") as pack:
        pack.add(place.served, around or ".")
    ground.perform(place.module(source=str(tmp_path / "cubins.tar.gz")), place.machine)
    assert whole(place)


@pytest.mark.parametrize("kind", ["link", "above", "absolute", "cut", "none", "empty"])
def test_an_archive_that_is_not_taken(place: Place, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "cubins.tar"
    with tarfile.open(path, "w") as pack:
        if kind != "empty":
            pack.add(place.served, ".")
        member = tarfile.TarInfo({"above": "../x.cubin", "absolute": "/tmp/x.cubin"}.get(kind, "x.cubin"))
        if kind == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc"
        if kind in ("link", "above", "absolute"):
            pack.addfile(member)
    if kind == "cut":
        os.truncate(path, path.stat().st_size // 2)
    if kind == "none":
        path.unlink()
    error = place.failed(source=str(path))
    assert error.finding.id == ("cubins.failed" if kind == "none" else "cubins.incomplete")
    assert not place.target.exists() and not (tmp_path / "x.cubin").exists()


def test_a_copy_for_another_flashinfer(place: Place) -> None:
    (place.served / f"{GEMM}checksums.txt").unlink()
    error = place.failed(source=str(place.served))
    assert f"{GEMM}checksums.txt" in (error.finding.found or "")


def test_too_little_room(place: Place) -> None:
    class Narrow(Machine):
        def space(self, path: str) -> Space:
            return Space(1 << 30, 1 << 20)

    place.machine = Narrow(environment=place.machine.environment)  # type: ignore[assignment]
    assert place.failed().finding.id == "cubins.room"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be two users")
def test_root_fills_no_directory_of_another_user(place: Place) -> None:
    (place.repo / ".k3env").mkdir()
    os.chown(place.repo / ".k3env", 1, 1)
    assert "set k3_user" in (place.failed().finding.remedy or "")


def test_no_environment(place: Place) -> None:
    shutil.rmtree(place.repo / f".venv-{ground.VERSION}")
    assert place.module().changes(place.machine)[0].after == "cubins of FlashInfer of this environment"
    with pytest.raises(TaskFailed, match=r"can't be installed into: absent"):
        place.module().apply(place.machine, ())
    ground.perform(place.module(source=str(place.served)), place.machine)


@pytest.mark.parametrize(
    "parameters, told",
    [
        ({"repo": "r"}, "repo must be an absolute path"),
        ({"repo": "/r", "source": "cubins.tar"}, "source must be an absolute path"),
        ({"repo": "/r", "source": "https://me:pass@x"}, "no name and password"),
        ({"repo": "/r", "downloads": 0}, "downloads must be"),
    ],
)
def test_parameters(parameters: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        FlashinferCubins(**parameters)
