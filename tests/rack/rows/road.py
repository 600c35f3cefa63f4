"""The road to a node: cables, sshd, keys."""

from __future__ import annotations

import time
from pathlib import Path

from tests.rack.bed import public
from tests.rack.row import Ground, Seen, again, row, seen

LOOK = {"command": {"argv": ["true"], "read_only": True}}
"""A task that changes nothing."""


@row("no fault")
def no_fault(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        site.inventory({"a": {}, "b": {}}, cache_base="/var/tmp/cache")
        said = site.run("caches")
        assert set(said.statuses().values()) == {"changed"}
        assert set(again(site, "caches").statuses().values()) == {"ok"}
        return seen(said, r"changed: \[[ab], ?[ab]\]|changed: \[[ab]\]", "0, changes nothing", code=0)


@row("network cable out, before the run")
def cable_out_before(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = site.playbook(LOOK)
        site.nodes["b"].cable(False)
        begun = time.monotonic()
        said = site.run(play, "--timeout", "2")
        assert said.statuses() == {"a": "ok", "b": "unreachable"} and time.monotonic() - begun < 25
        site.nodes["b"].cable(True)
        again(site, play)
        return seen(said, r"10\.99\.\d+\.\d+ did not answer in time", "0; the other host was not held up", code=4)


@row("30 % of the packets lost")
def packets_lost(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.build(1)
        site.node.drop_packets(30)
        said = site.run(play)
        assert site.begun() == ["a"]
        site.node.drop_packets(0)
        assert again(site, play).statuses() == {"a": "ok"}
        return seen(said, "", "0, changes nothing", code=0)


@row("50 ms delay each way")
def delay(ground: Ground) -> Seen:
    with ground.site() as site, site.node.delayed(50):
        play = site.playbook(LOOK)
        site.run(play)
        said = site.run(play)
        assert said.document["duration_s"] < 5, "about fifteen round trips, of 0.1 s each"
        return seen(said, "", "0", code=0)


@row("sshd does not listen")
def refused(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.playbook(LOOK)
        site.node.stop_sshd()
        begun = time.monotonic()
        said = site.run(play)
        assert time.monotonic() - begun < 25, "a refusal is tried again, and costs no whole --timeout"
        site.node.start_sshd()
        again(site, play)
        return seen(said, r"10\.99\.\d+\.\d+: Connection refused", "0", code=4)


@row("sshd does not listen yet, other hosts are at work")
def refused_at_first(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        wait = "while [ ! -e /shared/go ]; do sleep 0.1; done"
        play = site.playbook({"command": {"argv": ["sh", "-c", wait], "read_only": True}})
        site.node.stop_sshd()
        running = site.start(play)
        running.until("it is tried again after the others")
        time.sleep(3)  # its second try comes meanwhile
        site.node.start_sshd()
        (site.shared / "go").touch()
        said = running.end()
        assert said.statuses() == {"a": "ok", "b": "ok"}
        again(site, play)
        return seen(said, r"Connection refused; it is tried again after the others", "0", code=0)


@row("sshd accepts and stays silent")
def silent(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.playbook(LOOK)
        site.node.hang_sshd()
        said = site.run(play, "--timeout", "2")
        site.node.thaw()
        again(site, play)
        return seen(said, r"10\.99\.\d+\.\d+ accepts, but sends no SSH banner within 2 s", "0", code=4)


@row("sshd closes after its banner")
def closes_after_banner(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.playbook(LOOK)
        site.node.stop_sshd()
        with site.node.listening(b"SSH-2.0-OpenSSH_9.2\r\n"):
            said = site.run(play, "--timeout", "3")
        site.node.start_sshd()
        again(site, play)
        return seen(said, r"10\.99\.\d+\.\d+ ended the handshake", "0; tried again until the timeout", code=4)


@row("sshd takes no further connection for two seconds (MaxStartups)")
def too_many_connections(ground: Ground) -> Seen:
    with ground.site(sshd=("MaxStartups 1:100:1",)) as site:
        play = site.playbook(LOOK)
        with site.node.connected():
            running = site.start(play)
            time.sleep(2)
            assert running.process.poll() is None, running.said
        said = running.end()
        again(site, play)
        return seen(said, "", "0", code=0)


@row("sshd refuses the tenth handshake (MaxStartups 9), 40 hosts behind its address")
def tenth_connection(ground: Ground) -> Seen:
    with ground.site(sshd=("MaxStartups 9",)) as site:
        address = site.node.spec.address
        site.inventory({f"n{number}": {"ansible_host": address} for number in range(40)})
        play = site.playbook(LOOK)
        # Forty names of one node: only a plan that reads may go there at once.
        said = site.run(play, "--check", "--forks", "40")
        assert set(said.statuses().values()) == {"ok"} and len(said.statuses()) == 40, said.err
        assert "MaxStartups" not in site.node.path("/run/sshd.log").read_text(), "none was refused: at most 8 at once"
        again(site, play, "--check")
        return seen(said, "", "0", code=0, note="at most 8 handshakes at once")


@row("sshd takes one session a connection (MaxSessions 1)")
def one_session(ground: Ground) -> Seen:
    with ground.site(sshd=("MaxSessions 1",)) as site:
        play = site.build(0.1)
        said = site.run(play)
        again(site, play)
        return seen(said, "", "0", code=0)


@row("sshd takes no session (MaxSessions 0)")
def no_session(ground: Ground) -> Seen:
    with ground.site(sshd=("MaxSessions 0",)) as site:
        play = site.playbook(LOOK)
        said = site.run(play, "--timeout", "3")
        site.node.sshd()
        again(site, play)
        return seen(said, r"10\.99\.\d+\.\d+ refused a session", "0", code=4)


@row("host key unknown")
def key_unknown(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.playbook(LOOK)
        known = site.known_hosts.read_text()
        site.known_hosts.write_text("")
        said = site.run(play)
        assert site.known_hosts.read_text() == "", "no key is taken silently"
        site.known_hosts.write_text(known)
        again(site, play)
        return seen(said, r"the host key of \S+ is unknown .*remedy: .*ssh-keyscan [\d.]+", "0, once accepted", code=4)


@row("host key changed")
def key_changed(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.playbook(LOOK)
        site.node.new_host_key()
        said = site.run(play)
        key = public(Path(site.node.spec.directory) / "other_key")
        site.known_hosts.write_text(f"{site.node.spec.address} {key}\n")
        again(site, play)
        return seen(said, r"the host key of \S+ has changed .*remedy: .*ssh-keygen -R", "0, once accepted", code=4)


@row("host key revoked")
def key_revoked(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.playbook(LOOK)
        known = site.known_hosts.read_text()
        site.known_hosts.write_text(f"@revoked * {' '.join(known.split()[1:])}\n{known}")
        said = site.run(play)
        site.known_hosts.write_text(known)
        again(site, play)
        return seen(said, r"the host key of \S+ is revoked", "0, once it is not", code=4)


@row("the node takes none of our keys")
def key_refused(ground: Ground) -> Seen:
    with ground.site() as site:
        play = site.playbook(LOOK)
        accepted = site.node.path("/etc/ssh/rack_authorized_keys")
        keys = accepted.read_text()
        accepted.write_text("")
        said = site.run(play)
        accepted.write_text(keys)
        again(site, play)
        return seen(said, r"10\.99\.\d+\.\d+ refused user root", "0", code=4)
