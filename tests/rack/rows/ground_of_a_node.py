"""What a node stands on: disks, mounts, clocks, programs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import zipfile
from pathlib import Path

from tests.rack import roots
from tests.rack.bed import Node, wait_until
from tests.rack.row import Ground, Seen, again, row, seen

SMALL_MIB = 64
_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build  (root@builder)\n"
LOOK = {"command": {"argv": ["true"], "read_only": True}}


@row("disk full before the run: no payload or journal can be written")
def disk_full(ground: Ground) -> Seen:
    with ground.site(disk_mib=SMALL_MIB) as site:
        play = site.build(0.1)
        filler = site.node.fill("/var/tmp")
        said = site.run(play, timeout_s=10)
        assert site.begun() == []
        filler.unlink()
        again(site, play)
        return seen(said, r"No space left on device", "0, builds", code=2)


@row(
    "disk full in a build: the journal can't be written on",
)
def disk_full_later(ground: Ground) -> Seen:
    with ground.site(disk_mib=SMALL_MIB) as site:
        site.build(2)
        # More than the page of the journal that is there already.
        play = site.playbook(*json.loads(Path(site.home / "work.yml").read_text())[0]["tasks"], *[LOOK] * 40)
        running = site.start(play)
        wait_until(site.begun, 15, running.said)
        filler = site.node.fill("/var/tmp")
        said = running.end()
        site.quiet()
        filler.unlink()
        again(site, play)
        assert site.begun() == ["a"], "the build itself had room"
        return seen(said, r"the worker is gone, without an end: its disk is full", "0, changes nothing", code=2)


@row("disk full in pip")
def disk_full_in_pip(ground: Ground) -> Seen:
    with ground.site(disk_mib=SMALL_MIB) as site:
        _wheel(site.shared / "wheels")
        site.node.run("python3", "-m", "venv", "/root/venv")
        site.node.path("/etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /shared/wheels\n")
        play = site.playbook({"pip_packages": {"venv": "/root/venv", "packages": ["rack-weight==1.0"]}})
        filler = site.node.fill("/root", leave_kib=8192)  # enough for us, too little for it
        said = site.run(play)
        filler.unlink()
        again(site, play)
        return seen(said, r"No space left on device", "0, installs it", code=2)


@row("root filesystem read-only")
def root_read_only(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(0.1)
        site.node.remount("/", "bind,ro")
        said = site.run(play)
        site.inventory({"a": {}}, k3env_state_dir="/run/k3env")
        assert again(site, play).statuses() == {"a": "changed"}
        pattern = r"state directory \S+: Read-only file system; set k3env_state_dir"
        return seen(said, pattern, "0, with k3env_state_dir on another filesystem", code=2)


@row("shared filesystem read-only")
def shared_read_only(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(0.1)
        site.node.remount("/shared", "bind,ro")
        said = site.run(play)
        site.node.remount("/shared", "bind,rw")
        again(site, play)
        return seen(said, r"no lease can be taken beside /shared/work: Read-only file system", "0, builds", code=2)


@row("shared filesystem not mounted on one node")
def shared_gone(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        commit = _repository(site.shared / "upstream")
        play = site.playbook({"git_checkout": {"repo": "/shared/code", "url": "/opt/upstream.git", "commit": commit}})
        for node in site.nodes.values():
            node.run("git", "clone", "-q", "--bare", "/shared/upstream", "/opt/upstream.git")
            node.path("/etc/fstab").write_text("server:/export /shared nfs4 defaults,nofail 0 0\n")
        site.nodes["b"].unmount("/shared")
        said = site.run(play)
        assert said.statuses() == {"a": "changed", "b": "failed"}
        assert site.run(play, "--check").statuses()["b"] == "failed"
        assert os.listdir(site.nodes["b"].path("/shared")) == [], "nothing is made below the mount point"
        site.nodes["b"].power_off()
        site.nodes["b"].power_on()
        again(site, play)
        return seen(
            said,
            r"/shared is not mounted, so /shared/code would be made on this node's own disk",
            "0, changes nothing",
            code=2,
        )


@row("clock an hour slow on one node, an hour fast on another")
def clocks(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        site.nodes["a"].clock_off(-3600)
        site.nodes["b"].clock_off(3600)
        play = site.build(3)
        said = site.run(play)
        assert sorted(said.statuses().values()) == ["changed", "ok"] and len(site.begun()) == 1
        assert said.document["duration_s"] < 15
        again(site, play)
        return seen(said, "", "0, changes nothing", code=0)


@row("/tmp mounted noexec")
def tmp_noexec(ground: Ground) -> Seen:
    with ground.site() as site:
        site.node.remount("/tmp", "noexec")
        play = site.build(0.1)
        said = site.run(play)
        again(site, play)
        return seen(said, "", "0, changes nothing", code=0)


@row("python3 missing on the node")
def python_missing(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.playbook(LOOK)
        there = [site.node.path(f"/usr/{name}") for name in ("bin/python3", "local/bin/python3")]
        for path in there:
            if os.path.lexists(path):
                path.rename(f"{path}.away")
        said = site.run(play)
        for path in there:
            if os.path.lexists(f"{path}.away"):
                os.rename(f"{path}.away", path)
        again(site, play)
        return seen(said, r"the agent did not start .*?remedy: .*? ansible_python_interpreter", "0", code=4)


@row("python3 is 3.6")
def python_old(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.playbook(LOOK)
        note = _old_python(site.node)
        site.inventory({"a": {"ansible_python_interpreter": "/opt/python3.6"}})
        said = site.run(play)
        site.inventory({"a": {}})
        again(site, play)
        pattern = r"Python 3\.9 or later is needed.*?found: Python 3\.6\.\d+"
        return seen(said, pattern, "0, with another", code=2, note=note)


@row("Debian 11, Python 3.9")
def python_floor(ground: Ground) -> Seen:
    with ground.site("a", "b", root=roots.bullseye()) as site:
        play = site.build(0.5)
        said = site.run(play)
        assert sorted(said.statuses().values()) == ["changed", "ok"]
        again(site, play)
        return seen(said, "", "0, changes nothing", code=0)


@row("nvidia-smi hangs")
def smi_hangs(ground: Ground) -> Seen:
    with ground.site() as site:
        site.node.script("/usr/bin/nvidia-smi", "exec sleep 1000")
        _gpus(site.node)
        play = site.playbook({"verify": {"checks": ["gpu.*"]}})
        begun = time.monotonic()
        said = site.run(play)
        assert time.monotonic() - begun < 60
        site.quiet()
        pattern = r"expected an answer, found driver unresponsive after 5 s"
        return seen(said, pattern, "the same, until it answers", code=2)


@row(
    "two names for one node",
)
def two_names(ground: Ground) -> Seen:
    with ground.site() as site:
        address = site.node.spec.address
        site.inventory({"a": {"mark": "one"}, "b": {"mark": "two", "ansible_host": address}})
        play = site.playbook(
            {"command": {"argv": ["touch", "/opt/{{ mark }}"], "creates": "/opt/{{ mark }}"}}, serial=1
        )
        said = site.run(play)
        made = [site.node.path(f"/opt/{mark}").exists() for mark in ("one", "two")]
        told = [status == "changed" for status in said.statuses().values()]
        assert made == told, f"made {made}, told as {said.statuses()}"
        again(site, play)
        return seen(said, "", "0, changes nothing", code=0)


@row("state directory is a link that somebody else put there")
def state_is_a_link(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(0.1)
        site.node.path("/home/trap").mkdir(parents=True)
        site.node.path("/var/tmp/k3env-0").symlink_to("/home/trap")
        said = site.run(play)
        assert os.listdir(site.node.path("/home/trap")) == []
        site.node.path("/var/tmp/k3env-0").unlink()
        again(site, play)
        return seen(said, r"state directory \S+ is a link or a file", "0, once it is gone", code=2)


@row("home on a shared filesystem, of two nodes")
def home_shared(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        (site.shared / "home").mkdir()
        for node in site.nodes.values():
            node.run("mount", "--bind", "/shared/home", "/root")
        play = site.build(1)
        said = site.run(play)
        assert sorted(said.statuses().values()) == ["changed", "ok"] and len(site.begun()) == 1
        again(site, play)
        assert not list((site.shared / "home").iterdir()), "nothing of ours is in a home that nodes share"
        return seen(said, "", "0, changes nothing", code=0)


@row(
    "state directory on the shared filesystem, of two nodes",
)
def state_shared(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        site.inventory({"a": {}, "b": {}}, k3env_state_dir="/shared/state")
        task = {"command": {"argv": ["touch", "/opt/mine"], "creates": "/opt/mine"}}
        play = site.playbook(task, serial=1)
        said = site.run(play)
        made = [node.path("/opt/mine").exists() for node in site.nodes.values()]
        changed = [status == "changed" for status in said.statuses().values()]
        assert made == changed, f"made on {made}, told as {said.statuses()}"
        again(site, play)
        return seen(said, "", "0, changes nothing", code=0)


def _old_python(node: Node) -> str:
    """Put a Python 3.6 at /opt/python3.6: a real one where this machine has it, else one that says so of itself."""
    # What PATH has may be pyenv's shim.
    versions = [*Path("~/.pyenv/versions").expanduser().glob("3.6.*/bin/python3.6"), Path("/usr/bin/python3.6")]
    found = next((path for path in versions if path.is_file()), None)
    if found is None:
        code = "import sys; sys.version_info = (3, 6, 8, 'final', 0); exec(sys.argv.pop())"
        node.script("/opt/python3.6", f'exec python3 -I -S -c "{code}" "$4"')
        return "played with an interpreter that says so of itself"
    prefix = found.parents[1]
    there = node.path("/opt/py36")
    shutil.copytree(
        prefix / "lib/python3.6",
        there / "lib/python3.6",
        ignore=shutil.ignore_patterns("test", "site-packages", "__pycache__", "config-*", "idlelib", "ensurepip"),
    )
    for library in prefix.glob("lib/libpython3.6*"):
        shutil.copy(library, there / "lib")
    (there / "bin").mkdir()
    shutil.copy(found, there / "bin/python3.6")
    node.script("/opt/python3.6", 'LD_LIBRARY_PATH=/opt/py36/lib exec /opt/py36/bin/python3.6 "$@"')
    return "played with a real 3.6"


def _repository(path: Path) -> str:
    """Make a git repository with one commit; return that."""
    git = ["git", "-c", "user.name=rack", "-c", "user.email=rack@example.org", "-C", str(path)]
    subprocess.run(["git", "init", "-q", path], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "One"], check=True)
    return subprocess.check_output([*git, "rev-parse", "HEAD"], text=True).strip()


def _gpus(node: Node) -> None:
    """Show a node the files of a loaded driver and of four GPUs on the bus."""
    for path in ("/proc/driver", "/sys/bus/pci/devices"):
        node.run("mount", "-t", "tmpfs", "none", path)
    files = {"/proc/driver/nvidia/version": _DRIVER}
    for number in range(4):
        device = f"/sys/bus/pci/devices/000{number}:01:00.0"
        files |= {f"{device}/vendor": "0x10de\n", f"{device}/class": "0x030200\n"}
        files[f"/proc/driver/nvidia/gpus/000{number}:01:00.0/information"] = "Model: NVIDIA GB300\n"
    for path, text in files.items():
        node.path(path).parent.mkdir(parents=True, exist_ok=True)
        node.path(path).write_text(text)


def _wheel(directory: Path) -> None:
    """Make a wheel that takes 16 MiB of a disk and compresses to nothing."""
    directory.mkdir()
    info = "rack_weight-1.0.dist-info"
    files = {
        "rack_weight.py": "x = 1\n",
        "rack_weight.bin": "0" * (16 << 20),
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: rack-weight\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: rack\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{info}/RECORD"))
    with zipfile.ZipFile(directory / "rack_weight-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as wheel:
        for name, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(name, text)
