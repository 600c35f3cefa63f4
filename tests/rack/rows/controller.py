"""The controller's own world: files, pipes, output without end."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path

from tests.rack.bed import Node, wait_until
from tests.rack.processes import peak_mib
from tests.rack.row import Ground, Seen, again, row, seen
from tests.rack.site import Running, Site
from tests.sandbox.cli import Said

LOOK = {"command": {"argv": ["true"], "read_only": True}}
GB = 1_000_000_000


@row("64 open files allowed (ulimit -n 64), 100 hosts at once", slow=True)
def few_files(ground: Ground) -> Seen:
    with ground.site("a", "b", "c", "d") as site:
        addresses = [node.spec.address for node in site.nodes.values()]
        site.inventory({f"n{number:03}": {"ansible_host": addresses[number % 4]} for number in range(1, 101)})
        # Long enough that connections would be there at once.
        play = site.playbook({"command": {"argv": ["sleep", "0.3"], "read_only": True}})
        said = site.type(["prlimit", "--nofile=64:64", *site.provision(play, "--check", "--forks", "100")]).end()
        assert len(said.statuses()) == 100 and set(said.statuses().values()) == {"ok"}, said.err
        site.quiet()
        return seen(said, "", "0", code=0, note="as many at a time as the files allow")


@row("the controller's disk full, in a build")
def controller_disk_full(ground: Ground) -> Seen:
    with ground.site() as site:
        # More than the page of the record that is there already.
        play = site.playbook(*json.loads(Path(site.build(3)).read_text())[0]["tasks"], *[LOOK] * 40)
        # A filesystem of its own, which only this row fills: the node's /dev/shm.
        state = {"XDG_STATE_HOME": str(site.node.path("/dev/shm"))}
        running = site.type(site.provision(play), environment=state)
        wait_until(site.begun, 15, running.said)
        filler = site.node.fill("/dev/shm")
        said = running.end()
        filler.unlink()
        followed = site.type(site.argv("attach", "2", "--output", "json"), environment=state).end()
        assert followed.code == 0 and followed.statuses() == {"a": "changed"}, followed.err
        assert again(site, play).changes() == {} and site.begun() == ["a"]
        pattern = r"the record of this run can't be written any more: No space left on device"
        return seen(said, pattern, "attach: 0, with all that the record missed; then 0, changes nothing", code=0)


@row("the controller's disk full before the run")
def controller_disk_full_before(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(0.1)
        filler = site.node.fill("/dev/shm")
        state = {"XDG_STATE_HOME": str(site.node.path("/dev/shm"))}
        said = site.type(site.provision(play), environment=state).end()
        assert site.begun() == [], "nothing is begun that could not be followed on"
        filler.unlink()
        again(site, play)
        pattern = r"the record of the run can't be written: No space left on device"
        return seen(said, pattern, "0, builds", code=1)


@row("standard input closed")
def no_input(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(0.1)
        said = site.type(["sh", "-c", 'exec "$@" <&-', "sh", *site.provision(play)]).end()
        again(site, play)
        return seen(said, "", "0, changes nothing", code=0)


@row("output piped to head, which leaves")
def piped_to_head(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(2)
        words = [word for word in site.provision(play) if word not in ("--output", "json")]
        reader, writer = os.pipe()
        running = site.type(words, stdout=writer)
        os.close(writer)
        assert subprocess.run(["head", "-n", "2"], stdin=reader, stdout=subprocess.DEVNULL).returncode == 0
        os.close(reader)
        said = running.end()
        assert "rror" not in said.err, said.err
        wait_until(lambda: (site.shared / "work/done").exists(), 10, "the build goes on without its reader")
        assert again(site, play).changes() == {} and site.begun() == ["a"]
        pattern = r"the work goes on: invoke attach \S+ follows it"
        return seen(said, pattern, "0, changes nothing: the build was finished", code=130)


@row("1 GB of output from a command on the node", slow=True)
def much_output(ground: Ground) -> Seen:
    with ground.site() as site:
        quarter, _, _ = _output(site, GB // 4)
        whole, peak, said = _output(site, GB)
        assert whole < 4 * quarter * 1.5 + 1, f"{quarter:.1f} s for a quarter, {whole:.1f} s for all of it"
        site.quiet()
        assert 0 < peak.worker_mib < 60 and 0 < peak.mib < 150, (
            f"worker {peak.worker_mib:.0f}, controller {peak.mib:.0f}"
        )
        figures = f"{whole:.1f} s; at most {peak.worker_mib:.0f} MiB on the node, {peak.mib:.0f} on the controller"
        return seen(said, "", "0", code=0, note=figures)


@row("a login shell that prints 50 MB before the agent starts")
def much_noise(ground: Ground) -> Seen:
    with ground.site() as site:
        site.node.path("/root/.bashrc").write_text("head -c 50000000 /dev/zero\n")
        play = site.playbook(LOOK)
        running = site.start(play)
        controller = _Peak(running)
        said = running.end()
        assert controller.mib < 200, f"the controller took {controller.mib:.0f} MiB"
        again(site, play)
        return seen(said, "", "0", code=0, note=f"at most {controller.mib:.0f} MiB on the controller")


@row("a login shell that talks, and reads what was meant for the agent")
def chatty(ground: Ground) -> Seen:
    with ground.site() as site:
        site.node.path("/root/.bashrc").write_text("echo Welcome; echo warning >&2; read -t 1 answer; echo $answer\n")
        play = site.playbook(LOOK)
        said = site.run(play, "--timeout", "20")
        site.node.path("/root/.bashrc").unlink()
        again(site, play)
        return seen(said, r"the agent did not start .*?exit code 97", "0", code=4)


class _Peak:
    """The most memory that a command takes, looked at until it ends."""

    def __init__(self, running: Running, node: Node | None = None) -> None:
        self.mib = self.worker_mib = 0.0
        self._running, self._node = running, node
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        while self._running.process.poll() is None:
            self.mib = max(self.mib, peak_mib(self._running.process.pid))
            for item in self._node.at_work() if self._node else ():
                if "python" in item.command:
                    self.worker_mib = max(self.worker_mib, peak_mib(item.pid))
            time.sleep(0.1)


def _output(site: Site, size: int) -> tuple[float, _Peak, Said]:
    play = site.playbook({"command": {"argv": ["head", "-c", str(size), "/dev/zero"], "read_only": True}})
    running = site.start(play)
    peak = _Peak(running, site.node)
    said = running.end()
    assert said.code == 0, said.err
    return said.document["hosts"]["a"]["tasks"][0]["duration_s"], peak, said


@row("output that would move a terminal's cursor")
def escapes(ground: Ground) -> Seen:
    with ground.site() as site:
        site.node.script("/opt/paint", r"printf '\033[2J\033]0;owned\007k3env:x {}\r\377\n'; exit 3")
        play = site.playbook({"command": {"argv": ["/opt/paint"], "creates": "/opt/never"}})
        said = site.run(play)
        assert not set(said.err + said.out) & {chr(code) for code in (*range(10), *range(11, 32), 127)}
        site.node.script("/opt/paint", "touch /opt/never")
        again(site, play)
        return seen(said, r"\\x1b\[2J", "0", code=2)
