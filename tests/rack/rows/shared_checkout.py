"""A checkout that nodes share: somebody serves from it, or an owner is gone for good."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

from tests.rack.bed import kill, wait_until
from tests.rack.row import Ground, Seen, again, row, seen
from tests.rack.site import Site
from tests.sandbox.cli import Said

REPO = "/shared/repo"


def serving(site: Site) -> str:
    """Let a rank on the first node serve from the checkout; return a playbook that moves the checkout on."""
    origin = site.shared / "origin"
    commits = [_commit(origin, number) for number in range(2)]
    where = {"repo": REPO, "url": "/shared/origin", "submodules": False, "lfs": False}
    ranks = {"rank_env": {"repo": REPO, "base": "/root/base", "open_files": 64}}
    made = site.run(site.playbook({"git_checkout": {**where, "commit": commits[0]}}, ranks, name="made"))
    assert made.code == 0, made.err
    site.node.run("python3", "-m", "venv", "--without-pip", f"{REPO}/.venv-3")
    site.node.run("mkdir", "-m", "700", "/root/base")
    script = f". {REPO}/.k3env/rank_env.sh; exec sleep 300"
    site.node.run("sh", "-c", f"setsid sh -c '{script}' </dev/null >/dev/null 2>&1 & sleep 0.1")
    wait_until(lambda: list(site.shared.glob("repo/.k3env/in-use/*")), 15, "no marker")
    return site.playbook({"git_checkout": {**where, "commit": commits[1]}}, name="moved")


def _commit(origin: Path, number: int) -> str:
    argv = ["git", "-C", str(origin), "-c", "user.name=t", "-c", "user.email=t@t"]
    if number == 0:
        subprocess.run(["git", "init", "-q", str(origin)], check=True)
    subprocess.run([*argv, "commit", "-q", "--allow-empty", "-m", str(number)], check=True)
    return subprocess.run([*argv, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()


@row("a rank on another node serves from the checkout that is to be changed", slow=True)
def in_use_elsewhere(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = serving(site)
        said = site.run(play, hosts="b")
        assert "--force-in-use" in said.err
        (rank,) = [item for item in site.node.at_work() if item.command == "sleep 300"]
        kill(rank.pid)
        wait_until(lambda: not list(site.shared.glob("repo/.k3env/in-use/*")), 5, "the marker stays")
        again(site, play)
        return seen(
            said, r"/shared/repo is in use: a server on a \(pid \d+, of root, rank 0, since", "0, changes it", code=2
        )


@row("power cut on the node whose rank serves", slow=True)
def server_dies(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = serving(site)
        site.node.power_off()
        begun = time.monotonic()
        said = site.run(play, hosts="b")
        waited = time.monotonic() - begun
        assert said.statuses() == {"b": "changed"} and waited > 30, said.err
        site.node.power_on()
        assert again(site, play).changes() == {}
        return seen(said, "", "0, changes nothing", code=0, note=f"after {waited:.0f} s, once its marker stood still")


@row("power cut on the building node; its lease broken from another", slow=True)
def lease_broken(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = site.build(90)
        running = site.start(play, "--reconnect-timeout", "3", hosts="a")
        wait_until(site.begun, 15, running.said)
        living = _leases(site, "--break")
        assert living.code == 2 and "who is alive" in living.err and "invoke cancel" in living.err
        site.node.power_off()
        assert running.end().code == 4
        said = _leases(site, "--break")
        assert not list(site.shared.glob(".work.k3env-lease"))
        site.build(0.1)
        begun = time.monotonic()
        assert site.run(play, hosts="b").statuses() == {"b": "changed"}
        assert time.monotonic() - begun < 60, "nobody waits any more"
        return seen(said, r"changed: \[b\]: lease on /shared/work", "the other node builds at once", code=0)


def _leases(site: Site, *options: str) -> Said:
    where = ("--hosts", "b", "--inventory", str(site.home / "site.yml"), "--extra-vars", "trtllm_repo=/shared/work")
    return site.type(site.argv("leases", *options, *where, "--output", "json")).end()
