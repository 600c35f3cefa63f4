"""Tasks of another user, where the run is not root's: sudo -n to that user, or to root, or to nobody."""

from __future__ import annotations

import signal

from tests.rack import roots
from tests.rack.bed import Node, kill, wait_until
from tests.rack.row import Ground, Seen, again, row, seen
from tests.rack.site import Site

K3 = ("--extra-vars", "k3_user=k3")
BASIC = "Defaults logfile=/var/log/sudo.log"


def people(site: Site, *lines: str) -> None:
    """Let ann connect; k3 is whose files they are, and nobody logs in as k3."""
    site.inventory({name: {} for name in site.nodes}, ansible_user="ann", k3_user="k3")
    for node in site.nodes.values():
        node.user("ann")
        node.user("k3")
        node.sudoers(BASIC, *lines)


def making(site: Site, seconds: float = 0.0) -> str:
    """Return a playbook of two tasks that write into the home of k3."""
    tasks = [
        {"command": {"argv": ["sh", "-c", f"sleep {seconds}; id -un > /home/k3/{name}"], "creates": f"/home/k3/{name}"}}
        for name in ("one", "two")
    ]
    return site.playbook(*tasks)


def asleep(node: Node) -> bool:
    """Whether a task is in its sleep."""
    return any("30.5" in item.command for item in node.processes())


def wrote(node: Node) -> list[str]:
    return [path.read_text().strip() for path in sorted(node.path("/home/k3").glob("[ot]*"))]


@row("k3_user is reached by sudo to that user alone")
def sudo_to_k3_alone(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        people(site, "ann ALL=(k3) NOPASSWD: ALL")
        said = site.run(making(site))
        assert set(said.statuses().values()) == {"changed"}, said.out
        assert [wrote(node) for node in site.nodes.values()] == [["k3", "k3"]] * 2
        log = site.node.path("/var/log/sudo.log").read_text()
        assert log.count("USER=k3") == 1, "one process for all of its tasks"
        assert again(site, making(site)).changes() == {}
        return seen(said, "", "0, changes nothing", code=0)


@row("k3_user is reached by sudo to root alone")
def sudo_to_root_alone(ground: Ground) -> Seen:
    with ground.site() as site:
        people(site, "ann ALL=(root) NOPASSWD: ALL")
        said = site.run(making(site))
        assert wrote(site.node) == ["k3", "k3"], said.out
        assert again(site, making(site)).changes() == {}
        return seen(said, "", "0, changes nothing", code=0)


@row("k3_user is reached by Debian 11's sudo, Python 3.9")
def sudo_to_k3_of_old(ground: Ground) -> Seen:
    with ground.site(root=roots.bullseye()) as site:
        people(site, "ann ALL=(k3) NOPASSWD: ALL")
        said = site.run(making(site))
        assert wrote(site.node) == ["k3", "k3"], said.out
        assert again(site, making(site)).changes() == {}
        return seen(said, "", "0, changes nothing", code=0)


@row("k3_user can't be reached")
def sudo_to_nobody(ground: Ground) -> Seen:
    with ground.site() as site:
        people(site, "ann ALL=(k3) ALL")
        first = {"command": {"argv": ["touch", "/home/ann/made"], "creates": "/home/ann/made"}}
        last = {"command": {"argv": ["true"], "unless": ["false"]}, "become": True, "become_user": "k3"}
        said = site.run(site.playbook(first, last, name="mixed"), "--extra-vars", "k3_user=ann")
        assert said.statuses() == {"a": "failed"} and not site.node.path("/home/ann/made").exists()
        said = site.run(making(site))
        assert said.statuses() == {"a": "failed"} and wrote(site.node) == []
        site.node.sudoers(BASIC, "ann ALL=(k3) NOPASSWD: ALL")
        assert again(site, making(site)).statuses() == {"a": "changed"}
        pattern = r"this run can't become k3 .*?found: sudo -n -u k3: sudo: a password is required"
        return seen(said, pattern, "0", code=2)


@row("cancelled in a task of another user's")
def cancelled_as_k3(ground: Ground) -> Seen:
    with ground.site() as site:
        people(site, "ann ALL=(k3) NOPASSWD: ALL")
        running = site.start(making(site, 30.5))
        wait_until(lambda: asleep(site.node), 15, f"no task: {running.said}")
        running.signal()
        running.until("Ctrl-C again")
        running.signal()
        said = running.end()
        site.quiet()
        assert wrote(site.node) == []
        assert again(site, making(site)).statuses() == {"a": "changed"}
        return seen(said, r"stopping the work on every node", "0", code=130)


@row("worker killed in a task of another user's")
def worker_killed_as_k3(ground: Ground) -> Seen:
    with ground.site() as site:
        people(site, "ann ALL=(k3) NOPASSWD: ALL")
        running = site.start(making(site, 30.5))
        wait_until(lambda: asleep(site.node), 15, f"no task: {running.said}")
        kill(site.node.worker().pid, signal.SIGKILL)
        said = running.end()
        site.quiet()
        assert again(site, making(site)).statuses() == {"a": "changed"}
        return seen(said, r"the worker is gone, without an end", "0", code=2)
