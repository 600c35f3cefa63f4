"""The main job's build: a miniature TensorRT LLM in a checkout that two nodes share."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

from k3env.sandbox import upstream
from k3env.sandbox.upstream import TRTLLM
from tests.rack.bed import wait_until
from tests.rack.row import Ground, Seen, again, row, seen
from tests.rack.site import Site

REPO = "/shared/TensorRT-LLM"
WHEELS = ("pip>=24.1,<26", "setuptools>=77,<80", "packaging>=24.2,<26", "einops>=0.8,<0.8.2")
_INODES = 1000
TOOLS = {"nvcc": "release 13.0, V13.0.88", "cmake": "cmake version 3.31.6", "patchelf": "patchelf 0.18.0"}


@row("no fault: built once, installed, used by both nodes", slow=True)
def built(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = prepare(site)
        said = site.run(play)
        assert said.code == 0, said.err
        changes = [module for host in ("a", "b") for module in _changed(said.document["hosts"][host])]
        assert sorted(changes) == ["git_checkout", "pip_packages", "trtllm_build"], "each done by one node"
        assert again(site, play).changes() == {}
        return seen(said, r"TensorRT LLM, built", "0, changes nothing", code=0)


@row("controller killed (SIGKILL), in the build", slow=True)
def controller_killed_in_build(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = prepare(site)
        running = site.start(play)
        wait_until(lambda: list(site.shared.glob("TensorRT-LLM/.k3env/logs/*.log")), 30, running.said)
        running.signal(signal.SIGKILL)
        said = running.end()
        attached = site.type(site.argv("attach", "2", "--output", "json")).end()
        assert attached.code == 0, attached.err
        assert again(site, play).changes() == {}
        builds = list(site.shared.glob("TensorRT-LLM/.k3env/logs/*-1.2.log"))
        assert len(builds) == 1, f"built once: {builds}"
        return seen(said, "", "attach: 0, the build was finished; then 0, changes nothing", code=-9)


@row("power cut on the building node", slow=True)
def builder_dies_in_build(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = prepare(site)
        running = site.start(play, "--reconnect-timeout", "5")
        wait_until(lambda: list(site.shared.glob("TensorRT-LLM/.k3env/logs/*-1.2.log")), 30, running.said)
        (log,) = site.shared.glob("TensorRT-LLM/.k3env/logs/*-1.2.log")
        builder = log.name.split("-")[-2]
        site.nodes[builder].power_off()
        said = running.end()
        (other,) = {"a", "b"} - {builder}
        assert said.statuses() == {builder: "unreachable", other: "changed"}, said.err
        site.nodes[builder].power_on()
        assert again(site, play).changes() == {}
        return seen(said, r"unreachable: \[[ab]\]", "the other node builds on; then 0, changes nothing", code=4)


@row("disk full when the manifest is written, after the build", slow=True)
def disk_full_at_manifest(ground: Ground) -> Seen:
    with ground.site("a") as site:
        play = prepare(site)
        whole = Path(play).read_text()
        checkout = json.loads(whole)[0]["tasks"][0]
        assert site.run(site.playbook(checkout, name="checkout")).code == 0
        # A filesystem that takes no further file from the end of the build on; the build's log is open by then.
        kept = f"{REPO}/.k3env"
        (site.shared / "TensorRT-LLM/.k3env").mkdir(exist_ok=True)
        site.node.run("mount", "-t", "tmpfs", "-o", f"nr_inodes={_INODES}", "none", kept)
        full = f"mount -o remount,nr_inodes=$(($(stat -f -c '%c - %d' {kept}))) {kept}"
        site.node.script("/usr/local/bin/patchelf", f"echo '{TOOLS['patchelf']}'; [ $# = 1 ] || {full}")
        said = site.run(play)
        assert not (site.node.path(kept) / "manifest.json").exists()
        site.node.script("/usr/local/bin/patchelf", f"echo '{TOOLS['patchelf']}'")
        site.node.run("mount", "-o", f"remount,nr_inodes={_INODES}", kept)
        assert "trtllm_build" in _changed(again(site, play).document["hosts"]["a"])
        assert again(site, play).changes() == {}
        return seen(said, r"No space left on device", "0, builds on and writes it; then 0, changes nothing", code=2)


def prepare(site: Site) -> str:
    """Give the site what the job needs from elsewhere: repository, wheels, tools; return the playbook."""
    made = upstream.make(site.shared / "upstream")
    commit = made[TRTLLM][upstream.PINNED[TRTLLM]]
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(site.shared / "wheels"), *WHEELS]
    subprocess.run(download, check=True, capture_output=True)
    for node in site.nodes.values():
        node.path("/etc/pip.conf").write_text("[global]\nno-index = true\nfind-links = /shared/wheels\n")
        for name, says in TOOLS.items():
            node.script(f"/usr/local/bin/{name}", f"echo '{says}'")
    where = {"repo": REPO, "commit": commit}
    return site.playbook(
        {"name": "TensorRT LLM", "git_checkout": {**where, "url": f"/shared/upstream/{TRTLLM}"}},
        {"name": "TensorRT LLM, built", "trtllm_build": where},
        {"name": "einops", "pip_packages": {"checkout": REPO, "packages": ["einops"], "no_deps": True}},
    )


def _changed(host: dict[str, list[dict[str, str]]]) -> list[str]:
    return [task["module"] for task in host["tasks"] if task["status"] == "changed"]
