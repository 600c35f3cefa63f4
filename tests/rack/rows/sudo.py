"""Becoming root on the way in: the real sudo, as sites set it up."""

from __future__ import annotations

from tests.rack import roots
from tests.rack.bed import Node, wait_until
from tests.rack.row import Ground, Seen, again, row, seen
from tests.rack.site import Site
from tests.sandbox.cli import Said

PASSWORD = "open-sesame"  # noqa: S105 - of a user in the rack
ASKS = "ann ALL=(ALL) ALL"
FREE = "ann ALL=(ALL) NOPASSWD: ALL"
LOG = "Defaults logfile=/var/log/sudo.log"
QUESTION = "sudo password:"


def people(site: Site, *lines: str) -> str:
    """Let ann connect, and sudo say what lines say; return a playbook that only root can play."""
    site.inventory({name: {} for name in site.nodes}, ansible_user="ann")
    for node in site.nodes.values():
        node.user("ann", password=PASSWORD)
        node.sudoers(LOG, *lines)
    return site.playbook({"command": {"argv": ["touch", "/root/made"], "creates": "/root/made"}})


def with_password(site: Site, play: str, password: str = PASSWORD, *options: str) -> Said:
    """Run as root, giving sudo's password in a terminal when asked; the password must stand nowhere."""
    argv = site.provision(play, "--become", "--ask-become-pass", *options)
    said = site.type_secret(argv, QUESTION, password).end()
    assert said.err.count(QUESTION) == 1, "it is asked for once"
    records = [path for path in (site.home / ".local").rglob("*") if path.is_file()]
    texts = [said.out, said.err, *(path.read_text("utf-8", "replace") for path in records)]
    assert records and not any(password in text for text in texts)
    return said


def tries(node: Node) -> list[str]:
    """Return what sudo wrote down."""
    log = node.path("/var/log/sudo.log")
    return log.read_text().splitlines() if log.exists() else []


@row("sudo asks for no password (NOPASSWD)")
def sudo_free(ground: Ground) -> Seen:
    with ground.site("a", "b") as site:
        play = people(site, FREE)
        said = site.run(play, "--become")
        assert set(said.statuses().values()) == {"changed"}, said.err
        assert with_password(site, play).code == 0, "a password that nobody asks for does no harm"
        site.quiet()
        return seen(said, "", "0, changes nothing", code=0)


@row("sudo asks for a password, and nobody gave one")
def sudo_asks(ground: Ground) -> Seen:
    with ground.site() as site:
        play = people(site, ASKS)
        said = site.run(play, "--become")
        assert with_password(site, play).statuses() == {"a": "changed"}
        site.quiet()
        pattern = r"this user can't become root: sudo: a password is required .*?remedy: --ask-become-pass"
        return seen(said, pattern, "0, with --ask-become-pass", code=4)


@row("sudo asks for a password, lectures, insists on its own terminal (use_pty)")
def sudo_lectures(ground: Ground) -> Seen:
    with ground.site("a", "b", "c") as site:
        play = people(site, ASKS, "Defaults lecture=always", "Defaults use_pty")
        argv = site.provision(play, "--become", "--ask-become-pass")
        running = site.type_secret(argv, QUESTION, PASSWORD)
        assert not any("Connection from" in node.path("/run/sshd.log").read_text() for node in site.nodes.values())
        said = running.end()
        assert set(said.statuses().values()) == {"changed"} and said.err.count(QUESTION) == 1, said.err
        assert with_password(site, play).changes() == {}
        site.quiet()
        return seen(said, QUESTION, "0, changes nothing", code=0, note="asked once, before any host is contacted")


@row("the password is wrong", slow=True)
def sudo_wrong(ground: Ground) -> Seen:
    with ground.site("a", "b", "c") as site:
        play = people(site, ASKS)
        said = with_password(site, play, "wrong-one")
        assert said.document["duration_s"] < 8, "one delay of sudo's, not three a host"
        tried = [name for name, node in site.nodes.items() if any("incorrect" in line for line in tries(node))]
        assert len(tried) == 1, f"a wrong password, tried on {tried}, locks an account that hosts share"
        assert set(with_password(site, play).statuses().values()) == {"changed"}
        site.quiet()
        pattern = r"sudo refused the password .*? refused it, so it was not tried here"
        return seen(said, pattern, "0, with the right one", code=4, note="tried on one host")


@row("the password is wrong, and sudo asks once only (passwd_tries=1)")
def sudo_wrong_once(ground: Ground) -> Seen:
    with ground.site() as site:
        play = people(site, ASKS, "Defaults passwd_tries=1")
        said = with_password(site, play, "wrong-one")
        assert with_password(site, play).statuses() == {"a": "changed"}
        site.quiet()
        return seen(said, r"sudo refused the password .*?1 incorrect password attempt", "0, with the right one", code=4)


@row("sudo lets this user become nobody, and speaks German")
def sudo_refuses(ground: Ground) -> Seen:
    with ground.site(sshd=("SetEnv LANG=C.UTF-8 LANGUAGE=de",)) as site:
        play = people(site, "Defaults lecture=always")
        german = site.node.run(
            "runuser", "-u", "ann", "--", "env", "LANG=C.UTF-8", "LANGUAGE=de", "sudo", "-n", "true", check=False
        )
        assert "Passwort ist notwendig" in german.stderr, "this sudo has its translations"
        said = with_password(site, play)
        site.node.sudoers(LOG, FREE)
        assert again(site, play, "--become").statuses() == {"a": "changed"}
        pattern = r"this user can't become root: .*?ann is not in the sudoers file.*?remedy: have sudo allow it"
        return seen(said, pattern, "0, once allowed", code=4)


@row("sudo wants a terminal (requiretty)")
def sudo_requiretty(ground: Ground) -> Seen:
    with ground.site() as site:
        play = people(site, FREE, "Defaults requiretty")
        said = site.run(play, "--become")
        site.node.sudoers(FREE, "Defaults:ann !requiretty")
        assert again(site, play, "--become").statuses() == {"a": "changed"}
        pattern = r"sudo: sorry, you must have a tty to run sudo .*?remedy: .*?!requiretty"
        return seen(said, pattern, "0, without it", code=4)


@row("there is no sudo")
def sudo_missing(ground: Ground) -> Seen:
    with ground.site() as site:
        play = people(site, FREE)
        site.node.path("/usr/bin/sudo").rename(site.node.path("/usr/bin/sudo.away"))
        said = site.run(play, "--become")
        site.node.path("/usr/bin/sudo.away").rename(site.node.path("/usr/bin/sudo"))
        assert again(site, play, "--become").statuses() == {"a": "changed"}
        pattern = r"this user can't become root: there is no sudo on the node .*?remedy: install sudo"
        return seen(said, pattern, "0, once installed", code=4)


@row("connection killed in a build behind sudo with a password")
def sudo_connection_killed(ground: Ground) -> Seen:
    with ground.site() as site:
        people(site, ASKS, "Defaults use_pty")
        play = site.build(4)
        argv = site.provision(play, "--become", "--ask-become-pass")
        running = site.type_secret(argv, QUESTION, PASSWORD)
        wait_until(site.begun, 15, running.said)
        site.node.cut_sessions()
        said = running.end()
        assert said.err.count(QUESTION) == 1 and "connected again" in said.err, said.err
        assert with_password(site, play).changes() == {} and site.begun() == ["a"]
        site.quiet()
        pattern = r"connection lost \(.*?\); reconnecting"
        return seen(said, pattern, "0, changes nothing", code=0, note="asked once, answered twice")


@row("Debian 11's sudo asks for a password")
def sudo_older(ground: Ground) -> Seen:
    with ground.site(root=roots.bullseye()) as site:
        play = people(site, ASKS)
        said = with_password(site, play)
        assert said.statuses() == {"a": "changed"}, said.err
        assert with_password(site, play).changes() == {}
        site.quiet()
        return seen(said, QUESTION, "0, changes nothing", code=0)
