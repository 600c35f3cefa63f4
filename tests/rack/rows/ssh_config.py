"""What ssh_config, known_hosts and sshd ask for on the road: no faults, but roads that must be found."""

from __future__ import annotations

import signal
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.rack.bed import Node, public, wait_until
from tests.rack.row import Ground, Seen, again, row, seen
from tests.rack.site import HOME_SSH, Site

LOOK = {"command": {"argv": ["true"], "read_only": True}}
OWN_KEYS = ("AuthorizedKeysFile /etc/ssh/keys/%u",)
SHELLS = ("sh", "bash", "dash", "csh", "fish")
PHRASE = "open-sesame"


def accept(node: Node, user: str, *keys: str) -> None:
    """Let a user of a node in by these keys alone."""
    if user != "root":
        node.user(user)
    path = node.path(f"/etc/ssh/keys/{user}")
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{key}\n" for key in keys))


def host_key(node: Node) -> str:
    """Return the public half of a node's host key."""
    return public(Path(node.spec.directory) / "host_key")


def log(node: Node) -> str:
    """Return what a node's sshd wrote down."""
    return node.path("/run/sshd.log").read_text()


@contextmanager
def agent(site: Site, *keys: str) -> Iterator[dict[str, str]]:
    """Run an agent with keys of the person's .ssh; yield the environment that names it."""
    path = site.home / "agent"
    environment = {**site.environment(), "SSH_AUTH_SOCK": str(path)}
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as process:
        try:
            wait_until(path.exists, 5)
            paths = [site.home / HOME_SSH / key for key in keys]
            subprocess.run(["ssh-add", "-q", *paths], env=environment, check=True, capture_output=True)
            yield {"SSH_AUTH_SOCK": str(path)}
        finally:
            process.terminate()


@row("ProxyJump through two hosts, with another user and key at each")
def jump_chain(ground: Ground) -> Seen:
    with ground.site("a", "b", "c", sshd=OWN_KEYS) as site:
        near, middle, far = site.nodes.values()
        accept(near, "ann", site.key("near"))
        accept(middle, "bob", site.key("middle"))
        accept(far, "root", public(site.bed.key))
        site.ssh_config(
            f"Host near\n HostName {near.spec.address}\n User ann\n IdentityFile ~/.ssh/near\n IdentitiesOnly yes",
            f"Host middle\n HostName {middle.spec.address}\n User nobody\n IdentityFile %d/.ssh/%n",
            f"Host far\n HostName {far.spec.address}\n User root\n ProxyJump near,bob@middle",
        )
        site.inventory({"far": {}}, ansible_user=None)
        play = site.playbook(LOOK)
        said = site.run(play)
        assert "Accepted publickey for ann" in log(near) and "Accepted publickey for bob" in log(middle)
        assert f"Connection from {near.spec.address}" in log(middle)
        assert f"Connection from {middle.spec.address}" in log(far)
        again(site, play)
        return seen(said, "", "0", code=0)


@row("host keys known by hash, wildcard, port, alias, in the global file, among 10,000 lines")
def ways_to_know(ground: Ground) -> Seen:
    with ground.site("a", "b", "c", "d", "e") as site:
        a, b, c, d, e = site.nodes.values()
        c.sshd("ListenAddress 0.0.0.0:2222")
        site.known_hosts.write_text(f"{a.spec.address} {host_key(a)}\n")
        subprocess.run(["ssh-keygen", "-q", "-H", "-f", site.known_hosts], check=True, capture_output=True)
        assert site.known_hosts.read_text().startswith("|1|")
        others = "".join(f"other-{number} {host_key(a)}\n" for number in range(10_000))
        with site.known_hosts.open("a") as file:
            file.write(f"{others}{b.spec.address[:-1]}? {host_key(b)}\n")
            file.write(f"[{c.spec.address}]:2222 {host_key(c)}\nrack-d {host_key(d)}\n")
        (site.etc_ssh / "ssh_known_hosts").write_text(f"{e.spec.address} {host_key(e)}\n")
        site.ssh_config(f"Host {d.spec.address}\n HostKeyAlias rack-d", f"Host {c.spec.address}\n Port 2222")
        play = site.playbook(LOOK)
        said = site.run(play)
        assert set(said.statuses().values()) == {"ok"}, said.err
        again(site, play)
        return seen(said, "", "0", code=0)


@row("host key signed by an authority (@cert-authority)")
def authority(ground: Ground) -> Seen:
    with ground.site(sshd=("HostCertificate /etc/ssh/rack_cert.pub",)) as site:
        signed = site.key("authority")
        copy = site.home / "host_key.pub"
        copy.write_text(f"{host_key(site.node)}\n")
        sign = ["ssh-keygen", "-q", "-s", str(site.home / HOME_SSH / "authority"), "-I", "rack"]
        subprocess.run([*sign, "-h", "-n", site.node.spec.address, copy], check=True)
        site.node.path("/etc/ssh/rack_cert.pub").write_bytes((site.home / "host_key-cert.pub").read_bytes())
        site.node.sshd("HostCertificate /etc/ssh/rack_cert.pub")
        site.known_hosts.write_text(f"@cert-authority 10.99.* {signed}\n")
        play = site.playbook(LOOK)
        said = site.run(play)
        again(site, play, "--connection", "openssh")
        pattern = r"\S+ is known by a certificate authority.*?remedy: use --connection openssh"
        return seen(said, pattern, "0, with --connection openssh", code=4)


@row("Port in ssh_config; and ansible_port: 22 over it")
def ports(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        a, b = site.nodes.values()
        a.sshd("ListenAddress 0.0.0.0:2222")
        site.known_hosts.write_text(f"[{a.spec.address}]:2222 {host_key(a)}\n{b.spec.address} {host_key(b)}\n")
        site.ssh_config("Host *\n Port 2222")
        site.inventory({"a": {}, "b": {"ansible_port": 22}})
        play = site.playbook(LOOK)
        said = site.run(play)
        assert set(said.statuses().values()) == {"ok"}, said.err
        again(site, play, "--connection", "openssh")
        return seen(said, "", "0, by --connection openssh too", code=0)


@row("IPv6, also an address of the link alone (fe80::…%br0)")
def ipv6(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        a, b = site.nodes.values()
        (line,) = b.run("ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "link").stdout.splitlines()
        local = f"{line.split()[3].partition('/')[0]}%br0"
        wait_until(lambda: "tentative" not in b.run("ip", "-6", "addr", "show", "dev", "eth0").stdout, 5)
        b.sshd("ListenAddress ::")
        site.known_hosts.write_text(f"{a.spec.address6} {host_key(a)}\n{local} {host_key(b)}\n")
        site.inventory({"six": {"ansible_host": a.spec.address6}, "link": {"ansible_host": local}})
        play = site.playbook(LOOK)
        said = site.run(play)
        assert set(said.statuses().values()) == {"ok"}, said.err
        again(site, play)
        return seen(said, "", "0", code=0)


@row("login shells sh, bash, dash, csh, fish, whose start files talk")
def login_shells(ground: Ground) -> Seen:
    with ground.site() as site:
        for shell in SHELLS:
            site.node.user(shell, shell=site.node.run("sh", "-c", f"command -v {shell}").stdout.strip())
            home = site.node.path(f"/home/{shell}")
            (home / ".config/fish").mkdir(parents=True)
            for name in (".bashrc", ".profile", ".cshrc", ".config/fish/config.fish"):
                (home / name).write_text("echo Welcome to this node\n")
        address = site.node.spec.address
        site.inventory({shell: {"ansible_host": address, "ansible_user": shell} for shell in SHELLS})
        play = site.playbook(
            {
                "command": {
                    "argv": ["touch", "/tmp/{{ inventory_hostname }}"],
                    "creates": "/tmp/{{ inventory_hostname }}",
                }
            }
        )
        said = site.run(play)
        assert set(said.statuses().values()) == {"changed"} and len(said.statuses()) == len(SHELLS), said.err
        assert again(site, play).changes() == {}
        return seen(said, "", "0, changes nothing", code=0)


@row("an agent with more keys than sshd takes tries, IdentitiesOnly")
def full_agent(ground: Ground) -> Seen:
    with ground.site(sshd=("MaxAuthTries 3", *OWN_KEYS)) as site:
        strangers = [f"stranger-{number}" for number in range(8)]
        for name in strangers:
            site.key(name)
        accept(site.node, "root", site.key("right"))
        (site.home / HOME_SSH / "id_ed25519").unlink()
        play = site.playbook(LOOK)
        with agent(site, *strangers, "right") as named:
            said = site.type(site.provision(play), environment=named).end()
            site.ssh_config("Host *\n IdentitiesOnly yes\n IdentityFile ~/.ssh/right")
            again_said = site.type(site.provision(play), environment=named).end()
            assert again_said.code == 0, again_said.err
        return seen(
            said, r"ADDRESS|\S+ refused user root: \d+ keys offered", "0, with IdentitiesOnly and IdentityFile", code=4
        )


@row("a key with a passphrase, three hosts")
def passphrase(ground: Ground) -> Seen:
    with ground.site("a", "b", "c", sshd=OWN_KEYS) as site:
        locked = site.key("locked")
        path = site.home / HOME_SSH / "locked"
        subprocess.run(["ssh-keygen", "-q", "-p", "-N", PHRASE, "-f", path], check=True, capture_output=True)
        for node in site.nodes.values():
            accept(node, "root", locked)
        play = site.playbook(LOOK)
        argv = site.provision(play, "--private-key", str(path))
        said = site.type_secret(argv, "passphrase of", PHRASE).end()
        assert said.err.count("passphrase of") == 1 and set(said.statuses().values()) == {"ok"}, said.err
        unasked = site.type(argv).end()
        assert unasked.code == 4 and "ssh-add" in unasked.err, unasked.err
        return seen(said, "passphrase of", "asks again; ssh-add ends that", code=0, note="asked once for all hosts")


@row("the node believes keys that an authority signed (a user's certificate)")
def user_certificate(ground: Ground) -> Seen:
    with ground.site(sshd=("TrustedUserCAKeys /etc/ssh/authority.pub", *OWN_KEYS)) as site:
        site.node.path("/etc/ssh/authority.pub").write_text(site.key("authority") + "\n")
        accept(site.node, "root")
        site.key("mine")
        play = site.playbook(LOOK)
        said = site.run(play, "--private-key", str(site.home / HOME_SSH / "mine"))
        authority = str(site.home / HOME_SSH / "authority")
        sign = ["ssh-keygen", "-q", "-s", authority, "-I", "me", "-n", "root", site.home / HOME_SSH / "mine.pub"]
        subprocess.run(sign, check=True, capture_output=True)
        again(site, play, "--private-key", str(site.home / HOME_SSH / "mine"))
        with agent(site, "mine") as named:
            for name in ("mine", "mine-cert.pub", "id_ed25519"):
                (site.home / HOME_SSH / name).rename(site.home / name)
            by_agent = site.type(site.provision(play), environment=named).end()
            assert by_agent.code == 0, by_agent.err
        return seen(
            said,
            r"\S+ refused user root: 1 key offered",
            "0, with KEY-cert.pub beside the key, or in the agent",
            code=4,
        )


@row("ProxyCommand, here and at a jump host")
def proxy_command(ground: Ground) -> Seen:
    with ground.site("a", "b", "c") as site:
        a, b, c = site.nodes.values()
        proxy = f"ProxyCommand ssh -W %h:%p root@{a.spec.address}"
        site.ssh_config(
            f"Host direct\n HostName {b.spec.address}\n {proxy}",
            f"Host jump\n HostName {b.spec.address}\n {proxy}",
            f"Host behind\n HostName {c.spec.address}\n ProxyJump jump",
        )
        site.inventory({"direct": {}, "behind": {}})
        play = site.playbook(LOOK)
        said = site.run(play)
        assert set(said.statuses().values()) == {"ok"} and f"Connection from {b.spec.address}" in log(c), said.err
        assert "proxycommand" in said.err and "for jump on the way" in said.err
        again(site, play)
        pattern = r"by OpenSSH's own ssh, since ssh_config has proxycommand ssh -W"
        return seen(said, pattern, "the same", code=0)


@row("a connection of the user's own stands already (ControlMaster), and no key opens another")
def control_master(ground: Ground) -> Seen:
    with ground.site(sshd=OWN_KEYS) as site:
        accept(site.node, "root", public(site.bed.key))
        # Below the home, its path would be too long for a socket.
        sockets = Path(tempfile.mkdtemp(prefix="rack-"))
        site.ssh_config(f"Host *\n ControlPath {sockets}/%r@%h:%p")
        master = site.type(site.as_person("ssh", "-M", "-N", f"root@{site.node.spec.address}"))
        wait_until(lambda: list(sockets.iterdir()), 10, master.said)
        accept(site.node, "root")
        play = site.playbook(LOOK)
        said = site.run(play)
        again(site, play)
        master.signal(signal.SIGTERM)
        master.end()
        sockets.rmdir()
        without = site.run(play)
        assert without.code == 4 and "refused user root" in without.err, without.err
        pattern = r"by OpenSSH's own ssh, since ssh_config has controlpath \S+ a connection that stands already"
        return seen(said, pattern, "the same, while it stands; then 4", code=0)


@row("HostbasedAuthentication: the node believes this machine")
def host_based(ground: Ground) -> Seen:
    lines = ("HostbasedAuthentication yes", "HostbasedUsesNameFromPacketOnly yes", *OWN_KEYS)
    with ground.site(sshd=lines) as site:
        accept(site.node, "root")
        ours = site.etc_ssh / "ssh_host_ed25519_key"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", ours], check=True)
        (site.etc_ssh / "ssh_config").write_text("Host *\n HostbasedAuthentication yes\n EnableSSHKeysign yes\n")
        name = "controller"
        site.node.path("/etc/ssh/ssh_known_hosts").write_text(f"{name},{name}. {public(ours)}\n")
        site.node.path("/root/.shosts").write_text(f"{name}\n{name}.\n")
        site.node.sshd(*lines, "IgnoreRhosts no")
        play = site.playbook(LOOK)
        said = site.run(play)
        assert "Accepted hostbased for root" in log(site.node), log(site.node)
        again(site, play)
        pattern = r"by OpenSSH's own ssh, since ssh_config has hostbasedauthentication yes"
        return seen(said, pattern, "the same", code=0)
