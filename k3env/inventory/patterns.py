"""Patterns: which hosts a `--hosts`, a `--limit` or a play's `hosts:` means.

A term is a group, a host, a node set, a group with a subscript, a glob, `~REGEX`, `@FILE`, `[USER@]HOST[:PORT]`,
`[IPV6]:PORT`, `slurm:PARTITION`, `slurm:job:ID`, `run:RUN` for what failed in an earlier run. As in Ansible all of them
are united first, then those after `&` intersected, then those after `!` taken away.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Optional

from k3env.documents import yaml
from k3env.errors import UsageError, nearest
from k3env.inventory import regexes, slurm, subscripts
from k3env.inventory.hosts import expanded, is_ipv6, valid_name, valid_user
from k3env.inventory.nodesets import BadNodeSet, expand, is_nodeset
from k3env.inventory.terms import RUN, V6, Names, Pattern, Term, terms
from k3env.inventory.tree import ALL

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
        chosen = {name: Chosen(name) for name in names.groups.get(ALL, names.hosts)}
    for term in united:
        for host in _hosts(reading, term):
            chosen[host.name] = _same(reading, term, chosen.get(host.name), host)
    # Hosts that no inventory knows can be taken away again.
    reading.names = replace(names, hosts={**names.hosts, **chosen})
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
    if text.startswith(slurm.PREFIX):
        return _known_ones(reading, term, slurm.hosts(text))
    if text.startswith(RUN):
        return _known_ones(reading, term, _of_run(reading, term))
    v6 = V6.fullmatch(text)
    if v6 or is_ipv6(text):
        host = v6["address"] if v6 else text
        if not is_ipv6(host):
            raise reading.wrong(term.at, f"{host} is no IPv6 address", "ranges are written with a dash: [01-04]")
        if host in reading.names.hosts:
            return iter([_way(reading, term, Chosen(host), None, v6["port"] if v6 else None)])
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
    subscript = subscripts.read(base)
    if base in reading.names.groups:
        names: Sequence[str] = reading.names.groups[base]
    elif subscript and (_is_glob(subscript.base) or subscript.base in reading.names.groups):
        names = _subscripted(reading, subscript, base, at)
    elif _is_glob(base):
        names = _globbed(reading, base, at)
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


def _is_glob(text: str) -> bool:
    return "*" in text or "?" in text


def _subscripted(reading: Pattern, subscript: subscripts.Subscript, text: str, at: int) -> list[str]:
    base = subscript.base
    name = f"{base}{subscript.begin}"
    if subscript.single and (name in reading.names.hosts or name in reading.names.groups):
        number = subscript.begin
        remedy = f"write {name} for that, or {base}[{number}:{number}] for a host of the group"
        raise reading.wrong(at, f"{text} is {name}, and the host {number} of the group {base} too", remedy)
    if subscript.end is not None and not subscript.single and subscript.end < subscript.begin:
        remedy = f"write {base}[{subscript.end}:{subscript.begin}]"
        raise reading.wrong(at + len(base) + 1, "the subscript ends before it begins", remedy)
    hosts = _globbed(reading, base, at) if _is_glob(base) else reading.names.groups[base]
    try:
        return subscript.of(hosts)
    except IndexError:
        message = f"{base} has {len(hosts)} hosts, none at {text[len(base) :]}"
        raise reading.wrong(at + len(base), message, expected=f"0 to {len(hosts) - 1}") from None


def _globbed(reading: Pattern, glob: str, at: int) -> list[str]:
    if is_nodeset(glob):
        raise reading.wrong(at, f"{glob} mixes a range with * or ?", "write each of the two as a term of its own")
    groups = [name for name in reading.names.groups if fnmatchcase(name, glob)]
    found = _with_groups(reading, groups, [name for name in reading.names.hosts if fnmatchcase(name, glob)])
    if not found:
        raise reading.wrong(at, f"{glob} matches no host and no group", expected="at least one host")
    return found


def _with_groups(reading: Pattern, groups: Sequence[str], hosts: Sequence[str]) -> list[str]:
    """Return the hosts of groups, and then hosts, each once."""
    return list(dict.fromkeys([*(host for name in groups for host in reading.names.groups[name]), *hosts]))


def _regex(reading: Pattern, term: Term) -> Iterator[Chosen]:
    names = reading.names
    try:
        matched = set(regexes.matching(term.text[1:], [*names.groups, *names.hosts]))
    except regexes.BadRegex as bad:
        raise reading.wrong(term.at + 1 + bad.at, bad.message) from None
    found = _with_groups(
        reading, [name for name in names.groups if name in matched], [name for name in names.hosts if name in matched]
    )
    if not found:
        raise reading.wrong(term.at, f"{term.text} matches no host and no group", expected="at least one host")
    return (Chosen(name) for name in found)


def _of_run(reading: Pattern, term: Term) -> Sequence[str]:
    try:
        return reading.names.earlier(term.text.removeprefix(RUN))
    except UsageError as error:
        finding = error.finding
        raise reading.wrong(term.at, str(error), finding.remedy, finding.expected) from None


def _known_ones(reading: Pattern, term: Term, names: Sequence[str]) -> Iterator[Chosen]:
    for name in names:
        if name in reading.names.hosts:
            yield Chosen(name)
        elif not term.sign:
            # What is beyond the inventory matters to those who ask for it, not to those who take it away.
            yield from _unknown(reading, term, name, None, None, guess=False)


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


def _unknown(
    reading: Pattern, term: Term, name: str, user: Optional[str], port: Optional[str], guess: bool = True
) -> Iterator[Chosen]:
    """Take a name that neither is a host nor a group for a host of its own, where that is allowed."""
    address = is_ipv6(name)
    if not address and not valid_name(name):
        raise reading.wrong(term.at, f"{name} can't name a host", expected="letters, digits, dot, dash, underscore")
    if not reading.names.adhoc or term.sign:
        meant = nearest(name, reading.known) if guess else None
        remedy = f"did you mean {meant}?" if meant else "add it to the inventory, or list what is there: --list-hosts"
        raise reading.wrong(term.at, f"there is no host or group {name}", remedy, "a host or group of the inventory")
    meant = nearest(name, list(reading.names.groups)) if guess else None
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
