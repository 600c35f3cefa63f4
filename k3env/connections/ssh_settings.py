"""How a host is reached, as a value: what `ssh -G` says of it, with its tokens expanded.

ssh_config is OpenSSH's language (Include, Match exec, tokens, canonical names), so OpenSSH reads it. Where it is not
installed, paramiko's parser serves: no Match but host and user, and what it can't do is said.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import socket
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from k3env.errors import Unreachable

RESOLVE_S = 20.0
"""`Match exec` may run anything; after these seconds it is given up."""
_JUMP = re.compile(r"(?:ssh://)?(?:(?P<user>[^@]+)@)?(?P<host>\[[^\]]+\]|[^:@\[\]]+)(?::(?P<port>\d+))?/?")


@dataclass(frozen=True)
class Asked:
    """What is known of a host before ssh_config is asked; these values win over it."""

    host: str
    port: int | None = None
    user: str | None = None
    private_key: str | None = None


@dataclass(frozen=True)
class Resolved:
    """All that decides how a host is reached."""

    hostname: str
    port: int
    user: str
    key_files: tuple[str, ...] = ()
    """Private keys to try, in order."""
    certificates: tuple[str, ...] = ()
    only_these_keys: bool = False
    """IdentitiesOnly: the agent's other keys are not offered."""
    agent: str | None = None
    """The agent's socket; None: there is none to ask."""
    known_hosts: tuple[str, ...] = ()
    host_key_alias: str | None = None
    jumps: tuple[Asked, ...] = ()
    """Hosts to go through, the nearest first."""
    needs_openssh: tuple[str, ...] = ()
    """What is asked for and paramiko can't do."""
    note: str = ""
    """What could not be read, for people."""


def resolve(asked: Asked) -> Resolved:
    """Return how a host is reached.

    Raises Unreachable if ssh_config can't be read.
    """
    ssh = shutil.which("ssh")
    return _parse(_ask(ssh, asked), asked) if ssh else _parse(_without_openssh(asked), asked)


def _ask(ssh: str, asked: Asked) -> dict[str, list[str]]:
    argv = [ssh, "-G"]
    argv += ["-p", str(asked.port)] if asked.port is not None else []
    argv += ["-l", asked.user] if asked.user is not None else []
    argv += ["-i", asked.private_key, "-o", "IdentitiesOnly=yes"] if asked.private_key is not None else []
    try:
        done = subprocess.run(
            [*argv, "--", asked.host], capture_output=True, timeout=RESOLVE_S, stdin=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise Unreachable(
            f"ssh -G {asked.host} does not end",
            expected=f"an answer within {RESOLVE_S:g} s",
            found="none",
            remedy="see what Match exec in ssh_config runs",
        ) from None
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip()
        raise Unreachable(
            f"ssh_config can't be read for {asked.host}: {said}",
            expected="a configuration that ssh takes",
            found=said.splitlines()[0] if said else f"exit code {done.returncode}",
            remedy=f"mend it until this works: ssh -G {asked.host}",
        )
    return _words(done.stdout.decode("utf-8", "replace"))


def _words(text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        key, _, value = line.partition(" ")
        found.setdefault(key.lower(), []).append(value.strip())
    return found


def _without_openssh(asked: Asked) -> dict[str, list[str]]:
    import paramiko

    config = paramiko.SSHConfig()
    path = Path("~/.ssh/config").expanduser()
    if path.is_file():
        config = paramiko.SSHConfig.from_path(str(path))
    found = {
        key: value if isinstance(value, list) else [str(value)] for key, value in config.lookup(asked.host).items()
    }
    files = ["~/.ssh/id_rsa", "~/.ssh/id_ecdsa", "~/.ssh/id_ed25519"]
    return {"identityfile": files, **found, " note": ["OpenSSH is not installed: ssh_config was read without it"]}


def _parse(found: dict[str, list[str]], asked: Asked) -> Resolved:
    def first(key: str, default: str = "") -> str:
        value = found.get(key, [default])[0]
        return default if value.lower() == "none" else value

    user = asked.user or first("user") or _login_name()
    hostname, port = first("hostname", asked.host), asked.port or int(first("port", "22"))
    tokens = _tokens(asked.host, hostname, port, user, first("hostkeyalias"), first("proxyjump"))

    def paths(key: str) -> tuple[str, ...]:
        words = [word for value in found.get(key, []) for word in _split(value, key)]
        return tuple(expand(word, tokens) for word in words if word.lower() != "none")

    keys = (asked.private_key,) if asked.private_key else paths("identityfile")
    return Resolved(
        hostname=hostname,
        port=port,
        user=user,
        key_files=tuple(str(Path(name).expanduser()) for name in keys if name),
        certificates=paths("certificatefile"),
        only_these_keys=bool(asked.private_key) or first("identitiesonly", "no") == "yes",
        agent=_agent(first("identityagent", "SSH_AUTH_SOCK"), tokens),
        known_hosts=(*paths("userknownhostsfile"), *paths("globalknownhostsfile")),
        host_key_alias=first("hostkeyalias") or None,
        jumps=tuple(jumps(first("proxyjump"))),
        needs_openssh=tuple(_beyond(found, tokens)),
        note=first(" note"),
    )


def _split(value: str, key: str) -> list[str]:
    """Files of known hosts stand on one line with spaces between; a key's path stands alone and may hold spaces."""
    return value.split() if key.endswith("knownhostsfile") else [value]


def _beyond(found: dict[str, list[str]], tokens: dict[str, str]) -> Iterator[str]:
    """Yield what is asked for that only OpenSSH itself can do."""
    for key in _OPENSSH_ALONE:
        value = found.get(key, ["none"])[0]
        if value.lower() not in ("false", "none", "no", ""):
            yield f"{key} {value}"
    for name in found.get("identityfile", []):
        if _needs_hardware(expand(name, tokens)):
            yield f"identityfile {name}"
    socket_path = found.get("controlpath", ["none"])[0]
    if socket_path.lower() != "none" and _is_socket(expand(socket_path, tokens)):
        yield f"controlpath {socket_path}, a connection that stands already"
    if found.get("gssapiauthentication", ["no"])[0] == "yes" and _has_ticket():
        yield "gssapiauthentication yes, and you have a Kerberos ticket"


_OPENSSH_ALONE = (
    "proxycommand",
    "knownhostscommand",
    "revokedhostkeys",
    "pkcs11provider",
    "hostbasedauthentication",
    "verifyhostkeydns",
    "bindaddress",
    "bindinterface",
)
"""What `ssh -G` shows where it is set; without it a host is not reached, or one that should not be believed is."""


def _needs_hardware(path: str) -> bool:
    """Return whether a key file only points to a security key, by its public half; named so where that is missing."""
    try:
        return Path(f"{path}.pub").read_text("utf-8", "replace").startswith("sk-")
    except OSError:
        return path.endswith("_sk") and Path(path).is_file()


def _is_socket(path: str) -> bool:
    try:
        return stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        return False


def _has_ticket() -> bool:
    """Return whether the user has a valid Kerberos ticket: Debian turns GSSAPI on for everybody."""
    try:
        return subprocess.run(["klist", "-s"], stdin=subprocess.DEVNULL, timeout=RESOLVE_S).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def jumps(text: str) -> Iterator[Asked]:
    """Yield the hosts of a ProxyJump list, the nearest first.

    Raises Unreachable for one that can't be read.
    """
    for word in filter(None, (part.strip() for part in text.split(","))):
        matched = _JUMP.fullmatch(word)
        if matched is None or matched["host"].startswith("-"):
            raise Unreachable(
                f"ProxyJump {word} can't be read",
                expected="[user@]host[:port], with commas between",
                found=word,
                remedy="mend it in ssh_config",
            )
        yield Asked(matched["host"].strip("[]"), int(matched["port"]) if matched["port"] else None, matched["user"])


def _tokens(host: str, hostname: str, port: int, user: str, alias: str, jump: str) -> dict[str, str]:
    """Return what ssh_config's tokens stand for. Source: TOKENS in ssh_config(5)."""
    local = socket.gethostname()
    key = f"{local}{hostname}{port}{user}{jump}"
    return {
        "%": "%",
        "C": hashlib.sha1(key.encode(), usedforsecurity=False).hexdigest(),
        "d": str(Path.home()),
        "h": hostname,
        "i": str(os.getuid()),
        "j": jump,
        "k": alias or host,
        "L": local.partition(".")[0],
        "l": local,
        "n": host,
        "p": str(port),
        "r": user,
        "u": _login_name(),
    }


def expand(text: str, tokens: dict[str, str]) -> str:
    """Return a path with `~`, %-tokens and ${VARIABLE} expanded; what is unknown stays as it is."""

    def token(matched: re.Match[str]) -> str:
        return tokens.get(matched[1], matched[0])

    def variable(matched: re.Match[str]) -> str:
        return os.environ.get(matched[1], matched[0])

    expanded = re.sub(r"%([%A-Za-z])", token, text)
    return str(Path(re.sub(r"\$\{(\w+)\}", variable, expanded)).expanduser())


def _agent(value: str, tokens: dict[str, str]) -> str | None:
    if value == "SSH_AUTH_SOCK":
        return os.environ.get("SSH_AUTH_SOCK") or None
    if value.startswith("$"):
        return os.environ.get(value[1:].strip("{}")) or None
    return expand(value, tokens) if value else None


def _login_name() -> str:
    """Return the name that ssh connects as where nothing else is said."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a uid without an entry, as in containers
        return os.environ.get("USER", "root")
