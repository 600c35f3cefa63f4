"""Long work: what is lost while a build goes on, and comes back."""

from __future__ import annotations

import signal
import time

from tests.rack.bed import kill, wait_until
from tests.rack.row import Ground, Seen, again, row, seen
from tests.rack.site import Running, Site

BUILD_S = 4.0


def building(site: Site, play: str, *options: str, name: str = "work") -> Running:
    """Begin a run and wait until its build has begun on a node."""
    running = site.start(play, *options)
    wait_until(lambda: site.begun(name), 15, f"no build: {running.said}")
    return running


def run_name(site: Site) -> str:
    """Return the name of the newest run."""
    return sorted(path.name for path in (site.home / ".local/state/k3env/runs").iterdir())[-1]


def attach(site: Site, *options: str) -> Running:
    """Follow the newest run on."""
    return site.type(site.argv("attach", run_name(site), "--output", "json", *options))


def built_once(site: Site, play: str, *nodes: str) -> None:
    """The work is there, was done once, and stays as it is."""
    assert again(site, play).changes() == {}
    assert site.begun() == list(nodes or ("a",))


@row("connection killed at the node, in a build")
def connection_killed(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(BUILD_S)
        running = building(site, play)
        site.node.cut_sessions()
        running.until("connected again")
        said = running.end()
        built_once(site, play)
        return seen(
            said,
            r"connection lost \(.*?\); reconnecting --- a: connected again after \d+ s",
            "0, changes nothing",
            code=0,
        )


@row("connection reset at the controller, in a build")
def connection_reset(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(10)  # the controller may say nothing for 5 s
        running = building(site, play)
        with site.node.resetting():
            running.until("connection lost", 10)
        said = running.end()
        built_once(site, play)
        return seen(said, r"connection lost \(.*?\); reconnecting", "0, changes nothing", code=0)


@row("network cable out for 4 s, in a build")
def cable_out_shortly(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(8)
        running = building(site, play)
        site.node.cable(False)
        time.sleep(4)
        site.node.cable(True)
        said = running.end()
        assert "lost" not in said.err
        built_once(site, play)
        return seen(said, "", "0, changes nothing", code=0)


@row("network cable out for 20 s, in a build", slow=True)
def cable_out(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(10)
        running = building(site, play)
        site.node.cable(False)
        begun = time.monotonic()
        running.until("gave no sign of life", 20)
        assert time.monotonic() - begun < 40, "a dead peer is noticed within 15 s, on a machine with time"
        time.sleep(20 - (time.monotonic() - begun))
        site.node.cable(True)
        said = running.end()
        built_once(site, play)
        assert "connected again after" in said.err
        pattern = r"connection lost \(\S+ gave no sign of life for 15 s\); reconnecting"
        return seen(said, pattern, "0, changes nothing", code=0)


@row("network cable out, longer than --reconnect-timeout", slow=True)
def cable_out_for_good(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(10)
        running = building(site, play, "--reconnect-timeout", "3")
        site.node.cable(False)
        said = running.end()
        site.node.cable(True)
        followed = attach(site).end()
        assert followed.code == 0 and followed.statuses() == {"a": "changed"}, followed.err
        built_once(site, play)
        return seen(said, r"unreachable: \[a\]", "attach: 0, the build was finished; then 0, changes nothing", code=4)


@row("controller killed (SIGKILL), in a build")
def controller_killed(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(BUILD_S)
        running = building(site, play)
        running.signal(signal.SIGKILL)
        said = running.end()
        followed = attach(site).end()
        assert followed.code == 0 and followed.statuses() == {"a": "changed"}, followed.err
        built_once(site, play)
        return seen(said, "", "attach: 0, the build was finished; then 0, changes nothing", code=-9)


@row("terminal closed (SIGHUP), in a build")
def terminal_closed(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(BUILD_S)
        running = building(site, play)
        running.signal(signal.SIGHUP)
        said = running.end()
        followed = attach(site).end()
        assert followed.code == 0 and followed.statuses() == {"a": "changed"}, followed.err
        built_once(site, play)
        return seen(said, "", "attach: 0, the build was finished; then 0, changes nothing", code=said.code)


@row("worker killed (SIGKILL), in a build")
def worker_killed(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(BUILD_S)
        running = building(site, play)
        kill(site.node.worker().pid)
        said = running.end()
        assert again(site, play).statuses() == {"a": "changed"}
        assert not (site.shared / "work/twice").exists()
        return seen(said, r"the worker is gone, without an end", "0, builds", code=2)


@row("follower killed (SIGKILL), in a build")
def follower_killed(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(BUILD_S)
        running = building(site, play)
        kill(site.node.follower().pid)
        said = running.end()
        built_once(site, play)
        return seen(said, r"connection lost \(the agent's output ended\); reconnecting", "0, changes nothing", code=0)


@row("follower frozen (SIGSTOP), in a build", slow=True)
def follower_frozen(ground: Ground) -> Seen:
    """The connection lives on, and says so; only the agent behind it does not."""
    with ground.site() as site:
        play = site.build(45)
        running = building(site, play)
        frozen = site.node.follower().pid
        kill(frozen, signal.SIGSTOP)
        running.until("does not answer any more", 60)
        said = running.end()
        kill(frozen, signal.SIGCONT)
        built_once(site, play)
        return seen(
            said, r"connection lost \(.*? does not answer any more\); reconnecting", "0, changes nothing", code=0
        )


@row("controller frozen for 25 s (a laptop that sleeps), in a build", slow=True)
def controller_frozen(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(35)
        running = building(site, play)
        running.signal(signal.SIGSTOP)
        time.sleep(25)
        running.signal(signal.SIGCONT)
        said = running.end()
        built_once(site, play)
        return seen(said, "", "0, changes nothing", code=0)


@row("--detach: the command ends as soon as the build has begun")
def detached(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = site.build(BUILD_S)
        said = site.run(play, "--detach")
        assert not (site.shared / "work/done").exists() and "goes on without this command on a-b" in said.err.replace(
            "a,b", "a-b"
        )
        followed = attach(site).end()
        assert followed.code == 0 and sorted(followed.statuses().values()) == ["changed", "ok"], followed.err
        built_once(site, play, *site.begun())
        return seen(said, r"run \S+ goes on without this command on \S+", "attach: 0; then 0, changes nothing", code=0)


@row("attached to from an account that knows nothing of the run")
def attached_from_elsewhere(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(BUILD_S)
        said = site.run(play, "--detach")
        run = run_name(site)
        elsewhere = {"XDG_STATE_HOME": str(site.home / "elsewhere")}
        where = ("--hosts", "all", "--inventory", str(site.home / "site.yml"))
        listed = site.type(site.argv("runs", *where), elsewhere).end()
        assert f"{run}  running" in listed.out and "work: A play" in listed.out, listed.out
        followed = site.type(site.argv("attach", run, *where, "--output", "json"), elsewhere).end()
        assert followed.code == 0 and followed.statuses() == {"a": "changed"}, followed.err
        built_once(site, play)
        return seen(said, r"add --hosts", "attach --hosts: 0; then 0, changes nothing", code=0)


@row("node rebooted while nobody follows", slow=True)
def rebooted_unfollowed(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(30)
        assert site.run(play, "--detach").code == 0
        site.node.power_off()
        site.node.wait_for_end()
        site.node.power_on()
        where = ("--hosts", "all", "--inventory", str(site.home / "site.yml"))
        listed = site.type(site.argv("runs", *where)).end()
        assert "lost, begun" in listed.out and "its worker is gone" in listed.out, listed.out
        said = attach(site).end()
        site.build(0.1)
        again(site, play)
        return seen(said, r"the worker is gone, without an end", "0, builds", code=2)


@row("power cut on the node that builds in the shared checkout", slow=True)
def builder_dies(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = site.build(BUILD_S)
        running = building(site, play, "--reconnect-timeout", "5")
        (builder,) = site.begun()
        (waiter,) = {"a", "b"} - {builder}
        site.nodes[builder].power_off()
        begun = time.monotonic()
        wait_until(lambda: site.begun() == [builder, waiter], 40, f"no takeover: {running.said}")
        assert time.monotonic() - begun > 25
        said = running.end()
        assert said.statuses() == {builder: "unreachable", waiter: "changed"}
        site.nodes[builder].power_on()
        built_once(site, play, builder, waiter)
        return seen(
            said, r"unreachable: \[[ab]\]", "the other node takes over within 40 s; then 0, changes nothing", code=4
        )


@row("node rebooted, in a build")
def rebooted(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(BUILD_S)
        running = building(site, play)
        site.node.power_off()
        time.sleep(1)
        site.node.power_on()
        said = running.end()
        assert again(site, play).statuses() == {"a": "changed"}
        assert site.begun() == ["a", "a"]
        return seen(said, r"the node was rebooted during the run", "0, builds at once", code=2)


@row(
    "node frozen for longer than the lease, then thawed",
    slow=True,
)
def frozen(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = site.build(8, alone=False)
        running = building(site, play)
        (builder,) = site.begun()
        (waiter,) = {"a", "b"} - {builder}
        site.nodes[builder].freeze()
        wait_until(lambda: site.begun() == [builder, waiter], 45, f"no takeover: {running.said}")
        time.sleep(1)
        site.nodes[builder].thaw()
        said = running.end()
        assert said.statuses()[waiter] == "changed"
        assert (site.shared / "work/done").read_text() == f"{waiter}\n", "who lost the lease must not finish"
        built_once(site, play, builder, waiter)
        return seen(said, r"lease was lost", "0, changes nothing", code=2)


@row("Ctrl-C once, in a build")
def interrupted(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(BUILD_S)
        running = building(site, play)
        running.signal(signal.SIGINT)
        said = running.end()
        followed = attach(site).end()
        assert followed.code == 0 and followed.statuses() == {"a": "changed"}, followed.err
        built_once(site, play)
        pattern = r"the work goes on: invoke attach \S+ follows it, invoke cancel \S+ ends it"
        return seen(said, pattern, "attach: 0, the build was finished; then 0, changes nothing", code=130)


@row("Ctrl-C twice, in a build")
def interrupted_twice(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = site.build(30)
        running = building(site, play)
        running.signal(signal.SIGINT)
        running.until("the work goes on")
        running.signal(signal.SIGINT)
        said = running.end(20)
        site.quiet()
        assert said.document["hosts"]["a"]["notrun"] == 1 and not (site.shared / "work/done").exists()
        site.build(0.1)
        assert sorted(again(site, play).statuses().values()) == ["changed", "ok"]
        return seen(said, r"stopping the work on every node", "0, builds", code=130)


@row("cancelled from another terminal")
def cancelled(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(30)
        running = building(site, play)
        other = site.type(site.argv("cancel", run_name(site), "--output", "json")).end(20)
        assert other.code == 0, other.err
        said = running.end(10)
        site.quiet()
        site.build(0.1)
        again(site, play)
        return seen(said, r"cancelled", "0, builds", code=said.code)


@row("two controllers at once")
def two_controllers(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(BUILD_S)
        running = building(site, play)
        said = site.run(play)
        assert running.end().code == 0
        built_once(site, play)
        return seen(said, r"another run is changing this node: run \S+ of \S+@\S+, since", "0, changes nothing", code=2)


@row("the build fails")
def build_fails(ground: Ground) -> Seen:
    with ground.site("a", "b", "c") as site:
        play = site.build(1)
        script = site.shared / "work.sh"
        good = script.read_text()
        script.write_text(good.replace("hostname > /shared/work/done", "echo out of memory >&2; exit 3"))
        said = site.run(play)
        assert set(said.statuses().values()) == {"failed"} and len(site.begun()) == 1, "the others adopt the failure"
        script.write_text(good)
        assert sorted(again(site, play).statuses().values()) == ["changed", "ok", "ok"]
        return seen(said, r"failed on [abc]: a command failed", "0, builds", code=2)


@row("controller killed while a plan that only reads goes on", slow=True)
def reader_unfollowed(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.playbook({"command": {"argv": ["sleep", "100"], "read_only": True}})
        running = site.start(play, "--check")
        wait_until(lambda: any("sleep 100" in item.command for item in site.node.at_work()), 10)
        running.signal(signal.SIGKILL)
        said = running.end()
        site.quiet(25)
        return seen(said, "", "nothing goes on: within 20 s the worker has stopped", code=-9)
