"""Patterns: which hosts a `--hosts`, a `--limit` or a play's `hosts:` means.

A term is a group, a host, a node set, a glob, `~REGEX`, `@FILE`, `[USER@]HOST[:PORT]`, `[IPV6]:PORT`. As in Ansible
all of them are united first, then those after `&` intersected, then those after `!` taken away.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Optional

from k3env.documents import yaml
from k3env.errors import nearest
from k3env.inventory.hosts import expanded, is_ipv6, valid_name, valid_user
from k3env.inventory.nodesets import BadNodeSet, expand, is_nodeset
from k3env.inventory.terms import V6, Names, Pattern, Term, terms

_HOST = re.compile(r"(?:(?P<user>[^@]*)@)?(?P<base>.*?)(?::(?P<port>[0-9]{1,5}))?")


@dataclass(frozen=True)
class Chosen:
    """A host that a pattern means, with what the pattern says about the way to it."""

    name: str
    user: Optional[str] = None
    port: Optional[int] = None
    hostname: Optional[str] = None
    """The address of a host that no inventory knows."""


def choose(pattern: str, names: Names, source: str = "--hosts") -> dict[str, Chosen]:
    """Return the hosts that a pattern means, by name, in the order of its terms.

    Raises InventoryError, pointing at the character, for what can't be read, is unknown or means no host.
    """
    reading = Pattern(pattern, source, names)
    read = list(terms(reading))
    united = [term for term in read if not term.sign]
    chosen: dict[str, Chosen] = {}
    if not united:
        chosen = {name: Chosen(name) for name in names.hosts}
    for term in united:
        for host in _hosts(reading, term):
            chosen[host.name] = _same(reading, term, chosen.get(host.name), host)
    for term in sorted((term for term in read if term.sign), key=lambda term: term.sign == "!"):
        meant = {host.name for host in _hosts(reading, term)}
        chosen = {name: host for name, host in chosen.items() if (name in meant) == (term.sign == "&")}
    if not chosen:
        raise reading.wrong(0, "the pattern means no host", expected="at least one host")
    return chosen


def _same(reading: Pattern, term: Term, before: Optional[Chosen], host: Chosen) -> Chosen:
    if before is not None and before != host:
        raise reading.wrong(term.at, f"{host.name} is given twice, with another user or port")
    return host


def _hosts(reading: Pattern, term: Term) -> Iterator[Chosen]:
    text = term.text
    if text.startswith("~"):
        return _regex(reading, term)
    if text.startswith("@"):
        return _file(reading, term)
    v6 = V6.fullmatch(text)
    if v6 or is_ipv6(text):
        host = v6["address"] if v6 else text
        if not is_ipv6(host):
            raise reading.wrong(term.at, f"{host} is no IPv6 address", "ranges are written with a dash: [01-04]")
        return _unknown(reading, term, host, None, v6["port"] if v6 else None)
    found = _HOST.fullmatch(text)
    user, base, port = (found["user"], found["base"], found["port"]) if found else (None, text, None)
    if user is not None and not valid_user(user):
        raise reading.wrong(term.at, f"{user or 'nothing'} is no user name", expected="USER@HOST")
    return _named(reading, term, user, base, port)


def _named(reading: Pattern, term: Term, user: Optional[str], base: str, port: Optional[str]) -> Iterator[Chosen]:
    at = term.at + term.text.index(base)
    if not base:
        raise reading.wrong(term.at, "a name is missing here", "write [USER@]HOST[:PORT]")
    if any(char.isspace() for char in base):
        raise reading.wrong(at, f"{base} holds a space", "separate names with commas")
    if "*" in base or "?" in base:
        names: Sequence[str] = _globbed(reading, base, at)
    elif base in reading.names.groups:
        names = reading.names.groups[base]
    elif is_nodeset(base):
        names = _expanded(reading, base, at)
    else:
        names = [base]
    for name in names:
        if name in reading.names.hosts:
            yield _way(reading, term, Chosen(name), user, port)
        elif name in reading.names.groups:
            yield from (_way(reading, term, Chosen(host), user, port) for host in reading.names.groups[name])
        else:
            yield from _unknown(reading, term, name, user, port)


def _globbed(reading: Pattern, glob: str, at: int) -> list[str]:
    if is_nodeset(glob):
        raise reading.wrong(at, f"{glob} mixes a range with * or ?", "write each of the two as a term of its own")
    groups = [host for name, hosts in reading.names.groups.items() if fnmatchcase(name, glob) for host in hosts]
    found = dict.fromkeys([*groups, *(name for name in reading.names.hosts if fnmatchcase(name, glob))])
    if not found:
        raise reading.wrong(at, f"{glob} matches no host and no group", expected="at least one host")
    return list(found)


def _regex(reading: Pattern, term: Term) -> Iterator[Chosen]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # "[[" and "[a&&b]" will mean something else one day
            expression = re.compile(term.text[1:])
    except re.error as error:
        raise reading.wrong(term.at + 1 + (error.pos or 0), f"this is no regular expression: {error.msg}") from None
    except (Warning, OverflowError, RecursionError) as error:
        raise reading.wrong(term.at + 1, f"this regular expression is not clear: {error}") from None
    groups = [host for name, hosts in reading.names.groups.items() if expression.match(name) for host in hosts]
    found = dict.fromkeys([*groups, *(name for name in reading.names.hosts if expression.match(name))])
    if not found:
        raise reading.wrong(term.at, f"{term.text} matches no host and no group", expected="at least one host")
    return (Chosen(name) for name in found)


def _file(reading: Pattern, term: Term) -> Iterator[Chosen]:
    path = expanded(term.text[1:])
    if term.text[1:] in reading.names.groups and not path.exists():
        raise reading.wrong(
            term.at, f"{term.text} is a file, and there is none", f"for the group write {term.text[1:]}"
        )
    text = yaml.read(path, str(path)).decode("utf-8", "replace").removeprefix("\ufeff")
    found = False
    for number, line in enumerate(text.splitlines(), 1):
        content = line.partition("#")[0].strip()
        if not content:
            continue
        found = True
        inner = Pattern(content, f"{path}:{number}:1", reading.names, reading.room)
        for entry in terms(inner):
            if entry.sign or entry.text.startswith("@"):
                raise inner.wrong(entry.at, "a file of hosts holds names, node sets, globs and regular expressions")
            yield from _hosts(inner, entry)
        reading.room = inner.room
    if not found:
        raise reading.wrong(term.at, f"{path} names no host", expected="a host, a group or a node set in each line")


def _expanded(reading: Pattern, base: str, at: int) -> list[str]:
    try:
        names = expand(base, reading.room)
    except BadNodeSet as bad:
        raise reading.wrong(at + bad.at, f"{base}: {bad.message}", bad.remedy) from None
    reading.room -= len(names)
    return names


def _unknown(reading: Pattern, term: Term, name: str, user: Optional[str], port: Optional[str]) -> Iterator[Chosen]:
    """Take a name that neither is a host nor a group for a host of its own, where that is allowed."""
    address = is_ipv6(name)
    if not address and not valid_name(name):
        raise reading.wrong(term.at, f"{name} can't name a host", expected="letters, digits, dot, dash, underscore")
    if not reading.names.adhoc or term.sign:
        meant = nearest(name, reading.known)
        remedy = f"did you mean {meant}?" if meant else "add it to the inventory, or list what is there: --list-hosts"
        raise reading.wrong(term.at, f"there is no host or group {name}", remedy, "a host or group of the inventory")
    meant = nearest(name, list(reading.names.groups))
    if meant and name.isalpha() and not (user or port):
        # A misspelt group must not be connected to.
        remedy = f"did you mean {meant}? For a host of this name: {name}:22"
        raise reading.wrong(term.at, f"there is no group {name}", remedy)
    shown = f"[{name}]" if address else name
    number = _port(reading, term, port)
    yield Chosen(f"{shown}:{port}" if port else name, user, number, hostname=name)


def _way(reading: Pattern, term: Term, host: Chosen, user: Optional[str], port: Optional[str]) -> Chosen:
    if user is None and port is None:
        return host
    if term.sign:
        raise reading.wrong(term.at, "a user or a port belongs to hosts that are added, not taken away")
    return Chosen(host.name, user, _port(reading, term, port))


def _port(reading: Pattern, term: Term, port: Optional[str]) -> Optional[int]:
    if port is not None and not 0 < int(port) < 65536:
        raise reading.wrong(term.at, f"{port} is no port", expected="a number from 1 to 65535")
    return int(port) if port else None
