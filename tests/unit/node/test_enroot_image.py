"""enroot_image: what enroot is told and where it works, and what becomes of the file that it makes.

enroot can't be had here: a program of this name notes its words and its environment, and packs a tree with the real
mksquashfs, as enroot would.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from k3env.errors import Refused, TaskFailed
from k3env.node.machine import Machine, Space
from k3env.node.modules.enroot_image import EnrootImage
from tests.agent import Agent, task
from tests.unit.node.ground import perform

pytestmark = pytest.mark.skipif(shutil.which("mksquashfs") is None, reason="no squashfs-tools")

SOURCE = "docker://nvcr.io#nvidia/tensorrt-llm/release:1.4.0"
LOGIN = "machine nvcr.io login $oauthtoken password nvapi-0123456789"
AARCH64 = b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\xb7\x00" + bytes(44)
STAND_IN = """#!/bin/sh
at=$(dirname "$0")
printf '%s\\n' "$@" > "$at/words"
env > "$at/environment"
cat "$ENROOT_CONFIG_PATH/.credentials" > "$at/credentials" 2>/dev/null
stat -c %a "$ENROOT_CONFIG_PATH/.credentials" > "$at/mode" 2>/dev/null
echo left > "$ENROOT_TEMP_PATH/layer"
echo "[INFO] Creating squashfs filesystem..."
[ -e "$at/say" ] && { cat "$at/say" >&2; exit 1; }
while [ "$1" != --output ]; do shift; done
[ -e "$at/options" ] && ENROOT_SQUASH_OPTIONS=$(cat "$at/options")
mksquashfs "$at/tree" "$2" -noappend -no-progress -all-root $ENROOT_SQUASH_OPTIONS
[ -e "$at/cut" ] && truncate -s 2000 "$2"
exit 0
"""


class Ground:
    """A node with this enroot, a temporary directory and a place for images."""

    def __init__(self, root: Path) -> None:
        self.bin, self.temp, self.path = root / "bin", root / "temp", root / "images/k3.sqsh"
        for directory in (self.bin / "tree/usr/bin", self.temp):
            directory.mkdir(parents=True)
        (self.bin / "tree/usr/bin/dash").write_bytes(AARCH64)
        (self.bin / "tree/noise").write_bytes(os.urandom(20_000))
        (self.bin / "enroot").write_text(STAND_IN)
        (self.bin / "enroot").chmod(0o755)
        environment = {"PATH": f"{self.bin}:/usr/sbin:/usr/bin:/sbin:/bin"}
        self.machine = Machine(environment=environment, name="run-host-task")

    def module(self, source: str = SOURCE, **more: Any) -> EnrootImage:
        known = {"arch": "aarch64", "temp": str(self.temp), "temp_free_gib": 0, **more}
        return EnrootImage(source, str(self.path), **known)

    def refused(self, **more: Any) -> TaskFailed:
        with pytest.raises(TaskFailed) as caught:
            self.module(**more).apply(self.machine, ())
        assert caught.value.finding.expected and caught.value.finding.found and caught.value.finding.remedy
        assert not self.path.exists()
        assert list(self.temp.iterdir()) == [], "what was unpacked must not stay"
        return caught.value

    def said(self, name: str) -> str:
        return (self.bin / name).read_text()


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path)


def test_an_image_comes_with_its_record(ground: Ground) -> None:
    (change,) = perform(ground.module(), ground.machine)
    assert (change.before, change.after) == ("absent", f"{SOURCE}, aarch64, zstd")
    assert f"was imported from {SOURCE}: aarch64, zstd" in ground.module().reasons(ground.machine)[0]
    words = ground.said("words").splitlines()
    assert words[:4] == ["import", "--arch", "aarch64", "--output"]
    assert words[5:] == ["--", SOURCE]
    fresh = Path(words[4])
    assert fresh.parent == ground.path.parent and fresh != ground.path
    record = json.loads((ground.path.parent / ".k3.sqsh.k3env.json").read_text())
    content = ground.path.read_bytes()
    assert record == {
        "source": SOURCE, "arch": "aarch64", "compressor": "zstd", "size": len(content),
        "mtime_ns": ground.path.stat().st_mtime_ns, "sha256": hashlib.sha256(content).hexdigest(),
        "by": "run-host-task",
    }  # fmt: skip
    assert {path.name for path in ground.path.parent.iterdir()} == {"k3.sqsh", ".k3.sqsh.k3env.json"}
    assert list(ground.temp.iterdir()) == []


def test_enroot_has_all_its_directories_on_the_local_disk(ground: Ground) -> None:
    perform(ground.module(), ground.machine)
    environment = dict(line.split("=", 1) for line in ground.said("environment").splitlines() if "=" in line)
    for name in ("TEMP", "CACHE", "DATA", "RUNTIME"):
        assert environment[f"ENROOT_{name}_PATH"].startswith(f"{ground.temp}/k3env-enroot-")
    assert environment["ENROOT_SQUASH_OPTIONS"] == "-comp zstd -noD -exit-on-error"
    assert ground.said("credentials") == ""


def test_credentials_lie_in_a_file_for_as_long_as_it_takes(ground: Ground) -> None:
    perform(ground.module(credentials=LOGIN), ground.machine)
    assert (ground.said("credentials"), ground.said("mode")) == (f"{LOGIN}\n", "600\n")
    (ground.bin / "credentials").unlink()
    assert "nvapi" not in ground.said("words") + ground.said("environment")
    assert not [
        path for path in ground.path.parent.parent.rglob("*") if path.is_file() and b"nvapi" in path.read_bytes()
    ]


def test_credentials_through_the_agent_are_left_nowhere(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    from k3env.protocol.secret import Secret, placeholder

    (ground.bin / "say").write_text(
        "[ERROR] URL https://nvcr.io/proxy_auth returned error code: 401 for nvapi-0123456789"
    )
    ground.path.parent.mkdir()
    monkeypatch.setenv("PATH", f"{ground.bin}:{os.environ['PATH']}")
    wanted = task(
        "enroot_image", source=SOURCE, path=str(ground.path), arch="aarch64", temp=str(ground.temp), temp_free_gib=0,
        credentials=placeholder(Secret("file:/token")),
    )  # fmt: skip
    heard = Agent(ground.temp.parent / "agent").follow([wanted], secrets={"file:/token": "nvapi-0123456789"})
    assert heard.result()["findings"][0]["id"] == "enroot.credentials", heard.result()
    assert "nvapi" not in repr(heard.events) + heard.said


def test_what_is_there_costs_nothing(ground: Ground) -> None:
    perform(ground.module(), ground.machine)
    (ground.bin / "words").unlink()
    assert ground.module().changes(ground.machine) == ()
    assert not (ground.bin / "words").exists()


@pytest.mark.parametrize(
    "more, before",
    [
        ({"source": f"{SOURCE}-rc1"}, SOURCE),
        ({"compressor": "gzip"}, "zstd"),
        ({"arch": "x86_64"}, "aarch64"),
    ],
)
def test_another_one_is_wanted(ground: Ground, more: dict[str, str], before: str) -> None:
    perform(ground.module(), ground.machine)
    (change,) = ground.module(**more).changes(ground.machine)
    assert change.before == before
    if more.get("arch") is None:
        perform(ground.module(**more), ground.machine)


@pytest.mark.parametrize("spoil", ["cut", "touched", "other"])
def test_the_record_is_not_trusted_alone(ground: Ground, spoil: str) -> None:
    perform(ground.module(), ground.machine)
    if spoil == "cut":
        os.truncate(ground.path, 3000)
    elif spoil == "touched":
        ground.path.touch()
    else:
        ground.path.write_bytes(b"no squashfs")
    perform(ground.module(), ground.machine)


def test_a_file_of_somebody_else_is_not_touched(ground: Ground) -> None:
    ground.path.parent.mkdir()
    ground.path.write_bytes(b"theirs")
    with pytest.raises(Refused, match="nothing says from what it was made") as caught:
        ground.module().changes(ground.machine)
    assert "--skip-tags image" in (caught.value.finding.remedy or "")


def test_leftovers_of_a_killed_import_are_removed(ground: Ground) -> None:
    (ground.bin / "say").write_text("Checksum mismatch: 0")
    assert ground.refused().finding.id == "enroot.checksum"
    (ground.bin / "say").unlink()
    ours = f"k3env-enroot-{hashlib.sha256(str(ground.path).encode()).hexdigest()[:12]}-old"
    for left in (ground.temp / ours / "temp", ground.temp / "k3env-enroot-of-another-image", ground.temp / "theirs"):
        left.mkdir(parents=True)
    (ground.path.parent / ".k3.sqsh.k3env-0.sqsh").write_bytes(b"x")
    perform(ground.module(), ground.machine)
    assert {path.name for path in ground.temp.iterdir()} == {"k3env-enroot-of-another-image", "theirs"}
    assert len(list(ground.path.parent.iterdir())) == 2


# What goes wrong

SAID = {
    "enroot-aufs2ovlfs: failed to set capabilities: Operation not permitted": ("enroot.whiteouts", "enroot+caps"),
    "[ERROR] URL https://nvcr.io/proxy_auth returned error code: 401 Unauthorized": ("enroot.credentials", "secret"),
    "Write failed because No space left on device": ("enroot.disk", "three times"),
    "something new": ("enroot.failed", "see what its output says"),
}


@pytest.mark.parametrize("words", SAID)
def test_enroots_words_are_explained(ground: Ground, words: str) -> None:
    (ground.bin / "say").write_text(words)
    error = ground.refused()
    assert error.finding.id == SAID[words][0] and SAID[words][1] in (error.finding.remedy or "")
    assert list(ground.path.parent.iterdir()) == []


def test_another_architecture_than_was_asked_for(ground: Ground) -> None:
    """enroot only warns of it."""
    error = ground.refused(arch="x86_64")
    assert (error.finding.id, error.finding.found) == ("image.arch", "programs for aarch64")


def test_a_compressor_that_enroots_configuration_insists_on(ground: Ground) -> None:
    (ground.bin / "options").write_text("-comp gzip")
    error = ground.refused()
    assert (error.finding.id, error.finding.found) == ("image.compressor", "gzip")


def test_an_exit_code_that_lies(ground: Ground) -> None:
    (ground.bin / "cut").touch()
    assert ground.refused().finding.id == "image.cut"


def test_no_enroot(ground: Ground) -> None:
    (ground.bin / "enroot").unlink()
    assert "enroot+caps" in (ground.refused().finding.remedy or "")


def test_too_little_room(ground: Ground) -> None:
    class Narrow(Machine):
        def space(self, path: str) -> Space:
            return Space(5 << 30, 1 << 20)

    ground.machine = Narrow(environment=ground.machine.environment)
    assert ground.refused(temp_free_gib=100).finding.id == "image.temp_room"


def test_a_network_filesystem_is_no_place_for_layers(ground: Ground, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay/proc/self"
    overlay.mkdir(parents=True)
    (overlay / "mountinfo").write_text(
        f"1 0 0:1 / / rw - ext4 /dev/a rw\n2 1 0:2 / {ground.temp} rw - nfs4 filer:/x rw\n"
    )
    ground.machine = Machine(overlay=str(tmp_path / "overlay"), environment=ground.machine.environment)
    error = ground.refused()
    assert error.finding.id == "image.temp" and "nfs4" in (error.finding.found or "")


def test_a_temporary_directory_that_is_not_there(ground: Ground, tmp_path: Path) -> None:
    assert "is no directory" in str(ground.refused(temp=str(tmp_path / "nowhere")))


@pytest.mark.parametrize(
    "parameters, told",
    [
        (("ubuntu", "/i.sqsh"), "source must be docker://"),
        (("docker://me:secret@nvcr.io#a/b", "/i.sqsh"), "without a password"),
        (("docker://nvcr.io/nvidia/tensorrt-llm/release:1", "/i.sqsh"), "write docker://nvcr.io#nvidia/tensorrt-llm"),
        (("docker://me.example/a:1", "/i.sqsh"), "write docker://me.example#a:1"),
        (("docker://a b", "/i.sqsh"), "source must be"),
        (("docker://a", "i.sqsh"), "path must be an absolute path"),
        (("docker://a", "/i.img"), "path must end with .sqsh"),
        (("docker://a", "/i.sqsh", "arm64"), "arch must be aarch64 or x86_64"),
    ],
)
def test_parameters(parameters: tuple[Any, ...], told: str) -> None:
    import re

    with pytest.raises(ValueError, match=re.escape(told)):
        EnrootImage(*parameters)


@pytest.mark.parametrize("source", ["docker://ubuntu", "docker://$oauthtoken@nvcr.io#nvidia/cuda:13.0-base", "dockerd://a/b:1",
                                    "podman://localhost/k3:1", "docker://localhost:5000#a/b"])  # fmt: skip
def test_sources(source: str) -> None:
    assert EnrootImage(source, "/i.sqsh").source == source


def test_modes_of_what_is_written(ground: Ground) -> None:
    perform(ground.module(), ground.machine)
    assert stat.S_IMODE(ground.path.stat().st_mode) & 0o044 == 0o044


@pytest.mark.parametrize("spoilt", [False, True])
def test_a_copy_with_another_time_is_compared_before_it_is_imported_anew(ground: Ground, spoilt: bool) -> None:
    perform(ground.module(), ground.machine)
    (ground.bin / "words").unlink()
    if spoilt:
        content = bytearray(ground.path.read_bytes())
        content[-1] ^= 1
        ground.path.write_bytes(content)
    os.utime(ground.path, (1, 1))
    perform(ground.module(), ground.machine)
    assert (ground.bin / "words").exists() is spoilt
    record = json.loads((ground.path.parent / ".k3.sqsh.k3env.json").read_text())
    assert record["source"] == SOURCE and record["mtime_ns"] == ground.path.stat().st_mtime_ns


class TestAFileThatWasCarried:
    """An image that was imported elsewhere, and is told by its digest."""

    @pytest.fixture
    def carried(self, ground: Ground) -> str:
        perform(ground.module(), ground.machine)
        (ground.path.parent / ".k3.sqsh.k3env.json").unlink()
        (ground.bin / "words").unlink()
        return hashlib.sha256(ground.path.read_bytes()).hexdigest()

    def module(self, ground: Ground, sha256: str, **more: Any) -> EnrootImage:
        return EnrootImage(path=str(ground.path), arch="aarch64", sha256=sha256, **more)

    def test_it_is_read_once_and_taken_over(
        self, ground: Ground, carried: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        module = self.module(ground, carried)
        (change,) = perform(module, ground.machine)
        assert (change.before, change.after) == ("not compared", carried)
        assert not (ground.bin / "words").exists(), "nothing was imported"
        monkeypatch.setattr(hashlib, "sha256", None)
        assert module.changes(ground.machine) == (), "and not read again"
        reasons = module.reasons(ground.machine)
        assert "taken over: aarch64, zstd" in reasons[0] and carried[:12] in reasons[1]

    def test_after_a_touch_it_is_read_again(self, ground: Ground, carried: str) -> None:
        perform(self.module(ground, carried), ground.machine)
        os.utime(ground.path, (1, 1))
        perform(self.module(ground, carried), ground.machine)

    def test_another_is_refused_by_reading_and_by_what_was_read(self, ground: Ground, carried: str) -> None:
        with pytest.raises(Refused, match=carried) as caught:
            self.module(ground, "0" * 64).apply(ground.machine, ())
        assert caught.value.finding.id == "image.digest" and "sha256sum" in (caught.value.finding.remedy or "")
        assert not (ground.path.parent / ".k3.sqsh.k3env.json").exists()
        perform(self.module(ground, carried), ground.machine)
        with pytest.raises(Refused, match=carried):
            self.module(ground, "0" * 64).changes(ground.machine)

    def test_one_of_other_cpus_is_refused(self, ground: Ground, carried: str) -> None:
        module = EnrootImage(path=str(ground.path), arch="x86_64", sha256=carried)
        with pytest.raises(TaskFailed, match="programs for aarch64") as caught:
            module.apply(ground.machine, ())
        assert caught.value.finding.id == "image.arch"

    def test_one_that_was_cut_is_refused_before_it_is_read(self, ground: Ground, carried: str) -> None:
        os.truncate(ground.path, 2000)
        with pytest.raises(Refused, match="2000 bytes"):
            self.module(ground, carried).apply(ground.machine, ())

    def test_none_at_all_is_not_imported(self, ground: Ground, carried: str) -> None:
        ground.path.unlink()
        with pytest.raises(Refused, match="no such file") as caught:
            self.module(ground, carried).changes(ground.machine)
        assert "no import makes the same bytes" in (caught.value.finding.remedy or "")

    def test_one_that_grows_is_no_answer(self, ground: Ground, carried: str, monkeypatch: pytest.MonkeyPatch) -> None:
        from k3env.node.modules._image import Import

        def grown(self: Import, path: str, size: int) -> str:
            os.utime(path, (5, 5))
            return carried

        monkeypatch.setattr(Import, "_digest", grown)
        with pytest.raises(Refused, match="changed while it was read"):
            self.module(ground, carried).apply(ground.machine, ())

    def test_what_is_none_is_said(self) -> None:
        with pytest.raises(ValueError, match="64 hexadecimal digits"):
            EnrootImage(path="/a.sqsh", sha256="sha256:12")
        with pytest.raises(ValueError, match="name source"):
            EnrootImage(path="/a.sqsh")
